//! One line per case: an op's kernel against its plain definition, its gradient against finite differences, the
//! workspace it uses against what it promises, its text form, its split rule, the bits on slices of the batch.

use super::adding::Adding;
use super::{Exact, Io, OpDef, Operand, Part, Reference, Sliced, Types};
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
            DType::U8 | DType::U16 | DType::U32 => (u * 10.0).floor(),
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

/// Cuts the inputs along each axis and checks that the split rule's claim about the outputs holds, bit for bit with slices
/// that the op calls exact.
#[track_caller]
fn check_split(op: &Arc<dyn OpDef>, inputs: &[Tensor], whole: &[Reference]) {
    let in_types: Vec<TensorType> = inputs.iter().map(|t| *t.ty()).collect();
    let out_types: Vec<TensorType> = whole.iter().map(|r| r.ty).collect();
    let types = Types { inputs: &in_types, outputs: &out_types };
    let refs: Vec<Reference> = inputs.iter().map(Reference::from_tensor).collect();
    for (case, batch) in cases(&in_types) {
        let claim = op.split(&case, &types);
        assert_eq!(claim.len(), out_types.len(), "{}: one claim per output", op.name());
        let part = |part: Part| -> Vec<Reference> {
            let parts: Vec<Reference> = refs.iter().zip(&case).map(|(r, s)| cut(r, *s, part)).collect();
            let part_types: Vec<TensorType> = parts.iter().map(|r| r.ty).collect();
            let slice = Sliced { part, inputs: &case, outputs: &claim, types: &types };
            let op = op.on_part(&slice).unwrap_or(op.clone());
            let outs = op.infer(&part_types).unwrap_or_else(|e| panic!("{} on a slice: {e}", op.name()));
            op.reference(&parts.iter().collect::<Vec<_>>(), &outs).unwrap()
        };
        if claim.iter().all(|claim| !matches!(claim, Split::Axis(_) | Split::Partial)) {
            continue;
        }
        let middle = batch.div_ceil(2);
        let parts = [(0, middle), (middle, batch)].map(|(start, end)| Part { start, end, batch });
        let results = parts.map(part);
        for (o, claim) in claim.iter().enumerate() {
            match claim {
                Split::Axis(_) => {
                    for (part, result) in parts.iter().zip(&results) {
                        let want = cut(&whole[o], *claim, *part);
                        assert_eq!(result[o].ty, want.ty, "{}: split {case:?} gives {claim:?}", op.name());
                        check_close(op.name(), &result[o].data, &want.data, 1e-9);
                    }
                }
                Split::Partial => {
                    let sum = results[0][o].data.iter().zip(&results[1][o].data).map(|(a, b)| a + b);
                    check_close(op.name(), &sum.collect::<Vec<f64>>(), &whole[o].data, 1e-9);
                }
                _ => (),
            }
        }
        if let Some(slices) = exact_slices(op, &case, &types, batch) {
            check_bits(op, inputs, &case, batch, &slices);
        }
    }
}

/// Ways to cut the inputs, with the size of the batch: each input alone along each axis, and any set of inputs whose first
/// axes have one size along that.
fn cases(types: &[TensorType]) -> Vec<(Vec<Split>, usize)> {
    let mut cases = Vec::new();
    for (i, ty) in types.iter().enumerate() {
        for (axis, &size) in ty.dims().iter().enumerate() {
            let mut case = vec![Split::Whole; types.len()];
            case[i] = Split::Axis(axis);
            cases.push((case, size));
        }
    }
    for set in 1u32..1 << types.len() {
        let member = |i: usize| set >> i & 1 == 1;
        let first = |i: usize| types[i].dims().first().copied();
        let Some(size) = first(set.trailing_zeros() as usize) else { continue };
        if set.count_ones() > 1 && (0..types.len()).all(|i| !member(i) || first(i) == Some(size)) {
            let case = (0..types.len()).map(|i| if member(i) { Split::Axis(0) } else { Split::Whole });
            cases.push((case.collect(), size));
        }
    }
    cases.retain(|(_, size)| *size >= 2);
    cases
}

/// Checks that an op on slices of the batch gives the bits of the whole batch, on f32 and f64 inputs of these shapes that
/// are cut like this. The op must call some slices exact.
#[track_caller]
pub fn check_slices(op: &(impl OpDef + Clone), shapes: &[&[usize]], case: &[Split]) {
    for dtype in [DType::F32, DType::F64] {
        let inputs: Vec<Tensor> = (0..).zip(shapes).map(|(i, s)| random(dtype, s, i)).collect();
        check_slices_on(op, &inputs, case);
    }
}

