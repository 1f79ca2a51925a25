//! Recurrent layers over whole sequences: LSTM, GRU and the simple tanh layer, and their gradients.
//!
//! An op takes the projections of the inputs (`x W + b`, an ordinary matrix product) and does the recurrence. States are
//! given for every step and in their place, whichever way the steps are walked; where a mask is false the state is
//! carried through.

use super::{Backward, Cost, Exact, Io, OpAttrs, OpDef, Reference, Types, expect_inputs, find_attr};
use crate::attr::{Attr, AttrValue, Attrs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::match_float;
use crate::split::Split;
use plimsoll_kernels::gemm::Packing;
use plimsoll_kernels::math::Float;
use plimsoll_kernels::rnn::{self, Sizes, StateGradients};
use plimsoll_tensor::{DType, Element, TensorType};

/// A kind of recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// Gates input, forget, cell, output; two states.
    Lstm,
    /// Gates update, reset, candidate, with a recurrent bias.
    Gru,
    /// `tanh(x + h U)`.
    Simple,
}

impl Cell {
    const ALL: [Cell; 3] = [Cell::Lstm, Cell::Gru, Cell::Simple];

    /// The op's name, and its gradient's.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Cell::Lstm => ("lstm", "lstm_grad"),
            Cell::Gru => ("gru", "gru_grad"),
            Cell::Simple => ("simple_rnn", "simple_rnn_grad"),
        }
    }

    fn packing(self, sizes: Sizes, dtype: DType) -> Packing {
        match dtype {
            DType::F64 => rnn::packing::<f64>(sizes, self.gates()),
            _ => rnn::packing::<f32>(sizes, self.gates()),
        }
    }

    /// Gates, each as wide as the state.
    pub fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Simple => 1,
        }
    }

    /// States: the output, and the LSTM's cell.
    pub fn states(self) -> usize {
        1 + (self == Cell::Lstm) as usize
    }

    fn has_bias(self) -> bool {
        self == Cell::Gru
    }

    /// Widths, in units, of what a training pass keeps besides the states `h`: the LSTM's cell states, and the gates.
    fn saved(self) -> &'static [usize] {
        match self {
            Cell::Lstm => &[1, 4],
            Cell::Gru => &[4],
            Cell::Simple => &[],
        }
    }
}

/// A recurrent layer over a sequence.
///
/// Inputs: projections `[batch, steps, gates * units]`, recurrent kernel `[units, gates * units]`, for GRU the recurrent bias
/// `[gates * units]`; if `initial` the first states `[batch, units]`; if `masked` a mask, bool `[batch, steps]`. Outputs: the
/// states after every step `[batch, steps, units]`, the last states `[batch, units]`; if `save` what the gradient needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Recurrence {
    /// The kind of layer.
    pub cell: Cell,
    /// From the last step to the first.
    pub reverse: bool,
    /// Whether first states are given; else they are zero.
    pub initial: bool,
    /// Whether a mask is given.
    pub masked: bool,
    /// Whether to give what the gradient needs.
    pub save: bool,
}

/// The gradient of [`Recurrence`].
///
/// Inputs: recurrent kernel, states after every step, what was saved; the first states and the mask if there are; then those
/// gradients that are given. Outputs: the gradients of projections, recurrent kernel, recurrent bias and first states.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrenceGrad {
    /// The kind of layer.
    pub cell: Cell,
    /// From the last step to the first.
    pub reverse: bool,
    /// Whether first states are given.
    pub initial: bool,
    /// Whether a mask is given.
    pub masked: bool,
    /// Whether the gradient of the states after every step is given.
    pub dh: bool,
    /// Whether the gradient of the last state is given.
    pub dh_last: bool,
    /// Whether the gradient of the last cell state is given.
    pub dc_last: bool,
}

/// Implements text form for an op whose name comes from its cell.
macro_rules! cell_attrs {
    ($ty:ident, $which:tt { $($field:ident),* }) => {
        impl OpAttrs for $ty {
            fn attrs(&self) -> Attrs {
                vec![$((stringify!($field), self.$field.to_attr())),*]
            }
            fn parse(name: &str, attrs: &[(String, Attr)]) -> Option<Result<Self, String>> {
                let cell = Cell::ALL.into_iter().find(|cell| cell.names().$which == name)?;
                let op = || Ok($ty { cell, $($field: find_attr(attrs, stringify!($field))?),* });
                Some(op())
            }
        }
    };
}

