//! The layers that a job can name. Their settings and how they are built are below, by family.

mod convolution;
mod norm;
mod sequence;
mod shape;
mod values;

pub use sequence::positions;

use super::read::{At, Fields, OneOrMore, Read, With, table, union, wrong_value};
use super::tree::Node;
use crate::diagnostic::Diagnostic;
use convolution::{
    Convolution, DepthwiseConvolution, GlobalPooling, Pooling, SeparableConvolution, TransposedConvolution,
};
use norm::{BatchNormalization, Dropout, GaussianNoise, GroupNormalization, LayerNormalization, RmsNormalization};
use plimsoll::init::Initializer;
use plimsoll::layers::{self as l, Activation, Layer};
use sequence::{Bidirectional, Embedding, MultiHeadAttention, PositionEmbedding, RecurrentLayer, TimeDistributed};
use shape::{Concatenate, Cropping, Permute, RepeatVector, Rescaling, Reshape, UpSampling, ZeroPadding};
use std::sync::Arc;
use values::{margins, sizes};

table! {
    /// No settings.
    pub struct NoSettings {}
}

table! {
    /// A function applied to every number.
    pub struct ActivationLayer {
        /// The function.
        function: Activation,
    }
}

table! {
    /// A fully connected layer: `activation(x kernel + bias)` over the last axis.
    pub struct Dense {
        /// How many numbers come out.
        units: usize,
        /// Applied to the result.
        activation: Activation = "linear",
        /// Whether a bias is added.
        bias: bool = true,
        /// How the kernel begins.
        kernel_init: Initializer = "glorot_uniform",
    }
}

table! {
    /// Layers and their input added: `activation(layers(x) + shortcut(x))`.
    pub struct Residual {
        /// The inner layers.
        layers: Vec<LayerTable>,
        /// The layer on the way around; none if not given.
        shortcut: Option<Box<LayerTable>> = none,
        /// Applied to the sum.
        activation: Activation = "linear",
    }
}

table! {
    /// Layers one after another as one.
    pub struct Chain {
        /// The layers.
        layers: Vec<LayerTable>,
    }
}

union! {
    /// A layer.
    pub enum LayerKind by "layer", a "layer", with LayerCommon::fields();
    {
        "dense" => Dense(Dense),
        "activation" => Activation(ActivationLayer),
        "conv1d" => Conv1d(Convolution),
        "conv2d" => Conv2d(Convolution),
        "conv3d" => Conv3d(Convolution),
        "conv1d_transpose" => Conv1dTranspose(TransposedConvolution),
        "conv2d_transpose" => Conv2dTranspose(TransposedConvolution),
        "conv3d_transpose" => Conv3dTranspose(TransposedConvolution),
        "depthwise_conv1d" => DepthwiseConv1d(DepthwiseConvolution),
        "depthwise_conv2d" => DepthwiseConv2d(DepthwiseConvolution),
        "separable_conv1d" => SeparableConv1d(SeparableConvolution),
        "separable_conv2d" => SeparableConv2d(SeparableConvolution),
        "max_pooling1d" => MaxPool1d(Pooling),
        "max_pooling2d" => MaxPool2d(Pooling),
        "max_pooling3d" => MaxPool3d(Pooling),
        "average_pooling1d" => AvgPool1d(Pooling),
        "average_pooling2d" => AvgPool2d(Pooling),
        "average_pooling3d" => AvgPool3d(Pooling),
        "global_max_pooling1d" => GlobalMaxPool1d(GlobalPooling),
        "global_max_pooling2d" => GlobalMaxPool2d(GlobalPooling),
        "global_max_pooling3d" => GlobalMaxPool3d(GlobalPooling),
        "global_average_pooling1d" => GlobalAvgPool1d(GlobalPooling),
        "global_average_pooling2d" => GlobalAvgPool2d(GlobalPooling),
        "global_average_pooling3d" => GlobalAvgPool3d(GlobalPooling),
        "batch_normalization" => BatchNorm(BatchNormalization),
        "layer_normalization" => LayerNorm(LayerNormalization),
        "group_normalization" => GroupNorm(GroupNormalization),
        "rms_normalization" => RmsNorm(RmsNormalization),
        "dropout" => Dropout(Dropout),
        "spatial_dropout1d" => SpatialDropout1d(Dropout),
        "spatial_dropout2d" => SpatialDropout2d(Dropout),
        "spatial_dropout3d" => SpatialDropout3d(Dropout),
        "gaussian_noise" => GaussianNoise(GaussianNoise),
        "embedding" => Embedding(Embedding),
        "position_embedding" => Positions(PositionEmbedding),
        "multi_head_attention" => Attention(MultiHeadAttention),
        "lstm" => Lstm(RecurrentLayer),
        "gru" => Gru(RecurrentLayer),
        "simple_rnn" => SimpleRnn(RecurrentLayer),
        "bidirectional" => Bidirectional(Bidirectional),
        "time_distributed" => TimeDistributed(TimeDistributed),
        "add" => Add(NoSettings),
        "subtract" => Subtract(NoSettings),
        "multiply" => Multiply(NoSettings),
        "average" => Average(NoSettings),
        "maximum" => Maximum(NoSettings),
        "minimum" => Minimum(NoSettings),
        "concatenate" => Concatenate(Concatenate),
        "flatten" => Flatten(NoSettings),
        "reshape" => Reshape(Reshape),
        "permute" => Permute(Permute),
        "repeat_vector" => RepeatVector(RepeatVector),
        "rescaling" => Rescaling(Rescaling),
        "cropping1d" => Cropping1d(Cropping),
        "cropping2d" => Cropping2d(Cropping),
        "cropping3d" => Cropping3d(Cropping),
        "zero_padding1d" => ZeroPadding1d(ZeroPadding),
        "zero_padding2d" => ZeroPadding2d(ZeroPadding),
        "zero_padding3d" => ZeroPadding3d(ZeroPadding),
        "up_sampling1d" => UpSampling1d(UpSampling),
        "up_sampling2d" => UpSampling2d(UpSampling),
        "up_sampling3d" => UpSampling3d(UpSampling),
        "residual" => Residual(Residual),
        "chain" => Chain(Chain),
    }
}

