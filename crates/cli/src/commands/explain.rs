//! `plimsoll explain`: the documentation of an error, or of job files.

use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::Code;
use crate::out::Out;
use clap::Args;

/// What an error means and what to do, or every key of a job file.
#[derive(Args)]
#[command(after_help = "Examples:\n  plimsoll explain E0301\n  plimsoll explain jobs | less")]
pub struct Options {
    /// A code such as E0301, or `jobs`; all codes if not given.
    what: Option<String>,
}

/// `plimsoll explain --json`.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Explanation {
    /// The code; null for the page on jobs.
    code: Option<String>,
    /// The documentation, as Markdown.
    text: String,
}

/// The page on errors.
const PAGE: &str = include_str!("../../../../docs/errors.md");

pub fn run(options: &Options, out: &Out) -> Outcome {
    let give = |code: Option<Code>, text: &str| match out.json {
        true => out.json_line(&Explanation { code: code.map(|c| c.to_string()), text: text.to_owned() }),
        false => out.data(text.trim_end()),
    };
    match options.what.as_deref() {
        None => Code::ALL
            .iter()
            .for_each(|code| give(Some(*code), &format!("{code}  exit {}  {}", code.exit(), code.what()))),
        Some("jobs") => give(None, &crate::job::docs::page()),
        Some(word) => {
            let Some(code) = Code::ALL.iter().find(|code| code.name().eq_ignore_ascii_case(word)) else {
                let title = format!("there is no error '{word}'");
                return Err(Diagnostic::new(Code::Other, title).note("do", "plimsoll explain lists all codes"));
            };
            let head = format!("## {code}: ");
            let section = PAGE.split(&head).nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
            give(Some(*code), &format!("{code}: {section}"));
        }
    }
    Ok(0)
}
