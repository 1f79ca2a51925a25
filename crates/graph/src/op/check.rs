//! One line per case: an op's kernel against its plain definition, its gradient against finite differences, the
//! workspace it uses against what it promises, its text form, its split rule.

use super::{Io, OpDef, Operand, Part, Reference, Sliced, Types};
use crate::{Graph, Split, Value, gradients_from, op};
use plimsoll_kernels::Pool;
use plimsoll_tensor::{DType, Shape, Tensor, TensorType};
use std::sync::Arc;

/// Checks an op on f32 and f64 inputs of these shapes, gradient included.
#[track_caller]
pub fn check_op(op: impl OpDef, shapes: &[&[usize]]) {
    let op: Arc<dyn OpDef> = Arc::new(op);
    for dtype in [DType::F32, DType::F64] {
        let inputs: Vec<Tensor> = (0..).zip(shapes).map(|(i, s)| random(dtype, s, i)).collect();
        check_kernel(&op, &inputs);
    }
    let inputs: Vec<Tensor> = (0..).zip(shapes).map(|(i, s)| random(DType::F64, s, i)).collect();
    check_gradient(&op, &inputs);
}

/// Checks an op's kernel on inputs of these types, without a gradient.
#[track_caller]
pub fn check_values(op: impl OpDef, inputs: &[(DType, &[usize])]) {
    let inputs: Vec<Tensor> = (0..).zip(inputs).map(|(i, (d, s))| random(*d, s, i)).collect();
    check_kernel(&(Arc::new(op) as Arc<dyn OpDef>), &inputs);
}

/// Checks an op on given inputs; `gradient` asks for the finite-difference check too (inputs then are f64).
#[track_caller]
#[allow(dead_code)]
pub fn check_on(op: impl OpDef, inputs: &[Tensor], gradient: bool) {
    let op: Arc<dyn OpDef> = Arc::new(op);
    check_kernel(&op, inputs);
    if gradient {
        check_gradient(&op, inputs);
    }
}

/// Checks that an op's shape rule says no with this message.
#[track_caller]
pub fn check_rejects(op: impl OpDef, shapes: &[&[usize]], message: &str) {
    let types: Vec<TensorType> = shapes.iter().map(|s| TensorType::new(DType::F32, *s)).collect();
    assert_eq!(op.infer(&types).unwrap_err(), message);
}

/// Numbers between -1 and 1 away from 0 (or small whole ones), different for each `salt`.
pub fn random(dtype: DType, shape: &[usize], salt: u64) -> Tensor {
    let mut z = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(salt + 1);
    let mut next = || {
        z = z.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let u = (z >> 40) as f64 / (1u64 << 24) as f64;
        match dtype {
            DType::Bool => (u > 0.5) as u8 as f64,
            DType::U8 => (u * 10.0).floor(),
            d if !d.is_float() => (u * 20.0).floor() - 10.0,
            _ => (0.1 + 0.9 * (2.0 * u - 1.0).abs()).copysign(2.0 * u - 1.0),
        }
    };
    let shape = Shape::new(shape);
    let data: Vec<f64> = (0..shape.elements()).map(|_| next()).collect();
    Tensor::from_f64(dtype, shape, &data).unwrap()
}

/// Memory aligned as the arena is.
struct Aligned {
    words: Vec<[u64; 8]>,
    bytes: usize,
}

impl Aligned {
    fn new(bytes: usize) -> Aligned {
        // One more line that nobody may write.
        Aligned { words: vec![[0xfeed_beef_dead_c0de; 8]; bytes.div_ceil(64) + 1], bytes }
    }

    fn ptr(&mut self) -> *mut u8 {
        self.words.as_mut_ptr().cast()
    }

    #[track_caller]
    fn check_guard(&self, what: &str) {
        let guard = self.words.last().unwrap();
        assert!(
            guard.iter().all(|&w| w == 0xfeed_beef_dead_c0de),
            "{what}: more than {} bytes were written",
            self.bytes
        );
    }
}

