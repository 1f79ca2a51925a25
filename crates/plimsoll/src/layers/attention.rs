//! Attention with several heads.

use super::dropout::drop_out;
use super::{Layer, positive, refuse, shape_like};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::{DType, Shape};

/// Multi-head attention (Vaswani et al., 2017): for each head,
///
/// ```text
/// q = query Wq + bq        k = key Wk + bk        v = value Wv + bv
/// y = softmax(q k^T / sqrt(key_dim) + mask) v
/// ```
///
/// and the heads' results together are projected to the output. The scores are not kept in memory, unless they are dropped out.
///
/// # Shapes
/// - inputs `query [batch, queries, features]`, then `value [batch, keys, ..]` (by default the query), then `key [batch, keys, ..]`
///   (by default the value), then, if there is one, a bool mask that says which keys a query sees: `[batch, queries, keys]`,
///   `[batch, keys]` for all queries, or `[batch, heads, queries, keys]`, where all but the last size may be 1
/// - output `[batch, queries, output_size]`, where the size is by default that of the query's features
/// - weights `query/kernel [features, heads, key_dim]`, `key/kernel [.., heads, key_dim]`, `value/kernel [.., heads, value_dim]`,
///   `attention_output/kernel [heads, value_dim, output_size]`, and biases `query/bias [heads, key_dim]`, .., `attention_output/bias
///   [output_size]`
///
/// A query that sees no key gets zeros from the heads.
///
/// ```
/// use plimsoll::layers::{Activation, Chain, Dense, LayerNorm, MultiHeadAttention, Residual};
/// use plimsoll::model::Model;
/// // One layer of a language model: 64 features, 4 heads of 16.
/// let attend = MultiHeadAttention::new(4, 16).causal();
/// let think = Chain::new().layer(Dense::new(256).activation(Activation::Gelu)).layer(Dense::new(64));
/// let model = Model::sequential([128, 64])
///     .layer(Residual::new().layer(LayerNorm::new()).layer(attend))
///     .layer(Residual::new().layer(LayerNorm::new()).layer(think));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct MultiHeadAttention {
    heads: usize,
    key_dim: usize,
    value_dim: Option<usize>,
    output_size: Option<usize>,
    causal: bool,
    dropout: f64,
    bias: bool,
    kernel_init: Initializer,
    bias_init: Initializer,
    name: Option<String>,
}

impl MultiHeadAttention {
    /// A layer with this many heads, each with queries, keys and values of this size, and with biases.
    pub fn new(heads: usize, key_dim: usize) -> MultiHeadAttention {
        MultiHeadAttention {
            heads,
            key_dim,
            value_dim: None,
            output_size: None,
            causal: false,
            dropout: 0.0,
            bias: true,
            kernel_init: Initializer::GlorotUniform,
            bias_init: Initializer::Zeros,
            name: None,
        }
    }

    settings! {
        /// With values of this size instead of the keys'.
        value_dim: usize;
        /// With this many features in the output instead of the query's.
        output_size: usize;
        /// With queries that see only keys at their own place and before.
        causal => causal = true;
        /// With this part of the attention left out while training.
        dropout: f64;
        /// Without biases.
        no_bias => bias = false;
        /// With these initial values of all kernels.
        kernel_init: Initializer;
        /// With these initial values of all biases.
        bias_init: Initializer;
    }
}

const KIND: &str = "multi_head_attention";

impl Layer for MultiHeadAttention {
    identity!(KIND);

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let value_dim = self.value_dim.unwrap_or(self.key_dim);
        for (setting, size) in [("heads", self.heads), ("key_dim", self.key_dim), ("value_dim", value_dim)] {
            positive(t, KIND, setting, size)?;
        }
        let Inputs { query, key, value, mask } = Inputs::new(t, inputs)?;
        let shape = t.shape(query);
        let (batch, queries, features) = (shape[0], shape[1], shape[2]);
        let q = self.heads_of(t, "query", query, self.key_dim)?;
        let k = self.heads_of(t, "key", key, self.key_dim)?;
        let v = self.heads_of(t, "value", value, value_dim)?;
        let mask = mask.map(|mask| self.mask(t, mask, query, key)).transpose()?;
        let scale = 1.0 / (self.key_dim as f64).sqrt();
        let y = if t.training() && self.dropout != 0.0 {
            self.dropped(t, [q, k, v], mask, scale)?
        } else {
            t.attention([q, k, v], mask, scale, self.causal)?
        };
        let (width, output) = (self.heads * value_dim, self.output_size.unwrap_or(features));
        positive(t, KIND, "output_size", output)?;
        let y = t.reshape(y, [batch, queries, width])?;
        t.scope("attention_output", |t| {
            let kernel = t.weight("kernel", [self.heads, value_dim, output], self.kernel_init.clone())?;
            let kernel = t.reshape(kernel, [width, output])?;
            let y = t.matmul(y, kernel)?;
            if !self.bias {
                return Ok(y);
            }
            let bias = t.weight("bias", [output], self.bias_init.clone())?;
            Ok(t.add(y, bias)?)
        })
    }
}

