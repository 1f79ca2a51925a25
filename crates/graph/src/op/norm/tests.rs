use super::*;
use crate::op::check::{check_close, check_on, check_op, check_rejects, check_slices, random};
use crate::op::{OpDef, Types};
use plimsoll_tensor::{DType, Tensor};

const BOTH: [(bool, bool); 4] = [(true, true), (true, false), (false, true), (false, false)];

/// The shapes of an op's inputs: `x`, then the parameters.
fn shapes<'a>(x: &'a [usize], channels: &'a [usize], n: usize) -> Vec<&'a [usize]> {
    [vec![x], vec![channels; n]].concat()
}

#[test]
fn layer_norm() {
    for (scale, offset) in BOTH {
        let op = LayerNorm { epsilon: 1e-3, centred: true, scale, offset };
        let n = scale as usize + offset as usize;
        check_op(op.clone(), &shapes(&[4, 6], &[6], n));
        check_op(op.clone(), &shapes(&[2, 3, 40], &[40], n));
        check_op(op, &shapes(&[5], &[5], n));
        let op = LayerNormGrad { centred: true, scale, offset };
        let statistics: [&[usize]; 3] = [&[4], &[4], &[4, 6]];
        check_op(op, &[&shapes(&[4, 6], &[6], scale as usize)[..], &statistics].concat());
    }
}

#[test]
fn slices_give_the_same_bits() {
    let (cut, whole) = (Split::Axis(0), Split::Whole);
    let op = LayerNorm { epsilon: 1e-3, centred: true, scale: true, offset: true };
    check_slices(&op, &[&[9, 70], &[70], &[70]], &[cut, whole, whole]);
    let op = LayerNormGrad { centred: true, scale: true, offset: true };
    check_slices(&op, &[&[200, 6], &[6], &[200], &[200], &[200, 6]], &[cut, whole, cut, cut, cut]);
    check_slices(&op, &[&[20, 48, 6], &[6], &[20, 48], &[20, 48], &[20, 48, 6]], &[cut, whole, cut, cut, cut]);
    let op = GroupNorm { groups: 3, epsilon: 1e-3, scale: true, offset: true };
    check_slices(&op, &[&[5, 130, 6], &[6], &[6]], &[cut, whole, whole]);
    let op = GroupNormGrad { groups: 3, scale: true, offset: true };
    check_slices(&op, &[&[5, 130, 6], &[6], &[5, 3], &[5, 3], &[5, 130, 6]], &[cut, whole, cut, cut, cut]);
}

#[test]
fn rms_norm() {
    for scale in [true, false] {
        let op = LayerNorm { epsilon: 1e-3, centred: false, scale, offset: false };
        check_op(op.clone(), &shapes(&[4, 6], &[6], scale as usize));
        check_op(op, &shapes(&[2, 3, 40], &[40], scale as usize));
        let op = LayerNormGrad { centred: false, scale, offset: false };
        let statistics: [&[usize]; 2] = [&[4], &[4, 6]];
        check_op(op, &[&shapes(&[4, 6], &[6], scale as usize)[..], &statistics].concat());
    }
}

#[test]
fn group_norm() {
    for (scale, offset) in BOTH {
        let n = scale as usize + offset as usize;
        let op = GroupNorm { groups: 3, epsilon: 1e-3, scale, offset };
        check_op(op.clone(), &shapes(&[2, 5, 6], &[6], n));
        check_op(op.clone(), &shapes(&[4, 2, 3, 12], &[12], n));
        check_op(op, &shapes(&[2, 9], &[9], n));
        let op = GroupNormGrad { groups: 3, scale, offset };
        let statistics: [&[usize]; 3] = [&[2, 3], &[2, 3], &[2, 5, 6]];
        check_op(op, &[&shapes(&[2, 5, 6], &[6], scale as usize)[..], &statistics].concat());
    }
}

/// Batch norm with nothing but plain ops: the result and the mean.
fn plain_batch_norm(g: &mut Graph, x: Value, scale: Option<Value>, offset: Option<Value>, epsilon: f64) -> [Value; 2] {
    let axes: Vec<usize> = (0..g.shape(x).rank() - 1).collect();
    let mean = g.mean(x, &axes, false).unwrap();
    let centred = g.sub(x, mean).unwrap();
    let squares = g.square(centred).unwrap();
    let variance = g.mean(squares, &axes, false).unwrap();
    let shifted = g.shift(variance, epsilon).unwrap();
    let deviation = g.sqrt(shifted).unwrap();
    let normal = g.div(centred, deviation).unwrap();
    [with_parameters(g, normal, [scale, offset]).unwrap(), mean]
}

