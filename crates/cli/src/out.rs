//! Where words go: data to standard output, talk to standard error, colours only where they are wanted.

use crate::diagnostic::Diagnostic;
use clap::ValueEnum;
use std::io::{IsTerminal, Write};

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On terminals, unless NO_COLOR is set or TERM is dumb; everywhere when CLICOLOR_FORCE is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How the user wants to be talked to.
#[derive(Clone, Copy, Debug)]
pub struct Out {
    /// Data as JSON.
    pub json: bool,
    /// No talk.
    pub quiet: bool,
    /// More talk.
    pub verbose: bool,
    /// Whether talk has colours.
    pub colour: bool,
    /// Whether talk goes to a terminal that can move its cursor.
    pub terminal: bool,
}

impl Out {
    /// As flags and environment say.
    pub fn new(json: bool, quiet: bool, verbose: bool, colour: Colour) -> Out {
        let set = |name: &str| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminal = std::io::stderr().is_terminal() && !dumb;
        let colour = match colour {
            Colour::Always => true,
            Colour::Never => false,
            Colour::Auto if set("NO_COLOR") => false,
            Colour::Auto if std::env::var_os("CLICOLOR_FORCE").is_some_and(|v| !v.is_empty() && v != "0") => true,
            Colour::Auto => terminal,
        };
        Out { json, quiet, verbose, colour, terminal }
    }

    /// Says something, to standard error.
    pub fn talk(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            // Nobody listens any more: there is nothing to do about it.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// Gives data, to standard output. A reader that has gone ends the program quietly.
    pub fn data(&self, text: impl std::fmt::Display) {
        if writeln!(std::io::stdout(), "{text}").is_err() {
            std::process::exit(0);
        }
    }

    /// Gives data as JSON on one line.
    pub fn json_line(&self, value: &impl serde::Serialize) {
        self.data(serde_json::to_string(value).expect("plain data"));
    }

    /// Gives data as JSON for reading.
    pub fn json_page(&self, value: &impl serde::Serialize) {
        self.data(serde_json::to_string_pretty(value).expect("plain data"));
    }

    /// Tells an error.
    pub fn error(&self, error: &Diagnostic) {
        if self.json {
            self.json_line(&error.json());
        }
        let _ = write!(std::io::stderr(), "{}", error.render(self.colour));
    }

    /// Text in a colour, where colours are wanted.
    pub fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
