//! Layers one after another, as a layer.

use super::Layer;
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use std::sync::Arc;

/// Layers one after another. The first takes the inputs, each of the others what the one before gives.
///
/// Inside, layers without a name of their own are called by kind and number, as in a [`Model`](crate::model::Model).
///
/// ```
/// use plimsoll::layers::{Activation, Chain, Dense, LayerNorm};
/// let mlp = Chain::new()
///     .layer(LayerNorm::new())
///     .layer(Dense::new(256).activation(Activation::Gelu))
///     .layer(Dense::new(64));
/// ```
#[derive(Clone, Default)]
pub struct Chain {
    layers: Vec<(String, Arc<dyn Layer>)>,
    name: Option<String>,
}

impl Chain {
    /// An empty chain: gives back its input.
    pub fn new() -> Chain {
        Chain::default()
    }

    /// The chain with one more layer at its end.
    #[must_use]
    pub fn layer(mut self, layer: impl Layer + 'static) -> Chain {
        let name = match layer.name() {
            Some(name) => name.to_owned(),
            None => {
                let kind = layer.kind();
                let n = self.layers.iter().filter(|(_, l)| l.name().is_none() && l.kind() == kind).count();
                if n == 0 { kind.to_owned() } else { format!("{kind}_{n}") }
            }
        };
        self.layers.push((name, Arc::new(layer)));
        self
    }

    settings! {}

    /// Whether there is no layer.
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }
}

impl Layer for Chain {
    identity!("chain");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let [(name, first), rest @ ..] = &self.layers[..] else {
            return super::single(t, "chain", inputs);
        };
        let x = t.scope(name, |t| first.call(t, inputs))?;
        rest.iter().try_fold(x, |x, (name, layer)| t.scope(name, |t| layer.call(t, &[x])))
    }
}