/// Runs a kernel on its own.
#[track_caller]
pub fn run_kernel(
    op: &Arc<dyn OpDef>,
    inputs: &[Tensor],
    threads: usize,
    in_place: Option<(usize, usize)>,
) -> Vec<Tensor> {
    let in_types: Vec<TensorType> = inputs.iter().map(|t| *t.ty()).collect();
    let out_types = op.infer(&in_types).unwrap();
    let types = Types { inputs: &in_types, outputs: &out_types };
    let mut in_memory: Vec<Aligned> = inputs.iter().map(|t| Aligned::new(t.ty().bytes())).collect();
    for (memory, tensor) in in_memory.iter_mut().zip(inputs) {
        // SAFETY: the memory is at least as large.
        unsafe { std::ptr::copy_nonoverlapping(tensor.bytes().as_ptr(), memory.ptr(), tensor.ty().bytes()) };
    }
    let mut out_memory: Vec<Aligned> = out_types.iter().map(|t| Aligned::new(t.bytes())).collect();
    let in_operands: Vec<Operand> =
        in_memory.iter_mut().zip(&in_types).map(|(m, t)| Operand { ptr: m.ptr(), ty: *t }).collect();
    let mut out_operands: Vec<Operand> =
        out_memory.iter_mut().zip(&out_types).map(|(m, t)| Operand { ptr: m.ptr(), ty: *t }).collect();
    for &(i, o) in op.mutates().iter().chain(&in_place) {
        out_operands[o].ptr = in_operands[i].ptr;
    }
    let mut workspace = Aligned::new(op.workspace(&types, threads));
    let (ptr, bytes) = (workspace.ptr(), workspace.bytes);
    let pool = Pool::new(threads);
    if op.is_view() {
        out_operands[0].ptr = in_operands[0].ptr;
    }
    // SAFETY: all operands are valid, apart from each other, and aligned; in place only as the op allows.
    let io = unsafe { Io::new(&in_operands, &out_operands, ptr, bytes, &pool) };
    op.run(&io).unwrap();
    workspace.check_guard("workspace");
    out_memory.iter().for_each(|m| m.check_guard("output"));
    in_memory.iter().for_each(|m| m.check_guard("input"));
    let read = |o: &Operand| {
        let mut t = Tensor::zeros(o.ty.dtype, o.ty.shape);
        // SAFETY: the operand holds that many bytes.
        unsafe { std::ptr::copy_nonoverlapping(o.ptr, t.bytes_mut().as_mut_ptr(), o.ty.bytes()) };
        t
    };
    out_operands.iter().map(read).collect()
}

#[track_caller]
fn check_kernel(op: &Arc<dyn OpDef>, inputs: &[Tensor]) {
    let refs: Vec<Reference> = inputs.iter().map(Reference::from_tensor).collect();
    let in_types: Vec<TensorType> = refs.iter().map(|r| r.ty).collect();
    let out_types = op.infer(&in_types).unwrap_or_else(|e| panic!("{}: {e}", op.name()));
    let want = op.reference(&refs.iter().collect::<Vec<_>>(), &out_types).unwrap();
    let got = run_kernel(op, inputs, 1, None);
    for (got, want) in got.iter().zip(&want) {
        check_close(op.name(), &got.to_f64(), &want.data, tolerance(got.dtype()));
    }
    for threads in [2, 3] {
        let again = run_kernel(op, inputs, threads, None);
        assert!(
            again.iter().zip(&got).all(|(a, b)| a.bytes() == b.bytes()),
            "{}: bits depend on the threads",
            op.name()
        );
    }
    let types = Types { inputs: &in_types, outputs: &out_types };
    for i in 0..inputs.len() {
        for o in 0..out_types.len() {
            if op.may_overwrite(i, o, &types) {
                let again = run_kernel(op, inputs, 2, Some((i, o)));
                assert!(again[o].bytes() == got[o].bytes(), "{}: bits differ in place ({i} -> {o})", op.name());
            }
        }
    }
    let text: Vec<(String, crate::Attr)> = op.attrs().into_iter().map(|(n, a)| (n.to_owned(), a)).collect();
    let parsed = op::parse(op.name(), &text).unwrap_or_else(|e| panic!("{}: {e}", op.name()));
    assert_eq!((parsed.name(), parsed.attrs()), (op.name(), op.attrs()), "text form");
    check_split(op, inputs, &want);
}

