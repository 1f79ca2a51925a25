//! Scaled dot-product attention, without a score matrix in memory.

use super::{Backward, Cost, Io, OpDef, Reference, Sliced, Types, expect_floats, expect_inputs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::split::Split;
use crate::{match_float, op_attrs};
use plimsoll_kernels::attention::{self as kernels, Dropout, Heads, HeadsMut, Mask, MaskView};
use plimsoll_kernels::gemm::Packing;
use plimsoll_kernels::math::Float;
use plimsoll_kernels::random::Key;
use plimsoll_tensor::{DType, Element, Shape, TensorType};
use std::sync::Arc;

/// `y = softmax(scale * q k^T + mask) v` for each sample and head, and the log-sum-exp of each query's scores.
///
/// Takes `q` `[batch, queries, heads, depth]`, `k` `[batch, keys, kv_heads, depth]` and `v` `[batch, keys, kv_heads,
/// value_depth]`, or one packed value `[batch, time, 3, heads, depth]`; then, if there is one, a mask that has 1 or the full
/// size along each axis of `[batch, heads, queries, keys]` (the full size along the last): of type bool, false removing a
/// score, or of the queries' type, added to the scores; then, with dropout, a key as random ops have it. Gives `y` `[batch, queries, heads, value_depth]` and lse
/// `[batch, heads, queries]`. `kv_heads` divides `heads`; a query that sees no key gets zeros.
#[derive(Clone, Debug, PartialEq)]
pub struct Attention {
    /// Factor of the scores.
    pub scale: f64,
    /// A query sees only keys at its own place and before.
    pub causal: bool,
    /// Queries, keys and values come as one value.
    pub packed: bool,
    /// There is a mask.
    pub mask: bool,
    /// The probability that a weight is left out; 0 for none.
    pub dropout: f64,
    /// Names the random numbers of the dropout.
    pub stream: u32,
    /// The place of the first sample in the whole batch, where this is a slice: the random numbers go by it.
    pub first_sample: usize,
}

op_attrs!(Attention = "attention" { scale, causal, packed, mask, dropout, stream, first_sample });

/// The gradient of [`Attention`] in queries, keys and values.
///
/// Takes what [`Attention`] takes without mask and key, its outputs, the output's gradient, then lse's gradient if there
/// is one, and mask and key if there are; gives the gradients of queries, keys and values (packed: of the one value).
#[derive(Clone, Debug, PartialEq)]
pub struct AttentionGrad {
    /// Factor of the scores.
    pub scale: f64,
    /// A query sees only keys at its own place and before.
    pub causal: bool,
    /// Queries, keys and values come as one value, and so do the gradients.
    pub packed: bool,
    /// lse has a gradient.
    pub lse: bool,
    /// There is a mask.
    pub mask: bool,
    /// The probability that a weight is left out; 0 for none.
    pub dropout: f64,
    /// Names the random numbers of the dropout.
    pub stream: u32,
    /// The place of the first sample in the whole batch, where this is a slice: the random numbers go by it.
    pub first_sample: usize,
}

op_attrs!(AttentionGrad = "attention_grad" { scale, causal, packed, lse, mask, dropout, stream, first_sample });

/// What both ops compute with.
#[derive(Clone, Copy)]
struct Form {
    scale: f64,
    causal: bool,
    packed: bool,
    dropout: f64,
    stream: u32,
    first_sample: usize,
}

impl Form {
    /// How many values queries, keys and values come as.
    fn operands(self) -> usize {
        if self.packed { 1 } else { 3 }
    }

    /// The kernel's sizes.
    fn sizes(self, inputs: &[TensorType]) -> Result<kernels::Attention, String> {
        let Form { scale, causal, packed, first_sample, .. } = self;
        // The key is a value, known only at run time.
        let unknown = Key { seed: 0, step: 0, stream: self.stream };
        let dropout = (self.dropout > 0.0).then_some(Dropout { rate: self.dropout, key: unknown, first_sample });
        if packed {
            let &[batch, time, 3, heads, depth] = inputs[0].dims() else {
                return Err(format!("takes [batch, time, 3, heads, depth], got {}", inputs[0].shape));
            };
            let (queries, keys, kv_heads, value_depth) = (time, time, heads, depth);
            return Ok(kernels::Attention {
                batch,
                queries,
                keys,
                heads,
                kv_heads,
                depth,
                value_depth,
                scale,
                causal,
                dropout,
            });
        }
        let [q, k, v] = [0, 1, 2].map(|i| <[usize; 4]>::try_from(inputs[i].dims()).ok());
        let (Some([batch, queries, heads, depth]), Some(k), Some(v)) = (q, k, v) else {
            let [q, k, v] = [0, 1, 2].map(|i| inputs[i].shape);
            return Err(format!("takes values with 4 axes, got {q}, {k} and {v}"));
        };
        let [_, keys, kv_heads, _] = k;
        if k[0] != batch || k[3] != depth || kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
            return Err(format!("queries {} and keys {} do not fit", inputs[0].shape, inputs[1].shape));
        }
        if v[..3] != k[..3] {
            return Err(format!("keys {} and values {} do not fit", inputs[1].shape, inputs[2].shape));
        }
        let value_depth = v[3];
        Ok(kernels::Attention { batch, queries, keys, heads, kv_heads, depth, value_depth, scale, causal, dropout })
    }

    fn sizes_checked(self, inputs: &[TensorType]) -> kernels::Attention {
        self.sizes(inputs).expect("checked by `infer`")
    }

    /// The kernel's sizes with the key of the dropout.
    fn sizes_with_key(self, inputs: &[TensorType], key: Option<[i64; 2]>) -> kernels::Attention {
        let mut s = self.sizes_checked(inputs);
        if let (Some(dropout), Some([seed, step])) = (&mut s.dropout, key) {
            dropout.key = Key { seed: seed as u64, step: step as u64, stream: self.stream };
        }
        s
    }

    /// A message unless the last input is a key, where there is dropout.
    fn expect_key(self, inputs: &[TensorType]) -> Result<(), String> {
        if !(0.0..1.0).contains(&self.dropout) {
            return Err(format!("dropout {} is not in [0, 1)", self.dropout));
        }
        match inputs.last() {
            Some(key) if self.dropout > 0.0 && *key != TensorType::new(DType::I64, [2]) => {
                Err(format!("the key is i64[2] (seed and step), got {key}"))
            }
            _ => Ok(()),
        }
    }

    /// Queries, keys and values.
    fn heads<'a, T: Element>(self, io: &Io<'a>, s: &kernels::Attention) -> [Heads<'a, T>; 3] {
        if self.packed {
            return Heads::packed(io.input(0), s.heads, s.queries, s.depth);
        }
        [
            Heads::new(io.input(0), s.heads, s.queries, s.depth),
            Heads::new(io.input(1), s.kv_heads, s.keys, s.depth),
            Heads::new(io.input(2), s.kv_heads, s.keys, s.value_depth),
        ]
    }

    /// Queries, keys and values as the plain definition wants them: three contiguous arrays.
    fn unpacked(self, inputs: &[&Reference], s: &kernels::Attention) -> [Vec<f64>; 3] {
        let row = s.heads * s.depth;
        [0, 1, 2].map(|i| match self.packed {
            true => inputs[0].data.chunks(row.max(1)).skip(i).step_by(3).flatten().copied().collect(),
            false => inputs[i].data.clone(),
        })
    }

    /// The types of y and lse.
    fn outputs(self, dtype: DType, s: &kernels::Attention) -> [TensorType; 2] {
        let y = TensorType::new(dtype, [s.batch, s.queries, s.heads, s.value_depth]);
        [y, TensorType::new(dtype, [s.batch, s.heads, s.queries])]
    }

    /// Whether the key of the dropout, the last input, is cut.
    fn splits_key(self, inputs: &[Split]) -> bool {
        self.dropout > 0.0 && inputs.last() != Some(&Split::Whole)
    }

    /// How the values relate to the batch, when queries, keys and values (and y, its gradient) are cut along `operands` and
    /// those that are `[batch, heads, queries]` along `rows`. The mask may be whole if all samples share it.
    ///
    /// With dropout only samples may be cut: a slice knows the place of its first.
    fn split(self, operands: &[Split], rows: &[Split], mask: Option<(Split, &TensorType)>) -> [Split; 2] {
        // Where the heads stand in an operand.
        let heads = |i: usize| if self.packed && i == 0 { 3 } else { 2 };
        let all = |want: &dyn Fn(usize) -> Split, of_rows: Split| {
            operands.iter().enumerate().all(|(i, s)| *s == want(i)) && rows.iter().all(|s| *s == of_rows)
        };
        let masked = |axis: usize| match mask {
            None => true,
            Some((split, ty)) => split == Split::Axis(axis) || split == Split::Whole && ty.shape[axis] == 1,
        };
        if all(&|_| Split::Whole, Split::Whole) && mask.is_none_or(|(split, _)| split == Split::Whole) {
            [Split::Whole; 2]
        } else if all(&|_| Split::Axis(0), Split::Axis(0)) && masked(0) {
            [Split::Axis(0); 2]
        } else if self.dropout > 0.0 {
            [Split::Mixed; 2]
        } else if all(&|i| Split::Axis(heads(i)), Split::Axis(1)) && masked(1) {
            [Split::Axis(heads(0)), Split::Axis(1)]
        } else {
            [Split::Mixed; 2]
        }
    }
}