#[test]
fn batch_norm() {
    check_op(BatchStats, &[&[7, 3]]);
    check_op(BatchStats, &[&[2, 5, 5, 4]]);
    for (scale, offset) in BOTH {
        let (mut g, ty) = (Graph::new(), |shape: &[usize]| TensorType::new(DType::F64, shape));
        let x = g.input("x", ty(&[6, 5, 3]));
        let [scale, offset] = [("scale", scale), ("offset", offset)].map(|(n, is)| is.then(|| g.input(n, ty(&[3]))));
        let plain = plain_batch_norm(&mut g, x, scale, offset, 1e-3);
        let [y, mean, _] = g.batch_norm(x, scale, offset, 1e-3).unwrap();
        let sources: Vec<Value> = [Some(x), scale, offset].into_iter().flatten().collect();
        let (dy, dmean) = (g.input("dy", ty(&[6, 5, 3])), g.input("dmean", ty(&[3])));
        // Alone, and with statistics that are used for something else besides, which has a gradient too.
        let mut pairs = vec![(y, plain[0]), (mean, plain[1])];
        for n in [1, 2] {
            let seeds = |values: [Value; 2]| [(values[0], dy), (values[1], dmean)];
            let ours = crate::gradients_from(&mut g, &seeds([y, mean])[..n], &sources).unwrap();
            let theirs = crate::gradients_from(&mut g, &seeds(plain)[..n], &sources).unwrap();
            pairs.extend(ours.into_iter().zip(theirs).map(|(a, b)| (a.unwrap(), b.unwrap())));
        }
        for (i, (a, b)) in pairs.iter().enumerate() {
            g.output(&format!("ours{i}"), *a);
            g.output(&format!("plain{i}"), *b);
        }
        let shapes =
            [("x", vec![6, 5, 3]), ("scale", vec![3]), ("offset", vec![3]), ("dy", vec![6, 5, 3]), ("dmean", vec![3])];
        let there = |name: &str| g.inputs().any(|(_, n)| n == name);
        let given: Vec<(&str, Tensor)> = (0..)
            .zip(&shapes)
            .filter(|(_, (n, _))| there(n))
            .map(|(i, (n, s))| (*n, random(DType::F64, s, i)))
            .collect();
        let results = crate::interpret(&g, &given).unwrap();
        for i in 0..pairs.len() {
            let [a, b] = [format!("ours{i}"), format!("plain{i}")].map(|name| results[&name].to_f64());
            check_close("batch norm", &a, &b, 1e-11);
        }
    }
}

#[test]
fn gradient_of_the_gradient_of_batch_norm() {
    // A variance is not negative, so the usual inputs do not do.
    for scale in [true, false] {
        let mut variance = random(DType::F64, &[3], 3).to_f64();
        variance.iter_mut().for_each(|v| *v = v.abs());
        let variance = Tensor::from_f64(DType::F64, [3], &variance).unwrap();
        let mut inputs = vec![random(DType::F64, &[7, 3], 1)];
        inputs.extend(scale.then(|| random(DType::F64, &[3], 5)));
        inputs.extend([random(DType::F64, &[3], 2), variance, random(DType::F64, &[7, 3], 4)]);
        check_on(BatchNormGrad { epsilon: 1e-3, scale }, &inputs, true);
    }
}

/// Compares the rule for gradients that come through `y` alone, which uses the gradient op, with the formula, which is
/// used as soon as a statistic has a gradient too (here: zeros).
#[track_caller]
fn check_rule(op: impl OpDef + Clone, shapes: &[&[usize]]) {
    let mut g = Graph::new();
    let ty = |shape: &[usize]| TensorType::new(DType::F64, shape);
    let inputs: Vec<Value> = shapes.iter().enumerate().map(|(i, s)| g.input(&format!("x{i}"), ty(s))).collect();
    let outputs = g.push(op, &inputs).unwrap();
    let dy = g.input("dy", *g.ty(outputs[0]));
    let (zero, statistics) = (g.constant(0.0, DType::F64).unwrap(), g.shape(outputs[1]));
    let zeros = g.broadcast(zero, statistics).unwrap();
    let by_op = crate::gradients_from(&mut g, &[(outputs[0], dy)], &inputs).unwrap();
    let seeds = [(outputs[0], dy), (outputs[1], zeros)];
    let by_formula = crate::gradients_from(&mut g, &seeds, &inputs).unwrap();
    for (i, (a, b)) in by_op.iter().zip(&by_formula).enumerate() {
        g.output(&format!("op{i}"), a.unwrap());
        g.output(&format!("formula{i}"), b.unwrap());
    }
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("x{i}")).chain(["dy".into()]).collect();
    let values = (0..).zip(shapes.iter().chain(&shapes[..1])).map(|(salt, s)| random(DType::F64, s, salt));
    let given: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(values).collect();
    let results = crate::interpret(&g, &given).unwrap();
    for i in 0..inputs.len() {
        let [a, b] = [format!("op{i}"), format!("formula{i}")].map(|name| results[&name].to_f64());
        check_close("gradient", &a, &b, 1e-11);
    }
}