cell_attrs!(Recurrence, 0 { reverse, initial, masked, save });
cell_attrs!(RecurrenceGrad, 1 { reverse, initial, masked, dh, dh_last, dc_last });

/// Hands out operands in order.
struct Slots(usize);

impl Slots {
    fn take(&mut self) -> usize {
        self.0 += 1;
        self.0 - 1
    }

    fn take_if(&mut self, yes: bool) -> Option<usize> {
        yes.then(|| self.take())
    }
}

/// Where the inputs of a [`Recurrence`] stand.
struct Places {
    bias: Option<usize>,
    h0: Option<usize>,
    c0: Option<usize>,
    mask: Option<usize>,
    count: usize,
}

impl Recurrence {
    fn places(&self) -> Places {
        let mut slots = Slots(2);
        let bias = slots.take_if(self.cell.has_bias());
        let h0 = slots.take_if(self.initial);
        let c0 = slots.take_if(self.initial && self.cell.states() == 2);
        let mask = slots.take_if(self.masked);
        Places { bias, h0, c0, mask, count: slots.0 }
    }

    fn sizes(&self, x: &TensorType, kernel: &TensorType) -> Sizes {
        Sizes { batch: x.shape[0], steps: x.shape[1], units: kernel.shape[0], reverse: self.reverse }
    }

    /// The first of the outputs that are kept for the gradient.
    fn first_saved(&self) -> usize {
        1 + self.cell.states()
    }
}

fn expect(name: &str, got: &TensorType, wanted: TensorType) -> Result<(), String> {
    if *got == wanted { Ok(()) } else { Err(format!("the {name} should be {wanted}, got {got}")) }
}

/// All that belong to samples are cut along the first axis, and the weights whole; or nothing is cut.
fn split_samples(inputs: &[Split], weights: impl Fn(usize) -> bool) -> Option<Split> {
    if inputs.iter().all(|s| *s == Split::Whole) {
        return Some(Split::Whole);
    }
    let right = |(i, s): (usize, &Split)| *s == if weights(i) { Split::Whole } else { Split::Axis(0) };
    inputs.iter().enumerate().all(right).then_some(Split::Axis(0))
}