/// A message unless the mask fits.
fn expect_mask(mask: &TensorType, dtype: DType, s: &kernels::Attention) -> Result<(), String> {
    if mask.dtype != DType::Bool && mask.dtype != dtype {
        return Err(format!("takes a mask of type bool or {dtype}, got {}", mask.dtype));
    }
    let full = [s.batch, s.heads, s.queries, s.keys];
    let fits = mask.shape.rank() == 4
        && mask.dims()[3] == s.keys
        && mask.dims().iter().zip(full).all(|(&size, full)| size == 1 || size == full);
    if fits { Ok(()) } else { Err(format!("scores {} and mask {} do not fit", Shape::new(&full), mask.shape)) }
}

/// The mask among the inputs, for the kernel.
fn mask_of<'a, T: Element>(io: &Io<'a>, place: Option<usize>) -> Mask<'a, T> {
    let Some(place) = place else { return Mask::None };
    let shape = <[usize; 4]>::try_from(io.in_ty(place).dims()).expect("checked by `infer`");
    match io.in_ty(place).dtype {
        DType::Bool => Mask::Keep(MaskView::new(io.input(place), shape)),
        _ => Mask::Add(MaskView::new(io.input(place), shape)),
    }
}

/// The mask for the plain definition: numbers to be added.
fn naive_mask(mask: &Reference) -> (Vec<f64>, [usize; 4]) {
    let boolean = mask.ty.dtype == DType::Bool;
    let number = |&m: &f64| match boolean {
        true if m != 0.0 => 0.0,
        true => f64::NEG_INFINITY,
        false => m,
    };
    (mask.data.iter().map(number).collect(), mask.dims().try_into().expect("checked by `infer`"))
}

