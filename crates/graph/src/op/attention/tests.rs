use super::*;
use crate::gradients;
use crate::op::check::{check_on, check_op, check_rejects, check_slices_on, random, run_kernel};
use plimsoll_tensor::Tensor;

const PLAIN: Attention =
    Attention { scale: 0.7, causal: false, packed: false, mask: false, dropout: 0.0, stream: 0, first_sample: 0 };

fn grad_of(op: &Attention, lse: bool) -> AttentionGrad {
    let Attention { scale, causal, packed, mask, dropout, stream, first_sample } = *op;
    AttentionGrad { scale, causal, packed, lse, mask, dropout, stream, first_sample }
}

/// Checks the gradient op's kernel on consistent inputs, those that the forward op gives.
#[track_caller]
fn check_grad(op: &Attention, inputs: &[Tensor], lse: bool) {
    let refs: Vec<Reference> = inputs.iter().map(Reference::from_tensor).collect();
    let types: Vec<TensorType> = refs.iter().map(|r| r.ty).collect();
    let outputs = op.reference(&refs.iter().collect::<Vec<_>>(), &op.infer(&types).unwrap()).unwrap();
    let operands = op.form().operands();
    let [y, l] = [0, 1].map(|i| outputs[i].to_tensor());
    let dy = random(y.dtype(), y.ty().dims(), 7);
    let dlse = random(l.dtype(), l.ty().dims(), 8);
    let mut all = [&inputs[..operands], &[y, l, dy]].concat();
    all.extend(lse.then_some(dlse));
    all.extend_from_slice(&inputs[operands..]);
    check_on(grad_of(op, lse), &all, false);
}

#[track_caller]
fn check(op: Attention, shapes: &[&[usize]]) {
    check_op(op.clone(), shapes);
    for dtype in [DType::F32, DType::F64] {
        let inputs: Vec<Tensor> = (0..).zip(shapes).map(|(i, s)| random(dtype, s, i)).collect();
        check_grad(&op, &inputs, false);
        check_grad(&op, &inputs, true);
    }
}

#[test]
fn separate_values() {
    for causal in [false, true] {
        let op = Attention { causal, ..PLAIN };
        check(op.clone(), &[&[2, 3, 2, 4], &[2, 5, 2, 4], &[2, 5, 2, 3]]);
        check(op.clone(), &[&[2, 3, 4, 3], &[2, 3, 2, 3], &[2, 3, 2, 3]]);
        check(op, &[&[1, 70, 1, 2], &[1, 70, 1, 2], &[1, 70, 1, 2]]);
    }
}

#[test]
fn packed_value() {
    for causal in [false, true] {
        let op = Attention { causal, packed: true, ..PLAIN };
        check(op.clone(), &[&[2, 5, 3, 2, 4]]);
        check(op.clone(), &[&[4, 6, 3, 4, 3]]);
        check(op, &[&[0, 6, 3, 4, 3]]);
    }
}

#[test]
fn masks() {
    let op = Attention { mask: true, ..PLAIN };
    for mask in [[2, 2, 3, 5], [2, 1, 1, 5], [1, 1, 3, 5], [1, 2, 1, 5]] {
        for kind in [DType::F64, DType::Bool] {
            let mut inputs: Vec<Tensor> =
                [[2, 3, 2, 4], [2, 5, 2, 4], [2, 5, 2, 3]].iter().map(|s| random(DType::F64, s, s[1] as u64)).collect();
            inputs.push(random(kind, &mask, 5));
            check_on(op.clone(), &inputs, false);
            check_grad(&op, &inputs, true);
        }
    }
}

#[test]
fn the_gradient_through_a_mask_agrees_with_differences() {
    let op = Attention { mask: true, ..PLAIN };
    let mut inputs: Vec<Tensor> = (1..4).map(|salt| random(DType::F64, &[1, 4, 1, 3], salt)).collect();
    inputs.push(random(DType::Bool, &[1, 1, 4, 4], 3));
    let hidden: Vec<f64> = inputs[3].to_f64();
    assert!(hidden.contains(&0.0) && hidden.contains(&1.0));
    // Every query must see something: differences of an infinite log-sum-exp say nothing.
    let seen: Vec<f64> = hidden.iter().enumerate().map(|(i, &m)| if i % 5 == 0 { 1.0 } else { m }).collect();
    inputs[3] = Tensor::from_f64(DType::Bool, [1, 1, 4, 4], &seen).unwrap();
    check_on(op, &inputs, true);
}

#[test]
fn dropout() {
    let key = Tensor::from_f64(DType::I64, [2], &[3.0, 11.0]).unwrap();
    for packed in [false, true] {
        let op = Attention { dropout: 0.4, stream: 2, causal: true, packed, ..PLAIN };
        let shapes: Vec<&[usize]> = if packed { vec![&[2, 5, 3, 2, 4]] } else { vec![&[2, 5, 2, 4]; 3] };
        let mut inputs: Vec<Tensor> = (0..).zip(&shapes).map(|(i, s)| random(DType::F64, s, i)).collect();
        inputs.push(key.clone());
        check_on(op.clone(), &inputs, true);
        check_grad(&op, &inputs, true);
        if !packed {
            inputs.insert(3, random(DType::Bool, &[1, 1, 5, 5], 2));
            check_grad(&Attention { mask: true, ..op.clone() }, &inputs, false);
        }
    }
    let op = Attention { dropout: 0.4, packed: true, ..PLAIN };
    check_rejects(op, &[&[2, 5, 3, 2, 4], &[2]], "the key is i64[2] (seed and step), got f32[2]");
    let op = Attention { dropout: 1.0, packed: true, ..PLAIN };
    check_rejects(op, &[&[2, 5, 3, 2, 4], &[2]], "dropout 1 is not in [0, 1)");
}

