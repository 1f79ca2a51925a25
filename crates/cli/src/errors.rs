//! The catalogue of errors: codes, exit codes, and how the crates' own errors become diagnostics.
//!
//! `docs/errors.md` has a section for each; a test compares the two.

use crate::diagnostic::{Diagnostic, Origin};
use plimsoll::Error;
use std::fmt;

macro_rules! codes {
    ($($name:ident = $number:literal, $exit:literal, $what:literal;)*) => {
        /// What went wrong, as a number that documentation and scripts can hold on to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Code { $(#[doc = $what] $name,)* }

        impl Code {
            /// All codes.
            pub const ALL: &'static [Code] = &[$(Code::$name),*];

            /// The code as written.
            pub fn name(self) -> &'static str {
                match self { $(Code::$name => $number,)* }
            }

            /// What the process ends with.
            pub fn exit(self) -> u8 {
                match self { $(Code::$name => $exit,)* }
            }

            /// The kind of error in a few words.
            pub fn what(self) -> &'static str {
                match self { $(Code::$name => $what,)* }
            }
        }
    };
}

codes! {
    JobUnreadable = "E0101", 4, "the job file cannot be read";
    NotToml = "E0102", 4, "the job file is not TOML";
    UnknownKey = "E0103", 4, "a key that does not exist";
    MissingKey = "E0104", 4, "a key that must be there is not";
    WrongType = "E0105", 4, "a value of another type than the key takes";
    WrongValue = "E0106", 4, "a value that the key does not take";
    BadModel = "E0107", 4, "the parts of the model do not fit together";
    DataUnreadable = "E0201", 4, "a data file cannot be read";
    BadData = "E0202", 4, "data that is not what it claims or has to be";
    DataForModel = "E0203", 4, "the data does not suit the model";
    WouldNotFit = "E0301", 3, "the training step does not fit in the memory limit";
    HostTooSmall = "E0302", 3, "the host does not have the memory that the limit allows";
    MemoryGrew = "E0303", 3, "something else in the process took memory, up to the limit";
    InputOverLimit = "E0304", 3, "reading the data needs more memory than the limit leaves";
    Diverged = "E0401", 5, "the loss is not a number any more";
    Disk = "E0501", 6, "the disk is full or fails";
    CheckpointUnusable = "E0601", 8, "a checkpoint or weights file cannot be used";
    RunUnusable = "E0602", 8, "a run directory cannot be used";
    NoPython = "E0701", 1, "no Python that has the package";
    Other = "E0901", 1, "something else";
    Bug = "E0902", 1, "a bug of ours";
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What went wrong with a job, where the limit or the part in question stands in its file.
#[derive(Clone, Debug, Default)]
pub struct Places {
    pub limit: Option<Origin>,
    pub model: Option<Origin>,
    pub data: Option<Origin>,
}

/// An error of the library as a diagnostic.
pub fn diagnose(error: &Error, places: &Places) -> Diagnostic {
    match error {
        Error::WouldNotFit(refusal) => would_not_fit(refusal, places),
        Error::HostTooSmall(found) => Diagnostic::new(Code::HostTooSmall, "the host does not have the memory")
            .note("why", found.to_string())
            .note("do", "plimsoll doctor shows what the host allows"),
        Error::MemoryGrew(grew) => {
            Diagnostic::new(Code::MemoryGrew, "the process grew up to the memory limit").note("why", grew.to_string())
        }
        Error::Diverged { .. } => Diagnostic::new(Code::Diverged, error.to_string())
            .note("do", "lower optimizer.learning_rate, or set optimizer.clip_global_norm = 1.0"),
        Error::File { path, message } => file(path, message),
        Error::Data(error) => diagnose_data(error, places.data.as_ref()),
        Error::Exec(plimsoll_exec::ExecError::Spill(spill)) => Diagnostic::new(Code::Disk, spill.to_string())
            .note("do", "set limit.spill_dir to a directory with room, or raise the memory limit"),
        Error::Graph(_) | Error::Tensor(_) | Error::Plan(_) => place_of_model(error, places),
        Error::Config { what, .. }
            if what.starts_with("data") || what.starts_with("input") || what.starts_with("labels") =>
        {
            let found = Diagnostic::new(Code::DataForModel, error.to_string());
            match &places.data {
                Some(origin) => found.at(origin, "the data is described here"),
                None => found,
            }
        }
        Error::Config { .. } => place_of_model(error, places),
        other => Diagnostic::new(Code::Other, other.to_string()),
    }
}

fn place_of_model(error: &Error, places: &Places) -> Diagnostic {
    let found = Diagnostic::new(Code::BadModel, error.to_string());
    match &places.model {
        Some(origin) => found.at(origin, "the model is described here"),
        None => found,
    }
}

fn file(path: &std::path::Path, message: &str) -> Diagnostic {
    let code = match () {
        () if is_disk(message) => Code::Disk,
        () if path.extension().is_some_and(|e| e == "safetensors") => Code::CheckpointUnusable,
        () => Code::DataUnreadable,
    };
    Diagnostic::new(code, format!("{}: {message}", path.display()))
}

fn is_disk(message: &str) -> bool {
    ["No space left", "Input/output error", "quota", "Read-only file system"].iter().any(|s| message.contains(s))
}

fn would_not_fit(refusal: &plimsoll::trainer::WouldNotFit, places: &Places) -> Diagnostic {
    let smallest = crate::text::kib_up(refusal.smallest);
    let mut found = Diagnostic::new(Code::WouldNotFit, format!("this training step does not fit in {}", refusal.limit));
    let needs = format!("needs at least {} ({} bytes); nothing was run", smallest, refusal.smallest.0);
    found = match &places.limit {
        Some(origin) => found.at(origin, needs),
        None => found.note("needs", needs),
    };
    if let Some(source) = &refusal.source {
        let asked = refusal.asked.map_or(String::new(), |asked| format!("; {asked} were asked for"));
        found = found.note("limit", format!("{source}{asked}"));
    }
    let largest: Vec<String> =
        refusal.peak.tenants.iter().take(3).map(|t| format!("{} {}", t.what, plimsoll::Bytes(t.bytes))).collect();
    found = found.note(
        "why",
        format!(
            "without a limit {} are needed: {} weights, optimizer and statistics; {}\nat op {} of {} ({}): {}",
            refusal.unlimited,
            refusal.states,
            refusal.fixed,
            refusal.peak.step + 1,
            refusal.peak.n_steps,
            refusal.peak.op,
            largest.join(", ")
        ),
    );
    found = found.note("tried", refusal.tried.clone());
    let options = std::iter::once(format!("--memory-limit {smallest}")).chain(refusal.remedies.iter().cloned());
    let options: Vec<String> = options.enumerate().map(|(i, option)| format!("{}. {option}", i + 1)).collect();
    found.note("do", options.join("\n"))
}

/// An error of the input pipeline as a diagnostic.
pub fn diagnose_data(error: &plimsoll_data::Error, origin: Option<&Origin>) -> Diagnostic {
    use plimsoll_data::Error as E;
    let found = match error {
        E::Io { error: io, .. } if is_disk(&io.to_string()) => Diagnostic::new(Code::Disk, error.to_string()),
        E::Io { .. } => Diagnostic::new(Code::DataUnreadable, error.to_string()),
        E::OverBudget(_) => Diagnostic::new(Code::InputOverLimit, error.to_string()),
        _ => Diagnostic::new(Code::BadData, error.to_string()),
    };
    match origin {
        Some(origin @ Origin::File(..)) => found.at(origin, "the data is described here"),
        _ => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_documented() {
        let docs = include_str!("../../../docs/errors.md");
        for code in Code::ALL {
            let head = format!("## {}: {}\n", code, code.what());
            assert!(docs.contains(&head), "docs/errors.md has no '{head}'");
            let section = docs.split(&head).nth(1).unwrap().split("\n## ").next().unwrap();
            assert!(section.contains(&format!("Exit code {}.", code.exit())), "{code}: the exit code");
            assert!(section.contains("```"), "{code}: an example");
        }
        let documented = docs.matches("\n## E0").count();
        assert_eq!(documented, Code::ALL.len(), "sections for codes that do not exist");
    }
}
