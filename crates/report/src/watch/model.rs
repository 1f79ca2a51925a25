//! What the lines of a log add up to.

use plimsoll_run::{AccountLine, End, EndReason, Epoch, Event, Header, Line, Step};
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

/// Most points of a curve that are kept.
const POINTS: usize = 1024;

/// Most events that are kept.
const EVENTS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Model {
    pub name: String,
    pub header: Option<Header>,
    pub step: Option<Step>,
    pub epoch: Option<Epoch>,
    pub losses: VecDeque<f64>,
    pub figures: BTreeMap<String, VecDeque<f64>>,
    pub events: VecDeque<Event>,
    pub end: Option<End>,
    /// Seconds since the run began: all, waiting for input, waiting for the file.
    pub seconds: [f64; 3],
    /// Of the steps since the last epoch, which are not in `seconds` yet.
    pub recent: [f64; 3],
}

impl Model {
    pub fn new(directory: &Path) -> Model {
        let name = directory.file_name().map(|n| n.to_string_lossy().into_owned());
        Model { name: name.unwrap_or_else(|| directory.display().to_string()), ..Model::default() }
    }

    pub fn take(&mut self, line: Line) {
        match line {
            Line::Run(header) => {
                // A new start: what the curves show goes on, the rest begins anew.
                (self.end, self.step) = (None, None);
                self.header = Some(*header);
            }
            Line::Step(step) => {
                push(&mut self.losses, step.loss.unwrap_or(f64::NAN), POINTS);
                let seconds = step.seconds * step.steps as f64;
                for (sum, value) in self.recent.iter_mut().zip([seconds, step.input_wait, step.disk_wait]) {
                    *sum += value;
                }
                self.step = Some(step);
            }
            Line::Epoch(epoch) => {
                for (name, value) in &epoch.figures {
                    push(self.figures.entry(name.clone()).or_default(), value.unwrap_or(f64::NAN), POINTS);
                }
                self.recent = [0.0; 3];
                for (sum, value) in self.seconds.iter_mut().zip([epoch.seconds, epoch.input_wait, epoch.disk_wait]) {
                    *sum += value;
                }
                self.epoch = Some(*epoch);
            }
            Line::Event(event) => push(&mut self.events, event, EVENTS),
            Line::End(end) => self.end = Some(end),
            _ => (),
        }
    }

    /// Who holds how much, as last told.
    pub fn ledger(&self) -> &[AccountLine] {
        let of_epoch = self.epoch.as_ref().map(|e| &e.ledger[..]).filter(|l| !l.is_empty());
        of_epoch.or(self.header.as_ref().map(|h| &h.ledger[..])).unwrap_or(&[])
    }

    /// Resident memory as last measured, and the most so far.
    pub fn measured(&self) -> (Option<u64>, Option<u64>) {
        let at = |epoch: &Epoch| epoch.at;
        let newer = self.step.as_ref().filter(|s| self.epoch.as_ref().is_none_or(|e| s.at > at(e)));
        let resident = newer.map(|s| s.resident).or(self.epoch.as_ref().map(|e| e.memory.resident));
        let peak = self.end.as_ref().map(|e| e.memory.peak).or(self.epoch.as_ref().map(|e| e.memory.peak));
        (resident, peak.max(resident))
    }

    /// All, input and disk, in seconds, up to the last line.
    pub fn times(&self) -> [f64; 3] {
        std::array::from_fn(|i| self.seconds[i] + self.recent[i])
    }

    pub fn state(&self) -> &'static str {
        match (&self.header, &self.end) {
            (None, _) => "waiting for the run to begin",
            (_, None) => "running",
            (_, Some(end)) => match end.reason {
                EndReason::Done => "done",
                EndReason::Stopped => "stopped",
                EndReason::Failed => "failed",
            },
        }
    }
}

fn push<T>(list: &mut VecDeque<T>, item: T, most: usize) {
    if list.len() == most {
        list.pop_front();
    }
    list.push_back(item);
}
