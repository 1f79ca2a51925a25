//! `plimsoll run`: a Python program inside a memory limit.

use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::Code;
use crate::out::Out;
use clap::Args;
use plimsoll::Limit;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Run a Python program, written for TensorFlow or for Plimsoll, inside a memory limit.
///
/// `import tensorflow` means the package `plimsoll` there. Output, signals and the exit code are the program's.
///
/// The first Python that has the package is taken: --python, that of $VIRTUAL_ENV, python3, python.
#[derive(Args)]
#[command(after_help = "\
Examples:
  plimsoll run train.py --memory-limit 2GiB
  plimsoll run --memory-limit 50% train.py --epochs 3
  plimsoll run --python .venv/bin/python -m package.train")]
pub struct Options {
    /// Resident memory of the whole process, at most: 512MiB, 2GB, 50% (of what the host allows). May stand behind the program too.
    #[arg(long, value_name = "BYTES")]
    memory_limit: Option<String>,
    /// The Python to run it with.
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
    /// The program (or `-m MODULE`) and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    words: Vec<OsString>,
}

pub fn run(options: &Options, out: &Out) -> Outcome {
    let mut words = options.words.clone();
    let behind = take_limit(&mut words)?;
    let limit = options.memory_limit.clone().or(behind);
    if let Some(text) = &limit {
        text.parse::<Limit>().map_err(|e| {
            Diagnostic::new(Code::WrongValue, format!("--memory-limit: {e}"))
                .note("do", "--memory-limit 512MiB, 2GB or 50%")
        })?;
    }
    let python = find_python(options.python.as_ref())?;
    if out.verbose {
        out.talk(format!("python: {}", python.display()));
    }
    let mut command = Command::new(&python);
    command.args(["-m", "plimsoll.run"]);
    if let Some(limit) = limit {
        command.arg("--memory-limit").arg(limit);
    }
    // Takes the place of this process: nothing of ours stays in memory, and signals and the exit code are the program's.
    let error = command.args(words).exec();
    Err(Diagnostic::new(Code::NoPython, format!("{}: {error}", python.display())))
}

/// Takes `--memory-limit` out of the words that stand behind a script; those behind a module are all its own.
fn take_limit(words: &mut Vec<OsString>) -> Result<Option<String>, Diagnostic> {
    const FLAG: &str = "--memory-limit";
    if words.first().is_some_and(|w| w == "-m") {
        return Ok(None);
    }
    let is_flag = |w: &OsString| w == FLAG || w.to_string_lossy().starts_with("--memory-limit=");
    let Some(at) = words.iter().position(is_flag) else { return Ok(None) };
    let word = words.remove(at).to_string_lossy().into_owned();
    if let Some((_, value)) = word.split_once('=') {
        return Ok(Some(value.to_owned()));
    }
    if at == words.len() {
        let title = format!("{FLAG} stands last: how much?");
        return Err(Diagnostic::new(Code::WrongValue, title).note("do", "--memory-limit 512MiB"));
    }
    Ok(Some(words.remove(at).to_string_lossy().into_owned()))
}

/// Says with its exit code whether the package is there, without importing it.
const PROBE: &str = "import importlib.util as u, sys; sys.exit(0 if u.find_spec('plimsoll') else 64)";

/// The first Python that has the package.
fn find_python(asked: Option<&PathBuf>) -> Result<PathBuf, Diagnostic> {
    let candidates: Vec<PathBuf> = match asked {
        Some(python) => vec![python.clone()],
        None => {
            let environment = std::env::var_os("VIRTUAL_ENV").filter(|v| !v.is_empty());
            let own = environment.map(|folder| PathBuf::from(folder).join("bin/python"));
            own.into_iter().chain(["python3".into(), "python".into()]).collect()
        }
    };
    let mut found = Vec::new();
    for python in candidates {
        match has_package(python.as_os_str()) {
            Ok(true) => return Ok(python),
            Ok(false) => found.push(format!("{}: has no package plimsoll", python.display())),
            Err(why) => found.push(format!("{}: {why}", python.display())),
        }
    }
    Err(Diagnostic::new(Code::NoPython, "no Python here has the package plimsoll")
        .note("tried", found.join("\n"))
        .note("do", "pip install ./python in the repository, or name another Python: --python .venv/bin/python"))
}

fn has_package(python: &OsStr) -> Result<bool, String> {
    let mut probe = Command::new(python);
    probe.args(["-c", PROBE]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match probe.status() {
        Ok(status) if status.success() => Ok(true),
        Ok(status) if status.code() == Some(64) => Ok(false),
        Ok(status) => Err(format!("does not work ({status})")),
        Err(error) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &[&str], limit: Option<&str>, left: &[&str]) {
        let mut words: Vec<OsString> = words.iter().map(OsString::from).collect();
        assert_eq!(take_limit(&mut words).unwrap().as_deref(), limit);
        assert_eq!(words, left);
    }

    #[test]
    fn the_limit_may_stand_behind_the_program() {
        check(&["a.py", "--memory-limit", "1GiB", "-x"], Some("1GiB"), &["a.py", "-x"]);
        check(&["a.py", "-x", "--memory-limit=50%"], Some("50%"), &["a.py", "-x"]);
        check(&["a.py", "-x"], None, &["a.py", "-x"]);
        check(&["-m", "a", "--memory-limit", "1GiB"], None, &["-m", "a", "--memory-limit", "1GiB"]);
        assert!(take_limit(&mut vec!["a.py".into(), "--memory-limit".into()]).is_err());
    }
}
