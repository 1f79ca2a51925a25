//! Values from Python and back: NumPy arrays by their memory, everything else by way of NumPy.

use crate::buffer::Buffer;
use crate::run::{BUDGET, with_room};
use plimsoll_tensor::{DType, Shape, TensorType};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};
use std::sync::Arc;

/// Types with their names in Python and NumPy's codes.
const NAMES: [(DType, &str, &str); 14] = [
    (DType::F32, "float32", "<f4"),
    (DType::F64, "float64", "<f8"),
    (DType::F16, "float16", "<f2"),
    (DType::BF16, "bfloat16", "<V2"),
    (DType::F8E4M3, "float8_e4m3fn", "|V1"),
    (DType::F8E5M2, "float8_e5m2", "|V1"),
    (DType::I32, "int32", "<i4"),
    (DType::I64, "int64", "<i8"),
    (DType::U8, "uint8", "|u1"),
    (DType::I8, "int8", "|i1"),
    (DType::I16, "int16", "<i2"),
    (DType::U16, "uint16", "<u2"),
    (DType::U32, "uint32", "<u4"),
    (DType::Bool, "bool", "|b1"),
];

/// The name of a type in Python.
pub fn dtype_name(dtype: DType) -> &'static str {
    NAMES.iter().find(|(d, ..)| *d == dtype).expect("every type has a name").1
}

/// NumPy's code of a type.
pub fn type_code(dtype: DType) -> &'static str {
    NAMES.iter().find(|(d, ..)| *d == dtype).expect("every type has a code").2
}

/// The type of this name.
pub fn dtype(name: &str) -> PyResult<DType> {
    let found = NAMES.iter().find(|(_, n, _)| *n == name).map(|(d, ..)| *d);
    found.ok_or_else(|| {
        let all: Vec<&str> = NAMES.iter().map(|(_, n, _)| *n).collect();
        PyTypeError::new_err(format!("'{name}' is no type that the engine computes with; it has {}", all.join(", ")))
    })
}

/// A shape from Python.
pub fn shape(dims: &[usize]) -> PyResult<Shape> {
    let elements = dims.iter().try_fold(1usize, |n, &d| n.checked_mul(d)).filter(|n| *n < 1 << 48);
    if elements.is_none() {
        return Err(PyValueError::new_err(format!("a shape of {dims:?} has more elements than memory can hold")));
    }
    Shape::try_new(dims).ok_or_else(|| PyValueError::new_err(format!("{} axes; at most 8 are supported", dims.len())))
}

/// The module numpy.
pub fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    Ok(NUMPY.get_or_try_init(py, || py.import("numpy").map(Bound::unbind))?.bind(py))
}

/// Whether NumPy itself does not know a type: ml_dtypes has it then, and NumPy sees bytes.
fn is_foreign(dtype: DType) -> bool {
    dtype == DType::BF16 || dtype.is_float8()
}

/// NumPy's type of a name.
fn numpy_dtype<'py>(py: Python<'py>, dtype: DType) -> PyResult<Bound<'py, PyAny>> {
    let name = dtype_name(dtype);
    if is_foreign(dtype) { py.import("ml_dtypes")?.getattr(name) } else { numpy(py)?.getattr("dtype")?.call1((name,)) }
}

/// A copy of an array that is contiguous and of a type that the engine has; `None` for everything else.
fn from_plain_array<'py>(object: &Bound<'py, PyAny>, wanted: Option<DType>) -> PyResult<Option<Arc<Buffer>>> {
    let py = object.py();
    static NDARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let ndarray = NDARRAY.get_or_try_init(py, || numpy(py)?.getattr("ndarray").map(Bound::unbind))?;
    if !object.get_type().is(ndarray.bind(py)) {
        return Ok(None);
    }
    let interface = object.getattr(intern!(py, "__array_interface__"))?.cast_into::<PyDict>()?;
    let item = |name: &Bound<'py, PyString>| -> PyResult<Bound<'py, PyAny>> {
        interface.get_item(name)?.ok_or_else(|| PyValueError::new_err("an array without memory"))
    };
    let code: String = item(intern!(py, "typestr"))?.extract()?;
    let found = NAMES.iter().find(|(d, _, c)| *c == code && !is_foreign(*d)).map(|(d, ..)| *d);
    let Some(dtype) = found.filter(|d| wanted.is_none_or(|w| w == *d)) else { return Ok(None) };
    if !item(intern!(py, "strides"))?.is_none() {
        return Ok(None);
    }
    let dims: Vec<usize> = item(intern!(py, "shape"))?.extract()?;
    let (address, _): (usize, bool) = item(intern!(py, "data"))?.extract()?;
    let ty = TensorType::new(dtype, shape(&dims)?);
    // SAFETY: a contiguous array of this type, which lives until the copy is made.
    Ok(Some(unsafe { copy_of(ty, address) }?))
}