/// [`check_slices`] on given inputs.
#[track_caller]
pub fn check_slices_on(op: &(impl OpDef + Clone), inputs: &[Tensor], case: &[Split]) {
    let op: Arc<dyn OpDef> = Arc::new(op.clone());
    let in_types: Vec<TensorType> = inputs.iter().map(|t| *t.ty()).collect();
    let outputs = op.infer(&in_types).unwrap();
    let types = Types { inputs: &in_types, outputs: &outputs };
    let size = |(split, ty): (&Split, &TensorType)| if let Split::Axis(a) = split { Some(ty.shape[*a]) } else { None };
    let batch = case.iter().zip(&in_types).find_map(size).expect("an input is cut");
    let each = op.exact_part(case, &types, batch);
    let slices = exact_slices(&op, case, &types, batch);
    let slices = slices.unwrap_or_else(|| panic!("{}: no slices, {each:?} of {batch}", op.name()));
    check_bits(&op, inputs, case, batch, &slices);
}

/// Ways to cut the batch into slices that the op calls exact: growing ones, and a last one as small as can be. `None` when
/// the batch cannot be cut.
fn exact_slices(op: &Arc<dyn OpDef>, case: &[Split], types: &Types<'_>, batch: usize) -> Option<[Vec<usize>; 2]> {
    let claim = op.split(case, types);
    if claim.contains(&Split::Mixed) || claim.iter().all(|c| *c == Split::Whole) {
        return None;
    }
    let Exact { multiple, least } = op.exact_part(case, types, batch);
    if multiple == 0 || batch < least.next_multiple_of(multiple) + least {
        return None;
    }
    assert!(op.adds() || !claim.contains(&Split::Partial), "{}: calls slices exact but cannot add", op.name());
    let mut growing = vec![0];
    let mut size = least.next_multiple_of(multiple);
    while growing.last().unwrap() + size + least <= batch {
        growing.push(growing.last().unwrap() + size);
        size *= 2;
    }
    growing.push(batch);
    Some([growing, vec![0, (batch - least) / multiple * multiple, batch]])
}

/// Runs the kernel on the whole batch and on slices between these places, and compares bits.
#[track_caller]
fn check_bits(op: &Arc<dyn OpDef>, inputs: &[Tensor], case: &[Split], batch: usize, slices: &[Vec<usize>]) {
    let in_types: Vec<TensorType> = inputs.iter().map(|t| *t.ty()).collect();
    let out_types = op.infer(&in_types).unwrap();
    let types = Types { inputs: &in_types, outputs: &out_types };
    let claim = op.split(case, &types);
    let partial: Vec<usize> = (0..claim.len()).filter(|&o| claim[o] == Split::Partial).collect();
    let whole = run_kernel(op, inputs, 1, None);
    for (threads, places) in [1, 2].into_iter().flat_map(|t| slices.iter().map(move |s| (t, s))) {
        let mut sums: Vec<Tensor> = Vec::new();
        for (i, range) in places.windows(2).enumerate() {
            let part = Part { start: range[0], end: range[1], batch };
            let slice = Sliced { part, inputs: case, outputs: &claim, types: &types };
            let on_slice = op.on_part(&slice).unwrap_or(op.clone());
            let mut parts: Vec<Tensor> = inputs.iter().zip(case).map(|(t, s)| cut_tensor(t, *s, part)).collect();
            let results = if i == 0 || partial.is_empty() {
                run_kernel(&on_slice, &parts, threads, None)
            } else {
                let adding: Arc<dyn OpDef> = Arc::new(Adding::new(on_slice, partial.clone()));
                let in_place = (i % 2 == 0).then_some((parts.len(), partial[0]));
                parts.extend(sums);
                run_kernel(&adding, &parts, threads, in_place)
            };
            for (o, result) in results.iter().enumerate() {
                let want = cut_tensor(&whole[o], claim[o], part);
                let same = claim[o] == Split::Partial || result.bytes() == want.bytes();
                assert!(same, "{}: {case:?} from {range:?} of {batch}: output {o} has other bits", op.name());
            }
            sums = partial.iter().map(|&o| results[o].clone()).collect();
        }
        for (&o, sum) in partial.iter().zip(&sums) {
            let same = sum.bytes() == whole[o].bytes();
            assert!(same, "{}: {case:?} over {places:?}: the sum {o} has other bits", op.name());
        }
    }
}

/// The part of a value along a split axis; the value itself when it is whole.
fn cut(r: &Reference, split: Split, part: Part) -> Reference {
    let data = cut_elements(&r.data, &r.ty, 1, split, part);
    Reference { ty: part.of(&r.ty, split), data }
}

/// [`cut`] for a tensor.
fn cut_tensor(t: &Tensor, split: Split, part: Part) -> Tensor {
    let ty = part.of(t.ty(), split);
    let mut result = Tensor::zeros(ty.dtype, ty.shape);
    result.bytes_mut().copy_from_slice(&cut_elements(t.bytes(), t.ty(), ty.dtype.size(), split, part));
    result
}

fn cut_elements<E: Copy>(data: &[E], ty: &TensorType, each: usize, split: Split, part: Part) -> Vec<E> {
    let Split::Axis(axis) = split else { return data.to_vec() };
    let (outer, size, inner) = crate::op::reduce::around(&ty.shape, axis);
    let range = part.along(size);
    let row = |o: usize| (o * size + range.start) * inner * each..(o * size + range.end) * inner * each;
    (0..outer).flat_map(|o| &data[row(o)]).copied().collect()
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