#[test]
fn gradient_ops_agree_with_the_formula() {
    for (scale, offset) in BOTH {
        let n = scale as usize + offset as usize;
        check_rule(LayerNorm { epsilon: 1e-3, centred: true, scale, offset }, &shapes(&[3, 2, 6], &[6], n));
        check_rule(GroupNorm { groups: 2, epsilon: 1e-3, scale, offset }, &shapes(&[3, 5, 6], &[6], n));
    }
    check_rule(LayerNorm { epsilon: 1e-3, centred: false, scale: true, offset: false }, &[&[3, 6], &[6]]);
}

#[test]
fn slices_of_the_batch() {
    let whole = |op: &dyn OpDef, inputs: &[TensorType], splits: &[Split]| {
        let outputs = op.infer(inputs).unwrap();
        op.split(splits, &Types { inputs, outputs: &outputs })
    };
    let ty = |shape: &[usize]| TensorType::new(DType::F32, shape);
    let (rows, all) = (Split::Axis(0), Split::Whole);
    let layer = LayerNorm { epsilon: 1e-5, centred: true, scale: true, offset: true };
    assert_eq!(whole(&layer, &[ty(&[4, 6]), ty(&[6]), ty(&[6])], &[rows, all, all]), [rows; 3]);
    let grad = LayerNormGrad { centred: true, scale: true, offset: true };
    let types = [ty(&[4, 6]), ty(&[6]), ty(&[4]), ty(&[4]), ty(&[4, 6])];
    let partial = Split::Partial;
    assert_eq!(whole(&grad, &types, &[rows, all, rows, rows, rows]), [rows, partial, partial]);
    assert_eq!(whole(&grad, &types, &[rows, all, rows, rows, all]), [Split::Mixed; 3]);

    let group = GroupNorm { groups: 2, epsilon: 1e-5, scale: false, offset: false };
    assert_eq!(whole(&group, &[ty(&[4, 5, 6])], &[rows]), [rows; 3]);
    assert_eq!(whole(&group, &[ty(&[4, 5, 6])], &[Split::Axis(1)]), [Split::Mixed; 3]);
    let grad = GroupNormGrad { groups: 2, scale: false, offset: true };
    let types = [ty(&[4, 5, 6]), ty(&[4, 2]), ty(&[4, 2]), ty(&[4, 5, 6])];
    assert_eq!(whole(&grad, &types, &[rows; 4]), [rows, partial]);

    assert_eq!(whole(&BatchStats, &[ty(&[4, 6])], &[rows]), [Split::Mixed; 2]);
}

#[test]
fn refusals() {
    let layer = LayerNorm { epsilon: 1e-5, centred: true, scale: true, offset: false };
    check_rejects(layer.clone(), &[&[2, 3]], "takes 2 inputs, got 1");
    check_rejects(layer.clone(), &[&[2, 3], &[2]], "[2,3] wants parameters [3], got [2]");
    check_rejects(layer, &[&[2, 0], &[0]], "the last axis is empty");
    let group = |groups| GroupNorm { groups, epsilon: 1e-5, scale: false, offset: false };
    check_rejects(group(4), &[&[2, 3, 6]], "6 channels cannot be put into 4 groups of one size");
    check_rejects(group(2), &[&[6]], "takes [samples, .., channels], got [6]");
    check_rejects(group(2), &[&[2, 0, 6]], "[2,0,6] has no positions");
    check_rejects(BatchStats, &[&[0, 6]], "[0,6] has no rows");
    let batch = BatchNorm { epsilon: 1e-5, scale: true, offset: false };
    check_rejects(batch.clone(), &[&[4, 6], &[4, 3], &[3], &[3], &[3]], "shapes differ: [4,6] and [4,3]");
    check_rejects(batch, &[&[4, 6], &[4, 6], &[6], &[6], &[3]], "[4,6] wants parameters [6], got [3]");
    let grad = LayerNormGrad { centred: true, scale: false, offset: false };
    check_rejects(grad, &[&[2, 3], &[2], &[3], &[2, 3]], "[2,3] wants statistics [2], got [3]");
}