table! {
    /// What every layer has.
    pub struct LayerCommon {
        /// Its name, with which the names of its weights begin.
        name: Option<String> = none,
        /// The layers or inputs that it takes; the layer before it if not given.
        from: Option<At<OneOrMore<String>>> = none,
    }
}

/// A layer with its place in the model.
#[derive(Clone, Debug)]
pub struct LayerTable(pub With<LayerCommon, LayerKind>);

impl Read for LayerTable {
    fn read(node: &Node) -> Result<LayerTable, Diagnostic> {
        With::read(node).map(LayerTable)
    }
    fn takes() -> String {
        LayerKind::takes()
    }
    fn schema() -> serde_json::Value {
        // Layers may hold layers: the schema refers to itself.
        serde_json::json!({ "$ref": "#/$defs/layer" })
    }
}

/// What layers take from the data when the job does not say.
#[derive(Clone, Copy, Debug, Default)]
pub struct FromData {
    /// How many different numbers token inputs have.
    pub vocabulary: Option<usize>,
}

impl LayerTable {
    /// The layer.
    ///
    /// # Errors
    /// When a setting has the wrong number of sizes, or cannot be taken from the data.
    pub fn build(&self, data: FromData) -> Result<Arc<dyn Layer>, Diagnostic> {
        let name = self.0.common.name.as_deref();
        macro_rules! named {
            ($layer:expr) => {{
                let layer = $layer;
                let layer: Arc<dyn Layer> = match name {
                    Some(name) => Arc::new(layer.named(name)),
                    None => Arc::new(layer),
                };
                layer
            }};
        }
        Ok(match &self.0.kind {
            LayerKind::Dense(s) => {
                let layer = l::Dense::new(s.units).activation(s.activation).kernel_init(s.kernel_init.clone());
                named!(if s.bias { layer } else { layer.no_bias() })
            }
            LayerKind::Activation(s) => Arc::new(s.function),
            LayerKind::Conv1d(s) => named!(s.build::<1>()?),
            LayerKind::Conv2d(s) => named!(s.build::<2>()?),
            LayerKind::Conv3d(s) => named!(s.build::<3>()?),
            LayerKind::Conv1dTranspose(s) => named!(s.build::<1>()?),
            LayerKind::Conv2dTranspose(s) => named!(s.build::<2>()?),
            LayerKind::Conv3dTranspose(s) => named!(s.build::<3>()?),
            LayerKind::DepthwiseConv1d(s) => named!(s.build::<1>()?),
            LayerKind::DepthwiseConv2d(s) => named!(s.build::<2>()?),
            LayerKind::SeparableConv1d(s) => named!(s.build::<1>()?),
            LayerKind::SeparableConv2d(s) => named!(s.build::<2>()?),
            LayerKind::MaxPool1d(s) => named!(s.largest::<1>()?),
            LayerKind::MaxPool2d(s) => named!(s.largest::<2>()?),
            LayerKind::MaxPool3d(s) => named!(s.largest::<3>()?),
            LayerKind::AvgPool1d(s) => named!(s.mean::<1>()?),
            LayerKind::AvgPool2d(s) => named!(s.mean::<2>()?),
            LayerKind::AvgPool3d(s) => named!(s.mean::<3>()?),
            LayerKind::GlobalMaxPool1d(s) => named!(s.largest::<1>()),
            LayerKind::GlobalMaxPool2d(s) => named!(s.largest::<2>()),
            LayerKind::GlobalMaxPool3d(s) => named!(s.largest::<3>()),
            LayerKind::GlobalAvgPool1d(s) => named!(s.mean::<1>()),
            LayerKind::GlobalAvgPool2d(s) => named!(s.mean::<2>()),
            LayerKind::GlobalAvgPool3d(s) => named!(s.mean::<3>()),
            LayerKind::BatchNorm(s) => named!(s.build()),
            LayerKind::LayerNorm(s) => named!(s.build()),
            LayerKind::GroupNorm(s) => named!(s.build()),
            LayerKind::RmsNorm(s) => named!(l::RmsNorm::new().axes(s.axes.clone()).epsilon(s.epsilon)),
            LayerKind::Dropout(s) => named!(l::Dropout::new(s.rate)),
            LayerKind::SpatialDropout1d(s) => named!(l::SpatialDropout::<1>::new(s.rate)),
            LayerKind::SpatialDropout2d(s) => named!(l::SpatialDropout::<2>::new(s.rate)),
            LayerKind::SpatialDropout3d(s) => named!(l::SpatialDropout::<3>::new(s.rate)),
            LayerKind::GaussianNoise(s) => named!(l::GaussianNoise::new(s.stddev)),
            LayerKind::Embedding(s) => {
                let Some(input_dim) = s.input_dim.or(data.vocabulary) else {
                    let title = "an embedding of how many numbers? The data does not say";
                    return Err(wrong_value(&self.0.origin, title, "set 'input_dim'"));
                };
                named!(l::Embedding::new(input_dim, s.output_dim))
            }
            LayerKind::Positions(_) => Arc::new(positions(name)),
            LayerKind::Attention(s) => named!(s.build()),
            LayerKind::Lstm(s) => named!(s.lstm()),
            LayerKind::Gru(s) => named!(s.gru()),
            LayerKind::SimpleRnn(s) => named!(s.simple_rnn()),
            LayerKind::Bidirectional(s) => named!(s.build()),
            LayerKind::TimeDistributed(s) => named!(l::TimeDistributed::new(s.inner.build(data)?)),
            LayerKind::Add(_) => named!(l::Add::new()),
            LayerKind::Subtract(_) => named!(l::Subtract::new()),
            LayerKind::Multiply(_) => named!(l::Multiply::new()),
            LayerKind::Average(_) => named!(l::Average::new()),
            LayerKind::Maximum(_) => named!(l::Maximum::new()),
            LayerKind::Minimum(_) => named!(l::Minimum::new()),
            LayerKind::Concatenate(s) => named!(l::Concatenate::new().axis(s.axis)),
            LayerKind::Flatten(_) => named!(l::Flatten::new()),
            LayerKind::Reshape(s) => named!(l::Reshape::new(s.shape.clone())),
            LayerKind::Permute(s) => named!(l::Permute::new(s.axes.clone())),
            LayerKind::RepeatVector(s) => named!(l::RepeatVector::new(s.n)),
            LayerKind::Rescaling(s) => named!(l::Rescaling::new(s.scale).offset(s.offset)),
            LayerKind::Cropping1d(s) => named!(l::Cropping::new(margins::<1>(&s.cropping)?)),
            LayerKind::Cropping2d(s) => named!(l::Cropping::new(margins::<2>(&s.cropping)?)),
            LayerKind::Cropping3d(s) => named!(l::Cropping::new(margins::<3>(&s.cropping)?)),
            LayerKind::ZeroPadding1d(s) => named!(l::ZeroPadding::new(margins::<1>(&s.padding)?)),
            LayerKind::ZeroPadding2d(s) => named!(l::ZeroPadding::new(margins::<2>(&s.padding)?)),
            LayerKind::ZeroPadding3d(s) => named!(l::ZeroPadding::new(margins::<3>(&s.padding)?)),
            LayerKind::UpSampling1d(s) => named!(l::UpSampling::new(sizes::<1>(&s.size)?)),
            LayerKind::UpSampling2d(s) => named!(l::UpSampling::new(sizes::<2>(&s.size)?)),
            LayerKind::UpSampling3d(s) => named!(l::UpSampling::new(sizes::<3>(&s.size)?)),
            LayerKind::Residual(s) => {
                let mut layer = l::Residual::new().activation(s.activation);
                for inner in &s.layers {
                    layer = layer.layer(inner.build(data)?);
                }
                named!(match &s.shortcut {
                    Some(shortcut) => layer.shortcut(shortcut.build(data)?),
                    None => layer,
                })
            }
            LayerKind::Chain(s) => {
                let mut layer = l::Chain::new();
                for inner in &s.layers {
                    layer = layer.layer(inner.build(data)?);
                }
                named!(layer)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Origin;

    fn layer(text: &str) -> LayerTable {
        LayerTable::read(&Node::parse_value(text, &Origin::Flag(text.into())))
            .unwrap_or_else(|e| panic!("{}", e.render(false)))
    }

    /// Required settings of each layer, so that the smallest table of every kind can be written.
    fn smallest(kind: &str) -> String {
        let doc = LayerKind::table().unwrap();
        let (_, choices) = doc.choices.unwrap();
        let (_, choice) = choices.into_iter().find(|(word, _)| *word == kind).unwrap();
        let value = |field: &super::super::read::FieldDoc| match (field.name, field.takes.as_str()) {
            ("inner", _) => "{ layer = \"lstm\", units = 2 }",
            ("layers", _) => "[\"flatten\"]",
            ("axes", _) | ("shape", _) => "[1]",
            ("function", _) => "\"relu\"",
            (_, "number") => "0.5",
            _ => "2",
        };
        let required = choice.fields.iter().filter(|f| f.default.is_none());
        let rest: String = required.map(|f| format!(", {} = {}", f.name, value(f))).collect();
        format!("{{ layer = \"{kind}\"{rest} }}")
    }

    #[test]
    fn every_layer_is_built_under_its_own_name() {
        for kind in LayerKind::NAMES {
            let built = layer(&smallest(kind)).build(FromData { vocabulary: Some(5) }).unwrap();
            let own = built.kind();
            let as_is = ["activation", "position_embedding"].contains(kind);
            assert!(own == *kind || as_is, "{kind} builds {own}");
        }
    }

    #[test]
    fn defaults_are_those_of_the_library() {
        let t = |text: &str| layer(text).build(FromData::default()).unwrap();
        // Layers print nothing of themselves, so the traced graphs are compared.
        let graph = |layer: Arc<dyn Layer>, shape: &[usize]| {
            let mut model = plimsoll::model::Model::new();
            let x = model.input("x", plimsoll::Shape::new(shape));
            let y = model.apply_shared(layer, &[x]);
            model.output("y", y);
            let mut variables = plimsoll::trace::Variables::new();
            let mut trace = plimsoll::Trace::new(&mut variables, plimsoll::Mode::Train);
            let (_, outputs) = model.trace(&mut trace, 2).unwrap();
            trace.output("y", outputs[0]);
            let graph = trace.finish().to_string();
            let variables: Vec<String> =
                variables.iter().map(|v| format!("{} {} {:?}", v.name, v.ty, v.init)).collect();
            (graph, variables)
        };
        let image: &[usize] = &[8, 8, 4];
        assert_eq!(graph(t(&smallest("dense")), &[3]), graph(Arc::new(l::Dense::new(2)), &[3]));
        assert_eq!(graph(t(&smallest("conv2d")), image), graph(Arc::new(l::Conv2D::new(2, 2)), image));
        assert_eq!(graph(t("\"max_pooling2d\""), image), graph(Arc::new(l::MaxPool2D::new(2)), image));
        assert_eq!(graph(t("\"batch_normalization\""), image), graph(Arc::new(l::BatchNorm::new()), image));
        assert_eq!(graph(t("\"layer_normalization\""), image), graph(Arc::new(l::LayerNorm::new()), image));
        assert_eq!(graph(t("\"rms_normalization\""), image), graph(Arc::new(l::RmsNorm::new()), image));
        assert_eq!(
            graph(t("{ layer = \"group_normalization\", groups = 2 }"), image),
            graph(Arc::new(l::GroupNorm::new(2)), image)
        );
        assert_eq!(graph(t(&smallest("lstm")), &[4, 3]), graph(Arc::new(l::LSTM::new(2)), &[4, 3]));
        assert_eq!(graph(t(&smallest("gru")), &[4, 3]), graph(Arc::new(l::GRU::new(2)), &[4, 3]));
        assert_eq!(graph(t(&smallest("simple_rnn")), &[4, 3]), graph(Arc::new(l::SimpleRNN::new(2)), &[4, 3]));
        assert_eq!(
            graph(t(&smallest("bidirectional")), &[4, 3]),
            graph(Arc::new(l::Bidirectional::new(l::LSTM::new(2))), &[4, 3])
        );
        assert_eq!(graph(t("\"zero_padding2d\""), image), graph(Arc::new(l::ZeroPadding2D::new(1)), image));
        assert_eq!(graph(t("\"up_sampling2d\""), image), graph(Arc::new(l::UpSampling2D::new(2)), image));
    }

    #[test]
    fn sizes_are_counted() {
        let layer = layer("{ layer = \"conv2d\", filters = 4, kernel_size = [3, 3, 3] }");
        let error = layer.build(FromData::default()).err().unwrap();
        assert_eq!(error.title, "3 sizes for 2 axes");
    }
}
