//! DLPack: tensors to and from other libraries without a copy.

use crate::buffer::Buffer;
use crate::record::Handle;
use crate::run::{BUDGET, with_room};
use crate::tensor::PyTensor;
use plimsoll_tensor::{DType, MAX_RANK, Shape, TensorType};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ffi::{CStr, c_void};
use std::sync::Arc;

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDevice {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    dtype: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

/// What is handed over, as libraries before version 1 know it.
#[repr(C)]
struct DlManaged {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManaged)>,
}

/// What is handed over from version 1 on, which can say that it must not be written.
#[repr(C)]
struct DlVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlVersioned)>,
    flags: u64,
    tensor: DlTensor,
}

const CPU: i32 = 1;
const READ_ONLY: u64 = 1;
const COPIED: u64 = 2;
const OLD: &CStr = c"dltensor";
const OLD_USED: &CStr = c"used_dltensor";
const NEW: &CStr = c"dltensor_versioned";
const NEW_USED: &CStr = c"used_dltensor_versioned";

/// Types with DLPack's kind (signed, unsigned, float, bfloat, bool, two of 8 bits) and bits.
const TYPES: [(DType, u8, u8); 14] = [
    (DType::F32, 2, 32),
    (DType::F64, 2, 64),
    (DType::F16, 2, 16),
    (DType::BF16, 4, 16),
    (DType::F8E4M3, 10, 8),
    (DType::F8E5M2, 12, 8),
    (DType::I32, 0, 32),
    (DType::I64, 0, 64),
    (DType::U8, 1, 8),
    (DType::I8, 0, 8),
    (DType::I16, 0, 16),
    (DType::U16, 1, 16),
    (DType::U32, 1, 32),
    (DType::Bool, 6, 8),
];

/// What keeps an exported tensor: its memory and its sizes.
struct Exported {
    _buffer: Arc<Buffer>,
    shape: [i64; MAX_RANK],
    strides: [i64; MAX_RANK],
}

impl Exported {
    fn new(buffer: Arc<Buffer>) -> (Box<Exported>, DlTensor) {
        let ty = *buffer.ty();
        let (mut shape, mut strides) = ([0; MAX_RANK], [0; MAX_RANK]);
        for (axis, (size, stride)) in ty.dims().iter().zip(ty.shape.strides().dims()).enumerate() {
            (shape[axis], strides[axis]) = (*size as i64, *stride as i64);
        }
        let (_, code, bits) = TYPES.into_iter().find(|(d, ..)| *d == ty.dtype).expect("every type has a code");
        let data = buffer.ptr().cast();
        let mut kept = Box::new(Exported { _buffer: buffer, shape, strides });
        let tensor = DlTensor {
            data,
            device: DlDevice { device_type: CPU, device_id: 0 },
            ndim: ty.shape.rank() as i32,
            dtype: DlDataType { code, bits, lanes: 1 },
            shape: kept.shape.as_mut_ptr(),
            strides: kept.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        (kept, tensor)
    }
}

unsafe extern "C" fn delete_old(managed: *mut DlManaged) {
    // SAFETY: made by `export`, and deleted once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Exported>()));
    }
}

unsafe extern "C" fn delete_new(managed: *mut DlVersioned) {
    // SAFETY: made by `export`, and deleted once.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.context.cast::<Exported>()));
    }
}

unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule that nobody used still has its first name, and what it holds is still to be deleted.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, OLD.as_ptr()) == 1 {
            delete_old(ffi::PyCapsule_GetPointer(capsule, OLD.as_ptr()).cast());
        } else if ffi::PyCapsule_IsValid(capsule, NEW.as_ptr()) == 1 {
            delete_new(ffi::PyCapsule_GetPointer(capsule, NEW.as_ptr()).cast());
        }
    }
}

/// A capsule with a tensor's memory. Libraries from version 1 on are told not to write it; older ones get a copy of their own.
pub fn export<'py>(py: Python<'py>, buffer: Arc<Buffer>, versioned: bool, copy: bool) -> PyResult<Bound<'py, PyAny>> {
    let own = |buffer: &Buffer| with_room(|| Buffer::of_bytes(&BUDGET, *buffer.ty(), buffer.bytes())).map(Arc::new);
    let buffer = if copy || !versioned { own(&buffer)? } else { buffer };
    let (kept, tensor) = Exported::new(buffer);
    let context = Box::into_raw(kept).cast();
    let (pointer, name): (*mut c_void, &CStr) = if versioned {
        let flags = if copy { COPIED } else { READ_ONLY };
        let managed = DlVersioned { major: 1, minor: 0, context, deleter: Some(delete_new), flags, tensor };
        (Box::into_raw(Box::new(managed)).cast(), NEW)
    } else {
        let managed = DlManaged { tensor, context, deleter: Some(delete_old) };
        (Box::into_raw(Box::new(managed)).cast(), OLD)
    };
    // SAFETY: the pointer is not null, and the capsule deletes what it leads to once.
    unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyCapsule_New(pointer, name.as_ptr(), Some(drop_capsule))) }
}

/// What keeps an imported tensor: it is given back when the last one who reads it goes.
enum Imported {
    Old(*mut DlManaged),
    New(*mut DlVersioned),
}

// SAFETY: the memory is only read, and deleters may be called from any thread.
unsafe impl Send for Imported {}
// SAFETY: as above.
unsafe impl Sync for Imported {}

