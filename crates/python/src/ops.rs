//! The graph's operations as functions of Python. Each says what it takes; shapes and types are checked at once, and nothing is
//! computed until somebody looks.

use crate::array::{self, dtype, shape};
use crate::operand::{Operand, apply1};
use crate::record::Handle;
use crate::tensor::PyTensor;
use plimsoll_graph::op::elementwise::Random;
use plimsoll_graph::op::reduce::{Arg, Kind};
use plimsoll_graph::{Graph, GraphError, Value};
use plimsoll_kernels::pointwise::{Binary, Unary};
use plimsoll_tensor::{DType, TensorType};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::sync::Arc;

pub(crate) type Object<'py> = Bound<'py, PyAny>;

/// One axis, several, or all of them.
#[derive(FromPyObject)]
pub enum Axes {
    /// One.
    One(i64),
    /// Several.
    Many(Vec<i64>),
}

pub(crate) fn axis(axis: i64, rank: usize) -> PyResult<usize> {
    let from_front = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(from_front) {
        Ok(axis) if axis < rank => Ok(axis),
        _ => Err(PyValueError::new_err(format!("axis {axis} of a tensor with {rank} axes"))),
    }
}

fn axes(axes: Option<Axes>, rank: usize) -> PyResult<Vec<usize>> {
    match axes {
        None => Ok((0..rank).collect()),
        Some(Axes::One(a)) => Ok(vec![axis(a, rank)?]),
        Some(Axes::Many(list)) => {
            let mut list = list.into_iter().map(|a| axis(a, rank)).collect::<PyResult<Vec<usize>>>()?;
            list.sort_unstable();
            let n = list.len();
            list.dedup();
            if list.len() < n {
                return Err(PyValueError::new_err("an axis is named twice"));
            }
            Ok(list)
        }
    }
}

pub(crate) fn rank(x: &Operand) -> usize {
    dims(x).len()
}

pub(crate) fn dims(x: &Operand) -> Vec<usize> {
    match x {
        Operand::Tensor(handle) => handle.ty.dims().to_vec(),
        Operand::Variable(cell) => cell.ty().dims().to_vec(),
        Operand::Number(..) => Vec::new(),
    }
}

pub(crate) fn some(x: Option<Object<'_>>) -> PyResult<Option<Operand>> {
    x.map(|x| Operand::of(&x)).transpose()
}

