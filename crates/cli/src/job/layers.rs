//! The layers that a job can name, with their settings.

use super::read::{At, Fields, OneOrMore, Read, With, names, one_of, table, union, wrong_value};
use super::tree::{Node, Value};
use crate::diagnostic::Diagnostic;
use plimsoll::init::Initializer;
use plimsoll::layers::{self as l, Activation, Layer, Margins, Padding, Sizes};
use std::sync::Arc;

impl Read for Activation {
    fn read(node: &Node) -> Result<Activation, Diagnostic> {
        let name = one_of(node, "activation", Activation::NAMES)?;
        Ok(Activation::from_name(name).expect("one of its names"))
    }
    fn takes() -> String {
        "activation".into()
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({ "enum": Activation::NAMES })
    }
}

/// The names of initial values, with those of them that take a number.
const INITIALIZERS: &[&str] = &[
    "zeros",
    "ones",
    "glorot_uniform",
    "glorot_normal",
    "he_uniform",
    "he_normal",
    "lecun_uniform",
    "lecun_normal",
    "orthogonal",
    "normal",
    "truncated_normal",
    "uniform",
];

impl Read for Initializer {
    fn read(node: &Node) -> Result<Initializer, Diagnostic> {
        if let Value::Integer(_) | Value::Float(_) = node.value {
            return f64::read(node).map(Initializer::Constant);
        }
        Ok(match one_of(node, "initializer", INITIALIZERS)? {
            "zeros" => Initializer::Zeros,
            "ones" => Initializer::Ones,
            "glorot_uniform" => Initializer::GlorotUniform,
            "glorot_normal" => Initializer::GlorotNormal,
            "he_uniform" => Initializer::HeUniform,
            "he_normal" => Initializer::HeNormal,
            "lecun_uniform" => Initializer::LecunUniform,
            "lecun_normal" => Initializer::LecunNormal,
            "orthogonal" => Initializer::Orthogonal,
            "normal" => Initializer::Normal { std: 0.05 },
            "truncated_normal" => Initializer::TruncatedNormal { std: 0.05 },
            _ => Initializer::Uniform { low: -0.05, high: 0.05 },
        })
    }
    fn takes() -> String {
        "initial values: a name, or a number for all".into()
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({ "anyOf": [{ "enum": INITIALIZERS }, { "type": "number" }] })
    }
}

impl Read for Padding {
    fn read(node: &Node) -> Result<Padding, Diagnostic> {
        let name = one_of(node, "padding", &["valid", "same", "causal"])?;
        Padding::from_name(name).map_err(|e| wrong_value(&node.origin, e.to_string(), "this padding"))
    }
    fn takes() -> String {
        "`\"valid\"`, `\"same\"` or `\"causal\"`".into()
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({ "enum": ["valid", "same", "causal"] })
    }
}

/// One number, or one for each axis.
type Size = At<OneOrMore<usize>>;

fn sizes<const N: usize>(size: &Size) -> Result<Sizes<N>, Diagnostic> {
    match size.0[..] {
        [one] => Ok(Sizes([one; N])),
        ref many => Ok(Sizes(many.try_into().map_err(|_| {
            let title = format!("{} sizes for {N} axes", many.len());
            wrong_value(&size.origin, title, format!("one number, or a list of {N}"))
        })?)),
    }
}

fn margins<const N: usize>(size: &Size) -> Result<Margins<N>, Diagnostic> {
    if size.0.len() == 2 * N && N > 1 || size.0.len() == 2 && N == 1 {
        return Ok(Margins(std::array::from_fn(|i| (size.0[2 * i], size.0[2 * i + 1]))));
    }
    sizes::<N>(size).map(|s| Margins::from(s.0))
}

names! {
    /// How both ways of a bidirectional layer are joined.
    pub enum Merge, a "way to join" { "concat" => Concat, "sum" => Sum, "mul" => Mul, "average" => Average, }
}

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
    /// A convolution over the spatial axes.
    pub struct Convolution {
        /// How many channels come out.
        filters: usize,
        /// The size of the window.
        kernel_size: Size,
        /// Cells from one output to the next.
        strides: Size = 1,
        /// What happens at the edges.
        padding: Padding = "valid",
        /// Cells from one point of the window to the next.
        dilation: Size = 1,
        /// Into how many groups the channels are cut.
        groups: usize = 1,
        /// Applied to the result.
        activation: Activation = "linear",
        /// Whether a bias is added.
        bias: bool = true,
        /// How the kernel begins.
        kernel_init: Initializer = "glorot_uniform",
    }
}

