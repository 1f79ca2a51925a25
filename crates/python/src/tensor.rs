//! `Tensor` and `Variable`, as Python sees them.

use crate::array;
use crate::buffer::Buffer;
use crate::error::Error;
use crate::operand::{Operand, apply1, flush, on_record};
use crate::record::Handle;
use crate::run;
use crate::variable::Cell;
use plimsoll_kernels::pointwise::{Binary, Unary};
use plimsoll_tensor::{DType, F8E4M3, F8E5M2, bf16, f16};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::CompareOp;
use pyo3::types::{PyDict, PyTuple};
use std::sync::Arc;

/// A value: known, or still to be computed. Looking at it computes it.
#[pyclass(frozen, name = "Tensor", module = "plimsoll._engine", dict, weakref, subclass)]
pub struct PyTensor {
    pub handle: Arc<Handle>,
}

/// The memory of a tensor, for NumPy.
#[pyclass(frozen, name = "Memory", module = "plimsoll._engine")]
pub struct Memory(Arc<Buffer>);

#[pymethods]
impl Memory {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        array::interface(py, &self.0)
    }
}

impl PyTensor {
    /// The bytes; what is still to be computed is computed.
    pub fn look(&self, py: Python<'_>) -> PyResult<Arc<Buffer>> {
        look(py, &self.handle)
    }
}

/// The bytes of a value; what is still to be computed is computed.
pub fn look(py: Python<'_>, handle: &Handle) -> PyResult<Arc<Buffer>> {
    if let Some(buffer) = handle.buffer() {
        return Ok(buffer);
    }
    if let Some(why) = handle.failure() {
        return Err(PyRuntimeError::new_err(format!("this tensor could not be computed: {why}")));
    }
    flush(py)?;
    let known = match handle.buffer() {
        Some(buffer) => Some(buffer),
        None => run::constant(py, handle)?,
    };
    known.ok_or_else(|| {
        let text = "the value of this tensor is only known when the traced function runs: it cannot be looked at while the function is traced";
        Error::Untraceable(text.into()).into()
    })
}

fn binary<'py>(a: &Bound<'py, PyTensor>, b: &Bound<'py, PyAny>, f: Binary, swap: bool) -> PyResult<Bound<'py, PyAny>> {
    let py = a.py();
    let a = Operand::Tensor(a.get().handle.clone());
    let Ok(b) = Operand::of(b) else { return Ok(py.NotImplemented().into_bound(py)) };
    let b = b.or_dtype(a.dtype());
    let (a, b) = if swap { (b, a) } else { (a, b) };
    apply1(py, &[&a, &b], |g, v| g.binary(f, v[0], v[1]))?.into_bound_py_any(py)
}

fn unary(py: Python<'_>, a: &PyTensor, f: Unary) -> PyResult<PyTensor> {
    apply1(py, &[&Operand::Tensor(a.handle.clone())], |g, v| g.unary(f, v[0]))
}