pub(crate) fn list(xs: &[Object<'_>]) -> PyResult<Vec<Operand>> {
    xs.iter().map(Operand::of).collect()
}

pub(crate) fn refs<'a>(first: &[&'a Operand], rest: &[&'a Option<Operand>]) -> Vec<&'a Operand> {
    first.iter().copied().chain(rest.iter().filter_map(|o| o.as_ref())).collect()
}

pub(crate) fn tensors(handles: Vec<Arc<Handle>>) -> Vec<PyTensor> {
    handles.into_iter().map(|handle| PyTensor { handle }).collect()
}

/// A tensor from an array, a number, nested lists, or anything that NumPy makes an array of.
#[pyfunction(signature = (value, dtype=None))]
fn tensor<'py>(py: Python<'py>, value: Object<'py>, dtype: Option<&str>) -> PyResult<Object<'py>> {
    let wanted = dtype.map(array::dtype).transpose()?;
    if let Ok(known) = value.cast::<PyTensor>() {
        return match wanted.filter(|w| *w != known.get().handle.ty.dtype) {
            None => Ok(value),
            Some(to) => {
                let x = Operand::Tensor(known.get().handle.clone());
                Ok(Bound::new(py, apply1(py, &[&x], |g, v| g.cast(v[0], to))?)?.into_any())
            }
        };
    }
    let operand = match Operand::of(&value)? {
        Operand::Tensor(_) => {
            let handle = Handle::known(array::from_python(&value, wanted)?);
            return Ok(Bound::new(py, PyTensor { handle })?.into_any());
        }
        other => other,
    };
    let result = apply1(py, &[&operand.or_dtype(wanted)], |g, v| match wanted {
        Some(to) => g.cast(v[0], to),
        None => Ok(v[0]),
    })?;
    Ok(Bound::new(py, result)?.into_any())
}

/// A tensor with the same number everywhere.
#[pyfunction]
fn full(py: Python<'_>, shape: Vec<usize>, value: Object<'_>, dtype: &str) -> PyResult<PyTensor> {
    let (shape, dtype) = (array::shape(&shape)?, array::dtype(dtype)?);
    let value = Operand::of(&value)?.or_dtype(Some(dtype));
    apply1(py, &[&value], |g, v| {
        let value = g.cast(v[0], dtype)?;
        g.broadcast(value, shape)
    })
}

/// A tensor whose elements are their own index along an axis.
#[pyfunction]
fn iota(py: Python<'_>, shape: Vec<usize>, axis: i64, dtype: &str) -> PyResult<PyTensor> {
    let (axis, shape, dtype) = (self::axis(axis, shape.len())?, array::shape(&shape)?, array::dtype(dtype)?);
    apply1(py, &[], |g, _| g.index(shape, axis, dtype))
}

/// Random numbers: a function of the key (two int64 numbers) and the place alone.
#[pyfunction]
fn random(py: Python<'_>, key: Object<'_>, distribution: String, shape: Vec<usize>, dtype: &str) -> PyResult<PyTensor> {
    let (shape, dtype, key) = (array::shape(&shape)?, array::dtype(dtype)?, Operand::of(&key)?);
    // Always the same stream: what a key gives does not depend on what was recorded before.
    apply1(py, &[&key], |g, v| g.push1(Random { distribution, stream: 0, shape, dtype }, v))
}

/// Functions of one argument that are made of others.
fn composed(g: &mut Graph, name: &str, x: Value) -> Option<Result<Value, GraphError>> {
    let dtype = g.dtype(x);
    let result = match name {
        "log2" => g.log(x).and_then(|y| g.scale(y, std::f64::consts::LOG2_E)),
        "log10" => g.log(x).and_then(|y| g.scale(y, std::f64::consts::LOG10_E)),
        "exp2" => g.scale(x, std::f64::consts::LN_2).and_then(|y| g.exp(y)),
        "is_inf" => (|| {
            let (size, infinity) = (g.abs(x)?, g.constant(f64::INFINITY, dtype)?);
            g.eq(size, infinity)
        })(),
        "trunc" => (|| {
            let (down, up, zero) = (g.floor(x)?, g.unary(Unary::Ceil, x)?, g.constant(0.0, dtype)?);
            let negative = g.lt(x, zero)?;
            g.select(negative, up, down)
        })(),
        // asinh x = sign(x) log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))), which keeps its digits near 0.
        "asinh" => (|| {
            let (a, square, sign) = (g.abs(x)?, g.square(x)?, g.sign(x)?);
            let under = g.shift(square, 1.0)?;
            let root = g.sqrt(under)?;
            let below = g.shift(root, 1.0)?;
            let part = g.div(square, below)?;
            let sum = g.add(a, part)?;
            let log = g.log1p(sum)?;
            g.mul(sign, log)
        })(),
        "acosh" => (|| {
            let (less, more) = (g.shift(x, -1.0)?, g.shift(x, 1.0)?);
            let product = g.mul(less, more)?;
            let root = g.sqrt(product)?;
            let sum = g.add(less, root)?;
            g.log1p(sum)
        })(),
        "atanh" => (|| {
            let minus = g.neg(x)?;
            let (up, down) = (g.log1p(x)?, g.log1p(minus)?);
            let twice = g.sub(up, down)?;
            g.scale(twice, 0.5)
        })(),
        _ => return None,
    };
    Some(result)
}

/// A function of one argument, element by element.
#[pyfunction]
fn unary(py: Python<'_>, name: &str, x: Object<'_>) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let plain = match name {
        "logical_not" => Some(Unary::Not),
        other => Unary::from_name(other),
    };
    if plain.is_none() && !COMPOSED.contains(&name) {
        return Err(PyValueError::new_err(format!("there is no function '{name}' of one argument")));
    }
    let name = name.to_owned();
    apply1(py, &[&x], move |g, v| match plain {
        Some(f) => g.unary(f, v[0]),
        None => composed(g, &name, v[0]).expect("checked above"),
    })
}

const COMPOSED: [&str; 8] = ["log2", "log10", "exp2", "is_inf", "trunc", "asinh", "acosh", "atanh"];

