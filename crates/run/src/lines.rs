//! The lines of the log. What is written here is read by other programs: fields may be added, never changed.

use crate::callback::StageWait;
use plimsoll::trainer::Kept;
use plimsoll_budget::{Bytes, Entry, Ledger};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the formats in a run directory. It changes when a reader of the older one would misunderstand.
pub const SCHEMA_VERSION: u32 = 1;

/// One line of `log.jsonl`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "line", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Line {
    /// What is about to run: the first line of every start. A run that is resumed has several.
    Run(Box<Header>),
    /// Some steps were done. Written at most a few times a second, so a line may stand for many steps.
    Step(Step),
    /// An epoch was done, validation included.
    Epoch(Box<Epoch>),
    /// Something else happened.
    Event(Event),
    /// Training is over. A log without this line is of a run that goes on, or was killed.
    End(End),
}

/// What is about to run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Header {
    /// The version of this format: 1.
    pub schema: u32,
    /// The version of Plimsoll.
    pub version: String,
    /// When, in seconds since 1970.
    pub at: f64,
    /// The process that trains.
    pub pid: u32,
    /// What the user calls it: the name of the job.
    pub job: String,
    /// Passes over the data.
    pub epochs: u64,
    /// Steps of an epoch.
    pub steps_per_epoch: u64,
    /// Training steps that were done before, by an earlier start.
    pub steps_before: u64,
    /// Threads that compute.
    pub threads: u64,
    /// The memory limit of the process in bytes; null for none.
    pub limit: Option<u64>,
    /// Where the limit comes from, in words.
    pub limit_source: String,
    /// What the process will hold at most, as planned: the sum of the ledger.
    pub planned: u64,
    /// Of which the states: weights, optimizer state, statistics.
    pub states: u64,
    /// Of which the arena, where a step computes.
    pub arena: u64,
    /// Bytes alive at the peak of a step: no arena could be smaller.
    pub live: u64,
    /// What is done to keep the limit; null where nothing was planned.
    pub kept: Option<KeptLine>,
    /// Who holds how much, as reserved before the first step.
    pub ledger: Vec<AccountLine>,
    /// What the process holds before the first step. Its peak may stem from what the process did before this run.
    #[serde(default)]
    pub memory: Memory,
}

/// What is done so that a step keeps its memory limit, and what that costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct KeptLine {
    /// Slices in which a batch runs; 1 for whole batches.
    pub slices: u64,
    /// Whether the slices leave every bit as it is.
    pub exact: bool,
    /// The op that needs whole batches, where that keeps slices from saving more.
    pub barrier: Option<String>,
    /// Ops that run again in a step.
    pub ops_again: u64,
    /// Bytes written to the spill file in a step.
    pub written: u64,
    /// Bytes read from it in a step.
    pub read: u64,
    /// Bytes of weights and optimizer state that live in the file.
    pub states_in_file: u64,
    /// Seconds of a step as estimated; 0 where nothing was estimated.
    pub seconds: f64,
    /// Of which for keeping the limit.
    pub extra_seconds: f64,
    /// All of it in words.
    pub text: String,
}

impl From<&Kept> for KeptLine {
    fn from(kept: &Kept) -> KeptLine {
        KeptLine {
            slices: kept.slices as u64,
            exact: kept.exact,
            barrier: kept.barrier.clone(),
            ops_again: kept.ops_again as u64,
            written: kept.written.0,
            read: kept.read.0,
            states_in_file: kept.states_in_file.0,
            seconds: kept.seconds,
            extra_seconds: kept.extra_seconds,
            text: kept.to_string(),
        }
    }
}

/// An account of the ledger. Accounts without `/` in their names add up to the whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccountLine {
    /// Its whole name: `pipeline/shuffle`.
    pub name: String,
    /// What it holds, in bytes.
    pub held: u64,
    /// The most it has held.
    pub peak: u64,
}

impl AccountLine {
    /// All accounts of a ledger, each before those below it.
    pub fn all(ledger: &Ledger) -> Vec<AccountLine> {
        let mut lines = Vec::new();
        add_accounts(&mut lines, "", &ledger.entries);
        lines
    }

    /// What all accounts hold together.
    pub fn total(lines: &[AccountLine]) -> u64 {
        lines.iter().filter(|l| !l.name.contains('/')).map(|l| l.held).sum()
    }
}

fn add_accounts(lines: &mut Vec<AccountLine>, above: &str, entries: &[Entry]) {
    for entry in entries {
        let name = format!("{above}{}", entry.name);
        let below = format!("{name}/");
        lines.push(AccountLine { name, held: entry.held.0, peak: entry.peak.0 });
        add_accounts(lines, &below, &entry.entries);
    }
}

