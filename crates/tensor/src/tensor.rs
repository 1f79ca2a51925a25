//! Host tensors.

use crate::{DType, Element, F8E4M3, F8E5M2, Shape, TensorType};
use half::{bf16, f16};

/// A value in ordinary memory: type, shape and row-major elements, aligned to 8 bytes.
#[derive(Clone, PartialEq)]
pub struct Tensor {
    ty: TensorType,
    /// Whole words, so that every element type is aligned; the last one may be part padding.
    words: Vec<u64>,
}

/// What can be wrong with a tensor given by a caller.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The number of elements is not the product of the sizes.
    #[error("shape {shape} has {expected} elements, but {found} were given")]
    Count {
        /// The shape asked for.
        shape: Shape,
        /// Its number of elements.
        expected: usize,
        /// The number given.
        found: usize,
    },
    /// The elements are read as another type than they have.
    #[error("the tensor holds {found}, but {expected} was asked for")]
    DType {
        /// The type asked for.
        expected: DType,
        /// The tensor's type.
        found: DType,
    },
}

impl Tensor {
    /// A tensor of zeros.
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Tensor {
        let ty = TensorType::new(dtype, shape);
        Tensor { ty, words: vec![0; ty.bytes().div_ceil(8)] }
    }

    /// A tensor with these elements.
    ///
    /// # Errors
    /// When the number of elements is not the product of the sizes.
    pub fn from_slice<T: Element>(shape: impl Into<Shape>, elements: &[T]) -> Result<Tensor, TensorError> {
        let mut tensor = Tensor::zeros(T::DTYPE, shape);
        let expected = tensor.elements();
        if expected != elements.len() {
            return Err(TensorError::Count { shape: *tensor.shape(), expected, found: elements.len() });
        }
        tensor.slice_mut().copy_from_slice(elements);
        Ok(tensor)
    }

    /// A tensor of type `dtype` with these elements, each rounded to the type.
    ///
    /// # Errors
    /// When the number of elements is not the product of the sizes.
    pub fn from_f64(dtype: DType, shape: impl Into<Shape>, elements: &[f64]) -> Result<Tensor, TensorError> {
        fn fill<T: Element>(tensor: &mut Tensor, from: &[f64]) {
            for (to, &x) in tensor.slice_mut::<T>().iter_mut().zip(from) {
                *to = T::from_f64(x);
            }
        }
        let mut tensor = Tensor::zeros(dtype, shape);
        let expected = tensor.elements();
        if expected != elements.len() {
            return Err(TensorError::Count { shape: *tensor.shape(), expected, found: elements.len() });
        }
        match dtype {
            DType::F32 => fill::<f32>(&mut tensor, elements),
            DType::F64 => fill::<f64>(&mut tensor, elements),
            DType::F16 => fill::<f16>(&mut tensor, elements),
            DType::BF16 => fill::<bf16>(&mut tensor, elements),
            DType::F8E4M3 => fill::<F8E4M3>(&mut tensor, elements),
            DType::F8E5M2 => fill::<F8E5M2>(&mut tensor, elements),
            DType::I32 => fill::<i32>(&mut tensor, elements),
            DType::I64 => fill::<i64>(&mut tensor, elements),
            DType::U8 => fill::<u8>(&mut tensor, elements),
            DType::I8 => fill::<i8>(&mut tensor, elements),
            DType::I16 => fill::<i16>(&mut tensor, elements),
            DType::U16 => fill::<u16>(&mut tensor, elements),
            DType::U32 => fill::<u32>(&mut tensor, elements),
            DType::Bool => fill::<bool>(&mut tensor, elements),
        }
        Ok(tensor)
    }

    /// A scalar.
    pub fn scalar<T: Element>(value: T) -> Tensor {
        let mut tensor = Tensor::zeros(T::DTYPE, Shape::scalar());
        tensor.slice_mut()[0] = value;
        tensor
    }

    /// Type and shape.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.ty.dtype
    }

    /// Sizes.
    pub fn shape(&self) -> &Shape {
        &self.ty.shape
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.ty.elements()
    }

    /// The same elements under another shape.
    ///
    /// # Errors
    /// When the new shape has another number of elements.
    pub fn reshape(mut self, shape: impl Into<Shape>) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        if shape.elements() != self.elements() {
            return Err(TensorError::Count { shape, expected: shape.elements(), found: self.elements() });
        }
        self.ty.shape = shape;
        Ok(self)
    }

    /// The elements, when `T` is the tensor's type.
    ///
    /// # Errors
    /// When it is not.
    pub fn as_slice<T: Element>(&self) -> Result<&[T], TensorError> {
        self.expect::<T>()?;
        // SAFETY: `words` holds at least `bytes()` bytes, is aligned to 8, and `T` is plain data of the checked type.
        Ok(unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.elements()) })
    }

    /// The elements to be changed, when `T` is the tensor's type.
    ///
    /// # Errors
    /// When it is not.
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<&mut [T], TensorError> {
        self.expect::<T>()?;
        Ok(self.slice_mut())
    }

    /// The elements as bytes in memory order.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `words` holds at least `bytes()` initialised bytes.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr().cast(), self.ty.bytes()) }
    }

    /// The elements as bytes, to be changed.
    ///
    /// A caller who writes something else than 0 or 1 into a `bool` tensor breaks it, so this stays a
    /// matter between the engine's crates: use [`Tensor::as_mut_slice`] elsewhere.
    #[doc(hidden)]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.ty.bytes()) }
    }

    /// The elements, each converted to f64.
    pub fn to_f64(&self) -> Vec<f64> {
        fn read<T: Element>(tensor: &Tensor) -> Vec<f64> {
            tensor.as_slice::<T>().expect("the dtype was matched").iter().map(|v| v.to_f64()).collect()
        }
        match self.dtype() {
            DType::F32 => read::<f32>(self),
            DType::F64 => read::<f64>(self),
            DType::F16 => read::<f16>(self),
            DType::BF16 => read::<bf16>(self),
            DType::F8E4M3 => read::<F8E4M3>(self),
            DType::F8E5M2 => read::<F8E5M2>(self),
            DType::I32 => read::<i32>(self),
            DType::I64 => read::<i64>(self),
            DType::U8 => read::<u8>(self),
            DType::I8 => read::<i8>(self),
            DType::I16 => read::<i16>(self),
            DType::U16 => read::<u16>(self),
            DType::U32 => read::<u32>(self),
            DType::Bool => read::<bool>(self),
        }
    }

    fn expect<T: Element>(&self) -> Result<(), TensorError> {
        match T::DTYPE == self.dtype() {
            true => Ok(()),
            false => Err(TensorError::DType { expected: T::DTYPE, found: self.dtype() }),
        }
    }

    fn slice_mut<T: Element>(&mut self) -> &mut [T] {
        debug_assert_eq!(T::DTYPE, self.dtype());
        // SAFETY: as in `as_slice`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.words.as_mut_ptr().cast(), self.ty.elements()) }
    }
}

impl std::fmt::Debug for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let all = self.to_f64();
        write!(f, "{} {:?}", self.ty, &all[..all.len().min(32)])?;
        if all.len() > 32 { write!(f, "...") } else { Ok(()) }
    }
}
