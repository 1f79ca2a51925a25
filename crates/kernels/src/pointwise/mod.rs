//! Element-wise programs: chains of scalar functions run block by block, so that values between the steps
//! stay in the cache and never reach the arena.
//!
//! A [`Program`] is a list of [`Step`]s in single-assignment form; step `i` defines register `i`. It runs over
//! blocks of [`BLOCK`] elements of the output: inputs are read through broadcasting, every step works on one
//! block, the last step's register is the output. Values of half precision and of 8 bits are kept as f32 between steps and
//! rounded after each, so that a fused chain gives the same bits as the ops one by one.

mod access;
mod functions;

pub use functions::{Binary, Unary, rounded};

use crate::pool::{Pool, SharedSlice};
use crate::random::{self, Distribution};
use access::Access;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use plimsoll_tensor::{DType, Element, F8E4M3, F8E5M2, Shape};

/// Elements of one block.
pub const BLOCK: usize = 1024;

/// Blocks of one task.
const BLOCKS_PER_TASK: usize = 16;

/// The most inputs a program can read.
pub const MAX_INPUTS: usize = 12;

/// The most steps of a program.
pub const MAX_STEPS: usize = 64;

/// The number of a register: the step that defines it.
pub type Register = u8;

/// One step of a program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Reads input `n` through broadcasting.
    Load(u8),
    /// The same number everywhere.
    Constant(f64),
    /// The index along one axis of the output's shape: `element / inner % size`.
    Index {
        /// The number of elements below the axis.
        inner: u32,
        /// The axis's size.
        size: u32,
    },
    /// A random number: a function of the key (input `key`: two i64, seed and step), the stream and the element's index.
    Random {
        /// What is drawn.
        distribution: Distribution,
        /// Which of the graph's random values this is.
        stream: u32,
        /// The input that holds the key.
        key: u8,
    },
    /// A function of one register.
    Unary(Unary, Register),
    /// A function of two registers of the same type.
    Binary(Binary, Register, Register),
    /// The second register where the first is true, the third elsewhere.
    Select(Register, Register, Register),
    /// Conversion to the step's type.
    Cast(Register),
}

impl Step {
    /// The registers it reads.
    pub fn reads(&self) -> impl Iterator<Item = Register> {
        let (list, n) = match *self {
            Step::Unary(_, a) | Step::Cast(a) => ([a, 0, 0], 1),
            Step::Binary(_, a, b) => ([a, b, 0], 2),
            Step::Select(a, b, c) => ([a, b, c], 3),
            _ => ([0; 3], 0),
        };
        list.into_iter().take(n)
    }
}

/// A chain of element-wise steps; the last one is the result.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Program {
    steps: Vec<(Step, DType)>,
    /// Which block buffer holds each register.
    slots: Vec<u8>,
    n_slots: usize,
}

impl Program {
    /// A program from its steps and their types, or what is wrong with them.
    ///
    /// # Errors
    /// When there are too many steps or one reads a register that is not defined before it.
    pub fn new(steps: Vec<(Step, DType)>) -> Result<Program, String> {
        if steps.is_empty() || steps.len() > MAX_STEPS {
            return Err(format!("{} steps; a program has 1 to {MAX_STEPS}", steps.len()));
        }
        for (i, (step, _)) in steps.iter().enumerate() {
            if step.reads().any(|r| r as usize >= i) {
                return Err(format!("step {i} reads a register that is not defined before it"));
            }
            if let Step::Load(n) | Step::Random { key: n, .. } = step
                && *n as usize >= MAX_INPUTS
            {
                return Err(format!("step {i} reads input {n}; there are at most {MAX_INPUTS}"));
            }
        }
        let (slots, n_slots) = allocate(&steps);
        Ok(Program { steps, slots, n_slots })
    }

    /// The steps with their types.
    pub fn steps(&self) -> &[(Step, DType)] {
        &self.steps
    }

    /// Bytes of a block buffer: a block of the widest register, or what there is of one. Narrow floats need room to be
    /// widened in.
    fn slot_bytes(&self, elements: usize) -> usize {
        let wide = |dtype: DType| dtype.size() == 8 || is_narrow(dtype);
        let width = if self.steps.iter().any(|(_, dtype)| wide(*dtype)) { 8 } else { 4 };
        (elements.min(BLOCK) * width).next_multiple_of(64)
    }