/// Some steps were done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// When, in seconds since 1970.
    pub at: f64,
    /// The epoch, counted from 1.
    pub epoch: u64,
    /// Steps done in this epoch.
    pub step: u64,
    /// Steps since the last line.
    pub steps: u64,
    /// The mean loss of those steps; null when it is not a number.
    pub loss: Option<f64>,
    /// Seconds of a step, the mean of those.
    pub seconds: f64,
    /// The learning rate of the next step.
    pub rate: f64,
    /// Resident memory of the process (`VmRSS`).
    pub resident: u64,
    /// Seconds waited for input in all those steps.
    pub input_wait: f64,
    /// Seconds waited for the spill file in all those steps.
    pub disk_wait: f64,
}

/// An epoch was done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Epoch {
    /// When, in seconds since 1970.
    pub at: f64,
    /// Which one, counted from 1.
    pub epoch: u64,
    /// Steps that were done in it.
    pub steps: u64,
    /// Its seconds, validation included.
    pub seconds: f64,
    /// Losses and metrics by name, those on validation data after `val_`; null when not a number.
    pub figures: BTreeMap<String, Option<f64>>,
    /// The learning rate at its end.
    pub rate: f64,
    /// Seconds waited for input in this epoch.
    pub input_wait: f64,
    /// Where in the input pipeline the time went in this epoch; threads that work ahead count too, so the sum may be larger.
    pub stages: Vec<StageWait>,
    /// Seconds waited for the spill file in this epoch.
    pub disk_wait: f64,
    /// Bytes written to the spill file in this epoch.
    pub disk_written: u64,
    /// Bytes read from it in this epoch.
    pub disk_read: u64,
    /// What the process holds.
    pub memory: Memory,
    /// Who holds how much.
    pub ledger: Vec<AccountLine>,
}

/// What the process holds, as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Memory {
    /// Resident now (`VmRSS`).
    pub resident: u64,
    /// The most that was ever resident (`VmHWM`).
    pub peak: u64,
    /// Without what files stand behind (`RssAnon`).
    pub anonymous: u64,
    /// The limit; null for none.
    pub limit: Option<u64>,
    /// Who waits for memory on this machine; null where the kernel does not say.
    pub pressure: Option<Pressure>,
}

impl Memory {
    /// What this process holds now.
    pub fn now(limit: Option<Bytes>) -> Memory {
        let usage = plimsoll_budget::measure::usage().unwrap_or_default();
        Memory {
            resident: usage.resident.0,
            peak: usage.peak.0,
            anonymous: usage.anonymous.0,
            limit: limit.map(|b| b.0),
            pressure: Pressure::now(),
        }
    }
}

/// The share of the last ten seconds in which tasks of this machine waited for memory (`/proc/pressure/memory`), in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pressure {
    /// Some waited.
    pub some: f64,
    /// All waited.
    pub full: f64,
}

impl Pressure {
    fn now() -> Option<Pressure> {
        Pressure::parse(&std::fs::read_to_string("/proc/pressure/memory").ok()?)
    }

    fn parse(text: &str) -> Option<Pressure> {
        let of = |name: &str| {
            let line = text.lines().find(|l| l.starts_with(name))?;
            line.split_once("avg10=")?.1.split(' ').next()?.parse().ok()
        };
        Some(Pressure { some: of("some")?, full: of("full").unwrap_or(0.0) })
    }
}

/// Something happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// When, in seconds since 1970.
    pub at: f64,
    /// What.
    pub kind: EventKind,
    /// In words.
    pub message: String,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// Weights or all of the run's state were written to a file.
    Checkpoint,
    /// Somebody asked to stop.
    Stop,
    /// Something that a person should know.
    Warning,
    /// The run goes on from a checkpoint.
    Resume,
}

/// Training is over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct End {
    /// When, in seconds since 1970.
    pub at: f64,
    /// Why.
    pub reason: EndReason,
    /// In words, where there is more to say.
    pub message: String,
    /// Training steps done by this start.
    pub steps: u64,
    /// What the process holds at the end.
    pub memory: Memory,
}

/// Why training is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// All epochs are done.
    Done,
    /// A callback or a person stopped it.
    Stopped,
    /// An error.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_read_as_the_kernel_writes_it() {
        let text = "some avg10=1.25 avg60=0.10 avg300=0.00 total=1\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=1\n";
        assert_eq!(Pressure::parse(text), Some(Pressure { some: 1.25, full: 0.5 }));
        assert_eq!(Pressure::parse("nonsense"), None);
    }

    #[test]
    fn a_line_says_what_it_is_and_comes_back_the_same() {
        let event = Line::Event(Event { at: 1.5, kind: EventKind::Checkpoint, message: "step 600".into() });
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(text, r#"{"line":"event","at":1.5,"kind":"checkpoint","message":"step 600"}"#);
        assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), event);
        let step = Line::Step(Step { loss: None, steps: 3, ..Step::default() });
        assert_eq!(serde_json::from_str::<Line>(&serde_json::to_string(&step).unwrap()).unwrap(), step);
    }
}
