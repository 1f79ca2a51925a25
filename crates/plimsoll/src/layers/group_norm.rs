//! Normalisation of groups of channels.

use super::normalized_axes::AxesLast;
use super::{Layer, refuse, single};
use crate::error::Error;
use crate::init::Initializer;
use crate::trace::Trace;
use plimsoll_graph::Value;

/// Group normalisation (Wu and He, 2018): the channels of each sample are cut into groups of neighbours, each of which is given mean 0 and
/// variance 1 over its channels and all cells, then each channel is scaled and shifted,
///
/// ```text
/// y = gamma (x - mean) / sqrt(variance + epsilon) + beta
/// ```
///
/// # Shapes
/// - input and output `[batch, .., channels]`
/// - weights `gamma`, `beta`, each `[channels]`
#[derive(Clone, Debug, PartialEq)]
pub struct GroupNorm {
    /// `None`: as many as channels.
    groups: Option<usize>,
    axis: isize,
    epsilon: f64,
    center: bool,
    scale: bool,
    gamma_init: Initializer,
    beta_init: Initializer,
    name: Option<String>,
}

impl GroupNorm {
    /// A layer with this many groups over the last axis, with epsilon 0.001.
    pub fn new(groups: usize) -> GroupNorm {
        GroupNorm {
            groups: Some(groups),
            axis: -1,
            epsilon: 1e-3,
            center: true,
            scale: true,
            gamma_init: Initializer::Ones,
            beta_init: Initializer::Zeros,
            name: None,
        }
    }

    /// Instance normalisation: every channel is a group.
    pub fn instance() -> GroupNorm {
        GroupNorm { groups: None, ..GroupNorm::new(1) }
    }

    settings! {
        /// With the channels along this axis; the batch is axis 0, and negative ones are counted from the last.
        axis: isize;
        /// With this number added to the variance.
        epsilon: f64;
        /// Without `beta`.
        no_center => center = false;
        /// Without `gamma`.
        no_scale => scale = false;
        /// With these initial values of `gamma`.
        gamma_init: Initializer;
        /// With these initial values of `beta`.
        beta_init: Initializer;
    }
}

impl Layer for GroupNorm {
    identity!("group_normalization");

    fn call(&self, t: &mut Trace<'_>, inputs: &[Value]) -> Result<Value, Error> {
        let kind = "group_normalization";
        let x = single(t, kind, inputs)?;
        let moved = AxesLast::new(t, kind, x, &[self.axis])?;
        let channels = moved.sizes[0];
        let groups = self.groups.unwrap_or(channels);
        if groups == 0 || channels % groups != 0 {
            return Err(refuse(t, kind, format!("{channels} channels cannot be cut into {groups} groups")));
        }
        let gamma = match self.scale {
            true => Some(t.weight("gamma", [channels], self.gamma_init.clone())?),
            false => None,
        };
        let beta = match self.center {
            true => Some(t.weight("beta", [channels], self.beta_init.clone())?),
            false => None,
        };
        let y = t.group_norm(moved.value, groups, gamma, beta, self.epsilon)?;
        moved.back(t, y)
    }
}
