//! The run directory: what a training run leaves behind for people and tools.
//!
//! A run directory holds
//!
//! | file | what |
//! |---|---|
//! | `log.jsonl` | what happened, one JSON object a line, appended as it happens ([`Line`]) |
//! | `plan.json` | what runs when and where every byte is ([`PlanPicture`]) |
//! | `times.json` | how long each op took, where that was measured ([`Times`]) |
//! | `sweep.json` | what other limits would cost, where that was asked for ([`Sweep`]) |
//!
//! The log is the only channel from a trainer to those who watch it: [`RunWriter`] appends, [`RunReader`] follows, and neither
//! knows of the other. [`RunLog`] is the callback that feeds the writer from `Trainer::fit`. Everything the writer needs is
//! allocated when it is opened ([`WRITER_BYTES`]), so that a log does not grow what a memory limit has to keep.
//!
//! The formats are described by JSON schemas that are made from these types ([`schemas`]) and published in `docs/schemas/`.
//! Besides, [`tensorboard`] writes event files for TensorBoard and [`trace`] the picture of a step that Perfetto opens.
//!
//! ```
//! use plimsoll_run::{Event, EventKind, Line, RunReader, RunWriter};
//! # let directory = std::env::temp_dir().join(format!("plimsoll-run-doc-{}", std::process::id()));
//! let mut writer = RunWriter::create(&directory)?;
//! writer.event(EventKind::Warning, "the disk is slow")?;
//! let mut reader = RunReader::open(&directory);
//! let lines = reader.read()?;
//! assert!(matches!(&lines[0], Line::Event(Event { kind: EventKind::Warning, .. })));
//! # std::fs::remove_dir_all(directory)?;
//! # Ok::<(), plimsoll_run::RunError>(())
//! ```

mod analyse;
mod callback;
mod error;
mod lines;
mod plan;
mod reader;
mod schema;
pub mod tensorboard;
pub mod trace;
mod writer;

pub use callback::{RunLog, StageWait};
pub use error::RunError;
pub use lines::{
    AccountLine, End, EndReason, Epoch, Event, EventKind, Header, KeptLine, Line, Memory, Pressure, SCHEMA_VERSION,
    Step,
};
pub use plan::{
    BufferKind, BufferLine, InstructionLine, Phase, PlanPicture, PlanSource, StateLine, Strategy, Sweep, SweepLine,
    Times, read_plan, write_plan, write_sweep, write_times,
};
pub use reader::{RunReader, find_runs};
pub use schema::schemas;
pub use writer::{RunWriter, WRITER_BYTES};

/// The name of the log in a run directory.
pub const LOG: &str = "log.jsonl";
/// The name of the plan in a run directory.
pub const PLAN: &str = "plan.json";
/// The name of the measured times in a run directory.
pub const TIMES: &str = "times.json";
/// The name of the sweep in a run directory.
pub const SWEEP: &str = "sweep.json";
