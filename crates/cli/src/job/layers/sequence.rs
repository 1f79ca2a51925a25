//! Layers over sequences: embeddings, attention, recurrent layers.

use super::LayerTable;
use crate::job::read::{names, table, union};
use plimsoll::init::Initializer;
use plimsoll::layers::{self as l, Activation};

table! {
    /// A learned vector for every whole number.
    pub struct Embedding {
        /// How many numbers there are; taken from the data if not given.
        input_dim: Option<usize> = none,
        /// The length of a vector.
        output_dim: usize,
    }
}

table! {
    /// A learned vector for every position of a sequence, added to it.
    pub struct PositionEmbedding {}
}

/// Adds a learned vector for every position to a sequence `[batch, positions, width]`.
pub fn positions(name: Option<&str>) -> l::Function {
    let layer = l::Function::new(|t, inputs| {
        let shape = t.shape(inputs[0]);
        if shape.rank() != 3 {
            return Err(plimsoll::Error::config(
                "position_embedding",
                format!("takes [batch, positions, width], got {shape}"),
            ));
        }
        let table = t.weight("embeddings", [shape[1], shape[2]], Initializer::Normal { std: 0.02 })?;
        Ok(t.add(inputs[0], table)?)
    });
    layer.named(name.unwrap_or("position_embedding"))
}

table! {
    /// Attention of several heads: over itself with one input, over the second with two.
    pub struct MultiHeadAttention {
        /// How many heads.
        heads: usize,
        /// The length of a head's queries and keys.
        key_dim: usize,
        /// The length of a head's values; that of its keys if not given.
        value_dim: Option<usize> = none,
        /// The length of the result; that of the query if not given.
        output_size: Option<usize> = none,
        /// Whether a position sees only those before it.
        causal: bool = false,
        /// The part of the attention that is set to 0 while training.
        dropout: f64 = 0.0,
        /// Whether biases are added.
        bias: bool = true,
    }
}

impl MultiHeadAttention {
    pub fn build(&self) -> l::MultiHeadAttention {
        let mut layer = l::MultiHeadAttention::new(self.heads, self.key_dim).dropout(self.dropout);
        if let Some(size) = self.value_dim {
            layer = layer.value_dim(size);
        }
        if let Some(size) = self.output_size {
            layer = layer.output_size(size);
        }
        let layer = if self.causal { layer.causal() } else { layer };
        if self.bias { layer } else { layer.no_bias() }
    }
}

table! {
    /// A recurrent layer over a sequence.
    pub struct RecurrentLayer {
        /// The length of the state.
        units: usize,
        /// The function of the new state.
        activation: Activation = "tanh",
        /// Whether the states of all steps come out, not only the last.
        return_sequences: bool = false,
        /// Whether the sequence is read from its end.
        go_backwards: bool = false,
        /// The part of the inputs that is set to 0 while training.
        dropout: f64 = 0.0,
        /// The part of the state that is set to 0 while training.
        recurrent_dropout: f64 = 0.0,
        /// Whether biases are added.
        bias: bool = true,
    }
}

macro_rules! recurrent {
    ($($build:ident -> $layer:ident),*) => {
        impl RecurrentLayer { $(
            pub fn $build(&self) -> l::$layer {
                let layer = l::$layer::new(self.units).activation(self.activation);
                let layer = layer.dropout(self.dropout).recurrent_dropout(self.recurrent_dropout);
                let layer = if self.return_sequences { layer.return_sequences() } else { layer };
                let layer = if self.go_backwards { layer.go_backwards() } else { layer };
                if self.bias { layer } else { layer.no_bias() }
            }
        )* }
    };
}
recurrent!(lstm -> LSTM, gru -> GRU, simple_rnn -> SimpleRNN);

union! {
    /// A recurrent layer inside another.
    pub enum Recurrent by "layer", a "recurrent layer", with Vec::new();
    {
        "lstm" => Lstm(RecurrentLayer),
        "gru" => Gru(RecurrentLayer),
        "simple_rnn" => SimpleRnn(RecurrentLayer),
    }
}

names! {
    /// How both ways of a bidirectional layer are joined.
    pub enum Merge, a "way to join" { "concat" => Concat, "sum" => Sum, "mul" => Mul, "average" => Average, }
}

table! {
    /// Two copies of a recurrent layer, one of which reads from the end.
    pub struct Bidirectional {
        /// The recurrent layer.
        inner: Recurrent,
        /// How the two results are joined.
        merge: Merge = "concat",
    }
}

impl Bidirectional {
    pub fn build(&self) -> l::Bidirectional {
        let layer = match &self.inner {
            Recurrent::Lstm(s) => l::Bidirectional::new(s.lstm()),
            Recurrent::Gru(s) => l::Bidirectional::new(s.gru()),
            Recurrent::SimpleRnn(s) => l::Bidirectional::new(s.simple_rnn()),
        };
        layer.merge_mode(match self.merge {
            Merge::Concat => l::MergeMode::Concat,
            Merge::Sum => l::MergeMode::Sum,
            Merge::Mul => l::MergeMode::Mul,
            Merge::Average => l::MergeMode::Average,
        })
    }
}

table! {
    /// A layer applied to every step of a sequence.
    pub struct TimeDistributed {
        /// The layer.
        inner: Box<LayerTable>,
    }
}