impl OpDef for Recurrence {
    fn name(&self) -> &'static str {
        self.cell.names().0
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let places = self.places();
        expect_inputs(inputs, places.count)?;
        let (x, kernel, gates) = (inputs[0], inputs[1], self.cell.gates());
        if !matches!(x.dtype, DType::F32 | DType::F64) || x.shape.rank() != 3 {
            return Err(format!("takes projections [batch, steps, {gates} * units] of f32 or f64, got {x}"));
        }
        if kernel.shape.rank() != 2 || kernel.shape[0] == 0 {
            return Err(format!("takes a recurrent kernel [units, {gates} * units], got {kernel}"));
        }
        let (batch, steps, units) = (x.shape[0], x.shape[1], kernel.shape[0]);
        let of = |dims: &[usize]| TensorType::new(x.dtype, dims);
        expect("recurrent kernel", &kernel, of(&[units, gates * units]))?;
        expect("projections", &x, of(&[batch, steps, gates * units]))?;
        if let Some(i) = places.bias {
            expect("recurrent bias", &inputs[i], of(&[gates * units]))?;
        }
        for i in places.h0.into_iter().chain(places.c0) {
            expect("first state", &inputs[i], of(&[batch, units]))?;
        }
        if let Some(i) = places.mask {
            expect("mask", &inputs[i], TensorType::new(DType::Bool, [batch, steps]))?;
        }
        let mut outputs = vec![of(&[batch, steps, units])];
        outputs.resize(1 + self.cell.states(), of(&[batch, units]));
        if self.save {
            outputs.extend(self.cell.saved().iter().map(|width| of(&[batch, steps, width * units])));
        }
        Ok(outputs)
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let first_saved = self.first_saved();
        if b.grads[first_saved..].iter().any(Option::is_some) {
            let message = "what it keeps for its gradient is not differentiated".into();
            return Err(GraphError::NoGradient { layer: b.graph.layer().to_owned(), op: self.name(), message });
        }
        // A pass that kept nothing is done again.
        let again;
        let outputs = if self.save {
            b.outputs
        } else {
            again = b.graph.push(Recurrence { save: true, ..self.clone() }, b.inputs)?;
            &again
        };
        let places = self.places();
        let mut inputs = vec![b.inputs[1], outputs[0]];
        inputs.extend_from_slice(&outputs[first_saved..]);
        inputs.extend([places.h0, places.c0, places.mask].into_iter().flatten().map(|i| b.inputs[i]));
        inputs.extend(b.grads[..first_saved].iter().flatten());
        let back = RecurrenceGrad {
            cell: self.cell,
            reverse: self.reverse,
            initial: self.initial,
            masked: self.masked,
            dh: b.grads[0].is_some(),
            dh_last: b.grads[1].is_some(),
            dc_last: self.cell.states() == 2 && b.grads[2].is_some(),
        };
        let grads = b.graph.push(back, &inputs)?;
        let mut all: Vec<Option<Value>> = grads.into_iter().map(Some).collect();
        all.resize(places.count, None);
        Ok(all)
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let bias = self.places().bias;
        let split = split_samples(inputs, |i| i == 1 || Some(i) == bias);
        vec![split.unwrap_or(Split::Mixed); types.outputs.len()]
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        let s = self.sizes(&types.inputs[0], &types.inputs[1]);
        let steps = (s.batch * s.steps) as u64;
        let gates = (self.cell.gates() * s.units) as u64;
        Cost { flops: steps * gates * (2 * s.units as u64 + 20), bytes: types.bytes() }
    }

    fn workspace(&self, types: &Types<'_>, threads: usize) -> usize {
        let s = self.sizes(&types.inputs[0], &types.inputs[1]);
        let zeros = if self.initial { 0 } else { s.batch * s.units };
        (rnn::forward_scratch(s, self.cell.gates(), threads) + zeros) * types.inputs[0].dtype.size()
    }

    fn packing(&self, types: &Types<'_>) -> Packing {
        self.cell.packing(self.sizes(&types.inputs[0], &types.inputs[1]), types.inputs[0].dtype)
    }

    fn may_overwrite(&self, input: usize, output: usize, _: &Types<'_>) -> bool {
        // The LSTM's gates and the simple layer's states take the place of the projections.
        match self.cell {
            Cell::Lstm => self.save && input == 0 && output == 4,
            Cell::Gru => false,
            Cell::Simple => input == 0 && output == 0,
        }
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        match_float!(io.in_ty(0).dtype, T => self.run_as::<T>(io), else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let s = self.sizes(&inputs[0].ty, &inputs[1].ty);
        let places = self.places();
        let zeros = vec![0.0; s.batch * s.units];
        let given = |place: Option<usize>| place.map_or(&zeros[..], |i| &inputs[i].data[..]);
        let (x, kernel) = (&inputs[0].data[..], &inputs[1].data[..]);
        let (h0, c0) = (given(places.h0), given(places.c0));
        let mask: Option<Vec<bool>> = places.mask.map(|i| inputs[i].data.iter().map(|&m| m != 0.0).collect());
        let mask = mask.as_deref();
        let data = match self.cell {
            Cell::Lstm => {
                let (h, c, gates) = rnn::lstm_naive(s, x, kernel, h0, c0, mask);
                let (h_last, c_last) = (last(s, &h, h0), last(s, &c, c0));
                vec![h, h_last, c_last, c, gates]
            }
            Cell::Gru => {
                let bias = &inputs[2].data;
                let (h, gates) = rnn::gru_naive(s, x, (kernel, bias), h0, mask);
                let h_last = last(s, &h, h0);
                vec![h, h_last, gates]
            }
            Cell::Simple => {
                let h = rnn::simple_naive(s, x, kernel, h0, mask);
                let h_last = last(s, &h, h0);
                vec![h, h_last]
            }
        };
        Ok(outputs.iter().zip(data).map(|(&ty, data)| Reference { ty, data }).collect())
    }
}

/// The state after the last step of the walk.
fn last(s: Sizes, h: &[f64], h0: &[f64]) -> Vec<f64> {
    let Some(end) = s.steps.checked_sub(1) else { return h0.to_vec() };
    let t = if s.reverse { 0 } else { end };
    (0..s.batch).flat_map(|b| &h[(b * s.steps + t) * s.units..][..s.units]).copied().collect()
}

