//! Any Rust iterator as a source.

use crate::builder::Builder;
use crate::dataset::Node;
use crate::flow::{Open, Stage};
use crate::stages::Writer;
use crate::{Cardinality, Component, Dataset, Error, Spec};
use std::sync::Arc;

type Start<I> = dyn Fn(u64) -> I + Send + Sync;
type Write<T> = dyn Fn(T, &mut Writer<'_, '_>) -> Result<(), Error> + Send + Sync;

impl Dataset {
    /// The items of an iterator, which `start` makes anew for every epoch and `write` turns into elements.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::{Component, Dataset};
    /// use plimsoll_tensor::DType;
    /// let data = Dataset::from_iter([Component::new("x", DType::F32, &[])], |_epoch| [1.5f32, 2.5].into_iter(), |x, out| {
    ///     out.set("x", &[], &[x])
    /// });
    /// assert_eq!(data.batch(2).iter(&Budget::unlimited())?.next().unwrap()?.get::<f32>("x")?, [1.5, 2.5]);
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn from_iter<I, S, W>(components: impl IntoIterator<Item = Component>, start: S, write: W) -> Dataset
    where
        I: Iterator + Send + 'static,
        S: Fn(u64) -> I + Send + Sync + 'static,
        W: Fn(I::Item, &mut Writer<'_, '_>) -> Result<(), Error> + Send + Sync + 'static,
    {
        let spec = Spec::new(components);
        Dataset::from_result((|| {
            let spec = Arc::new(spec?);
            Ok(Dataset::new(Items { spec, start: Arc::new(start) as Arc<Start<I>>, write: Arc::new(write) }))
        })())
    }
}

struct Items<I: Iterator> {
    spec: Arc<Spec>,
    start: Arc<Start<I>>,
    write: Arc<Write<I::Item>>,
}

impl<I: Iterator + Send + 'static> Node for Items<I> {
    fn describe(&self) -> String {
        format!("iterator {}", self.spec)
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> Cardinality {
        Cardinality::Unknown
    }

    fn is_lookup(&self) -> bool {
        false
    }

    fn stage(&self, _open: &Open, epoch: u64) -> Result<Box<dyn Stage>, Error> {
        let items = (self.start)(epoch);
        Ok(Box::new(ItemsStage { spec: self.spec.clone(), items, write: self.write.clone(), next: 0 }))
    }
}

struct ItemsStage<I: Iterator> {
    spec: Arc<Spec>,
    items: I,
    write: Arc<Write<I::Item>>,
    next: u64,
}

impl<I: Iterator + Send> Stage for ItemsStage<I> {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        for _ in 0..want {
            let Some(item) = self.items.next() else { return Ok(false) };
            let number = self.next;
            self.next += 1;
            Writer::row(&self.spec, out, |writer| (self.write)(item, writer))
                .map_err(|error| error.for_element("iterator", number))?;
        }
        Ok(true)
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        let skipped = (0..n).take_while(|_| self.items.next().is_some()).count() as u64;
        self.next += skipped;
        Ok(Some(skipped))
    }
}
