//! What layers without weights compute, and what layers say to inputs that do not suit them.

use plimsoll::layers::*;
use plimsoll::trace::Variables;
use plimsoll::{DType, Error, Mode, Tensor, TensorType, Trace};
use plimsoll_graph::{gradients, interpret};

/// 0, 1, 2, .. in this shape.
fn counted(shape: &[usize]) -> Tensor {
    let values: Vec<f64> = (0..shape.iter().product::<usize>()).map(|i| i as f64).collect();
    Tensor::from_f64(DType::F32, shape, &values).unwrap()
}

/// The layer's output and the gradient of its sum with respect to the first input.
fn evaluate(layer: &dyn Layer, mode: Mode, inputs: &[Tensor]) -> (Tensor, Tensor) {
    evaluate_with(layer, mode, inputs, &[])
}

fn evaluate_with(layer: &dyn Layer, mode: Mode, inputs: &[Tensor], weights: &[(&str, Tensor)]) -> (Tensor, Tensor) {
    let mut variables = Variables::new();
    let mut t = Trace::new(&mut variables, mode);
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("x{i}")).collect();
    let values: Vec<_> = inputs.iter().zip(&names).map(|(x, n)| t.input(n, *x.ty())).collect();
    let y = layer.call(&mut t, &values).unwrap();
    t.output("y", y);
    let sum = t.sum_all(y).unwrap();
    let dx = gradients(&mut t, sum, &values[..1]).unwrap()[0].expect("the output depends on the input");
    t.output("dx", dx);
    let mut given: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(inputs.iter().cloned()).collect();
    given.extend(weights.iter().cloned());
    given.push(("random key", Tensor::from_slice([2], &[7i64, 3]).unwrap()));
    let mut results = interpret(&t.finish(), &given).unwrap();
    (results.remove("y").unwrap(), results.remove("dx").unwrap())
}

#[track_caller]
fn check(layer: impl Layer, inputs: &[Tensor], shape: &[usize], values: &[f64]) {
    let (y, _) = evaluate(&layer, Mode::Evaluate, inputs);
    assert_eq!(y.shape().dims(), shape);
    let close = y.to_f64().iter().zip(values).all(|(a, b)| (a - b).abs() <= 1e-6 * b.abs().max(1.0));
    assert!(close && values.len() == y.elements(), "{:?}, expected {values:?}", y.to_f64());
}

/// The layer refuses inputs of these types with this message.
#[track_caller]
fn check_refuses(layer: impl Layer, inputs: &[TensorType], message: &str) {
    assert_eq!(refusal(&layer, inputs).to_string(), message);
}

fn refusal(layer: &dyn Layer, inputs: &[TensorType]) -> Error {
    let mut variables = Variables::new();
    let mut t = Trace::new(&mut variables, Mode::Train);
    let values: Vec<_> = inputs.iter().map(|ty| t.input("x", *ty)).collect();
    layer.call(&mut t, &values).expect_err("these inputs do not suit")
}