/// Floating-point operations of `products` matrix products over all scores that are looked at.
fn flops(s: &kernels::Attention, products: u64) -> u64 {
    let scores = (s.batch * s.heads * s.queries * s.keys) as u64;
    let seen = if s.causal { scores / 2 } else { scores };
    seen * (products * (s.depth + s.value_depth) as u64 + 12)
}

impl Attention {
    fn form(&self) -> Form {
        let Self { scale, causal, packed, dropout, stream, first_sample, .. } = *self;
        Form { scale, causal, packed, dropout, stream, first_sample }
    }

    fn mask_place(&self) -> Option<usize> {
        self.mask.then_some(self.form().operands())
    }

    fn run_as<T: Float + Element>(&self, io: &Io<'_>, s: &kernels::Attention) {
        let [q, k, v] = self.form().heads::<T>(io, s);
        let y = HeadsMut::new(io.output(0), s.heads, s.queries, s.value_depth);
        let mask = mask_of(io, self.mask_place());
        kernels::attention(io.pool(), s, q, k, v, mask, y, io.output(1), io.workspace());
    }
}

/// The key of the dropout, if the last input is one.
fn key_of(io: &Io<'_>) -> Option<[i64; 2]> {
    let last = io.inputs().len() - 1;
    (io.in_ty(last).dtype == DType::I64).then(|| io.input::<i64>(last).try_into().expect("checked by `infer`"))
}