table! {
    /// A transposed convolution: makes its input larger.
    pub struct TransposedConvolution {
        /// How many channels come out.
        filters: usize,
        /// The size of the window.
        kernel_size: Size,
        /// Cells from one input's window to the next.
        strides: Size = 1,
        /// What happens at the edges.
        padding: Padding = "valid",
        /// Cells from one point of the window to the next.
        dilation: Size = 1,
        /// Applied to the result.
        activation: Activation = "linear",
        /// Whether a bias is added.
        bias: bool = true,
        /// How the kernel begins.
        kernel_init: Initializer = "glorot_uniform",
    }
}

table! {
    /// A convolution of every channel by itself.
    pub struct DepthwiseConvolution {
        /// The size of the window.
        kernel_size: Size,
        /// Outputs for each input channel.
        depth_multiplier: usize = 1,
        /// Cells from one output to the next.
        strides: Size = 1,
        /// What happens at the edges.
        padding: Padding = "valid",
        /// Cells from one point of the window to the next.
        dilation: Size = 1,
        /// Applied to the result.
        activation: Activation = "linear",
        /// Whether a bias is added.
        bias: bool = true,
        /// How the kernel begins.
        kernel_init: Initializer = "glorot_uniform",
    }
}

table! {
    /// A convolution of every channel by itself, then one of single cells that mixes channels.
    pub struct SeparableConvolution {
        /// How many channels come out.
        filters: usize,
        /// The size of the window.
        kernel_size: Size,
        /// Intermediate channels for each input channel.
        depth_multiplier: usize = 1,
        /// Cells from one output to the next.
        strides: Size = 1,
        /// What happens at the edges.
        padding: Padding = "valid",
        /// Cells from one point of the window to the next.
        dilation: Size = 1,
        /// Applied to the result.
        activation: Activation = "linear",
        /// Whether a bias is added.
        bias: bool = true,
    }
}

table! {
    /// The largest or mean number of every window.
    pub struct Pooling {
        /// The size of the window.
        pool_size: Size = 2,
        /// Cells from one window to the next; its own size if not given.
        strides: Option<Size> = none,
        /// What happens at the edges.
        padding: Padding = "valid",
    }
}

table! {
    /// The largest or mean number over all spatial axes.
    pub struct GlobalPooling {
        /// Whether the spatial axes stay, with size 1.
        keep_dims: bool = false,
    }
}

table! {
    /// Mean 0 and variance 1 of every channel over the batch; in use, by running averages.
    pub struct BatchNormalization {
        /// The axis of the channels; the batch is axis 0, negative ones count from the last.
        axis: isize = -1,
        /// The part of a running average that is kept in a step.
        momentum: f64 = 0.99,
        /// Added to the variance.
        epsilon: f64 = 0.001,
        /// Whether a learned offset is added.
        center: bool = true,
        /// Whether the result is multiplied by a learned factor.
        scale: bool = true,
    }
}

table! {
    /// Mean 0 and variance 1 of every sample over some axes.
    pub struct LayerNormalization {
        /// The axes; the batch is axis 0, negative ones count from the last.
        axes: Vec<isize> = [-1],
        /// Added to the variance.
        epsilon: f64 = 0.001,
        /// Whether a learned offset is added.
        center: bool = true,
        /// Whether the result is multiplied by a learned factor.
        scale: bool = true,
    }
}

table! {
    /// Mean 0 and variance 1 of every group of channels of a sample.
    pub struct GroupNormalization {
        /// How many groups; as many as channels if not given.
        groups: Option<usize> = none,
        /// The axis of the channels.
        axis: isize = -1,
        /// Added to the variance.
        epsilon: f64 = 0.001,
        /// Whether a learned offset is added.
        center: bool = true,
        /// Whether the result is multiplied by a learned factor.
        scale: bool = true,
    }
}

table! {
    /// Mean square 1 of every sample over some axes.
    pub struct RmsNormalization {
        /// The axes; negative ones count from the last.
        axes: Vec<isize> = [-1],
        /// Added to the mean square.
        epsilon: f64 = 0.000001,
    }
}

table! {
    /// Numbers set to 0 at random while training, the others scaled up.
    pub struct Dropout {
        /// The part that is set to 0.
        rate: f64,
    }
}

table! {
    /// Normal noise added while training.
    pub struct GaussianNoise {
        /// Its standard deviation.
        stddev: f64,
    }
}

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

