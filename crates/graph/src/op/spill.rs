//! Moving values between memory and a file. The planner alone adds these ops, where a limit leaves it no better way.
//!
//! Nothing here waits except where it says so: a write or read is begun by one node and over at another, so that it goes on
//! while other nodes run. A token is a value without bytes that puts nodes in order. The file itself is behind [`Spill`].

use super::{Backward, Cost, Io, OpDef, Reference, Types, expect_inputs};
use crate::error::{GraphError, RunError};
use crate::graph::Value;
use crate::op_attrs;
use plimsoll_tensor::{DType, Shape, TensorType};

/// A file that values are written to and read from.
pub trait Spill: Sync {
    /// Begins to write; `bytes` stay as they are until [`Spill::finish`] of the same slot.
    ///
    /// # Errors
    /// When an earlier transfer failed.
    ///
    /// # Safety
    /// The bytes are valid and unchanged until the slot is finished.
    unsafe fn write(&self, slot: u64, bytes: *const u8, n: usize) -> Result<(), String>;

    /// Begins to read; the bytes are there after [`Spill::finish`] of the same slot.
    ///
    /// # Errors
    /// When an earlier transfer failed.
    ///
    /// # Safety
    /// The bytes are valid and used by nobody else until the slot is finished.
    unsafe fn read(&self, slot: u64, bytes: *mut u8, n: usize) -> Result<(), String>;

    /// Waits until all transfers of a slot are over.
    ///
    /// # Errors
    /// When one of them failed, or what was read is not what was written.
    fn finish(&self, slot: u64) -> Result<(), String>;
}

/// What a transfer op does, and where in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// See [`BeginWrite`].
    BeginWrite(u64),
    /// See [`EndWrite`].
    EndWrite(u64),
    /// See [`BeginRead`].
    BeginRead(u64),
    /// See [`EndRead`].
    EndRead(u64),
}

/// The type of a token.
pub fn token() -> TensorType {
    TensorType::new(DType::U8, [0])
}

/// Begins to write the first input to the file. Further inputs are tokens that must come before. The output is a token.
#[derive(Clone, Debug, PartialEq)]
pub struct BeginWrite {
    /// Where in the file: an offset in bytes.
    pub slot: u64,
}

/// Waits until the value (second input) whose writing gave the token (first input) is in the file; the memory of the value
/// is free after this. The output is a token.
#[derive(Clone, Debug, PartialEq)]
pub struct EndWrite {
    /// Where in the file.
    pub slot: u64,
}

/// Begins to read a value from the file. The inputs are tokens that must come before. What is in the output is defined
/// only after [`EndRead`].
#[derive(Clone, Debug, PartialEq)]
pub struct BeginRead {
    /// Where in the file.
    pub slot: u64,
    /// The type of the value.
    pub dtype: DType,
    /// Its shape.
    pub shape: Shape,
}

/// Waits until the input is read from the file. The output is the input's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct EndRead {
    /// Where in the file.
    pub slot: u64,
}

op_attrs!(BeginWrite = "begin_write" { slot });
op_attrs!(EndWrite = "end_write" { slot });
op_attrs!(BeginRead = "begin_read" { slot, dtype, shape });
op_attrs!(EndRead = "end_read" { slot });

/// What all four answer alike.
macro_rules! transfer_answers {
    () => {
        fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
            let layer = b.graph.layer().to_owned();
            let message = "gradients are taken before values are moved to a file".into();
            Err(GraphError::NoGradient { layer, op: self.name(), message })
        }

        fn reference(&self, _: &[&Reference], _: &[TensorType]) -> Result<Vec<Reference>, RunError> {
            Err(RunError { op: self.name(), message: "a transfer has no plain definition".into() })
        }
    };
}

fn failed(op: &'static str) -> impl Fn(String) -> RunError {
    move |message| RunError { op, message }
}

impl OpDef for BeginWrite {
    fn name(&self) -> &'static str {
        "begin_write"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        if inputs.is_empty() || inputs[1..].iter().any(|t| *t != token()) {
            return Err("takes a value and tokens".into());
        }
        Ok(vec![token()])
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 0, bytes: types.inputs[0].bytes() as u64 }
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let value = &io.inputs()[0];
        // SAFETY: the planner keeps the value until its `EndWrite`, as the checker proved.
        unsafe { io.spill(self.name())?.write(self.slot, value.ptr, value.ty.bytes()) }.map_err(failed(self.name()))
    }

    fn transfer(&self) -> Option<Transfer> {
        Some(Transfer::BeginWrite(self.slot))
    }

    transfer_answers!();
}

impl OpDef for EndWrite {
    fn name(&self) -> &'static str {
        "end_write"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 2)?;
        if inputs[0] != token() {
            return Err("takes a token and a value".into());
        }
        Ok(vec![token()])
    }

    fn cost(&self, _: &Types<'_>) -> Cost {
        Cost::default()
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        io.spill(self.name())?.finish(self.slot).map_err(failed(self.name()))
    }

    fn transfer(&self) -> Option<Transfer> {
        Some(Transfer::EndWrite(self.slot))
    }

    transfer_answers!();
}

impl OpDef for BeginRead {
    fn name(&self) -> &'static str {
        "begin_read"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        if inputs.iter().any(|t| *t != token()) {
            return Err("takes tokens".into());
        }
        Ok(vec![TensorType::new(self.dtype, self.shape)])
    }

    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: 0, bytes: types.outputs[0].bytes() as u64 }
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        let value = &io.outputs()[0];
        // SAFETY: nobody else uses the memory until `EndRead`, as the checker proved.
        unsafe { io.spill(self.name())?.read(self.slot, value.ptr, value.ty.bytes()) }.map_err(failed(self.name()))
    }

    fn transfer(&self) -> Option<Transfer> {
        Some(Transfer::BeginRead(self.slot))
    }

    transfer_answers!();
}

impl OpDef for EndRead {
    fn name(&self) -> &'static str {
        "end_read"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        expect_inputs(inputs, 1)?;
        Ok(inputs.to_vec())
    }

    fn cost(&self, _: &Types<'_>) -> Cost {
        Cost::default()
    }

    fn is_view(&self) -> bool {
        true
    }

    fn runs(&self) -> bool {
        true
    }

    fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
        io.spill(self.name())?.finish(self.slot).map_err(failed(self.name()))
    }

    fn transfer(&self) -> Option<Transfer> {
        Some(Transfer::EndRead(self.slot))
    }

    transfer_answers!();
}