fn f32s(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

#[test]
fn shapes() {
    let x = counted(&[2, 2, 3]);
    let all: Vec<f64> = (0..12).map(f64::from).collect();
    check(Flatten::new(), &[x.clone()], &[2, 6], &all);
    check(Flatten::new(), &[counted(&[2])], &[2, 1], &[0.0, 1.0]);
    check(Reshape::new([3, 2]), &[x.clone()], &[2, 3, 2], &all);
    check(Reshape::new([-1, 1, 2]), &[x.clone()], &[2, 3, 1, 2], &all);
    check(Permute::new([2, 1]), &[x.clone()], &[2, 3, 2], &[0., 3., 1., 4., 2., 5., 6., 9., 7., 10., 8., 11.]);
    check(RepeatVector::new(2), &[counted(&[2, 2])], &[2, 2, 2], &[0., 1., 0., 1., 2., 3., 2., 3.]);
    check(Rescaling::new(0.5).offset(1.0), &[counted(&[3])], &[3], &[1.0, 1.5, 2.0]);
}

#[test]
fn margins() {
    let x = counted(&[1, 2, 2, 1]);
    check(ZeroPadding1D::new([(1, 0)]), &[counted(&[1, 2, 1])], &[1, 3, 1], &[0., 0., 1.]);
    check(ZeroPadding2D::new([(0, 1), (1, 0)]), &[x.clone()], &[1, 3, 3, 1], &[0., 0., 1., 0., 2., 3., 0., 0., 0.]);
    check(Cropping2D::new([(1, 0), (0, 1)]), &[x.clone()], &[1, 1, 1, 1], &[2.]);
    let padded = counted(&[1, 4, 4, 4, 1]);
    check(Cropping3D::new(1), &[padded], &[1, 2, 2, 2, 1], &[21., 22., 25., 26., 37., 38., 41., 42.]);
}

#[test]
fn enlarged_images() {
    check(UpSampling1D::new(2), &[counted(&[1, 2, 2])], &[1, 4, 2], &[0., 1., 0., 1., 2., 3., 2., 3.]);
    let wide = [0., 0., 0., 1., 1., 1., 0., 0., 0., 1., 1., 1.];
    check(UpSampling2D::new([2, 3]), &[counted(&[1, 1, 2, 1])], &[1, 2, 6, 1], &wide);
    check(UpSampling3D::new([1, 1, 2]), &[counted(&[1, 1, 1, 2, 1])], &[1, 1, 1, 4, 1], &[0., 0., 1., 1.]);
    let (_, dx) = evaluate(&UpSampling2D::new([2, 3]), Mode::Evaluate, &[counted(&[1, 1, 2, 1])]);
    assert_eq!(dx.to_f64(), [6.0, 6.0]);
}

#[test]
fn merging() {
    let (a, b) = (counted(&[1, 3]), Tensor::from_slice([1, 3], &[2.0f32, -1.0, 0.5]).unwrap());
    let both = [a.clone(), b];
    check(Add::new(), &both, &[1, 3], &[2.0, 0.0, 2.5]);
    check(Subtract::new(), &both, &[1, 3], &[-2.0, 2.0, 1.5]);
    check(Multiply::new(), &both, &[1, 3], &[0.0, -1.0, 1.0]);
    check(Average::new(), &both, &[1, 3], &[1.0, 0.0, 1.25]);
    check(Maximum::new(), &both, &[1, 3], &[2.0, 1.0, 2.0]);
    check(Minimum::new(), &both, &[1, 3], &[0.0, -1.0, 0.5]);
    check(Concatenate::new(), &both, &[1, 6], &[0.0, 1.0, 2.0, 2.0, -1.0, 0.5]);
    check(Concatenate::new().axis(0), &both, &[2, 3], &[0.0, 1.0, 2.0, 2.0, -1.0, 0.5]);
    check(Add::new(), &[a.clone(), a.clone(), a], &[1, 3], &[0.0, 3.0, 6.0]);
}

#[test]
fn layers_of_layers() {
    let double = || Function::new(|t, inputs| Ok(t.scale(inputs[0], 2.0)?));
    check(double(), &[counted(&[1, 3])], &[1, 3], &[0.0, 2.0, 4.0]);
    check(Chain::new().layer(double()).layer(double()), &[counted(&[1, 3])], &[1, 3], &[0.0, 4.0, 8.0]);
    check(Residual::new().layer(double()).layer(double()), &[counted(&[1, 3])], &[1, 3], &[0.0, 5.0, 10.0]);
    let first = |_: usize| Function::new(|t, inputs| Ok(t.slice_axis(inputs[0], 1, 0, 1)?));
    let narrow = Residual::new().layer(first(0)).shortcut(first(1)).activation(Activation::Exponential);
    check(narrow, &[counted(&[2, 3])], &[2, 1], &[1.0, 6f64.exp()]);
    check(TimeDistributed::new(Flatten::new()), &[counted(&[1, 2, 2, 1])], &[1, 2, 2], &[0.0, 1.0, 2.0, 3.0]);
}

#[test]
fn names_inside_layers() {
    let mut variables = Variables::new();
    let mut t = Trace::new(&mut variables, Mode::Train);
    let x = t.input("x", f32s(&[2, 4]));
    let block = Residual::new().layer(Dense::new(3)).layer(Dense::new(3)).shortcut(Dense::new(3).no_bias());
    t.scope("block", |t| block.call(t, &[x])).unwrap();
    let names: Vec<&str> = variables.iter().map(|v| v.name.as_str()).collect();
    let expected = ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias", "shortcut/kernel"];
    assert_eq!(names, expected.map(|n| format!("block/{n}")));
}

#[test]
fn nothing_is_dropped_outside_training() {
    let x = counted(&[2, 3]);
    check(Dropout::new(0.5), &[x.clone()], &[2, 3], &x.to_f64());
    check(GaussianNoise::new(0.5), &[x.clone()], &[2, 3], &x.to_f64());
    check(SpatialDropout1D::new(0.5), &[counted(&[1, 2, 2])], &[1, 2, 2], &[0.0, 1.0, 2.0, 3.0]);
    let (y, _) = evaluate(&Dropout::new(0.0), Mode::Train, &[x.clone()]);
    assert_eq!(y.to_f64(), x.to_f64());
}

/// The part of the elements that dropout keeps, and that it keeps the mean; the gradient has the same mask.
#[test]
fn dropout_while_training() {
    let ones = Tensor::from_f64(DType::F32, [100, 100], &[1.0; 10_000]).unwrap();
    let (y, dx) = evaluate(&Dropout::new(0.2), Mode::Train, &[ones.clone()]);
    assert_eq!(y.to_f64(), dx.to_f64());
    assert!(y.to_f64().iter().all(|&v| v == 0.0 || (v - 1.25).abs() < 1e-6));
    let kept = y.to_f64().iter().filter(|&&v| v != 0.0).count();
    // Four standard deviations: sqrt(10000 * 0.2 * 0.8) = 40.
    assert!((7840..=8160).contains(&kept), "{kept} of 10000 kept");
    let (none, _) = evaluate(&Dropout::new(1.0), Mode::Train, &[ones]);
    assert!(none.to_f64().iter().all(|&v| v == 0.0));
}

#[test]
fn spatial_dropout_drops_channels() {
    let ones = Tensor::from_f64(DType::F32, [20, 4, 4, 10], &[1.0; 3200]).unwrap();
    let (y, _) = evaluate(&SpatialDropout2D::new(0.5), Mode::Train, &[ones]);
    let y = y.to_f64();
    let mut kept = 0;
    for sample in y.chunks(160) {
        for channel in 0..10 {
            let all = sample.iter().skip(channel).step_by(10);
            assert!(all.clone().all(|v| *v == sample[channel]));
            kept += (sample[channel] == 2.0) as usize;
        }
    }
    assert!((70..=130).contains(&kept), "{kept} of 200 channels kept");
}

#[test]
fn noise_has_the_given_deviation() {
    let zeros = Tensor::zeros(DType::F32, [100, 100]);
    let (y, dx) = evaluate(&GaussianNoise::new(0.5), Mode::Train, &[zeros]);
    let y = y.to_f64();
    let mean = y.iter().sum::<f64>() / 1e4;
    let deviation = (y.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 1e4).sqrt();
    assert!(mean.abs() < 0.02 && (deviation - 0.5).abs() < 0.02, "mean {mean}, deviation {deviation}");
    assert!(dx.to_f64().iter().all(|&v| v == 1.0));
}

#[test]
fn what_does_not_suit_is_refused() {
    check_refuses(Dense::new(3), &[f32s(&[4])], "dense: takes [batch, .., features], got [4]");
    check_refuses(Dense::new(3), &[f32s(&[4, 1]), f32s(&[4, 1])], "dense: takes one input, got 2");
    check_refuses(Dense::new(0), &[f32s(&[4, 1])], "dense: units must be positive, got 0");
    check_refuses(Flatten::new(), &[f32s(&[])], "flatten: takes [batch, ..], got []");
    check_refuses(Reshape::new([5, -1]), &[f32s(&[2, 3, 4])], "reshape: [2,3,4] cannot become [batch, 5, -1]");
    check_refuses(Reshape::new([1; 8]), &[f32s(&[2])], "reshape: 9 axes; at most 8 are supported");
    check_refuses(
        Permute::new([1, 3]),
        &[f32s(&[2, 3, 4])],
        "permute: [1, 3] is not an order of the axes 1 .. of an input [2,3,4]",
    );
    check_refuses(RepeatVector::new(2), &[f32s(&[2])], "repeat_vector: takes [batch, features], got [2]");
    check_refuses(
        ZeroPadding2D::new(1),
        &[f32s(&[2, 3, 4])],
        "zero_padding2d: takes [batch, height, width, channels], got [2,3,4]",
    );
    check_refuses(Cropping1D::new(2), &[f32s(&[2, 4, 1])], "cropping1d: cutting (2, 2) off leaves nothing of steps 4");
    check_refuses(UpSampling1D::new(0), &[f32s(&[2, 4, 1])], "up_sampling1d: cannot enlarge 4 cells by a factor of 0");
    check_refuses(Add::new(), &[f32s(&[2])], "add: takes two inputs or more, got 1");
    check_refuses(Subtract::new(), &[f32s(&[2])], "subtract: takes two inputs, got 1");
    check_refuses(Concatenate::new(), &[], "concatenate: takes one input or more, got none");
    check_refuses(
        Concatenate::new().axis(2),
        &[f32s(&[2, 1])],
        "concatenate: axis 2 of an input [2,1], which has 2 axes",
    );
    check_refuses(Dropout::new(1.5), &[f32s(&[2])], "dropout: the rate is a probability from 0 to 1, got 1.5");
    check_refuses(
        GaussianNoise::new(f64::NAN),
        &[f32s(&[2])],
        "gaussian_noise: the standard deviation is a number from 0, got NaN",
    );
    check_refuses(
        Residual::new().layer(Dense::new(3)),
        &[f32s(&[2, 4])],
        "residual: the inner layers give f32[2,3], the way around gives f32[2,4]; set a shortcut that gives the same",
    );
    check_refuses(
        TimeDistributed::new(Function::new(|t, x| Ok(t.sum_all(x[0])?))),
        &[f32s(&[2, 4, 3])],
        "time_distributed: the inner layer made [8,3] into [], which cannot be cut into 4 steps",
    );
}

#[test]
fn what_convolutions_refuse() {
    let image = f32s(&[2, 5, 4, 6]);
    check_refuses(
        Conv2D::new(3, 3),
        &[f32s(&[2, 5, 4])],
        "conv2d: takes [batch, height, width, channels], got [2,5,4]",
    );
    check_refuses(Conv2D::new(0, 3), &[image], "conv2d: filters must be positive, got 0");
    check_refuses(
        Conv2D::new(3, 5),
        &[image],
        "conv2d: a window of 5 does not fit into width 4; pad or use padding same",
    );
    check_refuses(
        Conv1D::new(3, 3).dilation(2),
        &[f32s(&[2, 4, 1])],
        "conv1d: a window of 3 (dilated by 2: 5) does not fit into steps 4; pad or use padding same",
    );
    check_refuses(Conv2D::new(3, 3).strides(0), &[image], "conv2d: the stride along height must be positive, got 0");
    check_refuses(Conv2D::new(3, [1, 0]), &[image], "conv2d: the window size along width must be positive, got 0");
    check_refuses(Conv2D::new(4, 3).groups(4), &[image], "conv2d: 6 input channels cannot be cut into 4 groups");
    check_refuses(Conv2D::new(4, 3).groups(3), &[image], "conv2d: 4 filters cannot be cut into 3 groups");
    check_refuses(
        Conv2D::new(4, 3).padding(Padding::Causal),
        &[image],
        "conv2d: padding causal is for sequences; use valid or same",
    );
    check_refuses(
        Conv1D::new(4, usize::MAX).dilation(2).same(),
        &[f32s(&[2, 4, 1])],
        "conv1d: a window of 18446744073709551615 along steps with dilation 2 is too large",
    );
    check_refuses(
        DepthwiseConv2D::new(3).depth_multiplier(0),
        &[image],
        "depthwise_conv2d: depth_multiplier must be positive, got 0",
    );
    check_refuses(
        Conv2DTranspose::new(3, 3).strides([2, 0]),
        &[image],
        "conv2d_transpose: a window of 3 with stride 0 and dilation 1 along width 4: each must be positive, and not too large",
    );
    check_refuses(
        MaxPool2D::new(5),
        &[image],
        "max_pooling2d: a window of 5 does not fit into width 4; pad or use padding same",
    );
    check_refuses(AvgPool1D::new(2), &[image], "average_pooling1d: takes [batch, steps, channels], got [2,5,4,6]");
    check_refuses(
        GlobalAvgPool2D::new(),
        &[f32s(&[2, 0, 4, 1])],
        "global_average_pooling2d: takes an image with one cell or more, got [2,0,4,1]",
    );
}

/// A separable convolution is a depthwise one and one of single cells.
#[test]
fn separable_convolution() {
    let mut variables = Variables::new();
    let mut t = Trace::new(&mut variables, Mode::Evaluate);
    let x = t.input("x", f32s(&[1, 3, 3, 2]));
    let layer = SeparableConv2D::new(3, 2).depth_multiplier(2).same().strides(2);
    let y = layer.call(&mut t, &[x]).unwrap();
    t.output("y", y);
    let first = DepthwiseConv2D::new(2).depth_multiplier(2).same().strides(2).no_bias();
    let h = t.scope("first", |t| first.call(t, &[x])).unwrap();
    let z = t.scope("second", |t| Conv2D::new(3, 1).call(t, &[h])).unwrap();
    t.output("z", z);
    let graph = t.finish();
    let shapes: Vec<(&str, String)> = variables.iter().map(|v| (v.name.as_str(), v.ty.to_string())).collect();
    let expected = [("depthwise_kernel", "f32[2,2,2,2]"), ("pointwise_kernel", "f32[1,1,4,3]"), ("bias", "f32[3]")];
    assert_eq!(shapes[..3], expected.map(|(n, s)| (n, s.to_owned())));
    let value = |name: &str, shape: &[usize], salt: f64| {
        let values: Vec<f64> = counted(shape).to_f64().iter().map(|v| (v * 0.7 + salt).sin()).collect();
        (name.to_owned(), Tensor::from_f64(DType::F32, shape, &values).unwrap())
    };
    let mut given = vec![value("x", &[1, 3, 3, 2], 0.0)];
    for names in [["depthwise_kernel", "first/kernel"], ["pointwise_kernel", "second/kernel"], ["bias", "second/bias"]]
    {
        let shape = variables.get(names[0]).unwrap().ty;
        given.extend(names.map(|name| value(name, shape.dims(), names[0].len() as f64)));
    }
    let given: Vec<(&str, Tensor)> = given.iter().map(|(n, v)| (n.as_str(), v.clone())).collect();
    let results = interpret(&graph, &given).unwrap();
    assert_eq!(results["y"].shape().dims(), [1, 2, 2, 3]);
    assert_eq!(results["y"].to_f64(), results["z"].to_f64());
}

#[test]
fn what_normalisations_refuse() {
    check_refuses(
        BatchNorm::new(),
        &[f32s(&[4])],
        "batch_normalization: takes [batch, .., channels] with an element or more, got [4]",
    );
    check_refuses(
        BatchNorm::new().axis(3),
        &[f32s(&[4, 2])],
        "batch_normalization: axis 3 of an input [4,2], which has 2 axes",
    );
    check_refuses(
        LayerNorm::new().axes([0]),
        &[f32s(&[4, 2])],
        "layer_normalization: axes [0] of an input [4,2]: one or more, each once, without the batch",
    );
    check_refuses(
        LayerNorm::new().axes([1, -1]),
        &[f32s(&[4, 2])],
        "layer_normalization: axes [1, -1] of an input [4,2]: one or more, each once, without the batch",
    );
    check_refuses(
        RmsNorm::new(),
        &[f32s(&[4, 0])],
        "rms_normalization: takes one element or more along axes [-1], got [4,0]",
    );
    check_refuses(
        GroupNorm::new(4),
        &[f32s(&[4, 3, 6])],
        "group_normalization: 6 channels cannot be cut into 4 groups",
    );
    check_refuses(
        GroupNorm::new(0),
        &[f32s(&[4, 3, 6])],
        "group_normalization: 6 channels cannot be cut into 0 groups",
    );
}

#[test]
fn what_attention_and_embedding_refuse() {
    let layer = || MultiHeadAttention::new(2, 3);
    let (query, value) = (f32s(&[2, 4, 6]), f32s(&[2, 5, 6]));
    let mask = |shape: &[usize]| TensorType::new(DType::Bool, shape);
    let kind = "multi_head_attention";
    check_refuses(layer(), &[f32s(&[4, 6])], &format!("{kind}: takes [batch, queries, features], got [4,6]"));
    check_refuses(MultiHeadAttention::new(0, 3), &[query], &format!("{kind}: heads must be positive, got 0"));
    check_refuses(layer().output_size(0), &[query], &format!("{kind}: output_size must be positive, got 0"));
    check_refuses(
        layer(),
        &[query, value, f32s(&[2, 4, 6])],
        &format!("{kind}: query [2,4,6], value [2,5,6] and key [2,4,6] differ in the batch or in the number of keys"),
    );
    check_refuses(
        layer(),
        &[query, value, mask(&[2, 4, 4])],
        &format!("{kind}: takes a mask [2,4,5], [2,5] or [2,2,4,5], got [2,4,4]"),
    );
    check_refuses(
        layer(),
        &[],
        &format!("{kind}: takes query, value, key and a bool mask, of which all but the first are optional; got 0"),
    );
    check_refuses(Embedding::new(0, 3), &[query], "embedding: input_dim must be positive, got 0");
    check_refuses(Embedding::new(3, 0), &[query], "embedding: output_dim must be positive, got 0");
}

/// Channels that are not last: as if they had been brought there and back.
#[test]
fn normalisations_over_other_axes() {
    let x = counted(&[2, 3, 4]);
    let around = |inner: Box<dyn Layer>| {
        Function::new(move |t, inputs| {
            let x = t.transpose(inputs[0], &[0, 2, 1])?;
            let y = inner.call(t, &[x])?;
            Ok(t.transpose(y, &[0, 2, 1])?)
        })
    };
    let pairs: [(Box<dyn Layer>, Box<dyn Layer>); 4] = [
        (Box::new(BatchNorm::new().axis(1).no_scale().no_center()), Box::new(BatchNorm::new().no_scale().no_center())),
        (
            Box::new(GroupNorm::new(3).axis(1).no_scale().no_center()),
            Box::new(GroupNorm::instance().no_scale().no_center()),
        ),
        (
            Box::new(LayerNorm::new().axes([1]).no_scale().no_center()),
            Box::new(LayerNorm::new().no_scale().no_center()),
        ),
        (
            Box::new(LayerNorm::new().axes([-2]).no_scale().no_center()),
            Box::new(LayerNorm::new().no_scale().no_center()),
        ),
    ];
    for (direct, last) in pairs {
        let (a, da) = evaluate_with(&*direct, Mode::Train, &[x.clone()], &statistics(3));
        let (b, db) = evaluate_with(&around(last), Mode::Train, &[x.clone()], &statistics(3));
        assert_eq!((a.to_f64(), da.to_f64()), (b.to_f64(), db.to_f64()), "{}", direct.kind());
    }
}

/// Running statistics as they start.
fn statistics(channels: usize) -> Vec<(&'static str, Tensor)> {
    let ones = Tensor::from_f64(DType::F32, [channels], &vec![1.0; channels]).unwrap();
    vec![("moving_mean", Tensor::zeros(DType::F32, [channels])), ("moving_variance", ones)]
}

/// Attention with next to nothing left out is attention.
#[test]
fn attention_with_dropout() {
    let weights: Vec<(&str, Tensor)> = [
        ("query/kernel", vec![4, 2, 3]),
        ("key/kernel", vec![4, 2, 3]),
        ("value/kernel", vec![4, 2, 3]),
        ("attention_output/kernel", vec![2, 3, 4]),
    ]
    .into_iter()
    .map(|(name, shape)| {
        let values: Vec<f64> = counted(&shape).to_f64().iter().map(|v| (v * 1.3 + name.len() as f64).sin()).collect();
        (name, Tensor::from_f64(DType::F32, &shape[..], &values).unwrap())
    })
    .collect();
    let x =
        Tensor::from_f64(DType::F32, [2, 3, 4], &counted(&[24]).to_f64().iter().map(|v| v.sin()).collect::<Vec<_>>());
    let mask = Tensor::from_f64(DType::Bool, [2, 3], &[1.0, 1.0, 0.0, 1.0, 1.0, 1.0]).unwrap();
    let inputs = [x.unwrap(), mask];
    for causal in [false, true] {
        let layer = MultiHeadAttention::new(2, 3).no_bias();
        let layer = if causal { layer.causal() } else { layer };
        let (a, da) = evaluate_with(&layer, Mode::Train, &inputs, &weights);
        let (b, db) = evaluate_with(&layer.dropout(1e-12), Mode::Train, &inputs, &weights);
        let close = |a: &Tensor, b: &Tensor| a.to_f64().iter().zip(b.to_f64()).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(close(&a, &b) && close(&da, &db), "causal: {causal}");
    }
}

#[test]
fn what_recurrent_layers_refuse() {
    let x = f32s(&[2, 4, 3]);
    let mask = |shape: &[usize]| TensorType::new(DType::Bool, shape);
    check_refuses(LSTM::new(5), &[f32s(&[2, 3])], "lstm: takes [batch, steps, features], got [2,3]");
    check_refuses(LSTM::new(0), &[x], "lstm: units must be positive, got 0");
    check_refuses(LSTM::new(5), &[f32s(&[2, 0, 3])], "lstm: takes a sequence of one step or more, got [2,0,3]");
    check_refuses(LSTM::new(5), &[x, f32s(&[2, 5])], "lstm: has 2 states, got 1 initial ones");
    check_refuses(GRU::new(5), &[x, f32s(&[2, 4])], "gru: takes initial states [2,5], got [2,4]");
    check_refuses(
        SimpleRNN::new(5),
        &[x, mask(&[2, 3])],
        "simple_rnn: takes a mask bool[2,4] for a sequence [2,4,3], got bool[2,3]",
    );
    check_refuses(GRU::new(5), &[], "gru: takes a sequence, and maybe initial states and a mask; got no input");
    check_refuses(GRU::new(5), &[x, mask(&[2, 4]), mask(&[2, 4])], "gru: takes one mask, got 2");
    check_refuses(
        Bidirectional::new(GRU::new(5)),
        &[x, f32s(&[2, 5])],
        "bidirectional: takes initial states for both ways, got 1",
    );
}

#[test]
fn messages_name_the_layer() {
    let mut variables = Variables::new();
    let mut t = Trace::new(&mut variables, Mode::Train);
    let x = t.input("x", f32s(&[4]));
    let error = t.scope("encoder", |t| t.scope("dense_3", |t| Dense::new(3).call(t, &[x]))).unwrap_err();
    assert_eq!(error.to_string(), "dense 'encoder/dense_3': takes [batch, .., features], got [4]");
}