/// An output that begins as a copy of an input, unless it already is that input's memory.
fn output_from<'a, T: Element>(io: &Io<'a>, input: usize, output: usize) -> &'a mut [T] {
    let in_place = io.inputs()[input].ptr == io.outputs()[output].ptr;
    let out = io.output::<T>(output);
    if !in_place {
        out.copy_from_slice(io.input::<T>(input));
    }
    out
}

impl Recurrence {
    fn run_as<T: Float + Element>(&self, io: &Io<'_>) {
        let s = self.sizes(io.in_ty(0), io.in_ty(1));
        let (places, pool, kernel) = (self.places(), io.pool(), io.input::<T>(1));
        let workspace = io.workspace::<T>();
        let (zeros, scratch) = workspace.split_at_mut(if self.initial { 0 } else { s.batch * s.units });
        zeros.fill(T::ZERO);
        let given = |place: Option<usize>| place.map_or(&*zeros, |i| io.input::<T>(i));
        let mask = places.mask.map(|i| io.input::<bool>(i));
        let h0 = given(places.h0);
        match self.cell {
            Cell::Lstm => {
                let projections = match self.save {
                    true => rnn::Projections::Replace(output_from::<T>(io, 0, 4)),
                    false => rnn::Projections::Keep(io.input::<T>(0)),
                };
                let out = rnn::LstmStates {
                    h: io.output::<T>(0),
                    h_last: io.output::<T>(1),
                    c_last: io.output::<T>(2),
                    c: self.save.then(|| io.output::<T>(3)),
                };
                rnn::lstm_forward(pool, s, projections, kernel, h0, given(places.c0), mask, out, scratch);
            }
            Cell::Gru => {
                let (x, weights) = (io.input::<T>(0), (kernel, io.input::<T>(2)));
                let (states, gates) = ((io.output::<T>(0), io.output::<T>(1)), self.save.then(|| io.output::<T>(2)));
                rnn::gru_forward(pool, s, x, weights, h0, mask, states, gates, scratch);
            }
            Cell::Simple => {
                let (h, h_last) = (output_from::<T>(io, 0, 0), io.output::<T>(1));
                rnn::simple_forward(pool, s, kernel, h0, mask, h, h_last, scratch);
            }
        }
    }
}

/// Where the inputs of a [`RecurrenceGrad`] stand.
struct GradPlaces {
    saved: usize,
    h0: Option<usize>,
    c0: Option<usize>,
    mask: Option<usize>,
    dh: Option<usize>,
    dh_last: Option<usize>,
    dc_last: Option<usize>,
    count: usize,
}

impl RecurrenceGrad {
    fn places(&self) -> GradPlaces {
        let saved = 2;
        let mut slots = Slots(saved + self.cell.saved().len());
        let h0 = slots.take_if(self.initial);
        let c0 = slots.take_if(self.initial && self.cell.states() == 2);
        let mask = slots.take_if(self.masked);
        let dh = slots.take_if(self.dh);
        let dh_last = slots.take_if(self.dh_last);
        let dc_last = slots.take_if(self.dc_last);
        GradPlaces { saved, h0, c0, mask, dh, dh_last, dc_last, count: slots.0 }
    }

    fn sizes(&self, h: &TensorType) -> Sizes {
        Sizes { batch: h.shape[0], steps: h.shape[1], units: h.shape[2], reverse: self.reverse }
    }

    /// Room for gradients of first states that nobody asks for, and for zeros in place of those states.
    fn spare(&self, s: Sizes) -> usize {
        if self.initial { 0 } else { (self.cell.states() + 1) * s.batch * s.units }
    }
}