/// A function of two arguments of one type, element by element; shapes broadcast as NumPy's do.
#[pyfunction]
fn binary(py: Python<'_>, name: &str, a: Object<'_>, b: Object<'_>) -> PyResult<PyTensor> {
    let (a, b) = (Operand::of(&a)?, Operand::of(&b)?);
    let dtype = a.dtype().or(b.dtype());
    let (a, b) = (a.or_dtype(dtype), b.or_dtype(dtype));
    let name = match name {
        "logical_and" | "bit_and" => "and",
        "logical_or" | "bit_or" => "or",
        "logical_xor" | "bit_xor" => "xor",
        other => other,
    };
    if name == "mod" {
        // The remainder has the divisor's sign, as in Python.
        return apply1(py, &[&a, &b], |g, v| {
            let quotient = g.binary(Binary::FloorDiv, v[0], v[1])?;
            let whole = g.mul(quotient, v[1])?;
            g.sub(v[0], whole)
        });
    }
    let Some(f) = Binary::from_name(name) else {
        return Err(PyValueError::new_err(format!("there is no function '{name}' of two arguments")));
    };
    apply1(py, &[&a, &b], |g, v| g.binary(f, v[0], v[1]))
}

/// The second argument where the first is true, the third elsewhere.
#[pyfunction]
fn select(py: Python<'_>, condition: Object<'_>, a: Object<'_>, b: Object<'_>) -> PyResult<PyTensor> {
    let (c, a, b) = (Operand::of(&condition)?, Operand::of(&a)?, Operand::of(&b)?);
    let dtype = a.dtype().or(b.dtype());
    let (a, b) = (a.or_dtype(dtype), b.or_dtype(dtype));
    apply1(py, &[&c, &a, &b], |g, v| g.select(v[0], v[1], v[2]))
}

/// Conversion to another type.
#[pyfunction]
fn cast(py: Python<'_>, x: Object<'_>, dtype: &str) -> PyResult<PyTensor> {
    let (x, dtype) = (Operand::of(&x)?, array::dtype(dtype)?);
    apply1(py, &[&x], |g, v| g.cast(v[0], dtype))
}

/// The tensor itself, through which no gradient flows.
#[pyfunction]
fn stop_gradient(py: Python<'_>, x: Object<'_>) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    apply1(py, &[&x], |g, v| g.stop_gradient(v[0]))
}

/// `sum`, `mean`, `max`, `min`, `prod`, `all` or `any` over axes; all of them when none are named.
#[pyfunction(signature = (kind, x, axes=None, keep=false))]
fn reduce(py: Python<'_>, kind: &str, x: Object<'_>, axes: Option<Axes>, keep: bool) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let axes = self::axes(axes, rank(&x))?;
    let kind = match kind {
        "sum" => Kind::Sum,
        "mean" => Kind::Mean,
        "max" => Kind::Max,
        "min" => Kind::Min,
        "prod" => Kind::Prod,
        "all" => Kind::All,
        "any" => Kind::Any,
        other => return Err(PyValueError::new_err(format!("there is no reduction '{other}'"))),
    };
    if axes.is_empty() {
        return apply1(py, &[&x], |_, v| Ok(v[0]));
    }
    apply1(py, &[&x], |g, v| g.reduce(kind, v[0], &axes, keep))
}

fn arg(py: Python<'_>, x: Object<'_>, axis: i64, largest: bool) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let axis = self::axis(axis, rank(&x))?;
    apply1(py, &[&x], |g, v| {
        let place = g.push1(Arg { largest, axis }, v)?;
        g.cast(place, DType::I64)
    })
}

/// Where the largest element along an axis is, as int64.
#[pyfunction]
fn argmax(py: Python<'_>, x: Object<'_>, axis: i64) -> PyResult<PyTensor> {
    arg(py, x, axis, true)
}

/// Where the smallest element along an axis is, as int64.
#[pyfunction]
fn argmin(py: Python<'_>, x: Object<'_>, axis: i64) -> PyResult<PyTensor> {
    arg(py, x, axis, false)
}

/// The same elements under another shape; one size may be -1.
#[pyfunction]
fn reshape(py: Python<'_>, x: Object<'_>, shape: Vec<i64>) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let elements: usize = dims(&x).iter().product();
    let known: usize = shape.iter().filter(|d| **d >= 0).map(|d| *d as usize).product();
    let open = shape.iter().filter(|d| **d < 0).count();
    if open > 1 || open == 1 && (known == 0 || !elements.is_multiple_of(known)) || open == 0 && known != elements {
        return Err(PyValueError::new_err(format!("{:?} cannot be reshaped to {shape:?}", dims(&x))));
    }
    let sizes: Vec<usize> = shape.iter().map(|d| if *d < 0 { elements / known } else { *d as usize }).collect();
    let sizes = array::shape(&sizes)?;
    apply1(py, &[&x], |g, v| g.reshape(v[0], sizes))
}