union! {
    /// A recurrent layer inside another.
    pub enum Recurrent by "layer", a "recurrent layer", with Vec::new();
    {
        "lstm" => Lstm(RecurrentLayer),
        "gru" => Gru(RecurrentLayer),
        "simple_rnn" => SimpleRnn(RecurrentLayer),
    }
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

table! {
    /// A layer applied to every step of a sequence.
    pub struct TimeDistributed {
        /// The layer.
        inner: Box<LayerTable>,
    }
}

table! {
    /// Results side by side.
    pub struct Concatenate {
        /// Along this axis; the batch is axis 0, negative ones count from the last.
        axis: isize = -1,
    }
}

table! {
    /// Cells at the edges taken away.
    pub struct Cropping {
        /// How many: one number, one for each axis, or two for each axis.
        cropping: Size,
    }
}

table! {
    /// Zeros put around.
    pub struct ZeroPadding {
        /// How many: one number, one for each axis, or two for each axis.
        padding: Size = 1,
    }
}

table! {
    /// Every cell repeated.
    pub struct UpSampling {
        /// How often.
        size: Size = 2,
    }
}

table! {
    /// Axes in another order.
    pub struct Permute {
        /// The axes of a sample in their new order, counted from 1.
        axes: Vec<usize>,
    }
}

table! {
    /// A vector repeated to a sequence.
    pub struct RepeatVector {
        /// How often.
        n: usize,
    }
}

table! {
    /// `x * scale + offset`.
    pub struct Rescaling {
        /// The factor.
        scale: f64,
        /// Added to it.
        offset: f64 = 0.0,
    }
}

table! {
    /// The same numbers in another shape.
    pub struct Reshape {
        /// The sizes of a sample; one of them may be -1.
        shape: Vec<isize>,
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
        macro_rules! conv {
            ($s:expr, $n:literal) => {{
                let s = $s;
                let layer = l::Conv::<$n>::new(s.filters, sizes::<$n>(&s.kernel_size)?).groups(s.groups);
                named!(spatial!(layer, s, $n).kernel_init(s.kernel_init.clone()))
            }};
        }
        macro_rules! spatial {
            ($layer:expr, $s:expr, $n:literal) => {{
                let s = $s;
                let layer = $layer.strides(sizes::<$n>(&s.strides)?).dilation(sizes::<$n>(&s.dilation)?);
                let layer = layer.padding(s.padding).activation(s.activation);
                if s.bias { layer } else { layer.no_bias() }
            }};
        }
        macro_rules! transposed {
            ($s:expr, $n:literal) => {{
                let s = $s;
                let layer = l::ConvTranspose::<$n>::new(s.filters, sizes::<$n>(&s.kernel_size)?);
                named!(spatial!(layer, s, $n).kernel_init(s.kernel_init.clone()))
            }};
        }
        macro_rules! depthwise {
            ($s:expr, $n:literal) => {{
                let s = $s;
                let layer = l::DepthwiseConv::<$n>::new(sizes::<$n>(&s.kernel_size)?);
                named!(spatial!(layer.depth_multiplier(s.depth_multiplier), s, $n).kernel_init(s.kernel_init.clone()))
            }};
        }
        macro_rules! separable {
            ($s:expr, $n:literal) => {{
                let s = $s;
                let layer = l::SeparableConv::<$n>::new(s.filters, sizes::<$n>(&s.kernel_size)?);
                named!(spatial!(layer.depth_multiplier(s.depth_multiplier), s, $n))
            }};
        }
        macro_rules! pool {
            ($layer:ident, $s:expr, $n:literal) => {{
                let s = $s;
                let layer = l::$layer::<$n>::new(sizes::<$n>(&s.pool_size)?).padding(s.padding);
                named!(match &s.strides {
                    Some(strides) => layer.strides(sizes::<$n>(strides)?),
                    None => layer,
                })
            }};
        }
        macro_rules! global {
            ($layer:ident, $s:expr, $n:literal) => {{
                let layer = l::$layer::<$n>::new();
                named!(if $s.keep_dims { layer.keep_dims() } else { layer })
            }};
        }
        macro_rules! norm {
            ($layer:expr, $s:expr) => {{
                let layer = $layer.epsilon($s.epsilon);
                let layer = if $s.center { layer } else { layer.no_center() };
                named!(if $s.scale { layer } else { layer.no_scale() })
            }};
        }
        Ok(match &self.0.kind {
            LayerKind::Dense(s) => {
                let layer = l::Dense::new(s.units).activation(s.activation).kernel_init(s.kernel_init.clone());
                named!(if s.bias { layer } else { layer.no_bias() })
            }
            LayerKind::Activation(s) => Arc::new(s.function),
            LayerKind::Conv1d(s) => conv!(s, 1),
            LayerKind::Conv2d(s) => conv!(s, 2),
            LayerKind::Conv3d(s) => conv!(s, 3),
            LayerKind::Conv1dTranspose(s) => transposed!(s, 1),
            LayerKind::Conv2dTranspose(s) => transposed!(s, 2),
            LayerKind::Conv3dTranspose(s) => transposed!(s, 3),
            LayerKind::DepthwiseConv1d(s) => depthwise!(s, 1),
            LayerKind::DepthwiseConv2d(s) => depthwise!(s, 2),
            LayerKind::SeparableConv1d(s) => separable!(s, 1),
            LayerKind::SeparableConv2d(s) => separable!(s, 2),
            LayerKind::MaxPool1d(s) => pool!(MaxPool, s, 1),
            LayerKind::MaxPool2d(s) => pool!(MaxPool, s, 2),
            LayerKind::MaxPool3d(s) => pool!(MaxPool, s, 3),
            LayerKind::AvgPool1d(s) => pool!(AvgPool, s, 1),
            LayerKind::AvgPool2d(s) => pool!(AvgPool, s, 2),
            LayerKind::AvgPool3d(s) => pool!(AvgPool, s, 3),
            LayerKind::GlobalMaxPool1d(s) => global!(GlobalMaxPool, s, 1),
            LayerKind::GlobalMaxPool2d(s) => global!(GlobalMaxPool, s, 2),
            LayerKind::GlobalMaxPool3d(s) => global!(GlobalMaxPool, s, 3),
            LayerKind::GlobalAvgPool1d(s) => global!(GlobalAvgPool, s, 1),
            LayerKind::GlobalAvgPool2d(s) => global!(GlobalAvgPool, s, 2),
            LayerKind::GlobalAvgPool3d(s) => global!(GlobalAvgPool, s, 3),
            LayerKind::BatchNorm(s) => norm!(l::BatchNorm::new().axis(s.axis).momentum(s.momentum), s),
            LayerKind::LayerNorm(s) => norm!(l::LayerNorm::new().axes(s.axes.clone()), s),
            LayerKind::GroupNorm(s) => {
                let layer = s.groups.map_or_else(l::GroupNorm::instance, l::GroupNorm::new);
                norm!(layer.axis(s.axis), s)
            }
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
            LayerKind::Attention(s) => {
                let mut layer = l::MultiHeadAttention::new(s.heads, s.key_dim).dropout(s.dropout);
                if let Some(size) = s.value_dim {
                    layer = layer.value_dim(size);
                }
                if let Some(size) = s.output_size {
                    layer = layer.output_size(size);
                }
                let layer = if s.causal { layer.causal() } else { layer };
                named!(if s.bias { layer } else { layer.no_bias() })
            }
            LayerKind::Lstm(s) => named!(recurrent(l::LSTM::new(s.units), s)),
            LayerKind::Gru(s) => named!(recurrent(l::GRU::new(s.units), s)),
            LayerKind::SimpleRnn(s) => named!(recurrent(l::SimpleRNN::new(s.units), s)),
            LayerKind::Bidirectional(s) => {
                let layer = match &s.inner {
                    Recurrent::Lstm(s) => l::Bidirectional::new(recurrent(l::LSTM::new(s.units), s)),
                    Recurrent::Gru(s) => l::Bidirectional::new(recurrent(l::GRU::new(s.units), s)),
                    Recurrent::SimpleRnn(s) => l::Bidirectional::new(recurrent(l::SimpleRNN::new(s.units), s)),
                };
                named!(layer.merge_mode(match s.merge {
                    Merge::Concat => l::MergeMode::Concat,
                    Merge::Sum => l::MergeMode::Sum,
                    Merge::Mul => l::MergeMode::Mul,
                    Merge::Average => l::MergeMode::Average,
                }))
            }
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

/// The settings that all recurrent layers have.
trait RecurrentSettings: Sized {
    fn with(self, s: &RecurrentLayer) -> Self;
}

macro_rules! recurrent_settings {
    ($($layer:ident),*) => { $(
        impl RecurrentSettings for l::$layer {
            fn with(self, s: &RecurrentLayer) -> Self {
                let layer = self.activation(s.activation).dropout(s.dropout).recurrent_dropout(s.recurrent_dropout);
                let layer = if s.return_sequences { layer.return_sequences() } else { layer };
                let layer = if s.go_backwards { layer.go_backwards() } else { layer };
                if s.bias { layer } else { layer.no_bias() }
            }
        }
    )* };
}
recurrent_settings!(LSTM, GRU, SimpleRNN);

fn recurrent<L: RecurrentSettings>(layer: L, s: &RecurrentLayer) -> L {
    layer.with(s)
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
