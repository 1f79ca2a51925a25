//! `[model]`: layers, or one of a few architectures with sizes.

use super::layers::{FromData, LayerKind, LayerTable, positions};
use super::losses::{LossTable, MetricTable, Plain, SparseCrossEntropy};
use super::read::{At, OneOrMore, table, union, wrong_value};
use crate::diagnostic::{Diagnostic, Origin, nearest};
use crate::errors::Code;
use plimsoll::init::Initializer;
use plimsoll::layers::{
    Activation, BatchNorm, Conv2D, Dense, Dropout, Embedding, Flatten, GlobalAvgPool2D, LSTM, LayerNorm, MaxPool2D,
    MultiHeadAttention, Reshape, Residual,
};
use plimsoll::model::{Model, Place};
use plimsoll::trace::Variables;
use plimsoll::{DType, Mode, Shape, Trace};

table! {
    /// A result of the model that is compared with labels.
    pub struct OutputTable {
        /// Its name; the labels of this name belong to it.
        name: String,
        /// The layer that makes it.
        from: At<String>,
        /// Its loss; by the kind of its labels if not given.
        loss: Option<LossTable> = none,
        /// How much its loss counts.
        weight: f64 = 1.0,
        /// Figures that are told beside the loss.
        metrics: Vec<MetricTable> = [],
    }
}

table! {
    /// Layers one after another, or connected by `from`.
    pub struct Layers {
        /// The layers. Each takes the one before it, or those that `from` names; inputs go by their names.
        layers: Vec<LayerTable>,
        /// The results, where there is more than the last layer's.
        outputs: Vec<OutputTable> = [],
    }
}

table! {
    /// Dense layers for vectors; other inputs are flattened.
    pub struct Mlp {
        /// The sizes of the hidden layers.
        hidden: Vec<usize> = [128, 64],
        /// Their activation.
        activation: Activation = "relu",
        /// The part of hidden numbers that is set to 0 while training.
        dropout: f64 = 0.0,
        /// Whether hidden layers are normalized over the batch.
        batch_norm: bool = false,
    }
}

table! {
    /// Residual convolutions for images (He et al., 2015).
    pub struct Resnet {
        /// Blocks in each stage; every stage after the first halves the sides and doubles the channels.
        blocks: Vec<usize> = [2, 2, 2, 2],
        /// Channels of the first stage.
        filters: usize = 64,
        /// Whether the first convolution is 7 x 7 with stride 2 and a pooling follows, as for large images.
        large_stem: bool = false,
    }
}

table! {
    /// A decoder of transformer blocks for tokens: norms before each part, learned positions, GELU.
    pub struct Gpt {
        /// Blocks.
        blocks: usize = 4,
        /// Heads of attention.
        heads: usize = 4,
        /// The length of a token's vector.
        width: usize = 128,
        /// The part of numbers that is set to 0 while training.
        dropout: f64 = 0.0,
    }
}

table! {
    /// Recurrent layers for sequences of numbers or tokens.
    pub struct Lstm {
        /// The sizes of the layers.
        units: Vec<usize> = [64],
        /// The length of a token's vector, where inputs are tokens.
        embedding: usize = 64,
        /// The part of inputs that is set to 0 while training.
        dropout: f64 = 0.0,
    }
}

union! {
    /// The model. Sizes of inputs and of the last layer come from the data.
    pub enum ModelTable by "architecture" or "layers", a "architecture", with Vec::new();
    {
        "layers" => Layers(Layers),
        "mlp" => Mlp(Mlp),
        "resnet" => Resnet(Resnet),
        "gpt" => Gpt(Gpt),
        "lstm" => Lstm(Lstm),
    }
}

/// What the data says about inputs and labels.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct DataInfo {
    pub inputs: Vec<InputInfo>,
    pub targets: Vec<TargetInfo>,
    /// How many different tokens there are.
    pub vocabulary: Option<usize>,
}

/// An input.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct InputInfo {
    pub name: String,
    /// Whether it holds whole numbers below the vocabulary.
    pub tokens: bool,
    pub shape: Vec<usize>,
}

/// Labels.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct TargetInfo {
    pub name: String,
    pub shape: Vec<usize>,
    /// How many classes, where labels are class numbers.
    pub classes: Option<usize>,
}