/// As [`key_of`], for the plain definition.
fn naive_key(inputs: &[&Reference]) -> Option<[i64; 2]> {
    let key = inputs.last().filter(|key| key.ty.dtype == DType::I64)?;
    Some([key.data[0] as i64, key.data[1] as i64])
}

/// The types of the first inputs of a call, those that say the sizes; without a heap.
fn operand_types(io: &Io<'_>) -> [TensorType; 3] {
    [0, 1, 2].map(|i| *io.in_ty(i.min(io.inputs().len() - 1)))
}

fn packing(sizes: &kernels::Attention, dtype: DType) -> Packing {
    match dtype {
        DType::F64 => kernels::attention_packing::<f64>(sizes),
        _ => kernels::attention_packing::<f32>(sizes),
    }
}

impl OpDef for Attention {
    fn name(&self) -> &'static str {
        "attention"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let operands = self.form().operands();
        expect_inputs(inputs, operands + self.mask as usize + (self.dropout > 0.0) as usize)?;
        expect_floats(&inputs[..operands])?;
        self.form().expect_key(inputs)?;
        let s = self.form().sizes(inputs)?;
        self.mask_place().map_or(Ok(()), |i| expect_mask(&inputs[i], inputs[0].dtype, &s))?;
        Ok(self.form().outputs(inputs[0].dtype, &s).to_vec())
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let operands = self.form().operands();
        if self.mask && b.wanted[operands] {
            let message = "its mask is a constant; stop the gradient there".into();
            return Err(GraphError::NoGradient { layer: b.graph.layer().into(), op: "attention", message });
        }
        let dy = match b.grads[0] {
            Some(dy) => dy,
            None => {
                let ty = *b.graph.ty(b.outputs[0]);
                let zero = b.graph.constant(0.0, ty.dtype)?;
                b.graph.broadcast(zero, ty.shape)?
            }
        };
        let Attention { scale, causal, packed, mask, dropout, stream, first_sample } = *self;
        let lse = b.grads[1].is_some();
        let op = AttentionGrad { scale, causal, packed, lse, mask, dropout, stream, first_sample };
        let mut inputs = b.inputs[..operands].to_vec();
        inputs.extend([b.outputs[0], b.outputs[1], dy]);
        inputs.extend(b.grads[1]);
        inputs.extend(&b.inputs[operands..]);
        let mut grads: Vec<Option<Value>> = b.graph.push(op, &inputs)?.into_iter().map(Some).collect();
        grads.resize(b.inputs.len(), None);
        Ok(grads)
    }

    fn on_part(&self, slice: &Sliced<'_>) -> Option<Arc<dyn OpDef>> {
        let first_sample = self.first_sample + slice.range(0)?.start;
        (self.dropout > 0.0).then(|| Arc::new(Attention { first_sample, ..self.clone() }) as Arc<dyn OpDef>)
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        if self.form().splits_key(inputs) {
            return vec![Split::Mixed; types.outputs.len()];
        }
        let operands = self.form().operands();
        let mask = self.mask_place().map(|i| (inputs[i], &types.inputs[i]));
        let [first, rows] = self.form().split(&inputs[..operands], &[], mask);
        // The heads of y are its axis 2, wherever they stand in a packed value.
        vec![if first == Split::Axis(3) { Split::Axis(2) } else { first }, rows]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: flops(&self.form().sizes_checked(types.inputs), 2), bytes: types.bytes() }
    }

    fn workspace(&self, types: &Types<'_>, threads: usize) -> usize {
        let s = self.form().sizes_checked(types.inputs);
        kernels::attention_scratch(&s, threads) * types.inputs[0].dtype.size()
    }

    fn packing(&self, types: &Types<'_>) -> Packing {
        packing(&self.form().sizes_checked(types.inputs), types.inputs[0].dtype)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let s = self.form().sizes_with_key(&operand_types(io), key_of(io));
        match_float!(io.in_ty(0).dtype, T => self.run_as::<T>(io, &s), else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let types: Vec<TensorType> = inputs.iter().map(|r| r.ty).collect();
        let s = self.form().sizes_with_key(&types, naive_key(inputs));
        let [q, k, v] = self.form().unpacked(inputs, &s);
        let mask = self.mask_place().map(|i| naive_mask(inputs[i]));
        let mask = mask.as_ref().map(|(mask, shape)| (&mask[..], *shape));
        let (mut y, mut lse) = (Reference::zeros(outputs[0]), Reference::zeros(outputs[1]));
        kernels::attention_naive(&s, &q, &k, &v, mask, &mut y.data, &mut lse.data);
        Ok(vec![y, lse])
    }
}

