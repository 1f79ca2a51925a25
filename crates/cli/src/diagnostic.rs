//! Errors as people see them: a code, the place in the file, what is wrong, what to do.

use crate::errors::Code;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::Arc;

/// A file's text and its name.
#[derive(Debug, PartialEq)]
pub struct Source {
    pub name: String,
    pub text: String,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// A stretch of a file.
    File(Arc<Source>, Range<usize>),
    /// A flag of the command line, as it was written.
    Flag(String),
    /// An environment variable, as `NAME=value`.
    Variable(String),
    /// Nobody set it.
    Default,
}

impl Origin {
    /// The line and column, counted from 1, of a place in a file.
    pub fn line_column(&self) -> Option<(usize, usize)> {
        let Origin::File(source, span) = self else { return None };
        let before = &source.text[..span.start.min(source.text.len())];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        Some((before.matches('\n').count() + 1, before[line_start..].chars().count() + 1))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::File(source, _) => {
                let (line, column) = self.line_column().unwrap_or((1, 1));
                write!(f, "{}:{line}:{column}", source.name)
            }
            Origin::Flag(text) => write!(f, "flag {text}"),
            Origin::Variable(text) => write!(f, "environment {text}"),
            Origin::Default => f.write_str("default"),
        }
    }
}

/// An error with everything that helps.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnostic {
    pub code: Code,
    /// What is wrong, in one line.
    pub title: String,
    pub origin: Option<Origin>,
    /// What is wrong at that place.
    pub label: String,
    /// Further lines by kind: `why`, `do`.
    pub notes: Vec<(&'static str, String)>,
}

impl Diagnostic {
    pub fn new(code: Code, title: impl Into<String>) -> Diagnostic {
        Diagnostic { code, title: title.into(), origin: None, label: String::new(), notes: Vec::new() }
    }

    #[must_use]
    pub fn at(self, origin: &Origin, label: impl Into<String>) -> Diagnostic {
        Diagnostic { origin: Some(origin.clone()), label: label.into(), ..self }
    }

    #[must_use]
    pub fn note(mut self, kind: &'static str, text: impl Into<String>) -> Diagnostic {
        self.notes.push((kind, text.into()));
        self
    }

    /// As text, with colours or without.
    pub fn render(&self, colour: bool) -> String {
        let paint = |code: &str, text: &str| if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.into() };
        let mut out = String::new();
        let _ = writeln!(out, "{}: {}", paint("1;31", &format!("error[{}]", self.code)), paint("1", &self.title));
        match &self.origin {
            Some(origin @ Origin::File(source, span)) => self.excerpt(&mut out, origin, source, span, &paint),
            Some(Origin::Default) | None if self.label.is_empty() => (),
            Some(Origin::Default) | None => _ = writeln!(out, "  {}", self.label),
            Some(origin) => {
                let _ = writeln!(out, "   {}[{origin}]", paint("2", "╭─"));
                let _ = writeln!(out, "   {} {}", paint("2", "╰────"), self.label);
            }
        }
        for (kind, text) in &self.notes {
            for (i, line) in text.lines().enumerate() {
                let kind = if i == 0 { kind } else { "" };
                let _ = writeln!(out, "  {} {line}", paint("36", &format!("{kind:<5}")));
            }
        }
        let _ = writeln!(out, "  {} docs/errors.md, {}", paint("36", "more "), self.code);
        out
    }

    fn excerpt(
        &self,
        out: &mut String,
        origin: &Origin,
        source: &Source,
        span: &Range<usize>,
        paint: &dyn Fn(&str, &str) -> String,
    ) {
        let (line, column) = origin.line_column().unwrap_or((1, 1));
        let text = source.text.lines().nth(line - 1).unwrap_or_default();
        // A value over several lines is shown by its first.
        let length = source.text.get(span.clone()).map_or(1, |s| s.lines().next().unwrap_or_default().chars().count());
        let number = line.to_string();
        let edge = " ".repeat(number.len());
        let _ = writeln!(out, " {edge} {}[{origin}]", paint("2", "╭─"));
        let _ = writeln!(out, " {} {} {text}", paint("2", &number), paint("2", "│"));
        let below = format!("{}{}", " ".repeat(column - 1), "─".repeat(length.max(1)));
        let _ = writeln!(out, " {edge} {} {}", paint("2", "│"), paint("31", &below));
        let _ = writeln!(out, " {edge} {} {}", paint("2", "╰────"), self.label);
    }

    /// As JSON: the same facts by name.
    pub fn json(&self) -> serde_json::Value {
        let place = self.origin.as_ref().map(|origin| {
            let at = origin.line_column();
            let file = match origin {
                Origin::File(source, _) => Some(source.name.as_str()),
                _ => None,
            };
            serde_json::json!({
                "text": origin.to_string(), "file": file, "line": at.map(|a| a.0), "column": at.map(|a| a.1),
            })
        });
        let notes: Vec<_> =
            self.notes.iter().map(|(kind, text)| serde_json::json!({"kind": kind, "text": text})).collect();
        serde_json::json!({
            "error": {
                "code": self.code.to_string(), "exit": self.code.exit(), "title": self.title, "place": place,
                "label": self.label, "notes": notes,
            }
        })
    }
}

/// The name among `names` that is most like `word`, if one is like it at all.
pub fn nearest<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let most = word.chars().count().max(3) / 3 + 1;
    names.into_iter().map(|name| (distance(&word, name), name)).filter(|(d, _)| *d <= most).min().map(|(_, name)| name)
}

/// How many letters must be put in, taken out, changed or swapped with their neighbour to turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + (a[i - 1] != b[j - 1]) as usize;
            let mut best = change.min(row[j - 1] + 1).min(rows[i - 1][j] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_like_a_word() {
        assert_eq!(distance("epocs", "epochs"), 1);
        assert_eq!(distance("untis", "units"), 1);
        assert_eq!(nearest("Epocs", ["batch_size", "epochs"]), Some("epochs"));
        assert_eq!(nearest("zebra", ["batch_size", "epochs"]), None);
    }

    #[test]
    fn a_place_is_shown() {
        let source = Arc::new(Source { name: "job.toml".into(), text: "a = 1\nepocs = 10\n".into() });
        let text = Diagnostic::new(Code::UnknownKey, "unknown key 'epocs'")
            .at(&Origin::File(source, 6..11), "did you mean 'epochs'?")
            .render(false);
        let want = "error[E0103]: unknown key 'epocs'\n   ╭─[job.toml:2:1]\n 2 │ epocs = 10\n   │ ─────\n   ╰──── did you \
                    mean 'epochs'?\n  more  docs/errors.md, E0103\n";
        assert_eq!(text, want);
    }
}
