//! Operations that pick elements by index, put them in order, and add them up as they come.

use crate::array;
use crate::operand::{Operand, apply, apply1};
use crate::ops::{Object, axis as axis_of, dims, rank, tensors};
use crate::tensor::PyTensor;
use plimsoll_tensor::DType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// So many known indices are looked at when they are asked for.
const LOOKED_AT: usize = 1 << 16;

/// Refuses known indices that lie outside: at the line that asks, and not where somebody looks at what became of it.
fn expect_inside(name: &str, indices: &Operand, size: usize) -> PyResult<()> {
    let Operand::Tensor(handle) = indices else { return Ok(()) };
    let Some(buffer) = handle.buffer().filter(|buffer| buffer.ty().elements() <= LOOKED_AT) else { return Ok(()) };
    let is_outside = |index: &i64| !(0..size as i64).contains(index);
    let outside = match buffer.ty().dtype {
        DType::I32 => {
            let words = buffer.bytes().chunks_exact(4).map(|b| i32::from_ne_bytes(b.try_into().expect("four")) as i64);
            words.enumerate().find(|(_, index)| is_outside(index))
        }
        DType::I64 => {
            let words = buffer.bytes().chunks_exact(8).map(|b| i64::from_ne_bytes(b.try_into().expect("eight")));
            words.enumerate().find(|(_, index)| is_outside(index))
        }
        _ => None,
    };
    match outside {
        Some((i, index)) => {
            Err(PyValueError::new_err(format!("{name}: index {index} at position {i} is not in [0, {size})")))
        }
        None => Ok(()),
    }
}

/// Slices along an axis, which the axes of the indices take the place of.
#[pyfunction(signature = (x, indices, axis=0))]
fn gather(py: Python<'_>, x: Object<'_>, indices: Object<'_>, axis: i64) -> PyResult<PyTensor> {
    let (x, indices) = (Operand::of(&x)?, Operand::of(&indices)?);
    let axis = axis_of(axis, rank(&x))?;
    expect_inside("gather", &indices, dims(&x)[axis])?;
    apply1(py, &[&x, &indices], |g, v| g.gather(v[0], v[1], axis))
}

/// Zeros of `size` along an axis, with the slices of `updates` added at the indices.
#[pyfunction(signature = (indices, updates, axis, size))]
fn scatter_add(
    py: Python<'_>,
    indices: Object<'_>,
    updates: Object<'_>,
    axis: usize,
    size: usize,
) -> PyResult<PyTensor> {
    let (indices, updates) = (Operand::of(&indices)?, Operand::of(&updates)?);
    expect_inside("scatter_add", &indices, size)?;
    apply1(py, &[&indices, &updates], |g, v| g.scatter_add(v[0], v[1], axis, size))
}

/// Elements along an axis, picked by indices of the same shape elsewhere.
#[pyfunction]
fn take_along(py: Python<'_>, x: Object<'_>, indices: Object<'_>, axis: i64) -> PyResult<PyTensor> {
    let (x, indices) = (Operand::of(&x)?, Operand::of(&indices)?);
    let axis = axis_of(axis, rank(&x))?;
    expect_inside("take_along", &indices, dims(&x)[axis])?;
    apply1(py, &[&x, &indices], |g, v| g.take_along(v[0], v[1], axis))
}

/// Zeros of `size` along an axis, with the elements of `updates` added at the indices.
#[pyfunction]
fn add_along(py: Python<'_>, indices: Object<'_>, updates: Object<'_>, axis: i64, size: usize) -> PyResult<PyTensor> {
    let (indices, updates) = (Operand::of(&indices)?, Operand::of(&updates)?);
    let axis = axis_of(axis, rank(&updates))?;
    expect_inside("add_along", &indices, size)?;
    apply1(py, &[&indices, &updates], |g, v| g.add_along(v[0], v[1], axis, size))
}

/// A new last axis of `depth`, 1 where the index says and 0 elsewhere.
#[pyfunction(signature = (indices, depth, dtype="float32"))]
fn one_hot(py: Python<'_>, indices: Object<'_>, depth: usize, dtype: &str) -> PyResult<PyTensor> {
    let (indices, dtype) = (Operand::of(&indices)?, array::dtype(dtype)?);
    apply1(py, &[&indices], |g, v| g.one_hot(v[0], depth, dtype))
}

/// The elements in order along an axis, and where they stood (int32).
#[pyfunction(signature = (x, axis=-1, descending=false))]
fn sort(py: Python<'_>, x: Object<'_>, axis: i64, descending: bool) -> PyResult<(PyTensor, PyTensor)> {
    let x = Operand::of(&x)?;
    let axis = axis_of(axis, rank(&x))?;
    let both = apply(py, &[&x], |g, v| g.sort(v[0], axis, descending).map(|(a, b)| vec![a, b]))?;
    let mut both = tensors(both).into_iter();
    Ok((both.next().expect("values"), both.next().expect("places")))
}

/// The k largest elements along the last axis, and where they stand (int32).
#[pyfunction]
fn top_k(py: Python<'_>, x: Object<'_>, k: usize) -> PyResult<(PyTensor, PyTensor)> {
    let x = Operand::of(&x)?;
    let both = apply(py, &[&x], |g, v| g.top_k(v[0], k).map(|(a, b)| vec![a, b]))?;
    let mut both = tensors(both).into_iter();
    Ok((both.next().expect("values"), both.next().expect("places")))
}

/// Running sums along an axis.
#[pyfunction(signature = (x, axis, exclusive=false, reverse=false))]
fn cumsum(py: Python<'_>, x: Object<'_>, axis: i64, exclusive: bool, reverse: bool) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let axis = axis_of(axis, rank(&x))?;
    apply1(py, &[&x], |g, v| g.cumsum(v[0], axis, exclusive, reverse))
}

/// Running products along an axis.
#[pyfunction(signature = (x, axis, exclusive=false, reverse=false))]
fn cumprod(py: Python<'_>, x: Object<'_>, axis: i64, exclusive: bool, reverse: bool) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let axis = axis_of(axis, rank(&x))?;
    apply1(py, &[&x], |g, v| g.cumprod(v[0], axis, exclusive, reverse))
}

/// Adds the operations to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident),* $(,)?) => {$( module.add_function(wrap_pyfunction!($name, module)?)?; )*};
    }
    add!(gather, scatter_add, take_along, add_along, one_hot, sort, top_k, cumsum, cumprod);
    Ok(())
}