#[pymethods]
impl PyTensor {
    /// The sizes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.handle.ty.dims())
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.handle.ty.shape.rank()
    }

    /// The number of elements.
    #[getter]
    fn size(&self) -> usize {
        self.handle.ty.elements()
    }

    /// The bytes of all elements.
    #[getter]
    fn nbytes(&self) -> usize {
        self.handle.ty.bytes()
    }

    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        array::dtype_name(self.handle.ty.dtype)
    }

    /// Whether it is computed already.
    #[getter]
    fn is_known(&self) -> bool {
        self.handle.buffer().is_some()
    }

    /// Whether it is a value of a function that is being traced.
    #[getter]
    fn is_symbolic(&self, py: Python<'_>) -> bool {
        self.handle.buffer().is_none()
            && crate::operand::with_runtime(py, |runtime| self.handle.place(runtime.record.id()).is_none())
    }

    /// Whether it was computed by what is being recorded: not a constant, and not from before.
    #[getter]
    fn is_recorded(&self, py: Python<'_>) -> bool {
        let traced = crate::run::TRACES.with_borrow(|traces| traces.last().map(crate::record::Record::id));
        let id = traced.unwrap_or_else(|| crate::operand::with_runtime(py, |runtime| runtime.record.id()));
        self.handle.place(id).is_some()
    }

    fn _memory(&self, py: Python<'_>) -> PyResult<Memory> {
        Ok(Memory(self.look(py)?))
    }

    /// The elements as a NumPy array on the tensor's own memory, not to be written.
    fn numpy<'py>(this: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        array::to_numpy(this.as_any(), this.get().handle.ty.dtype)
    }

    #[pyo3(signature = (dtype=None, copy=None))]
    fn __array__<'py>(
        this: &Bound<'py, Self>,
        dtype: Option<Bound<'py, PyAny>>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let array = PyTensor::numpy(this)?;
        match dtype {
            Some(dtype) if !array.getattr("dtype")?.eq(&dtype)? => array.call_method1("astype", (dtype,)),
            _ if copy == Some(true) => array.call_method0("copy"),
            _ => Ok(array),
        }
    }

    /// The memory for other libraries; they must not write it unless they ask for a copy.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() || dl_device.is_some_and(|(kind, _)| kind != 1) {
            return Err(PyBufferError::new_err("tensors are in the memory of the CPU"));
        }
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        if copy == Some(false) && !versioned {
            return Err(PyBufferError::new_err(
                "without a copy the memory must not be written, which only version 1 can say",
            ));
        }
        crate::dlpack::export(py, self.look(py)?, versioned, copy == Some(true))
    }

    /// The CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (1, 0)
    }

    /// The only element, as a Python number.
    fn item(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let n = self.handle.ty.elements();
        if n != 1 {
            return Err(PyValueError::new_err(format!("a tensor of {n} elements is no single number")));
        }
        let buffer = self.look(py)?;
        let bytes = buffer.bytes();
        fn take<const N: usize>(bytes: &[u8]) -> [u8; N] {
            bytes.try_into().expect("one element")
        }
        match buffer.ty().dtype {
            DType::F32 => f64::from(f32::from_ne_bytes(take(bytes))).into_py_any(py),
            DType::F64 => f64::from_ne_bytes(take(bytes)).into_py_any(py),
            DType::F16 => f64::from(f16::from_ne_bytes(take(bytes))).into_py_any(py),
            DType::BF16 => f64::from(bf16::from_ne_bytes(take(bytes))).into_py_any(py),
            DType::F8E4M3 => F8E4M3::from_bits(bytes[0]).to_f64().into_py_any(py),
            DType::F8E5M2 => F8E5M2::from_bits(bytes[0]).to_f64().into_py_any(py),
            DType::I32 => i32::from_ne_bytes(take(bytes)).into_py_any(py),
            DType::I64 => i64::from_ne_bytes(take(bytes)).into_py_any(py),
            DType::U8 => bytes[0].into_py_any(py),
            DType::I8 => i8::from_ne_bytes(take(bytes)).into_py_any(py),
            DType::I16 => i16::from_ne_bytes(take(bytes)).into_py_any(py),
            DType::U16 => u16::from_ne_bytes(take(bytes)).into_py_any(py),
            DType::U32 => u32::from_ne_bytes(take(bytes)).into_py_any(py),
            DType::Bool => (bytes[0] != 0).into_py_any(py),
        }
    }

    fn __float__(&self, py: Python<'_>) -> PyResult<f64> {
        self.item(py)?.bind(py).call_method0("__float__")?.extract()
    }

    fn __int__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.item(py)?.bind(py).call_method0("__int__")?.unbind())
    }

    fn __index__(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        match self.handle.ty.dtype {
            other if !other.is_float() && other != DType::Bool => self.__int__(py),
            other => {
                let name = array::dtype_name(other);
                Err(PyTypeError::new_err(format!("a tensor of type {name} is no whole number")))
            }
        }
    }

    fn __bool__(&self, py: Python<'_>) -> PyResult<bool> {
        self.item(py)?.bind(py).is_truthy()
    }

    fn __len__(&self) -> PyResult<usize> {
        let dims = self.handle.ty.dims();
        dims.first().copied().ok_or_else(|| PyTypeError::new_err("a scalar has no length"))
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        let ty = this.get().handle.ty;
        let name = array::dtype_name(ty.dtype);
        let shape = this.getattr("shape")?;
        if this.get().is_symbolic(this.py()) {
            return Ok(format!("<Tensor: shape={shape}, dtype={name}, traced>"));
        }
        let array = array::numpy(this.py())?.call_method1("array_repr", (PyTensor::numpy(this)?,))?;
        Ok(format!("<Tensor: shape={shape}, dtype={name}, numpy={array}>"))
    }

    fn __hash__(this: &Bound<'_, Self>) -> usize {
        this.as_ptr() as usize >> 4
    }

    fn __add__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(this, other, Binary::Add, false)
    }
    fn __radd__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(this, other, Binary::Add, true)
    }
    fn __sub__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(this, other, Binary::Sub, false)
    }
    fn __rsub__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(this, other, Binary::Sub, true)
    }
    fn __mul__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(this, other, Binary::Mul, false)
    }
    fn __rmul__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(this, other, Binary::Mul, true)
    }
    fn __truediv__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(this, other, Binary::Div, false)
    }
    fn __rtruediv__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        binary(this, other, Binary::Div, true)
    }
    fn __pow__<'py>(
        this: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        _modulo: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        binary(this, other, Binary::Pow, false)
    }
    fn __matmul__<'py>(this: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let (a, b) = (Operand::Tensor(this.get().handle.clone()), Operand::of(other)?);
        crate::ops::matmul_of(this.py(), &a, &b, false, false)?.into_bound_py_any(this.py())
    }
    fn __neg__(&self, py: Python<'_>) -> PyResult<PyTensor> {
        unary(py, self, Unary::Neg)
    }
    fn __abs__(&self, py: Python<'_>) -> PyResult<PyTensor> {
        unary(py, self, Unary::Abs)
    }

    fn __richcmp__<'py>(
        this: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        op: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let f = match op {
            CompareOp::Eq => Binary::Eq,
            CompareOp::Ne => Binary::Ne,
            CompareOp::Lt => Binary::Lt,
            CompareOp::Le => Binary::Le,
            CompareOp::Gt => Binary::Gt,
            CompareOp::Ge => Binary::Ge,
        };
        binary(this, other, f, false)
    }
}

