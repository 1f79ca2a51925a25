//! What the recurrent layers have in common: a sequence, a state, and a step from one state to the next.

use super::{Layer, refuse, shape_like};
use crate::error::Error;
use crate::trace::Trace;
use plimsoll_graph::Value;
use plimsoll_tensor::{DType, Shape, TensorType};

/// A layer that goes over a sequence with a state: [`LSTM`](super::LSTM), [`GRU`](super::GRU),
/// [`SimpleRNN`](super::SimpleRNN).
///
/// As a layer its inputs are `x`, then, each optional, the initial states and a mask. They are told apart by their types: a mask is
/// bool. [`Recurrent::run`] takes them by name, and gives the last states besides the output.
pub trait Recurrent: Layer {
    /// Goes over a sequence.
    ///
    /// # Errors
    /// When a shape does not suit the layer.
    fn run(&self, t: &mut Trace<'_>, sequence: &Sequence) -> Result<Run, Error>;

    /// Whether the output has an axis of steps.
    fn gives_sequences(&self) -> bool;
}

/// What a recurrent layer goes over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sequence {
    /// The inputs, `[batch, steps, features]`.
    pub x: Value,
    /// Which steps count, bool `[batch, steps]`. At others the state stays and the output is that of the step before.
    pub mask: Option<Value>,
    /// The initial states, each `[batch, units]`; zeros when empty.
    pub initial: Vec<Value>,
    /// From the last step to the first, the other way round if the layer itself goes backwards.
    pub reverse: bool,
    /// At steps that do not count, an output of zeros.
    pub zero_masked: bool,
}

impl Sequence {
    /// A sequence without mask or initial states.
    pub fn new(x: Value) -> Sequence {
        Sequence { x, mask: None, initial: Vec::new(), reverse: false, zero_masked: false }
    }

    /// A sequence from the inputs of a layer.
    pub(super) fn from_inputs(t: &Trace<'_>, kind: &str, inputs: &[Value]) -> Result<Sequence, Error> {
        let Some((&x, others)) = inputs.split_first() else {
            return Err(refuse(t, kind, "takes a sequence, and maybe initial states and a mask; got no input"));
        };
        let (masks, initial): (Vec<Value>, Vec<Value>) = others.iter().partition(|&&v| t.dtype(v) == DType::Bool);
        if masks.len() > 1 {
            return Err(refuse(t, kind, format!("takes one mask, got {}", masks.len())));
        }
        Ok(Sequence { mask: masks.first().copied(), initial, ..Sequence::new(x) })
    }
}

/// What a recurrent layer gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The outputs of all steps, `[batch, steps, units]`, in the order they were made, or of the last one, `[batch, units]`.
    pub output: Value,
    /// The states after the last step, each `[batch, units]`.
    pub states: Vec<Value>,
}

/// The sizes of a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub batch: usize,
    pub steps: usize,
    pub features: usize,
}

/// Checks the shapes of a sequence for a layer with `n_states` states of `units` numbers.
pub(super) fn extent(
    t: &Trace<'_>,
    kind: &str,
    sequence: &Sequence,
    units: usize,
    n_states: usize,
) -> Result<Extent, Error> {
    let shape = shape_like(t, kind, sequence.x, &["batch", "steps", "features"])?;
    let (batch, steps, features) = (shape[0], shape[1], shape[2]);
    if steps == 0 {
        return Err(refuse(t, kind, format!("takes a sequence of one step or more, got {shape}")));
    }
    if let Some(mask) = sequence.mask {
        let wanted = TensorType::new(DType::Bool, [batch, steps]);
        if *t.ty(mask) != wanted {
            return Err(refuse(t, kind, format!("takes a mask {wanted} for a sequence {shape}, got {}", t.ty(mask))));
        }
    }
    let given = sequence.initial.len();
    if given != 0 && given != n_states {
        return Err(refuse(t, kind, format!("has {n_states} states, got {given} initial ones")));
    }
    for &state in &sequence.initial {
        let wanted = Shape::new(&[batch, units]);
        if t.shape(state) != wanted {
            return Err(refuse(t, kind, format!("takes initial states {wanted}, got {}", t.shape(state))));
        }
    }
    Ok(Extent { batch, steps, features })
}