impl AttentionGrad {
    fn form(&self) -> Form {
        let Self { scale, causal, packed, dropout, stream, first_sample, .. } = *self;
        Form { scale, causal, packed, dropout, stream, first_sample }
    }

    /// Places of y (lse and dy follow), dlse and the mask among the inputs.
    fn places(&self) -> (usize, Option<usize>, Option<usize>) {
        let y = self.form().operands();
        (y, self.lse.then_some(y + 3), self.mask.then_some(y + 3 + self.lse as usize))
    }

    fn run_as<T: Float + Element>(&self, io: &Io<'_>, s: &kernels::Attention) {
        let (at, dlse, mask) = self.places();
        let [q, k, v] = self.form().heads::<T>(io, s);
        let [y, dy] = [at, at + 2].map(|i| Heads::new(io.input(i), s.heads, s.queries, s.value_depth));
        let dlse = dlse.map(|i| io.input(i));
        let [dq, dk, dv] = if self.packed {
            HeadsMut::packed(io.output(0), s.heads, s.queries, s.depth)
        } else {
            [
                HeadsMut::new(io.output(0), s.heads, s.queries, s.depth),
                HeadsMut::new(io.output(1), s.kv_heads, s.keys, s.depth),
                HeadsMut::new(io.output(2), s.kv_heads, s.keys, s.value_depth),
            ]
        };
        let (lse, mask) = (io.input(at + 1), mask_of(io, mask));
        kernels::attention_grad(io.pool(), s, q, k, v, mask, y, lse, dy, dlse, dq, dk, dv, io.workspace());
    }
}

impl OpDef for AttentionGrad {
    fn name(&self) -> &'static str {
        "attention_grad"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let (at, dlse, mask) = self.places();
        let floats = at + 3 + self.lse as usize;
        expect_inputs(inputs, floats + self.mask as usize + (self.dropout > 0.0) as usize)?;
        expect_floats(&inputs[..floats])?;
        self.form().expect_key(inputs)?;
        let s = self.form().sizes(inputs)?;
        let [y, lse] = self.form().outputs(inputs[0].dtype, &s);
        for (i, want) in [(at, y), (at + 1, lse), (at + 2, y)].into_iter().chain(dlse.map(|i| (i, lse))) {
            if inputs[i] != want {
                return Err(format!("input {i} is {}, but {want} fits", inputs[i]));
            }
        }
        mask.map_or(Ok(()), |i| expect_mask(&inputs[i], inputs[0].dtype, &s))?;
        Ok(inputs[..at].to_vec())
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let message = "attention has first derivatives only; second ones need it written with matrix products".into();
        Err(GraphError::NoGradient { layer: b.graph.layer().into(), op: "attention_grad", message })
    }

    fn on_part(&self, slice: &Sliced<'_>) -> Option<Arc<dyn OpDef>> {
        let first_sample = self.first_sample + slice.range(0)?.start;
        (self.dropout > 0.0).then(|| Arc::new(AttentionGrad { first_sample, ..self.clone() }) as Arc<dyn OpDef>)
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        if self.form().splits_key(inputs) {
            return vec![Split::Mixed; types.outputs.len()];
        }
        let (at, dlse, mask) = self.places();
        let operands = [&inputs[..=at], &[inputs[at + 2]]].concat();
        let rows: Vec<Split> = [Some(at + 1), dlse].into_iter().flatten().map(|i| inputs[i]).collect();
        let mask = mask.map(|i| (inputs[i], &types.inputs[i]));
        let [first, _] = self.form().split(&operands, &rows, mask);
        vec![first; types.outputs.len()]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: flops(&self.form().sizes_checked(types.inputs), 5), bytes: types.bytes() }
    }

    fn workspace(&self, types: &Types<'_>, threads: usize) -> usize {
        let s = self.form().sizes_checked(types.inputs);
        kernels::attention_grad_scratch(&s, threads) * types.inputs[0].dtype.size()
    }

    fn packing(&self, types: &Types<'_>) -> Packing {
        packing(&self.form().sizes_checked(types.inputs), types.inputs[0].dtype)
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let s = self.form().sizes_with_key(&operand_types(io), key_of(io));
        match_float!(io.in_ty(0).dtype, T => self.run_as::<T>(io, &s), else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let types: Vec<TensorType> = inputs.iter().map(|r| r.ty).collect();
        let (at, dlse, mask) = self.places();
        let s = self.form().sizes_with_key(&types, naive_key(inputs));
        let [q, k, v] = self.form().unpacked(inputs, &s);
        let mask = mask.map(|i| naive_mask(inputs[i]));
        let mask = mask.as_ref().map(|(mask, shape)| (&mask[..], *shape));
        let dlse = dlse.map(|i| &inputs[i].data[..]);
        let mut grads = [&q, &k, &v].map(|x| vec![0.0; x.len()]);
        let [dq, dk, dv] = &mut grads;
        kernels::attention_grad_naive(&s, &q, &k, &v, mask, &inputs[at + 2].data, dlse, dq, dk, dv);
        if !self.packed {
            return Ok(outputs.iter().zip(grads).map(|(&ty, data)| Reference { ty, data }).collect());
        }
        let mut packed = Reference::zeros(outputs[0]);
        let row = (s.heads * s.depth).max(1);
        for (i, to) in packed.data.chunks_mut(row).enumerate() {
            to.copy_from_slice(&grads[i % 3][i / 3 * row..][..row]);
        }
        Ok(vec![packed])
    }
}

