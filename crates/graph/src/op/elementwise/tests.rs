use super::*;
use crate::op::check::{check_on, check_op, check_rejects, check_slices_on, check_values, random};
use plimsoll_tensor::Tensor;

/// Positive numbers away from 0 and 1, where every function is smooth.
fn positive(dtype: DType, shape: &[usize], salt: u64) -> Tensor {
    let data: Vec<f64> = random(DType::F64, shape, salt).to_f64().iter().map(|v| 0.05 + 0.9 * v.abs()).collect();
    Tensor::from_f64(dtype, shape, &data).unwrap()
}

#[test]
fn every_function_of_one_argument() {
    for &f in Fn1::ALL.iter().filter(|f| !f.is_test()) {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            check_on(Unary(f), &[positive(dtype, &[7, 5], 1)], false);
        }
        check_on(Unary(f), &[positive(DType::F64, &[3, 5], 1)], true);
        if f.takes_integers() {
            check_values(Unary(f), &[(DType::I32, &[40])]);
            check_values(Unary(f), &[(DType::I64, &[40])]);
        }
    }
    check_values(Unary(Fn1::Not), &[(DType::Bool, &[9])]);
    check_values(Unary(Fn1::IsFinite), &[(DType::F32, &[9])]);
}

#[test]
fn every_function_of_two_arguments() {
    for &f in Fn2::ALL {
        if !f.is_bitwise() {
            check_on(Binary(f), &[positive(DType::F32, &[4, 3], 1), positive(DType::F32, &[4, 3], 2)], false);
            check_on(Binary(f), &[positive(DType::BF16, &[4, 3], 1), positive(DType::BF16, &[3], 2)], false);
            if !matches!(f, Fn2::FloorDiv | Fn2::Rem) {
                check_on(Binary(f), &[positive(DType::F64, &[4, 3], 1), positive(DType::F64, &[4, 1], 2)], true);
            }
        }
        if f != Fn2::Atan2 && f != Fn2::Pow {
            check_values(Binary(f), &[(DType::I32, &[60]), (DType::I32, &[60])]);
            check_values(Binary(f), &[(DType::I64, &[60]), (DType::I64, &[1])]);
        }
    }
}

#[test]
fn broadcasting_of_every_kind() {
    for (a, b) in [
        (&[2usize, 3, 4][..], &[4usize][..]),
        (&[2, 3, 4], &[2, 1, 1]),
        (&[2, 1, 4], &[3, 1]),
        (&[], &[5]),
        (&[1, 3, 1, 2], &[4, 1, 5, 1]),
        (&[2000, 3], &[3]),
        (&[3, 2000], &[3, 1]),
        (&[0, 3], &[3]),
    ] {
        check_op(Binary(Fn2::Mul), &[a, b]);
        check_op(Binary(Fn2::Sub), &[b, a]);
    }
}

#[test]
fn operands_that_repeat_over_many_blocks() {
    // Periods that divide a block, that do not, that are as long as one or longer; several tasks, the last one ragged.
    for period in [1, 3, 64, 100, 512, 1024, 1500, 4096] {
        for dtype in [DType::F32, DType::BF16, DType::F64] {
            let rows = 40_000 / period + 1;
            let steps = vec![
                (Step::Load(0), dtype),
                (Step::Load(1), dtype),
                (Step::Binary(Fn2::Sub, 0, 1), dtype),
                (Step::Constant(0.3), dtype),
                (Step::Binary(Fn2::Mul, 2, 3), dtype),
                (Step::Load(2), dtype),
                (Step::Binary(Fn2::Max, 4, 5), dtype),
                (Step::Constant(1.7), dtype),
                (Step::Binary(Fn2::Add, 6, 7), dtype),
                (Step::Load(3), dtype),
                (Step::Binary(Fn2::Mul, 8, 9), dtype),
            ];
            let op = Fused::new(Program::new(steps).unwrap(), Shape::new(&[rows, period]));
            let inputs = [(&[rows, period][..], 1), (&[period], 2), (&[1, period], 3), (&[], 4)];
            check_on(op, &inputs.map(|(shape, salt)| random(dtype, shape, salt)), false);
            let copy = Fused::new(Program::new(vec![(Step::Load(0), dtype)]).unwrap(), Shape::new(&[rows, period]));
            check_on(copy, &[random(dtype, &[period], 5)], false);
        }
    }
}