/// How [`unroll`] goes over the steps.
pub(super) struct Walk<'a> {
    pub sequence: &'a Sequence,
    pub extent: Extent,
    pub backwards: bool,
    pub give_sequences: bool,
}

/// The states before or after a step; none before the first one when all are zero.
pub(super) type States = Option<Vec<Value>>;

/// Writes out every step. `inputs` is `[batch, steps, n]`, what a step needs of the sequence; `step` makes the states after a step,
/// the output being the first of them.
///
/// Zero states are not made: the first step leaves out what they would be multiplied with. So nothing here has the
/// size of the batch without coming from the inputs, and the graph can be cut along it.
pub(super) fn unroll(
    t: &mut Trace<'_>,
    walk: &Walk<'_>,
    inputs: Value,
    mut step: impl FnMut(&mut Trace<'_>, Value, &States) -> Result<Vec<Value>, Error>,
) -> Result<Run, Error> {
    let Extent { batch, steps, .. } = walk.extent;
    let width = t.shape(inputs)[2];
    let mut states: States = (!walk.sequence.initial.is_empty()).then(|| walk.sequence.initial.clone());
    let dtype = t.dtype(inputs);
    let zero = t.constant(0.0, dtype)?;
    // What a step that does not count gives: the output before, which is not the initial state but zero at first.
    let mut before = zero;
    let mut outputs = Vec::new();
    for i in 0..steps {
        let at = if walk.backwards { steps - 1 - i } else { i };
        let x = t.slice_axis(inputs, 1, at, 1)?;
        let x = t.reshape(x, [batch, width])?;
        let mut new = step(t, x, &states)?;
        let mut output = new[0];
        if let Some(mask) = walk.sequence.mask {
            let counts = t.slice_axis(mask, 1, at, 1)?;
            for (n, state) in new.iter_mut().enumerate() {
                let old = states.as_ref().map_or(zero, |s| s[n]);
                *state = t.select(counts, *state, old)?;
            }
            output = match (walk.sequence.zero_masked, walk.sequence.initial.is_empty()) {
                (true, _) => t.select(counts, output, zero)?,
                // Then the output is the state.
                (false, true) => new[0],
                (false, false) => t.select(counts, output, before)?,
            };
        }
        before = output;
        states = Some(new);
        if walk.give_sequences {
            let shape = t.shape(output).insert(1, 1);
            outputs.push(t.reshape(output, shape)?);
        }
    }
    let output = if walk.give_sequences { t.concat(&outputs, 1)? } else { before };
    Ok(Run { output, states: states.expect("a sequence has a step") })
}

/// Multiplies states by the same random mask at every step, while training.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateDropout(Option<Value>);

impl StateDropout {
    pub(super) fn new(t: &mut Trace<'_>, kind: &str, rate: f64, shape: Shape) -> Result<StateDropout, Error> {
        if !t.training() || rate == 0.0 {
            return Ok(StateDropout(None));
        }
        let one = t.constant(1.0, DType::F32)?;
        let ones = t.broadcast(one, shape)?;
        Ok(StateDropout(Some(super::dropout::drop_out(t, kind, ones, rate, shape)?)))
    }

    pub(super) fn apply(self, t: &mut Trace<'_>, state: Value) -> Result<Value, Error> {
        match self.0 {
            None => Ok(state),
            Some(mask) => Ok(t.mul(state, mask)?),
        }
    }
}

/// Leaves out features of a sequence at random, the same at every step, while training.
pub(super) fn drop_features(t: &mut Trace<'_>, kind: &str, x: Value, rate: f64) -> Result<Value, Error> {
    let mut mask = t.shape(x);
    mask.dims_mut()[1] = 1;
    super::dropout::drop_out(t, kind, x, rate, mask)
}