impl Drop for Imported {
    fn drop(&mut self) {
        // Many libraries' deleters work on Python objects.
        Python::attach(|_| {
            // SAFETY: taken from a capsule, which was marked as used, and deleted once.
            unsafe {
                match self {
                    Imported::Old(managed) => (**managed).deleter.into_iter().for_each(|delete| delete(*managed)),
                    Imported::New(managed) => (**managed).deleter.into_iter().for_each(|delete| delete(*managed)),
                }
            }
        });
    }
}

/// A tensor that another library exports: its memory itself where that is contiguous, aligned and promised not to be written; a copy
/// otherwise.
#[pyfunction]
fn from_dlpack<'py>(py: Python<'py>, object: &Bound<'py, PyAny>) -> PyResult<PyTensor> {
    let (kind, _): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    if kind != CPU {
        return Err(PyBufferError::new_err("the tensor is not in the memory of the CPU"));
    }
    let options = PyDict::new(py);
    options.set_item("max_version", (1, 0))?;
    let capsule = match object.call_method("__dlpack__", (), Some(&options)) {
        Ok(capsule) => capsule,
        // Exporters from before version 1 take no version.
        Err(error) if error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) => object.call_method0("__dlpack__")?,
        Err(error) => return Err(error),
    };
    let raw = capsule.as_ptr();
    // SAFETY: the capsule is valid; a name says what it holds, and renaming it makes that ours.
    let (tensor, keep, read_only): (*const DlTensor, Imported, bool) = unsafe {
        if ffi::PyCapsule_IsValid(raw, NEW.as_ptr()) == 1 {
            let managed: *mut DlVersioned = ffi::PyCapsule_GetPointer(raw, NEW.as_ptr()).cast();
            ffi::PyCapsule_SetName(raw, NEW_USED.as_ptr());
            (&raw const (*managed).tensor, Imported::New(managed), (*managed).flags & READ_ONLY != 0)
        } else if ffi::PyCapsule_IsValid(raw, OLD.as_ptr()) == 1 {
            let managed: *mut DlManaged = ffi::PyCapsule_GetPointer(raw, OLD.as_ptr()).cast();
            ffi::PyCapsule_SetName(raw, OLD_USED.as_ptr());
            (&raw const (*managed).tensor, Imported::Old(managed), false)
        } else {
            return Err(PyValueError::new_err("the capsule holds no tensor, or one that was taken already"));
        }
    };
    // SAFETY: valid while `keep` lives.
    let tensor = unsafe { &*tensor };
    let ndim = usize::try_from(tensor.ndim).unwrap_or(usize::MAX);
    let list = |at: *mut i64| -> Vec<i64> {
        // SAFETY: the exporter promises `ndim` entries; a scalar may have none.
        if ndim == 0 || at.is_null() { Vec::new() } else { unsafe { std::slice::from_raw_parts(at, ndim) }.to_vec() }
    };
    if ndim > MAX_RANK {
        return Err(PyValueError::new_err(format!("{ndim} axes; at most {MAX_RANK} are supported")));
    }
    let sizes: Vec<usize> = list(tensor.shape).iter().map(|s| usize::try_from(*s).unwrap_or(0)).collect();
    let (code, bits, lanes) = (tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes);
    let Some((dtype, ..)) = TYPES.into_iter().find(|(_, c, b)| (*c, *b) == (code, bits) && lanes == 1) else {
        return Err(PyValueError::new_err(format!("the engine has no type of kind {code} with {bits} bits")));
    };
    let ty = TensorType::new(dtype, Shape::new(&sizes));
    let strides = list(tensor.strides);
    let wanted = ty.shape.strides();
    let contiguous = strides.is_empty()
        || ty.elements() == 0
        || strides.iter().zip(wanted.dims()).zip(&sizes).all(|((s, w), n)| *n == 1 || *s == *w as i64);
    // SAFETY: inside what the exporter gave.
    let first: *mut u8 = unsafe { tensor.data.cast::<u8>().add(tensor.byte_offset as usize) };
    let buffer = if contiguous && read_only && ty.bytes() > 0 && (first as usize).is_multiple_of(64) {
        // SAFETY: a value of this type, which the exporter promises not to write while `keep` lives.
        unsafe { Buffer::foreign(ty, first, Box::new(keep)) }.expect("aligned, as was checked")
    } else {
        let mut buffer = with_room(|| Buffer::zeros(&BUDGET, ty))?;
        let size = dtype.size();
        let to = buffer.bytes_mut();
        for (i, to) in to.chunks_exact_mut(size).enumerate() {
            let mut at = i as i64;
            if !contiguous {
                let (mut rest, mut place) = (i, 0i64);
                for (stride, from) in wanted.dims().iter().zip(&strides) {
                    place += (rest / stride) as i64 * from;
                    rest %= stride;
                }
                at = place;
            }
            // SAFETY: an element of the exporter's tensor.
            let from = unsafe { std::slice::from_raw_parts(first.offset(at as isize * size as isize), size) };
            to.copy_from_slice(from);
        }
        drop(keep);
        buffer
    };
    Ok(PyTensor { handle: Handle::known(Arc::new(buffer)) })
}

/// Adds DLPack to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(from_dlpack, module)?)
}