impl OpDef for RecurrenceGrad {
    fn name(&self) -> &'static str {
        self.cell.names().1
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let places = self.places();
        expect_inputs(inputs, places.count)?;
        let (kernel, h, gates) = (inputs[0], inputs[1], self.cell.gates());
        if !matches!(h.dtype, DType::F32 | DType::F64) || h.shape.rank() != 3 || h.shape[2] == 0 {
            return Err(format!("takes states [batch, steps, units] of f32 or f64, got {h}"));
        }
        let (batch, steps, units) = (h.shape[0], h.shape[1], h.shape[2]);
        let of = |dims: &[usize]| TensorType::new(h.dtype, dims);
        expect("recurrent kernel", &kernel, of(&[units, gates * units]))?;
        for (ty, width) in inputs[places.saved..].iter().zip(self.cell.saved()) {
            expect("saved value", ty, of(&[batch, steps, width * units]))?;
        }
        for i in [places.h0, places.c0, places.dh_last, places.dc_last].into_iter().flatten() {
            expect("state", &inputs[i], of(&[batch, units]))?;
        }
        if let Some(i) = places.mask {
            expect("mask", &inputs[i], TensorType::new(DType::Bool, [batch, steps]))?;
        }
        if let Some(i) = places.dh {
            expect("gradient of the states", &inputs[i], h)?;
        }
        let mut outputs = vec![of(&[batch, steps, gates * units]), kernel];
        if self.cell.has_bias() {
            outputs.push(of(&[gates * units]));
        }
        if self.initial {
            outputs.extend(vec![of(&[batch, units]); self.cell.states()]);
        }
        Ok(outputs)
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let layer = b.graph.layer().to_owned();
        Err(GraphError::NoGradient { layer, op: self.name(), message: "it is a gradient itself".into() })
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let weights = 1..2 + self.cell.has_bias() as usize;
        let split = split_samples(inputs, |i| i == 0);
        let of_output = |o: usize| match split {
            None => Split::Mixed,
            Some(Split::Axis(_)) if weights.contains(&o) => Split::Partial,
            Some(split) => split,
        };
        (0..types.outputs.len()).map(of_output).collect()
    }

    fn exact_part(&self, inputs: &[Split], types: &Types<'_>, _: usize) -> Exact {
        match inputs[1] {
            Split::Axis(_) => Exact::multiples(rnn::chunk_samples(self.sizes(&types.inputs[1]).steps)),
            _ => Exact::ANY,
        }
    }

    fn adds(&self) -> bool {
        true
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        let s = self.sizes(&types.inputs[1]);
        let steps = (s.batch * s.steps) as u64;
        let gates = (self.cell.gates() * s.units) as u64;
        Cost { flops: steps * gates * (4 * s.units as u64 + 20), bytes: types.bytes() }
    }

    fn workspace(&self, types: &Types<'_>, threads: usize) -> usize {
        let s = self.sizes(&types.inputs[1]);
        let scratch = match self.cell {
            Cell::Lstm => rnn::lstm_backward_scratch(s, threads),
            Cell::Gru => rnn::gru_backward_scratch(s, threads),
            Cell::Simple => rnn::simple_backward_scratch(s, threads),
        };
        (scratch + self.spare(s)) * types.inputs[0].dtype.size()
    }

    fn packing(&self, types: &Types<'_>) -> Packing {
        self.cell.packing(self.sizes(&types.inputs[1]), types.inputs[0].dtype)
    }

    fn may_overwrite(&self, input: usize, output: usize, _: &Types<'_>) -> bool {
        // The LSTM's gates become the gradient of the projections.
        self.cell == Cell::Lstm && input == 3 && output == 0
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        match_float!(io.in_ty(0).dtype, T => self.run_as::<T>(io), else unreachable!("checked by `infer`"));
        Ok(())
    }

    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
        let s = self.sizes(&inputs[1].ty);
        let places = self.places();
        let data = |place: Option<usize>| place.map(|i| &inputs[i].data[..]);
        let zeros = vec![0.0; s.batch * s.units];
        let (h0, c0) = (data(places.h0).unwrap_or(&zeros), data(places.c0).unwrap_or(&zeros));
        let mask: Option<Vec<bool>> = places.mask.map(|i| inputs[i].data.iter().map(|&m| m != 0.0).collect());
        let mask = mask.as_deref();
        let (kernel, h) = (&inputs[0].data[..], &inputs[1].data[..]);
        let given = StateGradients { h: data(places.dh), h_last: data(places.dh_last), c_last: data(places.dc_last) };
        let grads = match self.cell {
            Cell::Lstm => {
                let (c, gates) = (&inputs[2].data[..], &inputs[3].data[..]);
                let (dx, dk, dh0, dc0) = rnn::lstm_backward_naive(s, gates, kernel, (h, c), (h0, c0), mask, given);
                vec![dx, dk, dh0, dc0]
            }
            Cell::Gru => {
                let (dx, dk, db, dh0) = rnn::gru_backward_naive(s, &inputs[2].data, kernel, h, h0, mask, given);
                vec![dx, dk, db, dh0]
            }
            Cell::Simple => {
                let (dx, dk, dh0) = rnn::simple_backward_naive(s, kernel, h, h0, mask, given);
                vec![dx, dk, dh0]
            }
        };
        Ok(outputs.iter().zip(grads).map(|(&ty, data)| Reference { ty, data }).collect())
    }
}

