//! Lines of text files.

use super::bytes::{Compression, Format, Sequence, Window};
use super::files::Files;
use crate::builder::Builder;
use crate::flow::{Open, Stage};
use crate::{Component, Dataset, Error, Kind, Place, Spec};
use plimsoll_tensor::Shape;
use std::path::Path;
use std::sync::Arc;

/// The longest line, and the longest row of a CSV file: what is longer is not text in lines.
pub(crate) const LONGEST: usize = 4 << 20;

impl Dataset {
    /// The lines of text files, one file after another, as a component `line`, without their ends (`\n` or `\r\n`).
    pub fn from_lines(files: impl Into<Files>) -> Dataset {
        Dataset::from_lines_with(files, Compression::None)
    }

    /// The lines of compressed text files; see [`Dataset::from_lines`].
    pub fn from_lines_with(files: impl Into<Files>, compression: Compression) -> Dataset {
        let files = files.into();
        Dataset::from_result((|| {
            files.expect_some("lines")?;
            let spec = Arc::new(Spec::new([Component::new("line", Kind::Bytes, &[])])?);
            Ok(Dataset::new(Sequence::new(files, Lines { spec, compression })))
        })())
    }
}

struct Lines {
    spec: Arc<Spec>,
    compression: Compression,
}

impl Format for Lines {
    fn describe(&self) -> String {
        "lines".into()
    }

    fn key(&self) -> String {
        format!("lines {:?}", self.compression)
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn open(&self, path: &Path, open: &Open) -> Result<Box<dyn Stage>, Error> {
        Ok(Box::new(LinesStage { window: Window::open(path, self.compression, open)?, line: 0 }))
    }
}

struct LinesStage {
    window: Window,
    line: u64,
}

impl LinesStage {
    /// Finds the end of a line for which there is no room, so that its length can be told.
    fn pass_over_line(&mut self, searched: usize, error: Error) -> Error {
        let (offset, mut bytes) = (self.window.offset(), searched as u64);
        self.window.advance(searched);
        while let Ok(true) = self.window.more() {
            let there = self.window.bytes();
            let n = there.iter().position(|b| *b == b'\n').map_or(there.len(), |at| at + 1);
            let ended = there[..n].ends_with(b"\n");
            bytes += n as u64;
            self.window.advance(n);
            if ended {
                break;
            }
        }
        self.window.met(offset, bytes);
        error
    }
}

impl Stage for LinesStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        for _ in 0..want {
            let mut searched = 0;
            let end = loop {
                let bytes = self.window.bytes();
                if let Some(at) = bytes[searched..].iter().position(|b| *b == b'\n') {
                    break searched + at + 1;
                }
                searched = bytes.len();
                if searched > LONGEST {
                    let message = format!("has more than {LONGEST} bytes; this is not a text file");
                    // Where it ends nobody knows.
                    while self.window.more()? {
                        let n = self.window.bytes().len();
                        self.window.advance(n);
                    }
                    let n = self.window.bytes().len();
                    self.window.advance(n);
                    return Err(Error::data(Place::Line(self.window.path.clone(), self.line + 1), message));
                }
                match self.window.more() {
                    Ok(true) => {}
                    Ok(false) => break searched,
                    Err(error) => return Err(self.pass_over_line(searched, error)),
                }
            };
            self.window.met(self.window.offset(), end as u64);
            if end == 0 {
                return Ok(false);
            }
            let line = &self.window.bytes()[..end];
            let line = line.strip_suffix(b"\n").map_or(line, |l| l.strip_suffix(b"\r").unwrap_or(l));
            out.columns[0].add_strings(&Shape::scalar(), [line])?;
            out.commit_rows(1);
            self.window.advance(end);
            self.line += 1;
        }
        Ok(true)
    }
}
