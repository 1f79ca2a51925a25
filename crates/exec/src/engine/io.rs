//! What goes into a program and comes out of it.

use super::{Engine, ExecError, ProgramId};
use plimsoll_graph::Operand;
use plimsoll_tensor::{Element, Tensor, TensorType};

impl Engine {
    /// The memory of an input, to be filled before a run.
    ///
    /// # Errors
    /// When there is no such input or it has another type.
    pub fn input_mut<T: Element>(&mut self, program: ProgramId, name: &str) -> Result<&mut [T], ExecError> {
        let operand = self.find_input(program, name)?;
        // SAFETY: valid memory of the arena, exclusive through `&mut self`.
        unsafe { slice_mut("input", name, operand) }
    }

    /// The memory of an input as bytes, to be filled before a run; `None` when there is no such input.
    ///
    /// The bytes written must be valid for the input's type (0 or 1 for `bool`).
    pub fn input_bytes_mut(&mut self, program: ProgramId, name: &str) -> Option<&mut [u8]> {
        let operand = self.find_input(program, name).ok()?;
        // SAFETY: valid memory of the arena, exclusive through `&mut self`.
        Some(unsafe { std::slice::from_raw_parts_mut(operand.ptr, operand.ty.bytes()) })
    }

    /// The memory of several inputs as bytes, to be filled before a run: `None` where there is no such input, or it was named
    /// before.
    ///
    /// The bytes written must be valid for the inputs' types (0 or 1 for `bool`).
    pub fn inputs_bytes_mut<'a>(
        &'a mut self,
        program: ProgramId,
        names: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Vec<Option<&'a mut [u8]>> {
        let mut found: Vec<Option<(usize, &'a mut [u8])>> = Vec::new();
        for name in names {
            let operand = name.and_then(|name| self.find_input(program, name).ok());
            let operand = operand.filter(|o| found.iter().flatten().all(|(start, _)| *start != o.ptr as usize));
            found.push(operand.map(|o| {
                // SAFETY: valid memory of the arena, exclusive through `&mut self`. All inputs of a step are alive when it
                // begins, so no two of them share a byte, and none is given twice.
                (o.ptr as usize, unsafe { std::slice::from_raw_parts_mut(o.ptr, o.ty.bytes()) })
            }));
        }
        found.into_iter().map(|entry| entry.map(|(_, bytes)| bytes)).collect()
    }

    /// Copies a tensor into an input.
    ///
    /// # Errors
    /// When there is no such input or the tensor has another type.
    pub fn set_input(&mut self, program: ProgramId, name: &str, tensor: &Tensor) -> Result<(), ExecError> {
        copy_in("input", name, tensor, self.find_input(program, name)?)
    }

    /// The elements of an output after a run.
    ///
    /// # Errors
    /// When there is no such output or it has another type.
    pub fn output_slice<T: Element>(&self, program: ProgramId, name: &str) -> Result<&[T], ExecError> {
        let operand = self.find_output(program, name)?;
        // SAFETY: valid memory of the arena; writing needs `&mut self`.
        unsafe { slice_mut("output", name, operand).map(|s| &*s) }
    }

    /// The bytes of an output after a run.
    ///
    /// # Errors
    /// When there is no such output.
    pub fn output_bytes(&self, program: ProgramId, name: &str) -> Result<&[u8], ExecError> {
        let operand = self.find_output(program, name)?;
        // SAFETY: valid memory of the arena; writing needs `&mut self`.
        Ok(unsafe { std::slice::from_raw_parts(operand.ptr, operand.ty.bytes()) })
    }

    /// A copy of an output after a run.
    ///
    /// # Errors
    /// When there is no such output.
    pub fn output(&self, program: ProgramId, name: &str) -> Result<Tensor, ExecError> {
        Ok(copy_out(self.find_output(program, name)?))
    }

    fn find_input(&self, program: ProgramId, name: &str) -> Result<Operand, ExecError> {
        let inputs = &self.programs[program].as_ref().expect("a program that is there").inputs;
        inputs.iter().find(|(n, _)| n == name).map(|(_, o)| *o).ok_or_else(|| missing("input", name))
    }

    pub(super) fn find_output(&self, program: ProgramId, name: &str) -> Result<Operand, ExecError> {
        let program = self.programs[program].as_ref().expect("a program that is there");
        let outputs = program.plan.graph.outputs();
        let output = outputs.iter().find(|o| o.name == name).ok_or_else(|| missing("output", name))?;
        Ok(program.operand(output.value, &self.scratch))
    }
}

pub(crate) fn missing(what: &'static str, name: &str) -> ExecError {
    ExecError::Value { what, name: name.to_owned(), message: "does not exist".into() }
}

pub(crate) fn wrong_type(what: &'static str, name: &str, expected: impl ToString, found: impl ToString) -> ExecError {
    let message = format!("is {}, not {}", expected.to_string(), found.to_string());
    ExecError::Value { what, name: name.to_owned(), message }
}

/// # Safety
/// The operand is valid for the lifetime and, if written, exclusive.
pub(crate) unsafe fn slice_mut<'a, T: Element>(
    what: &'static str,
    name: &str,
    operand: Operand,
) -> Result<&'a mut [T], ExecError> {
    if operand.ty.dtype != T::DTYPE {
        return Err(wrong_type(what, name, operand.ty.dtype, T::DTYPE));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts_mut(operand.ptr.cast(), operand.ty.elements()) })
}

pub(crate) fn copy_in(what: &'static str, name: &str, tensor: &Tensor, operand: Operand) -> Result<(), ExecError> {
    let ty: TensorType = *tensor.ty();
    if ty != operand.ty {
        return Err(wrong_type(what, name, operand.ty, ty));
    }
    // SAFETY: the operand has as many bytes as the tensor, which is elsewhere.
    unsafe { std::ptr::copy_nonoverlapping(tensor.bytes().as_ptr(), operand.ptr, ty.bytes()) };
    Ok(())
}

pub(crate) fn copy_out(operand: Operand) -> Tensor {
    let mut tensor = Tensor::zeros(operand.ty.dtype, operand.ty.shape);
    // SAFETY: as in `copy_in`.
    unsafe { std::ptr::copy_nonoverlapping(operand.ptr, tensor.bytes_mut().as_mut_ptr(), operand.ty.bytes()) };
    tensor
}