#[test]
fn select_cast_index() {
    let condition = random(DType::Bool, &[4, 3], 9);
    for dtype in [DType::F32, DType::I64, DType::U8, DType::F16] {
        check_on(Select, &[condition.clone(), random(dtype, &[4, 3], 1), random(dtype, &[3], 2)], false);
    }
    check_on(Select, &[condition, random(DType::F64, &[4, 3], 1), random(DType::F64, &[], 2)], true);
    for from in DType::ALL {
        for dtype in DType::ALL {
            let input =
                if from.is_float() && dtype == DType::U8 { positive(from, &[20], 3) } else { random(from, &[20], 3) };
            if matches!(from, DType::I32 | DType::I64) && dtype == DType::U8 {
                continue;
            }
            check_on(Cast { dtype }, &[input], false);
        }
    }
    check_op(Cast { dtype: DType::F64 }, &[&[5]]);
    check_values(Index { shape: Shape::new(&[2, 3, 4]), axis: 1, dtype: DType::I32 }, &[]);
    check_values(Constant { value: 2.5, dtype: DType::F16 }, &[]);
}

#[test]
fn slices_draw_the_numbers_of_the_whole() {
    let key = Tensor::from_f64(DType::I64, [2], &[3.0, 11.0]).unwrap();
    for (shape, axis) in [(&[9usize, 130][..], 0), (&[2500], 0), (&[1, 30, 70], 1)] {
        for dtype in [DType::F32, DType::F64] {
            // Dropout, and each row's number added.
            let inner = shape[axis + 1..].iter().product::<usize>() as u32;
            let steps = vec![
                (Step::Load(0), dtype),
                (Step::Random { distribution: Distribution::Uniform, stream: 5, key: 1 }, dtype),
                (Step::Constant(0.3), dtype),
                (Step::Binary(Fn2::Lt, 1, 2), DType::Bool),
                (Step::Select(3, 2, 0), dtype),
                (Step::Index { inner, size: shape[axis] as u32 }, dtype),
                (Step::Binary(Fn2::Add, 4, 5), dtype),
            ];
            let op = Fused::new(Program::new(steps).unwrap(), Shape::new(shape));
            let inputs = [random(dtype, shape, 1), key.clone()];
            check_slices_on(&op, &inputs, &[Split::Axis(axis), Split::Whole]);
            check_on(op, &inputs, false);
        }
    }
    // Along another axis the numbers of a slice have gaps.
    let steps = vec![
        (Step::Load(0), DType::F32),
        (Step::Random { distribution: Distribution::Normal, stream: 5, key: 1 }, DType::F32),
        (Step::Binary(Fn2::Add, 0, 1), DType::F32),
    ];
    let op = Fused::new(Program::new(steps).unwrap(), Shape::new(&[4, 6]));
    let (x, key) = (TensorType::new(DType::F32, [4, 6]), TensorType::new(DType::I64, [2]));
    let types = Types { inputs: &[x, key], outputs: &[x] };
    assert_eq!(op.split(&[Split::Axis(1), Split::Whole], &types), [Split::Mixed]);
    assert_eq!(op.split(&[Split::Axis(0), Split::Whole], &types), [Split::Axis(0)]);
}

#[test]
fn a_fused_chain_equals_its_parts() {
    // y = relu(x * 2 + b).
    let steps = vec![
        (Step::Load(0), DType::F32),
        (Step::Constant(2.0), DType::F32),
        (Step::Binary(Fn2::Mul, 0, 1), DType::F32),
        (Step::Load(1), DType::F32),
        (Step::Binary(Fn2::Add, 2, 3), DType::F32),
        (Step::Unary(Fn1::Relu, 4), DType::F32),
    ];
    let fused = Fused::new(Program::new(steps).unwrap(), Shape::new(&[70, 50]));
    check_values(fused, &[(DType::F32, &[70, 50]), (DType::F32, &[50])]);
}

#[test]
fn what_cannot_be() {
    check_rejects(Binary(Fn2::Add), &[&[2, 3], &[2, 4]], "shapes do not broadcast: [2,3] and [2,4]");
    check_rejects(Binary(Fn2::And), &[&[2], &[2]], "takes bools or integers, got f32");
    check_rejects(Unary(Fn1::Not), &[&[2]], "takes bool, got f32");
    check_rejects(Select, &[&[2], &[2], &[2]], "the condition is bool, got f32");
}
