//! One axis of a tensor, seen as `[outer, size, inner]`.

/// The sizes before, at and behind one axis of a row-major tensor.
///
/// ```
/// use plimsoll_kernels::axis::Axis;
/// let axis = Axis::new(&[2, 3, 4, 5], 1);
/// assert_eq!(axis, Axis { outer: 2, size: 3, inner: 20 });
/// assert_eq!(axis.len(), 120);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The product of the sizes before the axis.
    pub outer: usize,
    /// The size of the axis.
    pub size: usize,
    /// The product of the sizes behind the axis: the distance of neighbours along it.
    pub inner: usize,
}

impl Axis {
    /// The axis with the given number.
    ///
    /// # Panics
    /// When there is no such axis.
    pub fn new(dims: &[usize], axis: usize) -> Axis {
        Axis { outer: dims[..axis].iter().product(), size: dims[axis], inner: dims[axis + 1..].iter().product() }
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.outer * self.size * self.inner
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same tensor with another size of this axis.
    #[must_use]
    pub fn with_size(self, size: usize) -> Axis {
        Axis { size, ..self }
    }
}
