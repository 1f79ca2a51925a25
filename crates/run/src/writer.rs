//! Writing a run directory: whole lines, appended as they happen.

use crate::lines::{End, EndReason, Event, EventKind, Line, Memory};
use crate::{LOG, RunError};
use plimsoll_budget::Bytes;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Memory that a writer holds, allocated when it is opened: a line must fit in.
pub const WRITER_BYTES: usize = 128 << 10;

/// Appends to a run directory's log.
///
/// Each line is one `write` to a file opened for appending: whoever reads sees whole lines, and a crash can tear only the last
/// one, which readers leave out and the next writer ends. A line that does not fit in [`WRITER_BYTES`] is replaced by a warning.
pub struct RunWriter {
    directory: PathBuf,
    path: PathBuf,
    file: File,
    buffer: Vec<u8>,
}

impl RunWriter {
    /// Begins or goes on with the log of this directory, which is made if it is not there.
    ///
    /// # Errors
    /// When the directory or the log cannot be written.
    pub fn create(directory: impl AsRef<Path>) -> Result<RunWriter, RunError> {
        let directory = directory.as_ref().to_owned();
        std::fs::create_dir_all(&directory).map_err(RunError::io(&directory))?;
        let path = directory.join(LOG);
        let open = OpenOptions::new().create(true).append(true).read(true).open(&path);
        let mut file = open.map_err(RunError::io(&path))?;
        end_torn_line(&mut file).map_err(RunError::io(&path))?;
        // Touched now, so that it counts in what the process holds when a limit is planned for.
        let mut buffer = vec![b' '; WRITER_BYTES];
        buffer.clear();
        Ok(RunWriter { directory, path, file, buffer })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Appends a line.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn line(&mut self, line: &Line) -> Result<(), RunError> {
        if !self.fill(line) {
            let message = format!("a line of more than {WRITER_BYTES} bytes was left out of this log");
            self.fill(&Line::Event(Event { at: now(), kind: EventKind::Warning, message }));
        }
        self.file.write_all(&self.buffer).map_err(RunError::io(&self.path))
    }

    /// Puts a line into the buffer; says whether it fits.
    fn fill(&mut self, line: &Line) -> bool {
        self.buffer.clear();
        let fits = serde_json::to_writer(Bounded(&mut self.buffer), line).is_ok();
        self.buffer.push(b'\n');
        fits
    }

    /// Appends an event that happens now.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn event(&mut self, kind: EventKind, message: impl Into<String>) -> Result<(), RunError> {
        self.line(&Line::Event(Event { at: now(), kind, message: message.into() }))
    }

    /// Appends that training is over, and makes sure that the log is on the disk.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn end(
        &mut self,
        reason: EndReason,
        message: impl Into<String>,
        steps: u64,
        limit: Option<Bytes>,
    ) -> Result<(), RunError> {
        let memory = Memory::now(limit);
        self.line(&Line::End(End { at: now(), reason, message: message.into(), steps, memory }))?;
        self.file.sync_data().map_err(RunError::io(&self.path))
    }
}

/// A buffer that does not grow, with room left for the end of the line.
struct Bounded<'a>(&'a mut Vec<u8>);

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0.len() + bytes.len() >= self.0.capacity() {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Seconds since 1970.
pub(crate) fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// What a crash left of a line becomes a line of its own, so that the next one is whole.
fn end_torn_line(file: &mut File) -> std::io::Result<()> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(());
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    if last != *b"\n" { file.write_all(b"\n") } else { Ok(()) }
}
