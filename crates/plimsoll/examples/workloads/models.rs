//! The four models, with their sizes as parameters: the examples take the full sizes, the tests smaller ones.

use plimsoll::init::Initializer;
use plimsoll::layers::{
    Activation, BatchNorm, Conv2D, Dense, Embedding, Function, GlobalAvgPool2D, Layer, LayerNorm, MaxPool2D,
};
use plimsoll::losses::{BinaryCrossEntropy, MeanSquaredError, SparseCategoricalCrossEntropy};
use plimsoll::model::Model;
use plimsoll::optimizers::{Adam, AdamW, EpsilonForm, Sgd};
use plimsoll::trainer::Trainer;
use plimsoll::{DType, Error, Trace, Value};
use plimsoll_graph::op::attention::Look;

/// W1: `features -> hidden ReLU -> 1 sigmoid`, binary cross-entropy, Adam.
#[derive(Clone, Copy, Debug)]
pub struct Mlp {
    pub features: usize,
    pub hidden: usize,
}

impl Mlp {
    pub const FULL: Mlp = Mlp { features: 1000, hidden: 128 };

    pub fn trainer(&self) -> Result<Trainer, Error> {
        let model = Model::sequential([self.features])
            .layer(Dense::new(self.hidden).activation(Activation::Relu).named("hidden"))
            .layer(Dense::new(1).activation(Activation::Sigmoid).named("output"));
        Trainer::new(model, BinaryCrossEntropy::new(), adam())
    }
}

/// W4: 3 x 3 convolutions, each with batch norm and ReLU, and max-pools between them (`None`); global average, dense.
#[derive(Clone, Debug)]
pub struct Cnn {
    pub image: usize,
    pub layers: Vec<Option<usize>>,
    pub classes: usize,
}

impl Cnn {
    pub fn full() -> Cnn {
        Cnn { image: 32, layers: vec![Some(32), Some(32), None, Some(64), Some(64), None, Some(128)], classes: 10 }
    }

    pub fn trainer(&self) -> Result<Trainer, Error> {
        let mut model = Model::sequential([self.image, self.image, 3]);
        let mut n_convolutions = 0;
        for layer in &self.layers {
            let Some(channels) = *layer else {
                model = model.layer(MaxPool2D::new(2));
                continue;
            };
            model = model
                .layer(Conv2D::new(channels, 3).same().no_bias().named(&format!("conv{n_convolutions}")))
                .layer(BatchNorm::new().momentum(0.9).epsilon(1e-5).named(&format!("norm{n_convolutions}")))
                .layer(Activation::Relu);
            n_convolutions += 1;
        }
        let model = model.layer(GlobalAvgPool2D::new()).layer(Dense::new(self.classes).named("output"));
        Trainer::new(model, SparseCategoricalCrossEntropy::from_logits(), adam())
    }
}

/// W5: a GPT. Norm before each part of a block, causal attention, GELU in its tanh form, learned positions, a head
/// without bias that is not tied to the embedding; AdamW, which decays every weight.
#[derive(Clone, Copy, Debug)]
pub struct Gpt {
    pub vocabulary: usize,
    pub width: usize,
    pub blocks: usize,
    pub heads: usize,
    pub context: usize,
}

impl Gpt {
    pub const FULL: Gpt = Gpt { vocabulary: 8192, width: 256, blocks: 4, heads: 4, context: 256 };

    pub fn trainer(&self) -> Result<Trainer, Error> {
        let small = Initializer::Normal { std: 0.02 };
        let positions = Function::new({
            let (shape, init) = ([self.context, self.width], small.clone());
            move |t, inputs| {
                let table = t.weight("embeddings", shape, init.clone())?;
                Ok(t.add(inputs[0], table)?)
            }
        });
        let mut model = Model::sequential_of(DType::I32, [self.context])
            .layer(Embedding::new(self.vocabulary, self.width).init(small).named("token_embedding"))
            .layer(positions.named("position_embedding"));
        for i in 0..self.blocks {
            model = model.layer(Block { heads: self.heads, name: format!("block{i}") });
        }
        let model = model.layer(norm().named("norm")).layer(Dense::new(self.vocabulary).no_bias().named("head"));
        let optimizer = AdamW::new(3e-4).weight_decay(0.1).epsilon(1e-8).epsilon_form(EpsilonForm::PyTorch);
        Trainer::new(model, SparseCategoricalCrossEntropy::from_logits(), optimizer)
    }
}

/// `x + attention(norm(x))`, then `x + mlp(norm(x))`. One product makes queries, keys and values.
struct Block {
    heads: usize,
    name: String,
}

impl Layer for Block {
    fn kind(&self) -> &'static str {
        "block"
    }

    fn name(&self) -> Option<&str> {
        Some(&self.name)
    }

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let x = inputs[0];
        let shape = t.shape(x);
        let (batch, time, width) = (shape[0], shape[1], shape[2]);
        let depth = width / self.heads;
        let h = part(t, "norm1", &norm(), x)?;
        let qkv = part(t, "qkv", &Dense::new(3 * width), h)?;
        let qkv = t.reshape(qkv, [batch, time, 3, self.heads, depth])?;
        let y = t.attention_packed(qkv, Look { causal: true, ..Look::scaled(1.0 / (depth as f64).sqrt()) })?;
        let y = t.reshape(y, shape)?;
        let y = part(t, "projection", &Dense::new(width), y)?;
        let x = t.add(x, y)?;
        let h = part(t, "norm2", &norm(), x)?;
        let h = part(t, "up", &Dense::new(4 * width).activation(Activation::GeluTanh), h)?;
        let y = part(t, "down", &Dense::new(width), h)?;
        Ok(t.add(x, y)?)
    }
}

fn part(t: &mut Trace<'_>, name: &str, layer: &dyn Layer, x: Value) -> Result<Value, Error> {
    t.scope(name, |t| layer.call(t, &[x]))
}

fn norm() -> LayerNorm {
    LayerNorm::new().epsilon(1e-5)
}

/// W6: a chain of equal dense layers with ReLU, mean squared error, gradient descent.
#[derive(Clone, Copy, Debug)]
pub struct Wall {
    pub layers: usize,
    pub width: usize,
}

impl Wall {
    pub const FULL: Wall = Wall { layers: 24, width: 2048 };

    pub fn trainer(&self) -> Result<Trainer, Error> {
        let init = Initializer::Normal { std: (2.0 / self.width as f64).sqrt() };
        let mut model = Model::sequential([self.width]);
        for i in 0..self.layers {
            let layer = Dense::new(self.width).activation(Activation::Relu).kernel_init(init.clone());
            model = model.layer(layer.named(&format!("dense{i}")));
        }
        Trainer::new(model, MeanSquaredError, Sgd::new(1e-3))
    }
}

/// Adam as PyTorch has it.
fn adam() -> Adam {
    Adam::new(1e-3).epsilon(1e-8).epsilon_form(EpsilonForm::PyTorch)
}
