//! `plimsoll completions` and `plimsoll man`.

use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::Code;
use crate::out::Out;
use clap::{Args, CommandFactory};
use clap_complete::Shell;
use std::path::PathBuf;

/// A script that completes commands and flags in a shell.
#[derive(Args)]
#[command(after_help = "\
Examples:
  plimsoll completions bash > ~/.local/share/bash-completion/completions/plimsoll
  plimsoll completions fish > ~/.config/fish/completions/plimsoll.fish")]
pub struct Completions {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

/// `plimsoll completions --json` and `plimsoll man --json`.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Page {
    /// The text; null where files were written.
    text: Option<String>,
    /// The files written.
    files: Vec<String>,
}

/// Gives a text as it is, or as JSON.
fn give(text: Vec<u8>, out: &Out) {
    let text = String::from_utf8_lossy(&text).into_owned();
    match out.json {
        true => out.json_line(&Page { text: Some(text), files: Vec::new() }),
        false => out.data(text.trim_end()),
    }
}

pub fn completions(options: &Completions, out: &Out) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut crate::Cli::command(), "plimsoll", &mut text);
    give(text, out);
    Ok(0)
}

/// The manual page, or one for every command.
#[derive(Args)]
#[command(after_help = "\
Examples:
  plimsoll man | man -l -
  plimsoll man --all --output ~/.local/share/man/man1")]
pub struct Man {
    /// The directory for the pages of all commands.
    #[arg(long, short, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
    /// Pages for all commands, not only the first.
    #[arg(long, requires = "output")]
    all: bool,
}

pub fn man(options: &Man, out: &Out) -> Outcome {
    let command = crate::Cli::command();
    let page = |command: clap::Command| -> Result<Vec<u8>, Diagnostic> {
        let mut text = Vec::new();
        clap_mangen::Man::new(command).render(&mut text).map_err(|e| Diagnostic::new(Code::Other, e.to_string()))?;
        Ok(text)
    };
    let Some(folder) = &options.output else {
        give(page(command)?, out);
        return Ok(0);
    };
    let mut files = Vec::new();
    let mut write = |name: &str, text: Vec<u8>| {
        let path = folder.join(format!("{name}.1"));
        files.push(path.display().to_string());
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|e| Diagnostic::new(Code::Disk, format!("{}: {e}", path.display())))
    };
    write("plimsoll", page(command.clone())?)?;
    if options.all {
        for sub in command.get_subcommands() {
            let name = format!("plimsoll-{}", sub.get_name());
            // The library keeps names for as long as the program runs.
            let leaked: &'static str = Box::leak(name.clone().into_boxed_str());
            write(&name, page(sub.clone().name(leaked))?)?;
        }
    }
    match out.json {
        true => out.json_line(&Page { text: None, files }),
        false => files.iter().for_each(|file| out.data(file)),
    }
    Ok(0)
}