#[test]
fn slices_give_the_same_bits() {
    let key = Tensor::from_f64(DType::I64, [2], &[3.0, 11.0]).unwrap();
    let (cut, whole) = (Split::Axis(0), Split::Whole);
    for (dropout, dtype) in [(0.0, DType::F32), (0.4, DType::F32), (0.4, DType::F64)] {
        let op = Attention { dropout, stream: 2, causal: true, packed: true, ..PLAIN };
        let mut inputs = vec![random(dtype, &[5, 70, 3, 2, 9], 1)];
        inputs.extend((dropout > 0.0).then(|| key.clone()));
        check_slices_on(&op, &inputs, &[cut, whole][..inputs.len()]);
        let results = run_kernel(&(Arc::new(op.clone()) as Arc<dyn OpDef>), &inputs, 1, None);
        let dy = random(dtype, results[0].ty().dims(), 7);
        inputs.splice(1..1, results.into_iter().chain([dy]));
        check_slices_on(&grad_of(&op, false), &inputs, &[cut, cut, cut, cut, whole][..inputs.len()]);
    }
}

#[test]
fn a_learned_mask_is_refused_and_so_are_second_derivatives() {
    let mut g = Graph::new();
    let ty = TensorType::new(DType::F32, [1, 2, 1, 2]);
    let qkv = [g.input("q", ty), g.input("k", ty), g.input("v", ty)];
    let mask = g.input("mask", TensorType::new(DType::F32, [1, 1, 2, 2]));
    let y = g.attention(qkv, Look { mask: Some(mask), ..Look::scaled(1.0) }).unwrap();
    let error = gradients(&mut g, y, &[mask]).unwrap_err().to_string();
    assert_eq!(error, "attention has no gradient: its mask is a constant; stop the gradient there");
    let dq = gradients(&mut g, y, &[qkv[0]]).unwrap()[0].unwrap();
    assert!(gradients(&mut g, dq, &[qkv[0]]).unwrap_err().to_string().contains("first derivatives only"));
}

#[test]
fn refusals() {
    let packed = Attention { packed: true, ..PLAIN };
    check_rejects(packed, &[&[2, 5, 2, 4]], "takes [batch, time, 3, heads, depth], got [2,5,2,4]");
    check_rejects(PLAIN, &[&[2, 5], &[2, 5], &[2, 5]], "takes values with 4 axes, got [2,5], [2,5] and [2,5]");
    let (q, k): (&[usize], &[usize]) = (&[2, 3, 4, 5], &[2, 6, 3, 5]);
    check_rejects(PLAIN, &[q, k, k], "queries [2,3,4,5] and keys [2,6,3,5] do not fit");
    let (k, v): (&[usize], &[usize]) = (&[2, 6, 2, 5], &[2, 7, 2, 5]);
    check_rejects(PLAIN, &[q, k, v], "keys [2,6,2,5] and values [2,7,2,5] do not fit");
    let masked = Attention { mask: true, ..PLAIN };
    check_rejects(masked, &[q, k, k, &[2, 4, 3, 1]], "scores [2,4,3,6] and mask [2,4,3,1] do not fit");
}

#[test]
fn slices_of_the_batch() {
    let split = |op: &dyn OpDef, shapes: &[&[usize]], splits: &[Split]| {
        let inputs: Vec<TensorType> = shapes.iter().map(|s| TensorType::new(DType::F32, *s)).collect();
        let outputs = op.infer(&inputs).unwrap();
        op.split(splits, &Types { inputs: &inputs, outputs: &outputs })
    };
    let (x, samples, whole): (&[usize], _, _) = (&[4, 6, 2, 5], Split::Axis(0), Split::Whole);
    assert_eq!(split(&PLAIN, &[x, x, x], &[samples; 3]), [samples; 2]);
    assert_eq!(split(&PLAIN, &[x, x, x], &[Split::Axis(2); 3]), [Split::Axis(2), Split::Axis(1)]);
    assert_eq!(split(&PLAIN, &[x, x, x], &[Split::Axis(1); 3]), [Split::Mixed; 2]);
    let masked = Attention { mask: true, ..PLAIN };
    let shared: &[usize] = &[1, 1, 6, 6];
    let own: &[usize] = &[4, 1, 1, 6];
    assert_eq!(split(&masked, &[x, x, x, shared], &[samples, samples, samples, whole]), [samples; 2]);
    assert_eq!(split(&masked, &[x, x, x, own], &[samples; 4]), [samples; 2]);
    assert_eq!(split(&masked, &[x, x, x, own], &[samples, samples, samples, whole]), [Split::Mixed; 2]);

    let rows: &[usize] = &[4, 2, 6];
    let grad = grad_of(&PLAIN, false);
    assert_eq!(split(&grad, &[x, x, x, x, rows, x], &[samples; 6]), [samples; 3]);
    let packed = grad_of(&Attention { packed: true, ..PLAIN }, true);
    let qkv: &[usize] = &[4, 6, 3, 2, 5];
    assert_eq!(split(&packed, &[qkv, x, rows, x, rows], &[samples; 5]), [samples]);
    let heads = [Split::Axis(3), Split::Axis(2), Split::Axis(1), Split::Axis(2), Split::Axis(1)];
    assert_eq!(split(&packed, &[qkv, x, rows, x, rows], &heads), [Split::Axis(3)]);
}
