//! Normalizations, dropout and noise.

use crate::job::read::table;
use plimsoll::layers as l;

table! {
    /// What normalizations to mean 0 and variance 1 have.
    pub struct Learned {
        /// Added to the variance.
        epsilon: f64 = 0.001,
        /// Whether a learned offset is added.
        center: bool = true,
        /// Whether the result is multiplied by a learned factor.
        scale: bool = true,
    }
}

/// The settings of [`Learned`]: the layers have them as methods of the same names.
macro_rules! learned {
    ($layer:expr, $learned:expr) => {{
        let layer = $layer.epsilon($learned.epsilon);
        let layer = if $learned.center { layer } else { layer.no_center() };
        if $learned.scale { layer } else { layer.no_scale() }
    }};
}

table! {
    /// Mean 0 and variance 1 of every channel over the batch; in use, by running averages.
    pub struct BatchNormalization with learned: Learned {
        /// The axis of the channels; the batch is axis 0, negative ones count from the last.
        axis: isize = -1,
        /// The part of a running average that is kept in a step.
        momentum: f64 = 0.99,
    }
}

impl BatchNormalization {
    pub fn build(&self) -> l::BatchNorm {
        learned!(l::BatchNorm::new().axis(self.axis).momentum(self.momentum), self.learned)
    }
}

table! {
    /// Mean 0 and variance 1 of every sample over some axes.
    pub struct LayerNormalization with learned: Learned {
        /// The axes; the batch is axis 0, negative ones count from the last.
        axes: Vec<isize> = [-1],
    }
}

impl LayerNormalization {
    pub fn build(&self) -> l::LayerNorm {
        learned!(l::LayerNorm::new().axes(self.axes.clone()), self.learned)
    }
}

table! {
    /// Mean 0 and variance 1 of every group of channels of a sample.
    pub struct GroupNormalization with learned: Learned {
        /// How many groups; as many as channels if not given.
        groups: Option<usize> = none,
        /// The axis of the channels.
        axis: isize = -1,
    }
}

impl GroupNormalization {
    pub fn build(&self) -> l::GroupNorm {
        let layer = self.groups.map_or_else(l::GroupNorm::instance, l::GroupNorm::new);
        learned!(layer.axis(self.axis), self.learned)
    }
}

table! {
    /// Mean square 1 of every sample over some axes.
    pub struct RmsNormalization {
        /// The axes; negative ones count from the last.
        axes: Vec<isize> = [-1],
        /// Added to the mean square.
        epsilon: f64 = 0.000001,
    }
}

table! {
    /// Numbers set to 0 at random while training, the others scaled up.
    pub struct Dropout {
        /// The part that is set to 0.
        rate: f64,
    }
}

table! {
    /// Normal noise added while training.
    pub struct GaussianNoise {
        /// Its standard deviation.
        stddev: f64,
    }
}