    /// The type of the result.
    pub fn dtype(&self) -> DType {
        self.steps.last().expect("a program has a step").1
    }

    /// The scratch memory of a run over this many elements, in bytes.
    pub fn scratch(&self, elements: usize, threads: usize) -> usize {
        threads.min(tasks(elements)) * self.n_slots * self.slot_bytes(elements)
    }
}

/// Elements of one task.
const TASK: usize = BLOCK * BLOCKS_PER_TASK;

fn tasks(elements: usize) -> usize {
    elements.div_ceil(TASK)
}

/// Whether a register may hold the same in every block: it keeps its block buffer, and what is there is not brought again.
fn may_stay(step: &Step) -> bool {
    matches!(step, Step::Load(_) | Step::Constant(_))
}

/// Gives every register a block buffer, reusing those of registers that are not read any more.
fn allocate(steps: &[(Step, DType)]) -> (Vec<u8>, usize) {
    let mut last_read = vec![0; steps.len()];
    for (i, (step, _)) in steps.iter().enumerate() {
        step.reads().for_each(|r| last_read[r as usize] = i);
    }
    *last_read.last_mut().expect("a program has a step") = steps.len();
    let mut free: Vec<u8> = Vec::new();
    let mut n_slots = 0;
    let mut slots = vec![0; steps.len()];
    for (i, (step, _)) in steps.iter().enumerate() {
        // The step's own buffer is taken before its operands' are given back: no step works in place.
        slots[i] = free.pop_if(|_| !may_stay(step)).unwrap_or_else(|| {
            n_slots += 1;
            (n_slots - 1) as u8
        });
        let dies = |r: &Register| last_read[*r as usize] == i && !may_stay(&steps[*r as usize].0);
        let mut dying: Vec<u8> = step.reads().filter(dies).map(|r| slots[r as usize]).collect();
        dying.sort_unstable();
        dying.dedup();
        free.extend(dying);
        if last_read[i] == 0 && i + 1 < steps.len() && !may_stay(step) {
            free.push(slots[i]);
        }
    }
    (slots, n_slots)
}

/// An input of a program: where it is and what it is.
#[derive(Clone, Copy)]
pub struct Source {
    /// The first element.
    pub ptr: *const u8,
    /// Element type.
    pub dtype: DType,
    /// Sizes, which broadcast to the output's.
    pub shape: Shape,
}

/// Runs a program: `output[i] = program(inputs at i)` for every element of `shape`.
///
/// Steps that ask for an element's number get `first + i`: a slice of a larger value begins at its `first` element.
///
/// # Safety
/// Each input points to as many elements as its shape says, `output` to as many as `shape` says, of the
/// program's type; an input may be the output itself when their shapes are equal, but may not overlap it otherwise.
/// `scratch` has [`Program::scratch`] bytes aligned to 64.
///
/// # Panics
/// When an input's shape does not broadcast to `shape`.
pub unsafe fn run(
    pool: &Pool,
    program: &Program,
    inputs: &[Source],
    shape: Shape,
    first: usize,
    output: *mut u8,
    scratch: &mut [u8],
) {
    let total = shape.elements();
    if total == 0 {
        return;
    }
    let mut accesses = [Access::Scalar; MAX_INPUTS];
    for (access, input) in accesses.iter_mut().zip(inputs) {
        *access = Access::new(&input.shape, &shape);
    }
    let slot = program.slot_bytes(total);
    let in_place = inputs.iter().any(|i| i.ptr == output);
    let loop_ = Loop { program, inputs, accesses: &accesses, first, output, in_place, slot };
    let per_worker = program.n_slots * slot;
    let n_tasks = tasks(total);
    assert!(scratch.len() >= per_worker * pool.threads().min(n_tasks), "scratch is too small");
    let scratch = SharedSlice::new(scratch);
    let (task_size, threads) = (TASK, pool.threads());
    pool.run_sized(n_tasks, total * program.steps.len() / 4, &|task, worker| {
        // With few tasks each has its own part of the scratch memory, otherwise each worker.
        let lane = if n_tasks <= threads { task } else { worker };
        // SAFETY: tasks that run at once have different lanes.
        let slots = unsafe { scratch.slice(lane * per_worker, per_worker) };
        let end = total.min((task + 1) * task_size);
        let mut start = task * task_size;
        let mut held = [None; MAX_STEPS];
        while start < end {
            let len = BLOCK.min(end - start);
            // SAFETY: blocks of different tasks do not overlap; the rest is the caller's promise.
            unsafe { loop_.block(start, len, slots, &mut held) };
            start += len;
        }
    });
}

