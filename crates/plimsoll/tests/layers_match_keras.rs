//! Every layer gives Keras's outputs and gradients, from the same weights and inputs.
//!
//! Of each case, `sum(output * output_grad)` is differentiated with respect to every input and weight, and everything is
//! compared with what Keras computed in float32.

mod common;

use common::{Case, Config, cases};
use plimsoll::init::Initializer;
use plimsoll::layers::*;
use plimsoll::trace::{Role, Variables};
use plimsoll::{Error, Graph, Mode, Tensor, Trace, Value};
use plimsoll_budget::Budget;
use plimsoll_exec::Engine;
use plimsoll_graph::{gradients, interpret};
use plimsoll_plan::{Options, StateLayout, plan};

#[test]
fn by_definition() {
    check_all(1e-5, |graph, given| {
        let results = interpret(graph, given).map_err(|e| e.to_string())?;
        Ok(results.into_iter().collect())
    });
}

/// Planned, and run in float32 on two threads, with memory that was not written read as NaN.
#[test]
fn by_the_engine() {
    check_all(2e-5, |graph, given| {
        let state = StateLayout::new(graph.states().map(|(v, name)| (name, *graph.ty(v))));
        let options = Options { threads: 2, ..Options::default() };
        let plan = plan(graph, &state, &options).map_err(|e| e.to_string())?;
        let budget = Budget::unlimited();
        let mut engine = Engine::open(&budget, &state, vec![plan], 2).map_err(|e| e.to_string())?;
        engine.set_poison(true);
        for (name, tensor) in given {
            if graph.states().any(|(_, n)| n == *name) {
                engine.set_state(name, tensor).map_err(|e| e.to_string())?;
            } else if graph.inputs().any(|(_, n)| n == *name) {
                engine.set_input(0, name, tensor).map_err(|e| e.to_string())?;
            }
        }
        engine.run(0).map_err(|e| e.to_string())?;
        let output =
            |o: &plimsoll_graph::Output| Ok((o.name.clone(), engine.output(0, &o.name).map_err(|e| e.to_string())?));
        graph.outputs().iter().map(output).collect()
    });
}

/// Runs all cases and lists those that fail.
fn check_all(tolerance: f64, run: impl Fn(&Graph, &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, String>) {
    let cases = cases("layers");
    assert_eq!(cases.len(), 156);
    let mut failures = Vec::new();
    for case in &cases {
        if let Err(message) = check(case, tolerance, &run) {
            failures.push(format!("{}: {message}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} of {} cases fail:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

fn check(
    case: &Case,
    tolerance: f64,
    run: impl Fn(&Graph, &[(&str, Tensor)]) -> Result<Vec<(String, Tensor)>, String>,
) -> Result<(), String> {
    let graph = trace(case)?;
    let arrays = case.inputs.iter().chain(&case.weights);
    let given: Vec<(&str, Tensor)> = arrays.map(|a| (a.name.as_str(), a.tensor.clone())).collect();
    let results = run(&graph, &given)?;
    for expected in &case.expected {
        let (_, found) = results.iter().find(|(n, _)| *n == expected.name).ok_or(format!("no {}", expected.name))?;
        expected.compare(found, tolerance)?;
    }
    Ok(())
}

/// The graph of a case: outputs, gradients and states after the step, named as in the file.
fn trace(case: &Case) -> Result<Graph, String> {
    let fail = |e: Error| e.to_string();
    let mut variables = Variables::new();
    let mode = if case.config.flag("training") { Mode::Train } else { Mode::Evaluate };
    let mut t = Trace::new(&mut variables, mode);
    let values: Vec<(&str, Value)> =
        case.inputs.iter().map(|a| (a.name.as_str(), t.input(&a.name, *a.tensor.ty()))).collect();
    let is_grad = |name: &str| name.ends_with("_grad");
    let inputs: Vec<Value> = values.iter().filter(|(n, _)| !is_grad(n)).map(|(_, v)| *v).collect();
    let output_grads: Vec<Value> = values.iter().filter(|(n, _)| is_grad(n)).map(|(_, v)| *v).collect();
    let outputs = apply(case, &mut t, &inputs).map_err(fail)?;
    if outputs.len() != output_grads.len() {
        return Err(format!("{} outputs, expected {}", outputs.len(), output_grads.len()));
    }
    let mut seeds = Vec::new();
    for (i, (&output, &grad)) in outputs.iter().zip(&output_grads).enumerate() {
        let name = if outputs.len() == 1 { "output".to_owned() } else { format!("output{i}") };
        t.output(&name, output);
        let product = t.mul(output, grad).map_err(|e| e.to_string())?;
        seeds.push(t.sum_all(product).map_err(|e| e.to_string())?);
    }
    let total = seeds.iter().copied().reduce(|a, b| t.add(a, b).expect("two scalars")).expect("an output");
    let mut wrt: Vec<(String, Value)> = values.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect();
    wrt.retain(|(n, v)| !is_grad(n) && t.dtype(*v).is_float());
    wrt.extend(t.weights());
    let of: Vec<Value> = wrt.iter().map(|(_, v)| *v).collect();
    let grads = gradients(&mut t, total, &of).map_err(|e| e.to_string())?;
    for ((name, _), grad) in wrt.iter().zip(grads) {
        let grad = grad.ok_or(format!("no gradient of {name}"))?;
        t.output(&format!("grad/{name}"), grad);
    }
    for weight in case.weights.iter().filter(|w| !w.trainable) {
        let ty = *weight.tensor.ty();
        let after = t.variable(&weight.name, ty, Initializer::Zeros, Role::Statistic).map_err(fail)?;
        t.output(&format!("after/{}", weight.name), after);
    }
    let graph = t.finish();
    let mut made: Vec<(&str, bool)> = variables.iter().map(|v| (v.name.as_str(), v.role == Role::Weight)).collect();
    let mut wanted: Vec<(&str, bool)> = case.weights.iter().map(|w| (w.name.as_str(), w.trainable)).collect();
    made.sort_unstable();
    wanted.sort_unstable();
    if made != wanted {
        return Err(format!("weights {made:?}, expected {wanted:?}"));
    }
    Ok(graph)
}

/// The layer's outputs. Recurrent layers with initial states give their last states too.
fn apply(case: &Case, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Vec<Value>, Error> {
    if case.find_input("initial_h").is_some() {
        let sequence = Sequence { initial: inputs[1..].to_vec(), ..Sequence::new(inputs[0]) };
        let run = recurrent(&case.config).run(t, &sequence)?;
        return Ok([vec![run.output], run.states].concat());
    }
    Ok(vec![layer(&case.config)?.call(t, inputs)?])
}

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
fn layer(config: &Config) -> Result<Box<dyn Layer>, Error> {
    Ok(match config.text("layer") {
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

fn recurrent(config: &Config) -> Box<dyn Recurrent> {
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