/// The axes in another order; reversed when none is named.
#[pyfunction(signature = (x, axes=None))]
fn transpose(py: Python<'_>, x: Object<'_>, axes: Option<Vec<i64>>) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let n = rank(&x);
    let axes = match axes {
        Some(axes) => axes.into_iter().map(|a| axis(a, n)).collect::<PyResult<Vec<usize>>>()?,
        None => (0..n).rev().collect(),
    };
    apply1(py, &[&x], |g, v| g.transpose(v[0], &axes))
}

/// Broadcasts to a shape.
#[pyfunction]
fn broadcast_to(py: Python<'_>, x: Object<'_>, shape: Vec<usize>) -> PyResult<PyTensor> {
    let (x, shape) = (Operand::of(&x)?, array::shape(&shape)?);
    apply1(py, &[&x], |g, v| g.broadcast(v[0], shape))
}

/// A part: `sizes` elements along each axis, from `starts` on, every `steps`th.
#[pyfunction(signature = (x, starts, sizes, steps=None))]
fn slice(
    py: Python<'_>,
    x: Object<'_>,
    starts: Vec<usize>,
    sizes: Vec<usize>,
    steps: Option<Vec<usize>>,
) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    apply1(py, &[&x], |g, v| g.slice(v[0], &starts, &sizes, &steps))
}

/// A number before and after along each axis.
#[pyfunction(signature = (x, before, after, value=0.0))]
fn pad(py: Python<'_>, x: Object<'_>, before: Vec<usize>, after: Vec<usize>, value: f64) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let n = rank(&x);
    if before.len() != n || after.len() != n {
        let (b, a) = (before.len(), after.len());
        return Err(PyValueError::new_err(format!("{b} sizes before and {a} after for a tensor with {n} axes")));
    }
    apply1(py, &[&x], |g, v| {
        let dtype = g.dtype(v[0]);
        let number = |g: &mut Graph, x: Value| if dtype == DType::Bool { g.cast(x, DType::U8) } else { Ok(x) };
        let given = number(g, v[0])?;
        let padded = g.pad(given, &before, &after)?;
        let padded = g.cast(padded, dtype)?;
        if value == 0.0 {
            return Ok(padded);
        }
        let (one, shape) = (g.constant(1.0, DType::U8)?, g.shape(v[0]));
        let ones = g.broadcast(one, shape)?;
        let inside = g.pad(ones, &before, &after)?;
        let inside = g.cast(inside, DType::Bool)?;
        let value = g.constant(value, dtype)?;
        g.select(inside, padded, value)
    })
}

/// Tensors side by side along an axis.
#[pyfunction]
fn concat(py: Python<'_>, xs: Vec<Object<'_>>, axis: i64) -> PyResult<PyTensor> {
    let xs = list(&xs)?;
    let Some(first) = xs.first() else { return Err(PyValueError::new_err("there is nothing to put side by side")) };
    let axis = self::axis(axis, rank(first))?;
    apply1(py, &xs.iter().collect::<Vec<_>>(), |g, v| g.concat(v, axis))
}

/// The elements in reverse order along axes.
#[pyfunction(signature = (x, axes=None))]
fn flip(py: Python<'_>, x: Object<'_>, axes: Option<Axes>) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let axes = self::axes(axes, rank(&x))?;
    apply1(py, &[&x], |g, v| g.flip(v[0], &axes))
}

/// A tensor several times side by side along each axis.
#[pyfunction]
fn tile(py: Python<'_>, x: Object<'_>, times: Vec<usize>) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    apply1(py, &[&x], |g, v| g.tile(v[0], &times))
}

/// Matrix products over the last two axes; the others broadcast, and vectors are as in NumPy.
#[pyfunction(signature = (a, b, transpose_a=false, transpose_b=false))]
fn matmul(py: Python<'_>, a: Object<'_>, b: Object<'_>, transpose_a: bool, transpose_b: bool) -> PyResult<PyTensor> {
    matmul_of(py, &Operand::of(&a)?, &Operand::of(&b)?, transpose_a, transpose_b)
}