/// The inputs by their roles.
struct Inputs {
    query: Value,
    key: Value,
    value: Value,
    mask: Option<Value>,
}

impl Inputs {
    fn new(t: &Trace<'_>, inputs: &[Value]) -> Result<Inputs, Error> {
        let (mask, others) = match inputs.split_last() {
            Some((&last, others)) if t.dtype(last) == DType::Bool => (Some(last), others),
            _ => (None, inputs),
        };
        let (query, value, key) = match *others {
            [query] => (query, query, query),
            [query, value] => (query, value, value),
            [query, value, key] => (query, value, key),
            _ => {
                let message = format!(
                    "takes query, value, key and a bool mask, of which all but the first are optional; got {}",
                    inputs.len()
                );
                return Err(refuse(t, KIND, message));
            }
        };
        let q = shape_like(t, KIND, query, &["batch", "queries", "features"])?;
        let v = shape_like(t, KIND, value, &["batch", "keys", "features"])?;
        let k = shape_like(t, KIND, key, &["batch", "keys", "features"])?;
        if q[0] != v[0] || v.dims()[..2] != k.dims()[..2] {
            return Err(refuse(
                t,
                KIND,
                format!("query {q}, value {v} and key {k} differ in the batch or in the number of keys"),
            ));
        }
        Ok(Inputs { query, key, value, mask })
    }
}

impl MultiHeadAttention {
    /// `[batch, steps, features]` projected to `[batch, steps, heads, size]`.
    fn heads_of(&self, t: &mut Trace<'_>, name: &str, x: Value, size: usize) -> Result<Value, Error> {
        let shape = t.shape(x);
        let (features, width) = (shape[2], self.heads * size);
        t.scope(name, |t| {
            let kernel = t.weight("kernel", [features, self.heads, size], self.kernel_init.clone())?;
            let kernel = t.reshape(kernel, [features, width])?;
            let mut y = t.matmul(x, kernel)?;
            if self.bias {
                let bias = t.weight("bias", [self.heads, size], self.bias_init.clone())?;
                let bias = t.reshape(bias, [width])?;
                y = t.add(y, bias)?;
            }
            Ok(t.reshape(y, [shape[0], shape[1], self.heads, size])?)
        })
    }

    /// The mask with its four axes `[batch, heads, queries, keys]`.
    fn mask(&self, t: &mut Trace<'_>, mask: Value, query: Value, key: Value) -> Result<Value, Error> {
        let full = [t.shape(query)[0], self.heads, t.shape(query)[1], t.shape(key)[1]];
        let given = t.shape(mask);
        let wide = match *given.dims() {
            [batch, keys] => Some([batch, 1, 1, keys]),
            [batch, queries, keys] => Some([batch, 1, queries, keys]),
            [batch, heads, queries, keys] => Some([batch, heads, queries, keys]),
            _ => None,
        };
        let fits = |w: &[usize; 4]| w[3] == full[3] && w.iter().zip(full).all(|(&w, f)| w == f || w == 1);
        let Some(wide) = wide.filter(fits) else {
            let [b, h, q, k] = full;
            let message = format!("takes a mask [{b},{q},{k}], [{b},{k}] or [{b},{h},{q},{k}], got {given}");
            return Err(refuse(t, KIND, message));
        };
        Ok(t.reshape(mask, wide)?)
    }

    /// Attention with a part of the weights left out: written out, with the scores in memory.
    fn dropped(
        &self,
        t: &mut Trace<'_>,
        [q, k, v]: [Value; 3],
        mask: Option<Value>,
        scale: f64,
    ) -> Result<Value, Error> {
        let heads_first = [0, 2, 1, 3];
        let q = t.transpose(q, &heads_first)?;
        let k = t.transpose(k, &heads_first)?;
        let v = t.transpose(v, &heads_first)?;
        let scores = t.matmul_with(q, k, false, true)?;
        let mut scores = t.scale(scores, scale)?;
        let shape = t.shape(scores);
        let dtype = t.dtype(scores);
        let unseen = t.constant(-1e9, dtype)?;
        if let Some(mask) = mask {
            scores = t.select(mask, scores, unseen)?;
        }
        if self.causal {
            let seen = causal_mask(t, shape[2], shape[3])?;
            scores = t.select(seen, scores, unseen)?;
        }
        let weights = t.softmax(scores, 3)?;
        let weights = drop_out(t, KIND, weights, self.dropout, shape)?;
        let y = t.matmul(weights, v)?;
        Ok(t.transpose(y, &heads_first)?)
    }
}

/// Bool `[queries, keys]`: whether the key is at the query's place or before.
fn causal_mask(t: &mut Trace<'_>, queries: usize, keys: usize) -> Result<Value, Error> {
    let shape = Shape::new(&[queries, keys]);
    let query = t.index(shape, 0, DType::I32)?;
    let key = t.index(shape, 1, DType::I32)?;
    Ok(t.ge(query, key)?)
}