/// Cuts the inputs along each axis in two and checks that the split rule's claim about the outputs holds.
#[track_caller]
fn check_split(op: &Arc<dyn OpDef>, inputs: &[Tensor], whole: &[Reference]) {
    let in_types: Vec<TensorType> = inputs.iter().map(|t| *t.ty()).collect();
    let out_types: Vec<TensorType> = whole.iter().map(|r| r.ty).collect();
    let types = Types { inputs: &in_types, outputs: &out_types };
    let refs: Vec<Reference> = inputs.iter().map(Reference::from_tensor).collect();
    // Every input alone, and all together, along axis 0.
    let axes = |t: &TensorType| (0..t.shape.rank()).filter(|&a| t.shape[a] == 2 || t.shape[a] == 4).collect::<Vec<_>>();
    let mut cases: Vec<Vec<Split>> = Vec::new();
    for (i, ty) in in_types.iter().enumerate() {
        for a in axes(ty) {
            let mut case = vec![Split::Whole; inputs.len()];
            case[i] = Split::Axis(a);
            cases.push(case);
        }
    }
    if in_types.iter().all(|t| axes(t).contains(&0)) {
        cases.push(vec![Split::Axis(0); inputs.len()]);
    }
    for case in cases {
        let claim = op.split(&case, &types);
        assert_eq!(claim.len(), out_types.len(), "{}: one claim per output", op.name());
        let part = |half: usize| -> Vec<Reference> {
            let parts: Vec<Reference> = refs.iter().zip(&case).map(|(r, s)| cut(r, *s, half)).collect();
            let part_types: Vec<TensorType> = parts.iter().map(|r| r.ty).collect();
            let halves = Part { start: half, end: half + 1, batch: 2 };
            let op = op
                .on_part(&Sliced { part: halves, inputs: &case, outputs: &claim, types: &types })
                .unwrap_or(op.clone());
            let outs = op.infer(&part_types).unwrap_or_else(|e| panic!("{} on a slice: {e}", op.name()));
            op.reference(&parts.iter().collect::<Vec<_>>(), &outs).unwrap()
        };
        for (o, claim) in claim.iter().enumerate() {
            let (Split::Axis(_) | Split::Partial) = claim else { continue };
            let (first, second) = (part(0), part(1));
            for (half, got) in [(0, &first[o]), (1, &second[o])] {
                if let Split::Axis(_) = claim {
                    let want = cut(&whole[o], *claim, half);
                    assert_eq!(got.ty, want.ty, "{}: split {case:?} gives {claim:?}", op.name());
                    check_close(op.name(), &got.data, &want.data, 1e-9);
                }
            }
            if *claim == Split::Partial {
                let sum: Vec<f64> = first[o].data.iter().zip(&second[o].data).map(|(a, b)| a + b).collect();
                check_close(op.name(), &sum, &whole[o].data, 1e-9);
            }
        }
    }
}

/// One half of a value along a split axis; the value itself when it is whole.
fn cut(r: &Reference, split: Split, half: usize) -> Reference {
    let Split::Axis(axis) = split else { return r.clone() };
    let (outer, size, inner) = crate::op::reduce::around(&r.ty.shape, axis);
    let n = size / 2;
    let mut ty = r.ty;
    ty.shape.dims_mut()[axis] = n;
    let mut data = Vec::new();
    for o in 0..outer {
        let start = (o * size + half * n) * inner;
        data.extend_from_slice(&r.data[start..start + n * inner]);
    }
    Reference { ty, data }
}

/// Relative error allowed to a kernel of this type.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-11,
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        DType::F32 => 2e-5,
        _ => 0.0,
    }
}