/// A result of a model and what it is compared by.
pub struct Output {
    pub name: String,
    pub loss: LossTable,
    pub logits: bool,
    pub weight: f64,
    pub metrics: Vec<MetricTable>,
}

/// A model and its results.
pub struct Built {
    pub model: Model,
    pub outputs: Vec<Output>,
}

impl TargetInfo {
    /// How many numbers the last layer gives for it, and their shape.
    fn units(&self) -> usize {
        self.classes.unwrap_or_else(|| self.shape.iter().product::<usize>().max(1))
    }

    /// The loss that goes with such labels.
    pub fn usual_loss(&self) -> LossTable {
        match self.classes {
            Some(_) => LossTable::Sparse(SparseCrossEntropy { from_logits: None, ignore_class: None }),
            None => LossTable::MeanSquaredError(Plain {}),
        }
    }
}

impl ModelTable {
    /// The model for this data.
    ///
    /// # Errors
    /// When layers do not fit together; the error points at the layer.
    pub fn build(&self, info: &DataInfo, origin: &Origin) -> Result<Built, Diagnostic> {
        let built = match self {
            ModelTable::Layers(s) => return s.build(info, origin),
            ModelTable::Mlp(s) => s.build(chain(info, origin)?, one_target(info, origin)?, info),
            ModelTable::Resnet(s) => s.build(chain(info, origin)?, one_target(info, origin)?),
            ModelTable::Gpt(s) => s.build(chain(info, origin)?, info, origin)?,
            ModelTable::Lstm(s) => s.build(chain(info, origin)?, one_target(info, origin)?, info),
        };
        check(&built)
            .map_err(|e| Diagnostic::new(Code::BadModel, e.to_string()).at(origin, "the model is described here"))?;
        let target = &info.targets[0];
        let output =
            Output { name: "output".into(), loss: target.usual_loss(), logits: true, weight: 1.0, metrics: Vec::new() };
        Ok(Built { model: built, outputs: vec![output] })
    }
}

fn check(model: &Model) -> Result<Vec<Shape>, plimsoll::Error> {
    let mut variables = Variables::new();
    let mut trace = Trace::new(&mut variables, Mode::Train);
    let (_, outputs) = model.trace(&mut trace, 2)?;
    Ok(outputs.iter().map(|&y| trace.shape(y)).collect())
}

/// A chain over the one input.
fn chain(info: &DataInfo, origin: &Origin) -> Result<Model, Diagnostic> {
    let [input] = &info.inputs[..] else {
        let title = format!("this architecture takes one input, but the data has {}", info.inputs.len());
        return Err(Diagnostic::new(Code::BadModel, title).at(origin, "use `layers` with `from`"));
    };
    Ok(Model::sequential_of(if input.tokens { DType::I32 } else { DType::F32 }, Shape::new(&input.shape)))
}

fn one_target<'a>(info: &'a DataInfo, origin: &Origin) -> Result<&'a TargetInfo, Diagnostic> {
    match &info.targets[..] {
        [target] => Ok(target),
        many => {
            let title = format!("this architecture has one output, but the data has {} kinds of labels", many.len());
            Err(Diagnostic::new(Code::BadModel, title).at(origin, "use `layers` with `outputs`"))
        }
    }
}

impl Mlp {
    fn build(&self, mut model: Model, target: &TargetInfo, info: &DataInfo) -> Model {
        if info.inputs[0].shape.len() > 1 {
            model = model.layer(Flatten::new());
        }
        for &units in &self.hidden {
            if self.batch_norm {
                model = model.layer(Dense::new(units).no_bias()).layer(BatchNorm::new()).layer(self.activation);
            } else {
                model = model.layer(Dense::new(units).activation(self.activation));
            }
            if self.dropout > 0.0 {
                model = model.layer(Dropout::new(self.dropout));
            }
        }
        head(model, target)
    }
}

/// The last layer: as many numbers as the labels ask for, in their shape.
fn head(model: Model, target: &TargetInfo) -> Model {
    let model = model.layer(Dense::new(target.units()).named("head"));
    if target.classes.is_some() || target.shape.len() < 2 {
        return model;
    }
    model.layer(Reshape::new(target.shape.iter().map(|&d| d as isize).collect::<Vec<_>>()))
}