/// What can be said of an attention beside its operands.
///
/// ```
/// use plimsoll_graph::op::attention::Look;
/// let look = Look { causal: true, ..Look::scaled(1.0 / 64f64.sqrt()) };
/// assert!(look.mask.is_none() && look.dropout.is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Factor of the scores.
    pub scale: f64,
    /// A query sees only keys at its own place and before.
    pub causal: bool,
    /// The mask, as [`Attention`] says; it gets no gradient.
    pub mask: Option<Value>,
    /// The probability that a weight is left out, and the key (`i64[2]`: seed and step) it is drawn with.
    pub dropout: Option<(f64, Value)>,
}

impl Look {
    /// At everything, with a factor for the scores.
    pub fn scaled(scale: f64) -> Look {
        Look { scale, causal: false, mask: None, dropout: None }
    }
}

impl Graph {
    /// Attention of queries `[batch, queries, heads, depth]` to keys and values `[batch, keys, kv_heads, ..]`.
    ///
    /// # Errors
    /// When shapes or types do not fit.
    pub fn attention(&mut self, [q, k, v]: [Value; 3], look: Look) -> Result<Value, GraphError> {
        self.push_attention(vec![q, k, v], look)
    }

    /// As [`Graph::attention`], with queries, keys and values in one value `[batch, time, 3, heads, depth]`, as one
    /// matrix product gives them.
    ///
    /// # Errors
    /// When shapes or types do not fit.
    pub fn attention_packed(&mut self, qkv: Value, look: Look) -> Result<Value, GraphError> {
        self.push_attention(vec![qkv], look)
    }

    fn push_attention(&mut self, mut inputs: Vec<Value>, look: Look) -> Result<Value, GraphError> {
        let Look { scale, causal, mask, dropout } = look;
        let dropout = dropout.filter(|(rate, _)| *rate != 0.0);
        let stream = if dropout.is_some() { self.new_stream() } else { 0 };
        let packed = inputs.len() == 1;
        inputs.extend(mask);
        inputs.extend(dropout.map(|(_, key)| key));
        let dropout = dropout.map_or(0.0, |(rate, _)| rate);
        self.push1(Attention { scale, causal, packed, mask: mask.is_some(), dropout, stream, first_sample: 0 }, &inputs)
    }
}

#[cfg(test)]
mod tests;