/// A copy of what is at an address.
///
/// # Safety
/// A value of the type is there.
unsafe fn copy_of(ty: TensorType, address: usize) -> PyResult<Arc<Buffer>> {
    let bytes = match ty.bytes() {
        0 => &[][..],
        // SAFETY: the caller's promise.
        n => unsafe { std::slice::from_raw_parts(address as *const u8, n) },
    };
    Ok(Arc::new(with_room(|| Buffer::of_bytes(&BUDGET, ty, bytes))?))
}

/// A copy of a Python object's elements: an array, a number, nested lists, or anything that NumPy can make an array of.
pub fn from_python(object: &Bound<'_, PyAny>, wanted: Option<DType>) -> PyResult<Arc<Buffer>> {
    if let Some(buffer) = from_plain_array(object, wanted)? {
        return Ok(buffer);
    }
    let py = object.py();
    let np = numpy(py)?;
    let mut array = np.call_method1("asarray", (object,))?;
    let mut name: String = array.getattr("dtype")?.getattr("name")?.extract()?;
    let plain = !object.hasattr("dtype")?;
    let target = match wanted {
        Some(dtype) => Some(dtype),
        // Python's own numbers have no size: float and int are those of TensorFlow.
        None if plain && name == "float64" => Some(DType::F32),
        None if plain && name == "int64" && fits_i32(np, &array)? => Some(DType::I32),
        None => None,
    };
    if let Some(target) = target.filter(|t| dtype_name(*t) != name) {
        let options = PyDict::new(py);
        options.set_item("copy", false)?;
        array = array.call_method("astype", (numpy_dtype(py, target)?,), Some(&options))?;
        name = dtype_name(target).into();
    }
    let dtype = dtype(&name)?;
    array = np.call_method1("ascontiguousarray", (array,))?;
    let mut dims: Vec<usize> = array.getattr("shape")?.extract()?;
    if object.hasattr("shape")? || dims == [1] {
        // `ascontiguousarray` gives a scalar an axis.
        dims = np.call_method1("shape", (object,))?.extract()?;
    }
    let ty = TensorType::new(dtype, shape(&dims)?);
    let interface = array.getattr("__array_interface__")?;
    let (address, _): (usize, bool) = interface.get_item("data")?.extract()?;
    if array.getattr("nbytes")?.extract::<usize>()? != ty.bytes() {
        return Err(PyValueError::new_err(format!("an array of {} bytes cannot be {ty}", array.getattr("nbytes")?)));
    }
    // SAFETY: a contiguous array of as many bytes, which lives until the copy is made.
    unsafe { copy_of(ty, address) }
}

fn fits_i32(np: &Bound<'_, PyModule>, array: &Bound<'_, PyAny>) -> PyResult<bool> {
    if array.getattr("size")?.extract::<usize>()? == 0 {
        return Ok(true);
    }
    let (least, most): (i64, i64) =
        (np.call_method1("min", (array,))?.extract()?, np.call_method1("max", (array,))?.extract()?);
    Ok(i32::try_from(least).is_ok() && i32::try_from(most).is_ok())
}

/// What NumPy reads memory by.
pub fn interface<'py>(py: Python<'py>, buffer: &Buffer) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("version", 3)?;
    dict.set_item("shape", PyTuple::new(py, buffer.ty().dims())?)?;
    dict.set_item("typestr", type_code(buffer.ty().dtype))?;
    // Never written: other tensors and operations that have not run may read the same memory.
    dict.set_item("data", (buffer.ptr() as usize, true))?;
    Ok(dict)
}

/// An array that is the tensor's memory, not to be written.
pub fn to_numpy<'py>(tensor: &Bound<'py, PyAny>, dtype: DType) -> PyResult<Bound<'py, PyAny>> {
    let py = tensor.py();
    let holder = tensor.call_method0("_memory")?;
    let array = numpy(py)?.call_method1("asarray", (holder,))?;
    if is_foreign(dtype) { array.call_method1("view", (numpy_dtype(py, dtype)?,)) } else { Ok(array) }
}
