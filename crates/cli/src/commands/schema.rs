//! `plimsoll schema`: the JSON schemas of outputs and files.

use crate::Outcome;
use crate::diagnostic::{Diagnostic, nearest};
use crate::errors::Code;
use crate::out::Out;
use clap::Args;

/// JSON schemas of what `--json` gives, of run directories and of job files.
#[derive(Args)]
#[command(after_help = "\
Examples:
  plimsoll schema                 the names
  plimsoll schema plan-output     the schema of plimsoll plan --json
  plimsoll schema job > job.json  for editors that check TOML files")]
pub struct Options {
    /// Which one; all names if not given.
    name: Option<String>,
}

pub fn run(options: &Options, out: &Out) -> Outcome {
    let all = crate::schemas::all();
    let Some(name) = &options.name else {
        match out.json {
            true => out.json_line(&all.iter().map(|(name, _)| name).collect::<Vec<_>>()),
            false => all.iter().for_each(|(name, _)| out.data(name)),
        }
        return Ok(0);
    };
    match all.iter().find(|(n, _)| n == name) {
        Some((_, schema)) => out.json_page(schema),
        None => {
            let names: Vec<&str> = all.iter().map(|(n, _)| n.as_str()).collect();
            let hint = nearest(name, names.iter().copied()).map_or(String::new(), |n| format!("; did you mean '{n}'?"));
            return Err(Diagnostic::new(Code::Other, format!("there is no schema '{name}'{hint}"))
                .note("names", names.join(", ")));
        }
    }
    Ok(0)
}