impl RecurrenceGrad {
    fn run_as<T: Float + Element>(&self, io: &Io<'_>) {
        let s = self.sizes(io.in_ty(1));
        let (places, pool) = (self.places(), io.pool());
        let (kernel, h) = (io.input::<T>(0), io.input::<T>(1));
        let state = s.batch * s.units;
        let (spare, scratch) = io.workspace::<T>().split_at_mut(self.spare(s));
        let (zeros, spare) = spare.split_at_mut(if self.initial { 0 } else { state });
        let (spare_h0, spare_c0) = spare.split_at_mut(if self.initial { 0 } else { state });
        zeros.fill(T::ZERO);
        let data = |place: Option<usize>| place.map(|i| io.input::<T>(i));
        let mask = places.mask.map(|i| io.input::<bool>(i));
        let given = StateGradients { h: data(places.dh), h_last: data(places.dh_last), c_last: data(places.dc_last) };
        let (h0, c0) = (data(places.h0).unwrap_or(zeros), data(places.c0).unwrap_or(zeros));
        let first = 2 + self.cell.has_bias() as usize;
        let dh0 = if self.initial { io.output::<T>(first) } else { spare_h0 };
        let (dkernel, into) = (io.output::<T>(1), io.into());
        match self.cell {
            Cell::Lstm => {
                let dc0 = if self.initial { io.output::<T>(first + 1) } else { spare_c0 };
                let (c, gates) = (io.input::<T>(2), output_from::<T>(io, 3, 0));
                let out = rnn::LstmGradients { kernel: dkernel, h0: dh0, c0: dc0, into };
                rnn::lstm_backward(pool, s, gates, kernel, (h, c), (h0, c0), mask, given, out, scratch);
            }
            Cell::Gru => {
                let (projections, bias) = (io.output::<T>(0), io.output::<T>(2));
                let out = rnn::GruGradients { projections, kernel: dkernel, bias, h0: dh0, into };
                rnn::gru_backward(pool, s, io.input::<T>(2), kernel, h, h0, mask, given, out, scratch);
            }
            Cell::Simple => {
                let out = rnn::SimpleGradients { projections: io.output::<T>(0), kernel: dkernel, h0: dh0, into };
                rnn::simple_backward(pool, s, kernel, h, h0, mask, given, out, scratch);
            }
        }
    }
}

/// What a recurrent layer is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentInputs {
    /// `x W + b`: `[batch, steps, gates * units]`.
    pub projections: Value,
    /// The recurrent kernel: `[units, gates * units]`.
    pub kernel: Value,
    /// The recurrent bias of a GRU: `[3 * units]`.
    pub bias: Option<Value>,
    /// The first states, `[batch, units]` each; zeros when empty.
    pub initial: Vec<Value>,
    /// Which steps are real: bool `[batch, steps]`.
    pub mask: Option<Value>,
    /// From the last step to the first.
    pub reverse: bool,
    /// Whether a gradient will be asked for.
    pub training: bool,
}

/// What a recurrent layer gives.
#[derive(Clone, Debug, PartialEq)]
pub struct RecurrentOutputs {
    /// The state after every step, in its place: `[batch, steps, units]`.
    pub h: Value,
    /// The last states, `[batch, units]` each.
    pub last: Vec<Value>,
}