struct Loop<'a> {
    program: &'a Program,
    inputs: &'a [Source],
    accesses: &'a [Access],
    /// The number of the first element.
    first: usize,
    output: *mut u8,
    in_place: bool,
    /// Bytes of a block buffer.
    slot: usize,
}

// SAFETY: tasks read shared inputs and write disjoint blocks of the output.
unsafe impl Sync for Loop<'_> {}

/// Where the elements of a register are for the current block.
#[derive(Clone, Copy)]
struct Block {
    ptr: *mut u8,
}

impl Loop<'_> {
    /// Runs all steps on the elements `start .. start + len`. `held` says what of earlier blocks is still in the slots, as
    /// [`Access::phase`] does.
    ///
    /// # Safety
    /// As [`run`]; `slots` is this worker's own.
    unsafe fn block(&self, start: usize, len: usize, slots: &mut [u8], held: &mut [Option<usize>; MAX_STEPS]) {
        let mut blocks = [Block { ptr: std::ptr::null_mut() }; MAX_STEPS];
        let steps = &self.program.steps;
        let base = slots.as_mut_ptr();
        for (i, &(step, dtype)) in steps.iter().enumerate() {
            let last = i + 1 == steps.len();
            // SAFETY: slot numbers are below `n_slots`.
            let slot = unsafe { base.add(self.program.slots[i] as usize * self.slot) };
            // Straight into the output unless a conversion or a read of the same place comes between.
            let direct = last && !self.in_place && !is_narrow(dtype);
            // SAFETY: the block lies inside the output.
            let out = if direct { unsafe { self.output.add(start * dtype.size()) } } else { slot };
            // SAFETY: operands are earlier registers in other slots or input memory that is not the output's,
            // unless in place, when `out` is a slot.
            blocks[i] = unsafe { self.step(step, dtype, &blocks, steps, out, start, len, &mut held[i]) };
            // What the last step leaves is the result's.
            held[i] = held[i].filter(|_| !last);
        }
        let dtype = self.program.dtype();
        let result = blocks[steps.len() - 1].ptr;
        // SAFETY: the block lies inside the output, and `result` is not in it unless it is the same place.
        unsafe {
            let to = self.output.add(start * dtype.size());
            match dtype {
                DType::F16 => slice_mut::<f16>(to, len).convert_from_f32_slice(slice(result, len)),
                DType::BF16 => slice_mut::<bf16>(to, len).convert_from_f32_slice(slice(result, len)),
                DType::F8E4M3 => narrow::<F8E4M3>(slice(result, len), slice_mut(to, len)),
                DType::F8E5M2 => narrow::<F8E5M2>(slice(result, len), slice_mut(to, len)),
                _ if result != to => std::ptr::copy(result, to, len * dtype.size()),
                _ => (),
            }
        }
    }

    unsafe fn step(
        &self,
        step: Step,
        dtype: DType,
        blocks: &[Block; MAX_STEPS],
        steps: &[(Step, DType)],
        out: *mut u8,
        start: usize,
        len: usize,
        held: &mut Option<usize>,
    ) -> Block {
        let at = |r: Register| blocks[r as usize].ptr as *const u8;
        let block = Block { ptr: out };
        let number = self.first + start;
        // SAFETY: see `block`.
        unsafe {
            match step {
                Step::Load(n) => return self.load(n as usize, out, start, len, held),
                Step::Constant(_) if held.is_some() => return block,
                Step::Constant(value) => {
                    functions::fill(dtype, value, out, len);
                    *held = Some(0);
                }
                Step::Index { inner, size } => functions::index(dtype, inner as usize, size as usize, out, number, len),
                Step::Random { distribution, stream, key } => {
                    let key = slice::<i64>(self.inputs[key as usize].ptr, 2);
                    let key = random::Key { seed: key[0] as u64, step: key[1] as u64, stream };
                    match dtype {
                        DType::F64 => random::fill_f64(distribution, key, number as u64, slice_mut(out, len)),
                        _ => random::fill_f32(distribution, key, number as u64, slice_mut(out, len)),
                    }
                }
                Step::Unary(f, a) => functions::unary(f, steps[a as usize].1, at(a), out, len),
                Step::Binary(f, a, b) => functions::binary(f, steps[a as usize].1, at(a), at(b), out, len),
                Step::Select(c, a, b) => functions::select(dtype, at(c), at(a), at(b), out, len),
                Step::Cast(a) => functions::cast(steps[a as usize].1, dtype, at(a), out, len),
            }
            match dtype {
                DType::F16 => round::<f16>(slice_mut(out, len)),
                DType::BF16 => round::<bf16>(slice_mut(out, len)),
                DType::F8E4M3 => round::<F8E4M3>(slice_mut(out, len)),
                DType::F8E5M2 => round::<F8E5M2>(slice_mut(out, len)),
                _ => (),
            }
        }
        block
    }

    /// Brings a block of an input into `out`, or points at it where it already stands in order.
    unsafe fn load(&self, n: usize, out: *mut u8, start: usize, len: usize, held: &mut Option<usize>) -> Block {
        let input = &self.inputs[n];
        let size = input.dtype.size();
        let access = &self.accesses[n];
        let phase = access.phase(start);
        if phase.is_some() && *held == phase {
            return Block { ptr: out };
        }
        // SAFETY: the access pattern stays inside the input, see `Access`.
        unsafe {
            if is_narrow(input.dtype) {
                // Gathered at the end of the buffer's room, then widened from the front.
                let narrow = out.add(self.slot - len * size);
                access.gather(input.ptr, size, start, len, narrow);
                let wide = slice_mut::<f32>(out, len);
                match input.dtype {
                    DType::F16 => slice::<f16>(narrow, len).convert_to_f32_slice(wide),
                    DType::BF16 => slice::<bf16>(narrow, len).convert_to_f32_slice(wide),
                    DType::F8E4M3 => widen(slice::<F8E4M3>(narrow, len), wide),
                    _ => widen(slice::<F8E5M2>(narrow, len), wide),
                }
            } else if let Some(place) = access.in_place(start, len) {
                return Block { ptr: input.ptr.add(place * size).cast_mut() };
            } else {
                access.gather(input.ptr, size, start, len, out);
            }
        }
        *held = phase;
        Block { ptr: out }
    }
}

