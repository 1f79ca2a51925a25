//! What training would take, before anything runs.

use super::Trainer;
use super::compile::StepKey;
use super::fit::{Fit, steps_of};
use crate::data::Feed;
use crate::error::Error;
use crate::session::{Fixed, HEAP_OF_A_NODE, Kept, Room, with_tables};
use plimsoll_budget::Bytes;
use plimsoll_budget::limits::Limits;
use plimsoll_graph::Graph;
use plimsoll_plan::Plan;

/// What training would take: planned in full, but nothing is allocated and no data is read.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// The limit, and where it comes from.
    pub limits: Limits,
    /// What the process would hold at most without a limit.
    pub unlimited: Bytes,
    /// The smallest limit that would do.
    pub smallest: Bytes,
    /// What is taken before states and arena get any.
    pub fixed: Fixed,
    /// Page tables, the heap that plans take, and what it takes to plan a batch of unknown size when it comes, as far as the arena has no room for that.
    pub plans: Bytes,
    /// Buffers and checksums of the spill file; zero without one.
    pub spill: Bytes,
    /// Weights, moments, statistics and metrics, as far as they are in memory.
    pub states: Bytes,
    /// Everything else in a step: the largest of all steps.
    pub arena: Bytes,
    /// What is done to keep the limit.
    pub kept: Kept,
    /// The training step under the limit.
    pub plan: Plan,
    /// The training step without a limit.
    pub plain: Plan,
}

impl Forecast {
    /// What the process would hold at most: the sum of the parts.
    pub fn planned(&self) -> Bytes {
        self.fixed.total() + self.plans + self.spill + self.states + self.arena
    }
}

impl Trainer {
    /// Plans what [`Trainer::fit`] would do with this data and these options, and says what it would take.
    ///
    /// ```
    /// # use plimsoll::{Tensor, data::Arrays, layers::Dense, losses::MeanSquaredError, model::Model, optimizers::Adam};
    /// # use plimsoll::trainer::{Fit, Trainer};
    /// # fn main() -> Result<(), plimsoll::Error> {
    /// # let (x, y) = (Tensor::zeros(plimsoll::DType::F32, [64, 8]), Tensor::zeros(plimsoll::DType::F32, [64, 1]));
    /// let mut trainer = Trainer::new(Model::sequential([8]).layer(Dense::new(1)), MeanSquaredError, Adam::new(0.1))?;
    /// let forecast = trainer.forecast(&Arrays::new(x, y)?, &Fit::epochs(1).batch_size(32))?;
    /// assert!(forecast.smallest <= forecast.unlimited);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the data does not suit the model, or the limit cannot be kept ([`Error::WouldNotFit`]).
    pub fn forecast(&mut self, data: &dyn Feed, options: &Fit<'_>) -> Result<Forecast, Error> {
        let (keys, graphs, room) = self.all_steps(data, options)?;
        let nothing = Room { limit: Some(Bytes::ZERO), ..room.clone() };
        let (smallest, unlimited) = match self.choice(&keys, &graphs, &nothing) {
            Err(Error::WouldNotFit(refusal)) => (refusal.smallest, refusal.unlimited),
            Err(other) => return Err(other),
            Ok(_) => (Bytes::ZERO, Bytes::ZERO),
        };
        let plain = self.choice(&keys, &graphs, &Room { limit: None, ..room.clone() })?;
        let choice = self.choice_or_remedies(&keys, &graphs, &room)?;
        let nodes: usize = choice.plans.iter().map(|p| p.graph.nodes().len()).sum();
        let space = Bytes(choice.bytes(0));
        let tables = with_tables(space).saturating_sub(space);
        let states = Bytes(choice.layout.bytes());
        let spill = plimsoll_exec::spill_memory(&choice.layout, &choice.plans);
        let arena = Bytes(choice.plans.iter().map(|p| p.arena_bytes).max().unwrap_or(0));
        let again = Bytes(choice.arena_bytes()).saturating_sub(arena);
        let plan = choice.plans.into_iter().next().expect("a plan for every step");
        Ok(Forecast {
            limits: room.limits,
            unlimited,
            smallest,
            fixed: room.fixed,
            plans: tables + Bytes(HEAP_OF_A_NODE.0 * nodes as u64) + again,
            spill,
            states,
            arena,
            kept: Kept::of(&plan),
            plan,
            plain: plain.plans.into_iter().next().expect("a plan for every step"),
        })
    }

    /// Every step of a training, validation and smaller last batches included, with what is left for them.
    pub(super) fn all_steps(
        &mut self,
        data: &dyn Feed,
        options: &Fit<'_>,
    ) -> Result<(Vec<StepKey>, Vec<Graph>, Room), Error> {
        let (feeder, validation, keeps) = options.feeders(self, data)?;
        let (keys, keeps) = steps_of(std::iter::once(&feeder).chain(&validation), keeps)?;
        let graphs = keys.iter().map(|key| self.trace(key)).collect::<Result<Vec<Graph>, Error>>()?;
        let room = self.room(&keys, &graphs, keeps)?;
        Ok((keys, graphs, room))
    }
}