#[track_caller]
pub fn check_close(what: &str, got: &[f64], want: &[f64], tolerance: f64) {
    assert_eq!(got.len(), want.len(), "{what}: number of elements");
    for (i, (&g, &w)) in got.iter().zip(want).enumerate() {
        let close = (g - w).abs() <= tolerance * w.abs().max(1.0) || g == w || g.is_nan() && w.is_nan();
        assert!(close, "{what}: element {i} is {g}, the plain definition gives {w}");
    }
}

/// The gradient of `sum(outputs * weights)` by the op's rule and by central differences of the plain definition.
#[track_caller]
fn check_gradient(op: &Arc<dyn OpDef>, inputs: &[Tensor]) {
    let mut g = Graph::new();
    let values: Vec<Value> = inputs.iter().enumerate().map(|(i, t)| g.input(&format!("x{i}"), *t.ty())).collect();
    let outputs = g.push_shared(op.clone(), &values).unwrap();
    let floats: Vec<Value> = outputs.iter().copied().filter(|&v| g.dtype(v).is_float()).collect();
    let weights: Vec<Tensor> =
        (0..).zip(&floats).map(|(i, &v)| random(DType::F64, g.shape(v).dims(), 100 + i)).collect();
    let mut seeds = Vec::new();
    for (i, &v) in floats.iter().enumerate() {
        let w = g.input(&format!("w{i}"), *g.ty(v));
        seeds.push((v, w));
    }
    let wanted: Vec<Value> = values.iter().copied().filter(|&v| g.dtype(v).is_float()).collect();
    let grads = gradients_from(&mut g, &seeds, &wanted).unwrap();
    for (i, grad) in grads.iter().enumerate() {
        if let Some(grad) = grad {
            g.output(&format!("d{i}"), *grad);
        }
    }
    let mut given: Vec<(String, Tensor)> =
        inputs.iter().enumerate().map(|(i, t)| (format!("x{i}"), t.clone())).collect();
    given.extend(weights.iter().enumerate().map(|(i, t)| (format!("w{i}"), t.clone())));
    let given: Vec<(&str, Tensor)> = given.iter().map(|(n, t)| (n.as_str(), t.clone())).collect();
    let results = crate::interpret(&g, &given).unwrap();

    let in_types: Vec<TensorType> = inputs.iter().map(|t| *t.ty()).collect();
    let out_types = op.infer(&in_types).unwrap();
    let loss = |inputs: &[Reference]| -> f64 {
        let outs = op.reference(&inputs.iter().collect::<Vec<_>>(), &out_types).unwrap();
        let floats = outs.iter().filter(|o| o.ty.dtype.is_float());
        floats.zip(&weights).map(|(o, w)| o.data.iter().zip(w.to_f64()).map(|(a, b)| a * b).sum::<f64>()).sum()
    };
    let base: Vec<Reference> = inputs.iter().map(Reference::from_tensor).collect();
    let mut wanted_index = 0;
    for (i, input) in inputs.iter().enumerate() {
        if !input.dtype().is_float() {
            continue;
        }
        let got = results.get(&format!("d{wanted_index}")).map(Tensor::to_f64);
        wanted_index += 1;
        // A rule may say that nothing flows (a mask, a statistic): then there is nothing to compare.
        let Some(got) = got else { continue };
        // Large values are sampled.
        let stride = (input.elements() / 200).max(1);
        for e in (0..input.elements()).step_by(stride) {
            let h = 1e-5;
            let shifted = |d: f64| {
                let mut moved = base.clone();
                moved[i].data[e] += d;
                loss(&moved)
            };
            let slope = (shifted(h) - shifted(-h)) / (2.0 * h);
            let error = (got[e] - slope).abs() / slope.abs().max(1.0);
            assert!(
                error < 1e-6,
                "{}: gradient of input {i} at {e} is {}, differences give {slope}",
                op.name(),
                got[e]
            );
        }
    }
}