/// Narrow floats are kept as f32 in registers.
fn is_narrow(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16) || dtype.is_float8()
}

fn round<N: Element>(values: &mut [f32]) {
    for v in values {
        *v = N::from_f64(*v as f64).to_f64() as f32;
    }
}

fn narrow<N: Element>(from: &[f32], to: &mut [N]) {
    from.iter().zip(to).for_each(|(from, to)| *to = N::from_f64(*from as f64));
}

fn widen<N: Element>(from: &[N], to: &mut [f32]) {
    from.iter().zip(to).for_each(|(from, to)| *to = from.to_f64() as f32);
}

/// # Safety
/// `ptr` points to `len` elements that nobody writes meanwhile.
#[inline(always)]
unsafe fn slice<'a, T>(ptr: *const u8, len: usize) -> &'a [T] {
    // SAFETY: the caller's promise; blocks are aligned to their element type.
    unsafe { std::slice::from_raw_parts(ptr.cast(), len) }
}

/// # Safety
/// `ptr` points to `len` elements that nobody else touches meanwhile.
#[inline(always)]
unsafe fn slice_mut<'a, T>(ptr: *mut u8, len: usize) -> &'a mut [T] {
    // SAFETY: the caller's promise; blocks are aligned to their element type.
    unsafe { std::slice::from_raw_parts_mut(ptr.cast(), len) }
}
