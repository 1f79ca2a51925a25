//! Layers that change shapes and hardly compute.

use super::values::Size;
use crate::job::read::table;

table! {
    /// Results side by side.
    pub struct Concatenate {
        /// Along this axis; the batch is axis 0, negative ones count from the last.
        axis: isize = -1,
    }
}

table! {
    /// Cells at the edges taken away.
    pub struct Cropping {
        /// How many: one number, one for each axis, or two for each axis.
        cropping: Size,
    }
}

table! {
    /// Zeros put around.
    pub struct ZeroPadding {
        /// How many: one number, one for each axis, or two for each axis.
        padding: Size = 1,
    }
}

table! {
    /// Every cell repeated.
    pub struct UpSampling {
        /// How often.
        size: Size = 2,
    }
}

table! {
    /// Axes in another order.
    pub struct Permute {
        /// The axes of a sample in their new order, counted from 1.
        axes: Vec<usize>,
    }
}

table! {
    /// A vector repeated to a sequence.
    pub struct RepeatVector {
        /// How often.
        n: usize,
    }
}

table! {
    /// `x * scale + offset`.
    pub struct Rescaling {
        /// The factor.
        scale: f64,
        /// Added to it.
        offset: f64 = 0.0,
    }
}

table! {
    /// The same numbers in another shape.
    pub struct Reshape {
        /// The sizes of a sample; one of them may be -1.
        shape: Vec<isize>,
    }
}
