//! Shapes: up to eight sizes, kept inline so that they can be copied and read without a heap.

use crate::DType;
use std::fmt;

/// The largest number of axes a tensor can have.
pub const MAX_RANK: usize = 8;

/// The sizes of a tensor's axes, outermost first; row-major order is implied everywhere.
///
/// ```
/// use plimsoll_tensor::Shape;
/// let s = Shape::new(&[2, 3, 4]);
/// assert_eq!(s.elements(), 24);
/// assert_eq!(s.strides().dims(), &[12, 4, 1]);
/// assert_eq!(s.to_string(), "[2,3,4]");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Shape {
    rank: u8,
    dims: [usize; MAX_RANK],
}

impl Shape {
    /// A shape with these sizes.
    ///
    /// # Panics
    /// With more than [`MAX_RANK`] axes; use [`Shape::try_new`] for sizes from outside.
    #[track_caller]
    pub fn new(dims: &[usize]) -> Shape {
        Shape::try_new(dims).unwrap_or_else(|| panic!("{} axes; at most {MAX_RANK} are supported", dims.len()))
    }

    /// A shape with these sizes, or `None` with more than [`MAX_RANK`] axes.
    pub fn try_new(dims: &[usize]) -> Option<Shape> {
        let mut shape = Shape { rank: u8::try_from(dims.len()).ok()?, dims: [0; MAX_RANK] };
        shape.dims.get_mut(..dims.len())?.copy_from_slice(dims);
        Some(shape)
    }

    /// The shape of a scalar: no axes, one element.
    pub fn scalar() -> Shape {
        Shape::default()
    }

    /// The sizes.
    #[inline(always)]
    pub fn dims(&self) -> &[usize] {
        &self.dims[..self.rank as usize]
    }

    /// The sizes, to be changed.
    #[inline(always)]
    pub fn dims_mut(&mut self) -> &mut [usize] {
        &mut self.dims[..self.rank as usize]
    }

    /// The number of axes.
    #[inline(always)]
    pub fn rank(&self) -> usize {
        self.rank as usize
    }

    /// The number of elements: the product of the sizes, 1 for a scalar.
    #[inline(always)]
    pub fn elements(&self) -> usize {
        self.dims().iter().product()
    }

    /// Row-major strides in elements, one per axis.
    pub fn strides(&self) -> Shape {
        let mut strides = *self;
        let mut step = 1;
        for axis in (0..self.rank()).rev() {
            strides.dims[axis] = step;
            step *= self.dims[axis];
        }
        strides
    }

    /// This shape with one more axis of `size` at position `axis`.
    pub fn insert(&self, axis: usize, size: usize) -> Shape {
        let mut dims = self.dims().to_vec();
        dims.insert(axis, size);
        Shape::new(&dims)
    }

    /// This shape without axis `axis`.
    pub fn remove(&self, axis: usize) -> Shape {
        let mut dims = self.dims().to_vec();
        dims.remove(axis);
        Shape::new(&dims)
    }

    /// The shape that both broadcast to by NumPy's rule, or `None` where sizes disagree.
    ///
    /// ```
    /// use plimsoll_tensor::Shape;
    /// let both = Shape::new(&[4, 1, 3]).broadcast(&Shape::new(&[5, 3]));
    /// assert_eq!(both, Some(Shape::new(&[4, 5, 3])));
    /// ```
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let rank = self.rank().max(other.rank());
        let mut out = Shape { rank: rank as u8, dims: [0; MAX_RANK] };
        for i in 0..rank {
            let at = |s: &Shape| if i < rank - s.rank() { 1 } else { s.dims[i - (rank - s.rank())] };
            out.dims[i] = match (at(self), at(other)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return None,
            };
        }
        Some(out)
    }
}

impl std::ops::Index<usize> for Shape {
    type Output = usize;
    #[inline(always)]
    fn index(&self, axis: usize) -> &usize {
        &self.dims()[axis]
    }
}

impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        Shape::new(dims)
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape::new(&dims)
    }
}

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(dims: &[usize; N]) -> Shape {
        Shape::new(dims)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::from("[");
        for (i, d) in self.dims().iter().enumerate() {
            if i > 0 {
                text.push(',');
            }
            text += &d.to_string();
        }
        text.push(']');
        f.pad(&text)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What is known about a value before anything runs: element type and shape.
///
/// ```
/// use plimsoll_tensor::{DType, TensorType};
/// let ty = TensorType::new(DType::F32, [8, 16]);
/// assert_eq!(ty.bytes(), 512);
/// assert_eq!(ty.to_string(), "f32[8,16]");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Sizes.
    pub shape: Shape,
}

impl TensorType {
    /// A type from its two parts.
    pub fn new(dtype: DType, shape: impl Into<Shape>) -> TensorType {
        TensorType { dtype, shape: shape.into() }
    }

    /// The number of elements.
    #[inline(always)]
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// The number of bytes of the elements, without padding.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.elements() * self.dtype.size()
    }

    /// The sizes.
    #[inline(always)]
    pub fn dims(&self) -> &[usize] {
        self.shape.dims()
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}{}", self.dtype, self.shape))
    }
}

impl fmt::Debug for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