impl Resnet {
    fn build(&self, mut model: Model, target: &TargetInfo) -> Model {
        model = match self.large_stem {
            true => model.layer(Conv2D::new(self.filters, 7).strides(2).same().no_bias().named("stem")),
            false => model.layer(Conv2D::new(self.filters, 3).same().no_bias().named("stem")),
        };
        model = model.layer(BatchNorm::new()).layer(Activation::Relu);
        if self.large_stem {
            model = model.layer(MaxPool2D::new(3).strides(2).same());
        }
        let mut channels = self.filters;
        for (stage, &blocks) in self.blocks.iter().enumerate() {
            for block in 0..blocks {
                let shrinks = stage > 0 && block == 0;
                channels = if shrinks { 2 * channels } else { channels };
                let stride = 1 + shrinks as usize;
                let mut residual = Residual::new()
                    .layer(Conv2D::new(channels, 3).strides(stride).same().no_bias())
                    .layer(BatchNorm::new())
                    .layer(Activation::Relu)
                    .layer(Conv2D::new(channels, 3).same().no_bias())
                    .layer(BatchNorm::new())
                    .activation(Activation::Relu)
                    .named(&format!("stage{}_{block}", stage + 1));
                if shrinks {
                    residual = residual.shortcut(Conv2D::new(channels, 1).strides(stride).no_bias());
                }
                model = model.layer(residual);
            }
        }
        head(model.layer(GlobalAvgPool2D::new()), target)
    }
}

impl Gpt {
    fn build(&self, mut model: Model, info: &DataInfo, origin: &Origin) -> Result<Model, Diagnostic> {
        let bad = |title: String, label: &str| Diagnostic::new(Code::BadModel, title).at(origin, label);
        let Some(vocabulary) = info.vocabulary else {
            return Err(bad("a gpt takes tokens, but the data has numbers".into(), "set data.format = \"text\""));
        };
        if self.heads == 0 || !self.width.is_multiple_of(self.heads) {
            return Err(bad(format!("width {} cannot be cut into {} heads", self.width, self.heads), "of this model"));
        }
        let small = Initializer::Normal { std: 0.02 };
        let norm = || LayerNorm::new().epsilon(1e-5);
        model = model
            .layer(Embedding::new(vocabulary, self.width).init(small).named("token_embedding"))
            .layer(positions(None));
        for i in 0..self.blocks {
            let attention = MultiHeadAttention::new(self.heads, self.width / self.heads).causal();
            let mut first = Residual::new().layer(norm()).layer(attention);
            let mut second = Residual::new()
                .layer(norm())
                .layer(Dense::new(4 * self.width).activation(Activation::GeluTanh))
                .layer(Dense::new(self.width).named("projection"));
            if self.dropout > 0.0 {
                first = first.layer(Dropout::new(self.dropout));
                second = second.layer(Dropout::new(self.dropout));
            }
            model = model.layer(first.named(&format!("attention_{i}"))).layer(second.named(&format!("mlp_{i}")));
        }
        Ok(model.layer(norm().named("norm")).layer(Dense::new(vocabulary).no_bias().named("head")))
    }
}

impl Lstm {
    fn build(&self, mut model: Model, target: &TargetInfo, info: &DataInfo) -> Model {
        if let (true, Some(vocabulary)) = (info.inputs[0].tokens, info.vocabulary) {
            model = model.layer(Embedding::new(vocabulary, self.embedding));
        }
        // Labels for every step want the state of every step.
        let every_step = target.classes.is_some() && !target.shape.is_empty();
        for (i, &units) in self.units.iter().enumerate() {
            let layer = LSTM::new(units).dropout(self.dropout);
            let inner = i + 1 < self.units.len() || every_step;
            model = model.layer(if inner { layer.return_sequences() } else { layer });
        }
        head(model, target)
    }
}

