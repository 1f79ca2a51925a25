//! A traced function applied to the elements of a pipeline: planned once, run by any thread without the interpreter's lock.

use crate::array;
use crate::error::Error;
use crate::extract::{Extract, extract};
use crate::function::Program;
use crate::run::BUDGET;
use plimsoll_data::{Component, Row, Writer};
use plimsoll_exec::Engine;
use plimsoll_plan::{Options, Plan, StateLayout, plan};
use plimsoll_tensor::TensorType;
use pyo3::PyResult;
use std::sync::{Mutex, PoisonError};

/// A program with engines for as many threads as run it at the same time.
pub struct Mapped {
    cut: Extract,
    layout: StateLayout,
    plan: Plan,
    inputs: Vec<TensorType>,
    outputs: Vec<(String, TensorType)>,
    idle: Mutex<Vec<Engine>>,
}

impl Mapped {
    /// The program, which must not touch variables: elements are made in any order, by any thread.
    pub fn new(program: &Program) -> PyResult<Mapped> {
        let record = &program.record;
        let cut = extract(record, &program.outputs, &record.bound, 0, false).map_err(Error::from)?;
        if !cut.variables.is_empty() {
            return Err(Error::Untraceable("it reads or changes a variable for every element".into()).into());
        }
        let layout = StateLayout::default();
        let plan = plan(&cut.graph, &layout, &Options { threads: 1, ..Options::default() })
            .map_err(|error| Error::Value(error.to_string()))?;
        let inputs = record.inputs.iter().map(|v| *record.graph.ty(*v)).collect();
        let outputs = cut.graph.outputs().iter().map(|o| (o.name.clone(), *cut.graph.ty(o.value))).collect();
        Ok(Mapped { cut, layout, plan, inputs, outputs, idle: Mutex::default() })
    }

    /// What its results look like.
    pub fn components(&self) -> Vec<Component> {
        let component =
            |(i, (_, ty)): (usize, &(String, TensorType))| Component::new(i.to_string(), ty.dtype, ty.dims());
        self.outputs.iter().enumerate().map(component).collect()
    }

    /// Writes what becomes of an element.
    ///
    /// # Errors
    /// When the program fails on it or memory is short.
    pub fn apply(&self, row: &Row<'_>, out: &mut Writer<'_, '_>) -> Result<(), plimsoll_data::Error> {
        self.run(row, |engine, outputs| {
            for (i, (name, ty)) in outputs.iter().enumerate() {
                let bytes = engine.output_bytes(0, name).map_err(|e| plimsoll_data::Error::element(e.to_string()))?;
                out.raw(&i.to_string(), ty, bytes)?;
            }
            Ok(())
        })
    }

    /// Whether its result for an element is true.
    ///
    /// # Errors
    /// As [`Mapped::apply`].
    pub fn test(&self, row: &Row<'_>) -> Result<bool, plimsoll_data::Error> {
        self.run(row, |engine, outputs| {
            let (name, ty) =
                outputs.first().ok_or_else(|| plimsoll_data::Error::element("the function gives nothing"))?;
            if ty.elements() != 1 || ty.dtype != plimsoll_tensor::DType::Bool {
                let found = array::dtype_name(ty.dtype);
                return Err(plimsoll_data::Error::element(format!("a filter gives one bool, not {found}{}", ty.shape)));
            }
            let bytes = engine.output_bytes(0, name).map_err(|e| plimsoll_data::Error::element(e.to_string()))?;
            Ok(bytes != [0])
        })
    }

    fn run<T>(
        &self,
        row: &Row<'_>,
        take: impl FnOnce(&Engine, &[(String, TensorType)]) -> Result<T, plimsoll_data::Error>,
    ) -> Result<T, plimsoll_data::Error> {
        let words = |e: &dyn std::fmt::Display| plimsoll_data::Error::element(e.to_string());
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut engine = match idle {
            Some(engine) => engine,
            None => self.open().map_err(|e| words(&e))?,
        };
        for (i, (component, ty)) in row.spec().components().iter().zip(&self.inputs).enumerate() {
            let found = row.shape(&component.name)?;
            if *found != ty.shape {
                return Err(words(&format!(
                    "the function was traced for {ty}, but this element has the shape {found}"
                )));
            }
            if let Some(to) = engine.input_bytes_mut(0, &format!("i{i}")) {
                to.copy_from_slice(row.bytes(&component.name)?);
            }
        }
        engine.run(0).map_err(|e| words(&e))?;
        let result = take(&engine, &self.outputs);
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(engine);
        result
    }

    fn open(&self) -> Result<Engine, Error> {
        let mut engine = Engine::open(&BUDGET, &self.layout, vec![self.plan.clone()], 1)?;
        for (i, (buffer, _)) in self.cut.bound.iter().enumerate() {
            if let Some(to) = engine.input_bytes_mut(0, &format!("k{i}")) {
                to.copy_from_slice(buffer.bytes());
            }
        }
        Ok(engine)
    }
}
