//! The JSON schemas of everything that `--json` gives, and of files.

use crate::commands as c;
use schemars::schema_for;
use serde_json::Value;

/// All schemas by name.
pub fn all() -> Vec<(String, Value)> {
    macro_rules! of {
        ($($name:literal => $ty:ty),* $(,)?) => {
            vec![$(($name.to_owned(), schema_for!($ty).to_value())),*]
        };
    }
    let mut all = of! {
        "doctor" => c::doctor::Doctor,
        "init" => c::init::Written,
        "plan-output" => c::plan::PlanReport,
        "train" => crate::progress::TrainLine,
        "eval" => c::eval::Evaluation,
        "predict" => c::predict::Prediction,
        "report" => c::pictures::ReportWritten,
        "data-inspect" => c::data::Inspection,
        "data-bench" => c::data::BenchReport,
        "data-convert" => c::data::Converted,
        "ckpt" => c::ckpt::CheckpointLine,
        "bench" => c::bench::Bench,
        "config" => crate::job::Setting,
        "explain" => c::explain::Explanation,
        "serve" => c::pictures::Address,
        "completions" => c::shell::Page,
        "man" => c::shell::Page,
        "schema" => Vec<String>,
        "version" => c::version::Version,
        "error" => ErrorReport,
    };
    all.push(("job".into(), crate::job::docs::schema()));
    let run = plimsoll_run::schemas();
    all.extend(
        run.into_iter().map(|(file, schema)| (file.trim_end_matches(".schema.json").to_owned(), schema.to_value())),
    );
    all
}

/// An error as `--json` gives it.
#[derive(serde::Serialize, schemars::JsonSchema)]
#[allow(dead_code)]
pub struct ErrorReport {
    /// What went wrong.
    error: ErrorFacts,
}

/// What went wrong.
#[derive(serde::Serialize, schemars::JsonSchema)]
#[allow(dead_code)]
struct ErrorFacts {
    /// Such as `E0301`; docs/errors.md has all.
    code: String,
    /// What the process ends with.
    exit: u8,
    /// In one line.
    title: String,
    /// Where.
    place: Option<ErrorPlace>,
    /// What is wrong there.
    label: String,
    /// Why, and what to do.
    notes: Vec<Note>,
}

/// A place in a file, a flag or an environment variable.
#[derive(serde::Serialize, schemars::JsonSchema)]
#[allow(dead_code)]
struct ErrorPlace {
    /// In words.
    text: String,
    /// The file.
    file: Option<String>,
    /// Counted from 1.
    line: Option<usize>,
    /// Counted from 1.
    column: Option<usize>,
}

/// A further fact.
#[derive(serde::Serialize, schemars::JsonSchema)]
#[allow(dead_code)]
struct Note {
    /// `why`, `do` or another word.
    kind: String,
    /// The fact.
    text: String,
}

#[cfg(test)]
mod tests {
    #[test]
    fn published_schemas_are_those_of_the_code() {
        let folder = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schemas"));
        for (name, schema) in super::all() {
            let path = folder.join(format!("{name}.schema.json"));
            let made = serde_json::to_string_pretty(&schema).unwrap() + "\n";
            let same = || {
                let written = std::fs::read_to_string(&path).unwrap_or_default();
                serde_json::from_str::<serde_json::Value>(&written).ok().as_ref() == Some(&schema)
            };
            if std::env::var_os("UPDATE_DOCS").is_some() && !same() {
                std::fs::create_dir_all(folder).unwrap();
                std::fs::write(&path, &made).unwrap();
            }
            assert!(same(), "{} is not that of the code: run the tests with UPDATE_DOCS=1", path.display());
        }
    }
}