impl Graph {
    /// A recurrent layer over a sequence, from the projections of its inputs on.
    ///
    /// # Errors
    /// When sizes disagree, or states or bias are not those of the cell.
    pub fn recurrence(&mut self, cell: Cell, inputs: &RecurrentInputs) -> Result<RecurrentOutputs, GraphError> {
        let RecurrentInputs { projections, kernel, bias, initial, mask, reverse, training } = inputs;
        let op = Recurrence {
            cell,
            reverse: *reverse,
            initial: !initial.is_empty(),
            masked: mask.is_some(),
            save: *training,
        };
        let mut values = vec![*projections, *kernel];
        values.extend(bias);
        values.extend(initial);
        values.extend(mask);
        let outputs = self.push(op, &values)?;
        Ok(RecurrentOutputs { h: outputs[0], last: outputs[1..1 + cell.states()].to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gradients;
    use crate::op::check::{check_on, check_slices_on, random};
    use plimsoll_tensor::Tensor;

    const FLAGS: [(bool, bool, bool); 4] =
        [(false, false, false), (true, true, false), (false, true, true), (true, false, true)];

    fn inputs(op: &Recurrence, dtype: DType, (batch, steps, units): (usize, usize, usize)) -> Vec<Tensor> {
        let gates = op.cell.gates();
        let mut list =
            vec![random(dtype, &[batch, steps, gates * units], 1), random(dtype, &[units, gates * units], 2)];
        if op.cell.has_bias() {
            list.push(random(dtype, &[gates * units], 3));
        }
        if op.initial {
            list.extend((0..op.cell.states()).map(|i| random(dtype, &[batch, units], 4 + i as u64)));
        }
        if op.masked {
            list.push(random(DType::Bool, &[batch, steps], 6));
        }
        list
    }

    #[test]
    fn every_cell_and_its_gradient() {
        for cell in Cell::ALL {
            for (reverse, initial, masked) in FLAGS {
                for save in [false, true] {
                    let op = Recurrence { cell, reverse, initial, masked, save };
                    let sizes = (4, 3, 5);
                    check_on(op.clone(), &inputs(&op, DType::F32, sizes), false);
                    // What is kept for the gradient has none, and the check would ask for it.
                    check_on(op.clone(), &inputs(&op, DType::F64, sizes), !save || cell == Cell::Simple);
                }
            }
        }
    }

    #[test]
    fn every_gradient_against_its_twin() {
        for cell in Cell::ALL {
            for (reverse, initial, masked) in FLAGS {
                for (dh, dh_last, dc_last) in [(true, false, false), (false, true, false), (true, true, true)] {
                    let dc_last = dc_last && cell == Cell::Lstm;
                    let op = RecurrenceGrad { cell, reverse, initial, masked, dh, dh_last, dc_last };
                    let (batch, steps, units) = (4, 3, 5);
                    for dtype in [DType::F32, DType::F64] {
                        let state = |salt: u64| random(dtype, &[batch, units], salt);
                        let sequence = |width: usize, salt: u64| random(dtype, &[batch, steps, width * units], salt);
                        let mut list = vec![random(dtype, &[units, cell.gates() * units], 1), sequence(1, 2)];
                        list.extend((3..).zip(cell.saved()).map(|(salt, &width)| sequence(width, salt)));
                        if initial {
                            list.extend((0..cell.states()).map(|i| state(5 + i as u64)));
                        }
                        if masked {
                            list.push(random(DType::Bool, &[batch, steps], 7));
                        }
                        list.extend(dh.then(|| sequence(1, 8)));
                        list.extend(dh_last.then(|| state(9)));
                        list.extend(dc_last.then(|| state(10)));
                        check_on(op.clone(), &list, false);
                    }
                }
            }
        }
    }

    #[test]
    fn slices_give_the_same_bits() {
        let (cut, whole) = (Split::Axis(0), Split::Whole);
        for cell in Cell::ALL {
            for (batch, steps, units) in [(60, 9, 5), (9, 300, 4), (55, 40, 200)] {
                let op = Recurrence { cell, reverse: false, initial: false, masked: true, save: true };
                let list = inputs(&op, DType::F32, (batch, steps, units));
                let case: Vec<Split> =
                    list.iter().map(|t| if t.ty().shape[0] == batch { cut } else { whole }).collect();
                check_slices_on(&op, &list, &case);

                let (dh, dh_last, dc_last) = (true, false, false);
                let op = RecurrenceGrad { cell, reverse: true, initial: false, masked: false, dh, dh_last, dc_last };
                let sequence = |width: usize, salt: u64| random(DType::F32, &[batch, steps, width * units], salt);
                let mut list = vec![random(DType::F32, &[units, cell.gates() * units], 1), sequence(1, 2)];
                list.extend((3..).zip(cell.saved()).map(|(salt, &width)| sequence(width, salt)));
                list.push(sequence(1, 8));
                let case: Vec<Split> = (0..list.len()).map(|i| if i == 0 { whole } else { cut }).collect();
                check_slices_on(&op, &list, &case);
            }
        }
    }

    #[test]
    fn training_keeps_what_the_gradient_needs() {
        for training in [false, true] {
            let mut g = Graph::new();
            let ty = |dims: &[usize]| TensorType::new(DType::F32, dims);
            let (x, kernel) = (g.input("x", ty(&[2, 3, 8])), g.input("kernel", ty(&[2, 8])));
            let inputs = RecurrentInputs {
                projections: x,
                kernel,
                bias: None,
                initial: Vec::new(),
                mask: None,
                reverse: false,
                training,
            };
            let out = g.recurrence(Cell::Lstm, &inputs).unwrap();
            let loss = g.sum_all(out.last[0]).unwrap();
            gradients(&mut g, loss, &[x, kernel]).unwrap();
            let passes = g.nodes().filter(|(_, node)| node.op.name() == "lstm").count();
            assert_eq!(passes, if training { 1 } else { 2 });
            let text = g.to_string();
            assert_eq!(Graph::parse(&text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn samples_can_be_cut() {
        let op = Recurrence { cell: Cell::Gru, reverse: false, initial: true, masked: true, save: true };
        let in_types: Vec<TensorType> = inputs(&op, DType::F64, (4, 3, 2)).iter().map(|t| *t.ty()).collect();
        let out_types = op.infer(&in_types).unwrap();
        let types = Types { inputs: &in_types, outputs: &out_types };
        let (cut, whole) = (Split::Axis(0), Split::Whole);
        assert_eq!(op.split(&[cut, whole, whole, cut, cut], &types), [cut; 3]);
        assert_eq!(op.split(&[cut, whole, whole, whole, cut], &types), [Split::Mixed; 3]);

        // The halves' gradients side by side, or added up, are the whole's.
        let back = RecurrenceGrad {
            cell: Cell::Gru,
            reverse: false,
            initial: false,
            masked: false,
            dh: true,
            dh_last: false,
            dc_last: false,
        };
        let list = [[2, 6, 0], [4, 3, 2], [4, 3, 8], [4, 3, 2]].map(|d| {
            let dims = if d[2] == 0 { &d[..2] } else { &d[..] };
            Reference::from_tensor(&random(DType::F64, dims, d[2] as u64))
        });
        let run = |from: usize, to: usize| {
            let part = |r: &Reference| {
                let mut ty = r.ty;
                ty.shape.dims_mut()[0] = to - from;
                let row = r.data.len() / 4;
                Reference { ty, data: r.data[from * row..to * row].to_vec() }
            };
            let parts = [list[0].clone(), part(&list[1]), part(&list[2]), part(&list[3])];
            let in_types = [0, 1, 2, 3].map(|i| parts[i].ty);
            let out_types = back.infer(&in_types).unwrap();
            let types = Types { inputs: &in_types, outputs: &out_types };
            let claim = back.split(&[whole, cut, cut, cut], &types);
            assert_eq!(claim, [cut, Split::Partial, Split::Partial]);
            back.reference(&[&parts[0], &parts[1], &parts[2], &parts[3]], &out_types).unwrap()
        };
        let (all, first, second) = (run(0, 4), run(0, 2), run(2, 4));
        assert_eq!(all[0].data, [&first[0].data[..], &second[0].data].concat());
        for i in 1..3 {
            let sum: Vec<f64> = first[i].data.iter().zip(&second[i].data).map(|(a, b)| a + b).collect();
            crate::op::check::check_close("sum of halves", &sum, &all[i].data, 1e-12);
        }
    }

    #[test]
    fn sizes_must_agree() {
        let op = Recurrence { cell: Cell::Gru, reverse: false, initial: false, masked: false, save: false };
        let ty = |dims: &[usize]| TensorType::new(DType::F32, dims);
        let error = op.infer(&[ty(&[2, 3, 8]), ty(&[2, 6]), ty(&[6])]).unwrap_err();
        assert_eq!(error, "the projections should be f32[2,3,6], got f32[2,3,8]");
        let error = op.infer(&[ty(&[2, 3, 6]), ty(&[2, 8]), ty(&[6])]).unwrap_err();
        assert_eq!(error, "the recurrent kernel should be f32[2,6], got f32[2,8]");
        assert_eq!(op.infer(&[ty(&[2, 3, 6])]).unwrap_err(), "takes 3 inputs, got 1");
    }
}
