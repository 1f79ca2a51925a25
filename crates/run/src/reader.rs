//! Following a run directory's log.

use crate::lines::Line;
use crate::{LOG, PLAN, RunError};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Longest line that a reader keeps: what is longer is left out.
const LINE_BYTES: usize = 1 << 20;

/// Reads a log from its beginning and then what is new each time.
///
/// A last line without an end is waited for. Lines that cannot be read, which a crash may have torn, and lines of kinds that are not
/// known yet are left out and counted.
pub struct RunReader {
    path: PathBuf,
    at: u64,
    torn: Vec<u8>,
    /// Whether what is read now belongs to a line that is too long.
    skipping: bool,
    bad: usize,
}

impl RunReader {
    /// Of this run directory. The log need not be there yet.
    pub fn open(directory: impl AsRef<Path>) -> RunReader {
        RunReader { path: directory.as_ref().join(LOG), at: 0, torn: Vec::new(), skipping: false, bad: 0 }
    }

    /// Of this run directory, from a place that [`RunReader::place`] gave.
    pub fn open_at(directory: impl AsRef<Path>, place: u64) -> RunReader {
        RunReader { at: place, ..RunReader::open(directory) }
    }

    /// How much of the log has been read, in bytes: up to the end of the last whole line.
    pub fn place(&self) -> u64 {
        self.at - self.torn.len() as u64
    }

    /// The lines since the last call, all at once: of a log that may be long, [`RunReader::each`] holds less.
    ///
    /// # Errors
    /// When the log is there but cannot be read.
    pub fn read(&mut self) -> Result<Vec<Line>, RunError> {
        let mut lines = Vec::new();
        self.each(|line| lines.push(line))?;
        Ok(lines)
    }

    /// Shows the lines since the last call, one after another: however long the log is, one line is held at a time.
    ///
    /// # Errors
    /// When the log is there but cannot be read.
    pub fn each(&mut self, mut see: impl FnMut(Line)) -> Result<(), RunError> {
        let mut file = match File::open(&self.path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(RunError::io(&self.path))?,
        };
        if file.metadata().map_err(RunError::io(&self.path))?.len() < self.at {
            // Another log took its place.
            (self.at, self.skipping) = (0, false);
            self.torn.clear();
        }
        file.seek(SeekFrom::Start(self.at)).map_err(RunError::io(&self.path))?;
        let mut block = vec![0; 64 << 10];
        loop {
            let n = match file.read(&mut block) {
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                other => other.map_err(RunError::io(&self.path))?,
            };
            if n == 0 {
                return Ok(());
            }
            self.at += n as u64;
            self.take(&block[..n], &mut see);
        }
    }

    fn take(&mut self, bytes: &[u8], see: &mut impl FnMut(Line)) {
        for piece in bytes.split_inclusive(|&b| b == b'\n') {
            if !self.skipping {
                self.torn.extend_from_slice(piece);
            }
            if self.torn.len() > LINE_BYTES {
                self.torn = Vec::new();
                (self.skipping, self.bad) = (true, self.bad + 1);
            }
            if !piece.ends_with(b"\n") {
                return;
            }
            if !std::mem::replace(&mut self.skipping, false) {
                match serde_json::from_slice(&self.torn) {
                    Ok(line) => see(line),
                    Err(_) => self.bad += 1,
                }
            }
            self.torn.clear();
        }
    }

    /// How many lines could not be read so far.
    pub fn n_bad(&self) -> usize {
        self.bad
    }
}

/// The run directories at or directly below a path, by name.
///
/// # Errors
/// When the path cannot be read or no run is there.
pub fn find_runs(path: impl AsRef<Path>) -> Result<Vec<PathBuf>, RunError> {
    let path = path.as_ref();
    let is_run = |p: &Path| p.join(LOG).is_file() || p.join(PLAN).is_file();
    if is_run(path) {
        return Ok(vec![path.to_owned()]);
    }
    let mut runs = Vec::new();
    for entry in std::fs::read_dir(path).map_err(RunError::io(path))? {
        let below = entry.map_err(RunError::io(path))?.path();
        if is_run(&below) {
            runs.push(below);
        }
    }
    runs.sort();
    if runs.is_empty() { Err(RunError::NoRun { path: path.to_owned() }) } else { Ok(runs) }
}