pub fn matmul_of(py: Python<'_>, a: &Operand, b: &Operand, ta: bool, tb: bool) -> PyResult<PyTensor> {
    let (da, db) = (dims(a), dims(b));
    if da.is_empty() || db.is_empty() {
        return Err(PyValueError::new_err("a matrix product of a scalar: use a product"));
    }
    apply1(py, &[a, b], |g, v| {
        let (mut a, mut b) = (v[0], v[1]);
        let (row, column) = (da.len() == 1, db.len() == 1);
        if row {
            a = g.reshape(a, [1, da[0]])?;
        }
        if column {
            b = g.reshape(b, [db[0], 1])?;
        }
        let (ta, tb) = (ta && !row, tb && !column);
        let (sa, sb) = (g.shape(a), g.shape(b));
        let lead = |s: &[usize]| s[..s.len() - 2].to_vec();
        let (la, lb) = (lead(sa.dims()), lead(sb.dims()));
        let mut y = if la == lb {
            g.matmul_with(a, b, ta, tb)?
        } else if lb.is_empty() && !ta {
            // One matrix for all rows: the leading axes are rows too.
            let rows = g.rows(a)?;
            let product = g.matmul_with(rows, b, false, tb)?;
            let mut out = sa;
            *out.dims_mut().last_mut().expect("two axes") = g.shape(product)[1];
            g.reshape(product, out)?
        } else {
            let (wa, wb) = (plimsoll_tensor::Shape::new(&la), plimsoll_tensor::Shape::new(&lb));
            let both = wa.broadcast(&wb).unwrap_or(wa);
            let full = |g: &mut Graph, x: Value| {
                let shape = g.shape(x);
                let mut wide = both.dims().to_vec();
                wide.extend(&shape.dims()[shape.rank() - 2..]);
                let wide = plimsoll_tensor::Shape::try_new(&wide).unwrap_or(shape);
                if wide == shape { Ok(x) } else { g.broadcast(x, wide) }
            };
            let (a, b) = (full(g, a)?, full(g, b)?);
            g.matmul_with(a, b, ta, tb)?
        };
        if row || column {
            let mut out = g.shape(y).dims().to_vec();
            let n = out.len();
            if column {
                out.remove(n - 1);
            }
            if row {
                out.remove(n - 2);
            }
            y = g.reshape(y, plimsoll_tensor::Shape::new(&out))?;
        }
        Ok(y)
    })
}

/// An Einstein sum of one or two tensors.
#[pyfunction]
fn einsum(py: Python<'_>, text: &str, xs: Vec<Object<'_>>) -> PyResult<PyTensor> {
    let (xs, text) = (list(&xs)?, text.to_owned());
    apply1(py, &xs.iter().collect::<Vec<_>>(), |g, v| g.einsum(&text, v))
}

/// Softmax along an axis.
#[pyfunction(signature = (x, axis=-1))]
fn softmax(py: Python<'_>, x: Object<'_>, axis: i64) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let axis = self::axis(axis, rank(&x))?;
    apply1(py, &[&x], |g, v| g.softmax(v[0], axis))
}

/// The logarithm of softmax along an axis.
#[pyfunction(signature = (x, axis=-1))]
fn log_softmax(py: Python<'_>, x: Object<'_>, axis: i64) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let axis = self::axis(axis, rank(&x))?;
    apply1(py, &[&x], |g, v| g.log_softmax(v[0], axis))
}

/// The names of the types that the engine has.
#[pyfunction]
fn dtypes() -> Vec<&'static str> {
    DType::ALL.into_iter().map(array::dtype_name).collect()
}

/// Adds the operations to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident),* $(,)?) => {$( module.add_function(wrap_pyfunction!($name, module)?)?; )*};
    }
    add!(
        tensor,
        full,
        iota,
        random,
        unary,
        binary,
        select,
        cast,
        stop_gradient,
        reduce,
        argmax,
        argmin,
        reshape,
        transpose,
        broadcast_to,
        slice,
        pad,
        concat,
        flip,
        tile,
        matmul,
        einsum,
        softmax,
        log_softmax,
        dtypes,
    );
    Ok(())
}

/// A type with a shape, from Python.
pub fn tensor_type(sizes: &[usize], name: &str) -> PyResult<TensorType> {
    Ok(TensorType::new(dtype(name)?, shape(sizes)?))
}