impl Layers {
    fn build(&self, info: &DataInfo, origin: &Origin) -> Result<Built, Diagnostic> {
        if self.layers.is_empty() {
            return Err(wrong_value(origin, "the model has no layers", "`layers` is empty"));
        }
        let data = FromData { vocabulary: info.vocabulary };
        let mut model = Model::new();
        let mut places: Vec<(String, Place)> = Vec::new();
        for input in &info.inputs {
            let dtype = if input.tokens { DType::I32 } else { DType::F32 };
            places.push((input.name.clone(), model.input_of(&input.name, dtype, Shape::new(&input.shape))));
        }
        let mut last = places[0].1;
        let mut counts: std::collections::BTreeMap<String, usize> = Default::default();
        for table in &self.layers {
            let layer = table.build(data)?;
            let from: Vec<Place> = match &table.0.common.from {
                None => vec![last],
                Some(names) => names.0.iter().map(|name| find(&places, name, names)).collect::<Result<_, _>>()?,
            };
            let kind = layer.kind();
            let name = layer.name().map(str::to_owned).unwrap_or_else(|| {
                let n = counts.entry(kind.into()).or_default();
                *n += 1;
                if *n == 1 { kind.to_owned() } else { format!("{kind}_{}", *n - 1) }
            });
            last = model.apply_shared(layer, &from);
            // The model so far is traced at once, so that an error is that of this layer.
            let mut so_far = model.clone();
            so_far.output("so far", last);
            check(&so_far).map_err(|e| {
                Diagnostic::new(Code::BadModel, e.to_string()).at(&table.0.origin, "this layer does not fit here")
            })?;
            places.push((name, last));
        }
        if self.outputs.is_empty() {
            let target = one_target(info, origin)?;
            model.output("output", last);
            check_head(&model, target, &self.layers[self.layers.len() - 1].0.origin)?;
            let output = Output {
                name: "output".into(),
                loss: target.usual_loss(),
                logits: gives_logits(self.layers.last()),
                weight: 1.0,
                metrics: Vec::new(),
            };
            return Ok(Built { model, outputs: vec![output] });
        }
        let mut outputs = Vec::new();
        for table in &self.outputs {
            let names = At { value: OneOrMore(vec![table.from.value.clone()]), origin: table.from.origin.clone() };
            model.output(&table.name, find(&places, &table.from, &names)?);
            let target = info.targets.iter().find(|t| t.name == table.name);
            let target = target.or(if self.outputs.len() == 1 { info.targets.first() } else { None });
            let Some(target) = target else {
                let there: Vec<&str> = info.targets.iter().map(|t| t.name.as_str()).collect();
                let title =
                    format!("there are no labels for output '{}'; the data has: {}", table.name, there.join(", "));
                return Err(wrong_value(&table.from.origin, title, "name them in [data.labels]"));
            };
            let made_by = places.iter().position(|(n, _)| n == table.from.as_str()).expect("found above");
            let layer = made_by.checked_sub(info.inputs.len()).and_then(|i| self.layers.get(i));
            outputs.push(Output {
                name: table.name.clone(),
                loss: table.loss.clone().unwrap_or_else(|| target.usual_loss()),
                logits: gives_logits(layer),
                weight: table.weight,
                metrics: table.metrics.clone(),
            });
        }
        Ok(Built { model, outputs })
    }
}

/// The last layer of a chain must give as many numbers as there are classes.
fn check_head(model: &Model, target: &TargetInfo, origin: &Origin) -> Result<(), Diagnostic> {
    let shapes = check(model).map_err(|e| Diagnostic::new(Code::BadModel, e.to_string()).at(origin, "this layer"))?;
    let (Some(classes), Some(&units)) = (target.classes, shapes[0].dims().last()) else { return Ok(()) };
    if units >= classes || units == 1 && classes == 2 {
        return Ok(());
    }
    let title = format!("the model gives {units} numbers, but the labels have {classes} classes");
    Err(Diagnostic::new(Code::DataForModel, title).at(origin, format!("the last layer should give {classes}")))
}

fn find(places: &[(String, Place)], name: &str, names: &At<OneOrMore<String>>) -> Result<Place, Diagnostic> {
    if let Some((_, place)) = places.iter().rev().find(|(n, _)| n == name) {
        return Ok(*place);
    }
    let there: Vec<&str> = places.iter().map(|(n, _)| n.as_str()).collect();
    let label = match nearest(name, there.iter().copied()) {
        Some(near) => format!("did you mean '{near}'?"),
        None => "no input or earlier layer has this name".to_owned(),
    };
    Err(wrong_value(&names.origin, format!("there is no '{name}' to take"), label).note("names", there.join(", ")))
}

/// Whether a layer's results are logits: it has no softmax or sigmoid at its end.
fn gives_logits(layer: Option<&LayerTable>) -> bool {
    let activation = match layer.map(|l| &l.0.kind) {
        Some(LayerKind::Dense(s)) => s.activation,
        Some(LayerKind::Activation(s)) => s.function,
        _ => Activation::Linear,
    };
    !matches!(activation, Activation::Softmax | Activation::Sigmoid)
}
