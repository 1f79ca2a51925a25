//! Layers from the settings of a case.

use crate::common::Config;
use plimsoll::Error;
use plimsoll::layers::*;

/// The settings that all convolutions have.
macro_rules! conv_settings {
    ($layer:expr, $config:expr) => {{
        let config = $config;
        let mut layer = $layer.strides(sizes(config, "strides")).dilation(sizes(config, "dilation_rate"));
        layer = layer.padding(padding(config)).activation(activation(config, "activation"));
        if !config.flag("use_bias") {
            layer = layer.no_bias();
        }
        layer
    }};
}

/// The settings that normalisations have.
macro_rules! norm_settings {
    ($layer:expr, $config:expr) => {{
        let mut layer = $layer.epsilon($config.number("epsilon"));
        if !$config.flag("center") {
            layer = layer.no_center();
        }
        if !$config.flag("scale") {
            layer = layer.no_scale();
        }
        layer
    }};
}

macro_rules! pool {
    ($layer:ident, $config:expr) => {
        Box::new($layer::new(sizes($config, "pool_size")).strides(sizes($config, "strides")).padding(padding($config)))
    };
}

/// The layer that the settings of a case describe.
pub fn layer(config: &Config) -> Result<Box<dyn Layer>, Error> {
    Ok(match config.text("layer") {
        "Flatten" => Box::new(Flatten::new()),
        "Activation" => Box::new(activation(config, "activation")),
        "Dense" => {
            let mut layer = Dense::new(config.size("units")).activation(activation(config, "activation"));
            if !config.flag("use_bias") {
                layer = layer.no_bias();
            }
            Box::new(layer)
        }
        "Conv1D" => Box::new(conv::<1>(config)),
        "Conv2D" => Box::new(conv::<2>(config)),
        "Conv3D" => Box::new(conv::<3>(config)),
        "DepthwiseConv2D" => {
            let layer = DepthwiseConv2D::new(sizes(config, "kernel_size"));
            let layer = layer.depth_multiplier(config.size("depth_multiplier"));
            Box::new(conv_settings!(layer, config))
        }
        "Conv2DTranspose" => {
            assert!(config.get("output_padding").is_none());
            let layer = Conv2DTranspose::new(config.size("filters"), sizes(config, "kernel_size"));
            Box::new(conv_settings!(layer, config))
        }
        "MaxPooling1D" => pool!(MaxPool1D, config),
        "MaxPooling2D" => pool!(MaxPool2D, config),
        "MaxPooling3D" => pool!(MaxPool3D, config),
        "AveragePooling1D" => pool!(AvgPool1D, config),
        "AveragePooling2D" => pool!(AvgPool2D, config),
        "AveragePooling3D" => pool!(AvgPool3D, config),
        "BatchNormalization" => {
            let layer = BatchNorm::new().axis(axes(config)[0]).momentum(config.number("momentum"));
            Box::new(norm_settings!(layer, config))
        }
        "LayerNormalization" => {
            assert!(!config.flag("rms_scaling"));
            Box::new(norm_settings!(LayerNorm::new().axes(axes(config)), config))
        }
        "GroupNormalization" => {
            let layer = match config.number("groups") {
                -1.0 => GroupNorm::instance(),
                groups => GroupNorm::new(groups as usize),
            };
            Box::new(norm_settings!(layer.axis(axes(config)[0]), config))
        }
        "RMSNormalization" => Box::new(RmsNorm::new().axes(axes(config)).epsilon(config.number("epsilon"))),
        "MultiHeadAttention" => Box::new(attention(config)),
        "Embedding" => Box::new(Embedding::new(config.size("input_dim"), config.size("output_dim"))),
        "Bidirectional" => {
            let mode = match config.text("merge_mode") {
                "concat" => MergeMode::Concat,
                "sum" => MergeMode::Sum,
                other => panic!("unknown way to merge: {other}"),
            };
            let inner = config.inner("inner");
            assert_eq!(inner.text("layer"), "LSTM");
            Box::new(Bidirectional::new(lstm(&inner)).merge_mode(mode))
        }
        "LSTM" => Box::new(lstm(config)),
        "GRU" => Box::new(gru(config)),
        "SimpleRNN" => Box::new(simple_rnn(config)),
        "GlobalMaxPooling1D" => keep(config, GlobalMaxPool1D::new(), GlobalMaxPool1D::keep_dims),
        "GlobalMaxPooling2D" => keep(config, GlobalMaxPool2D::new(), GlobalMaxPool2D::keep_dims),
        "GlobalMaxPooling3D" => keep(config, GlobalMaxPool3D::new(), GlobalMaxPool3D::keep_dims),
        "GlobalAveragePooling1D" => keep(config, GlobalAvgPool1D::new(), GlobalAvgPool1D::keep_dims),
        "GlobalAveragePooling2D" => keep(config, GlobalAvgPool2D::new(), GlobalAvgPool2D::keep_dims),
        "GlobalAveragePooling3D" => keep(config, GlobalAvgPool3D::new(), GlobalAvgPool3D::keep_dims),
        other => return Err(Error::config("test", format!("unknown layer {other}"))),
    })
}

