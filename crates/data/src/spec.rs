//! What the elements of a pipeline look like.

use crate::{BatchSizes, Error};
use plimsoll_tensor::{DType, Shape};
use std::fmt;

/// What a component is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Numbers of one type.
    Number(DType),
    /// Strings of bytes: text, encoded images, serialized messages.
    Bytes,
}

impl From<DType> for Kind {
    fn from(dtype: DType) -> Kind {
        Kind::Number(dtype)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Number(dtype) => f.pad(dtype.name()),
            Kind::Bytes => f.pad("bytes"),
        }
    }
}

/// One named part of every element: a tensor whose sizes are known, or known only element by element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Component {
    /// Its name; parts of nested tuples and maps are joined by `/`, tuple places are numbers: `image`, `1`, `features/age`.
    pub name: String,
    /// What it is made of.
    pub kind: Kind,
    /// Its sizes; `None` where they differ from element to element. `None` altogether where even the number of axes may differ.
    pub dims: Option<Vec<Option<usize>>>,
}

impl Component {
    /// A component whose sizes are the same in every element.
    pub fn new(name: impl Into<String>, kind: impl Into<Kind>, dims: &[usize]) -> Component {
        Component::ragged(name, kind, &dims.iter().map(|d| Some(*d)).collect::<Vec<_>>())
    }

    /// A component some of whose sizes differ from element to element.
    pub fn ragged(name: impl Into<String>, kind: impl Into<Kind>, dims: &[Option<usize>]) -> Component {
        Component { name: name.into(), kind: kind.into(), dims: Some(dims.to_vec()) }
    }

    /// The shape of every element, where it is always the same.
    pub fn shape(&self) -> Option<Shape> {
        let dims: Option<Vec<usize>> = self.dims.as_ref()?.iter().copied().collect();
        Shape::try_new(&dims?)
    }

    /// The bytes of every element, where they are always as many.
    pub fn bytes(&self) -> Option<usize> {
        match self.kind {
            Kind::Number(dtype) => self.shape()?.dims().iter().try_fold(dtype.size(), |n, d| n.checked_mul(*d)),
            Kind::Bytes => None,
        }
    }

    /// Whether an element of this shape may occur.
    pub fn admits(&self, shape: &Shape) -> bool {
        let Some(dims) = &self.dims else { return true };
        dims.len() == shape.rank() && dims.iter().zip(shape.dims()).all(|(d, s)| d.is_none_or(|d| d == *s))
    }

    pub(crate) fn with_axis(&self, size: Option<usize>) -> Component {
        let dims = self.dims.as_ref().map(|dims| std::iter::once(size).chain(dims.iter().copied()).collect());
        Component { dims, ..self.clone() }
    }

    pub(crate) fn without_axis(&self) -> Option<(Option<usize>, Component)> {
        let Some(dims) = &self.dims else { return Some((None, self.clone())) };
        let (first, rest) = dims.split_first()?;
        Some((*first, Component { dims: Some(rest.to_vec()), ..self.clone() }))
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims = match &self.dims {
            None => "..".to_string(),
            Some(dims) => {
                let dims: Vec<String> = dims.iter().map(|d| d.map_or("?".into(), |d| d.to_string())).collect();
                dims.join(",")
            }
        };
        write!(f, "{}: {}[{dims}]", self.name, self.kind)
    }
}

/// The components of every element of a data set.
///
/// ```
/// use plimsoll_data::{Component, Spec};
/// use plimsoll_tensor::DType;
/// let spec = Spec::new([Component::new("x", DType::F32, &[28, 28]), Component::new("label", DType::I64, &[])])?;
/// assert_eq!(spec.to_string(), "{x: f32[28,28], label: i64[]}");
/// assert_eq!(spec.bytes(), Some(28 * 28 * 4 + 8));
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    components: Vec<Component>,
}

impl Spec {
    /// These components.
    ///
    /// # Errors
    /// When two have the same name.
    pub fn new(components: impl IntoIterator<Item = Component>) -> Result<Spec, Error> {
        let components: Vec<Component> = components.into_iter().collect();
        let mut names = std::collections::HashSet::with_capacity(components.len());
        if let Some(component) = components.iter().find(|component| !names.insert(&component.name)) {
            return Err(Error::pipeline("element", format!("two components are called '{}'", component.name)));
        }
        Ok(Spec { components })
    }

    /// The components, in order.
    pub fn components(&self) -> &[Component] {
        &self.components
    }

    /// The place of the component of this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.components.iter().position(|c| c.name == name)
    }

    pub(crate) fn expect(&self, stage: &str, name: &str) -> Result<usize, Error> {
        self.find(name).ok_or_else(|| Error::no_component(stage, name, self))
    }

    /// The bytes of every element, where they are always as many.
    pub fn bytes(&self) -> Option<usize> {
        self.components.iter().try_fold(0usize, |sum, c| sum.checked_add(c.bytes()?))
    }

    /// The rows of elements as their shapes tell; `unknown` is asked where all have a first axis whose length differs.
    pub(crate) fn batch_sizes(&self, unknown: impl FnOnce() -> Option<BatchSizes>) -> Option<BatchSizes> {
        let mut sizes = Vec::with_capacity(self.components.len());
        for component in &self.components {
            sizes.push(component.dims.as_ref().map_or(Some(None), |dims| dims.first().copied())?);
        }
        match sizes.first()? {
            Some(most) if sizes.iter().all(|size| *size == Some(*most)) => {
                Some(BatchSizes { most: *most, last: Some(*most) })
            }
            None if sizes.iter().all(Option::is_none) => unknown(),
            _ => None,
        }
    }

    /// Whether every component has the same shape in every element.
    pub fn is_fixed(&self) -> bool {
        self.components.iter().all(|c| c.shape().is_some())
    }

    /// Names joined with a group's name, as the parts of a tuple or map.
    pub(crate) fn nested(&self, group: &str) -> Vec<Component> {
        let name = |c: &Component| if c.name.is_empty() { group.to_string() } else { format!("{group}/{}", c.name) };
        self.components.iter().map(|c| Component { name: name(c), ..c.clone() }).collect()
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.components.iter().map(|c| c.to_string()).collect();
        write!(f, "{{{}}}", parts.join(", "))
    }
}

/// How many elements there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cardinality {
    /// Exactly this many.
    Known(u64),
    /// It never ends.
    Infinite,
    /// Only reading tells.
    Unknown,
}

impl Cardinality {
    /// The number, where it is known.
    pub fn known(self) -> Option<u64> {
        match self {
            Cardinality::Known(n) => Some(n),
            _ => None,
        }
    }

    pub(crate) fn map(self, f: impl FnOnce(u64) -> u64) -> Cardinality {
        match self {
            Cardinality::Known(n) => Cardinality::Known(f(n)),
            other => other,
        }
    }

    /// The shorter of two.
    pub(crate) fn min(self, other: Cardinality) -> Cardinality {
        use Cardinality::{Infinite, Known, Unknown};
        match (self, other) {
            (Known(a), Known(b)) => Known(a.min(b)),
            (Infinite, other) | (other, Infinite) => other,
            (Unknown, _) | (_, Unknown) => Unknown,
        }
    }

    /// Both, one after the other.
    pub(crate) fn plus(self, other: Cardinality) -> Cardinality {
        use Cardinality::{Infinite, Known, Unknown};
        match (self, other) {
            (Known(a), Known(b)) => a.checked_add(b).map_or(Infinite, Known),
            (Infinite, _) | (_, Infinite) => Infinite,
            _ => Unknown,
        }
    }
}