/// A value that operations change in place.
#[pyclass(frozen, name = "Variable", module = "plimsoll._engine", dict, weakref, subclass)]
pub struct PyVariable {
    pub cell: Arc<Cell>,
    name: String,
    trainable: bool,
}

#[pymethods]
impl PyVariable {
    /// A variable with this first value.
    #[new]
    #[pyo3(signature = (value, name=String::new(), trainable=true))]
    fn new(py: Python<'_>, value: &Bound<'_, PyAny>, name: String, trainable: bool) -> PyResult<PyVariable> {
        let buffer = match value.cast::<PyTensor>() {
            Ok(tensor) => tensor.get().look(py)?,
            Err(_) => array::from_python(value, None)?,
        };
        let cell = py.detach(|| crate::run::runtime_detached().new_variable(*buffer.ty(), buffer.bytes()))?;
        Ok(PyVariable { cell, name, trainable })
    }

    /// The sizes.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.cell.ty().dims())
    }

    /// The number of axes.
    #[getter]
    fn ndim(&self) -> usize {
        self.cell.ty().shape.rank()
    }

    /// The name of the element type.
    #[getter]
    fn dtype(&self) -> &'static str {
        array::dtype_name(self.cell.ty().dtype)
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// Whether gradients are taken with respect to it unless others are asked for.
    #[getter]
    fn trainable(&self) -> bool {
        self.trainable
    }

    /// What it holds now; later changes leave that value alone.
    fn value(&self, py: Python<'_>) -> PyResult<PyTensor> {
        apply1(py, &[&Operand::Variable(self.cell.clone())], |_, v| Ok(v[0]))
    }

    /// Gives it another value, and gives that value back.
    fn assign(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        self.change(py, value, None)
    }

    /// Adds to it.
    fn assign_add(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        self.change(py, value, Some(Binary::Add))
    }

    /// Subtracts from it.
    fn assign_sub(&self, py: Python<'_>, value: &Bound<'_, PyAny>) -> PyResult<PyTensor> {
        self.change(py, value, Some(Binary::Sub))
    }

    /// The elements as a NumPy array, not to be written.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = Bound::new(py, self.value(py)?)?;
        PyTensor::numpy(&value)
    }

    fn __repr__(this: &Bound<'_, Self>) -> PyResult<String> {
        let own = this.get();
        let (name, dtype, shape) = (&own.name, own.dtype(), this.getattr("shape")?);
        Ok(format!("<Variable '{name}': shape={shape}, dtype={dtype}>"))
    }
}

impl PyVariable {
    fn change(&self, py: Python<'_>, value: &Bound<'_, PyAny>, f: Option<Binary>) -> PyResult<PyTensor> {
        let ty = *self.cell.ty();
        let value = Operand::of(value)?.or_dtype(Some(ty.dtype));
        let (cell, own) = (self.cell.clone(), Operand::Variable(self.cell.clone()));
        let handle = on_record(py, &[&own, &value], move |record, v| {
            let new = match f {
                Some(f) => record.graph.binary(f, v[0], v[1])?,
                None => v[1],
            };
            let same_size = record.graph.shape(new) == ty.shape;
            let new = if same_size { new } else { record.graph.broadcast(new, ty.shape)? };
            let new = record.assign(&cell, new)?;
            Ok(record.handle(new))
        })?;
        Ok(PyTensor { handle })
    }
}