/// A global pooling layer that keeps its spatial axes if the settings say so.
fn keep<L: Layer + 'static>(config: &Config, layer: L, keep_dims: fn(L) -> L) -> Box<dyn Layer> {
    Box::new(if config.flag("keepdims") { keep_dims(layer) } else { layer })
}

fn sizes<const N: usize>(config: &Config, name: &str) -> Sizes<N> {
    Sizes(config.sizes(name).try_into().expect("a size for each axis"))
}

fn padding(config: &Config) -> Padding {
    Padding::from_name(config.text("padding")).unwrap()
}

/// One axis or several.
fn axes(config: &Config) -> Vec<isize> {
    let axis = config.get("axis").expect("an axis");
    match axis.as_i64() {
        Some(axis) => vec![axis as isize],
        None => config.sizes("axis").into_iter().map(|a| a as isize).collect(),
    }
}

fn attention(config: &Config) -> MultiHeadAttention {
    for unknown in ["attention_axes", "sliding_window"] {
        assert!(config.get(unknown).is_none());
    }
    assert!(!config.flag("use_gate"));
    let mut layer = MultiHeadAttention::new(config.size("num_heads"), config.size("key_dim"));
    layer = layer.value_dim(config.size("value_dim")).dropout(config.number("dropout"));
    if config.get("output_shape").is_some() {
        layer = layer.output_size(config.sizes("output_shape")[0]);
    }
    if config.flag("use_causal_mask") {
        layer = layer.causal();
    }
    if !config.flag("use_bias") {
        layer = layer.no_bias();
    }
    layer
}

fn conv<const N: usize>(config: &Config) -> Conv<N> {
    let layer = Conv::new(config.size("filters"), sizes(config, "kernel_size")).groups(config.size("groups"));
    conv_settings!(layer, config)
}

fn activation(config: &Config, name: &str) -> Activation {
    Activation::from_name(config.text(name)).unwrap()
}

#[allow(dead_code)] // The training cases build whole models only.
pub fn recurrent(config: &Config) -> Box<dyn Recurrent> {
    match config.text("layer") {
        "LSTM" => Box::new(lstm(config)),
        "GRU" => Box::new(gru(config)),
        "SimpleRNN" => Box::new(simple_rnn(config)),
        other => panic!("unknown recurrent layer {other}"),
    }
}

/// The settings that all recurrent layers have.
macro_rules! recurrent_settings {
    ($layer:expr, $config:expr) => {{
        let (mut layer, config) = ($layer, $config);
        layer = layer.activation(activation(config, "activation"));
        layer = layer.dropout(config.number("dropout")).recurrent_dropout(config.number("recurrent_dropout"));
        if config.flag("return_sequences") {
            layer = layer.return_sequences();
        }
        if config.flag("go_backwards") {
            layer = layer.go_backwards();
        }
        if !config.flag("use_bias") {
            layer = layer.no_bias();
        }
        layer
    }};
}

fn lstm(config: &Config) -> LSTM {
    let layer = LSTM::new(config.size("units")).recurrent_activation(activation(config, "recurrent_activation"));
    recurrent_settings!(layer, config)
}

fn gru(config: &Config) -> GRU {
    let layer = GRU::new(config.size("units")).recurrent_activation(activation(config, "recurrent_activation"));
    let layer = if config.flag("reset_after") { layer } else { layer.reset_before() };
    recurrent_settings!(layer, config)
}

fn simple_rnn(config: &Config) -> SimpleRNN {
    recurrent_settings!(SimpleRNN::new(config.size("units")), config)
}
