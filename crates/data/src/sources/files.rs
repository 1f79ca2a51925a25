//! Files: lists of them, and reading at places.

use crate::Error;
use crate::memory::Counted;
use plimsoll_budget::Account;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

/// The files of a source: one, several, or all that match a pattern, always in the order of their names.
///
/// ```no_run
/// use plimsoll_data::{Dataset, Files};
/// let one = Dataset::from_npy("x.npy");
/// let many = Dataset::from_npy(Files::glob("shards/x-*.npy")?);
/// # Ok::<(), plimsoll_data::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files(Vec<PathBuf>);

impl Files {
    /// These files, in this order.
    pub fn list<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Files {
        Files(paths.into_iter().map(Into::into).collect())
    }

    /// The files whose names match a pattern with `*`, `?`, `[..]` and `**`, in the order of their names.
    ///
    /// # Errors
    /// When the pattern is malformed, nothing matches, or a folder cannot be read.
    pub fn glob(pattern: &str) -> Result<Files, Error> {
        let paths = glob::glob(pattern).map_err(|e| Error::pipeline("glob", format!("'{pattern}': {e}")))?;
        let mut found = Vec::new();
        for path in paths {
            let path = path.map_err(|e| Error::io(e.path(), std::io::Error::from(e.error().kind())))?;
            if path.is_file() {
                found.push(path);
            }
        }
        if found.is_empty() {
            return Err(Error::pipeline("glob", format!("no file matches '{pattern}'")));
        }
        found.sort();
        Ok(Files(found))
    }

    /// The paths.
    pub fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    pub(crate) fn expect_some(&self, what: &str) -> Result<&[PathBuf], Error> {
        match self.0.is_empty() {
            true => Err(Error::pipeline(what, "the list of files is empty")),
            false => Ok(&self.0),
        }
    }

    /// A few words for descriptions.
    pub(crate) fn words(&self) -> String {
        match &self.0[..] {
            [] => "no files".into(),
            [one] => one.display().to_string(),
            [first, .., last] => format!("{} files, {} .. {}", self.0.len(), first.display(), last.display()),
        }
    }
}

impl From<&str> for Files {
    fn from(path: &str) -> Files {
        Files(vec![path.into()])
    }
}

impl From<String> for Files {
    fn from(path: String) -> Files {
        Files(vec![path.into()])
    }
}

impl From<&Path> for Files {
    fn from(path: &Path) -> Files {
        Files(vec![path.into()])
    }
}

impl From<PathBuf> for Files {
    fn from(path: PathBuf) -> Files {
        Files(vec![path])
    }
}

impl From<&PathBuf> for Files {
    fn from(path: &PathBuf) -> Files {
        Files(vec![path.clone()])
    }
}

/// A file that is read at places, from several threads at once.
pub(crate) struct Readable {
    pub(crate) path: PathBuf,
    file: File,
    pub(crate) len: u64,
    /// Scattered requests so far, and the nanoseconds that they took.
    requests: AtomicU64,
    spent: AtomicU64,
}

impl Readable {
    pub(crate) fn open(path: &Path) -> Result<Readable, Error> {
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        let meta = file.metadata().map_err(|e| Error::io(path, e))?;
        if !meta.is_file() {
            return Err(Error::in_file(path, "is not a regular file"));
        }
        Ok(Readable { path: path.into(), file, len: meta.len(), requests: AtomicU64::new(0), spent: AtomicU64::new(0) })
    }

    pub(crate) fn from_file(path: &Path, file: File) -> Result<Readable, Error> {
        let len = file.metadata().map_err(|e| Error::io(path, e))?.len();
        Ok(Readable { path: path.into(), file, len, requests: AtomicU64::new(0), spent: AtomicU64::new(0) })
    }

    /// Whether a request costs so much that it comes from a disk or a network, and not from memory.
    pub(crate) fn is_slow(&self) -> bool {
        let (requests, spent) = (self.requests.load(Relaxed), self.spent.load(Relaxed));
        requests >= 64 && spent / requests > 50_000
    }

    /// Another handle of the same file.
    pub(crate) fn try_clone(&self) -> Result<File, Error> {
        self.file.try_clone().map_err(|e| Error::io(&self.path, e))
    }

    /// Fills `out` from the bytes at `offset`.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > self.len) {
            let message = format!("{} bytes were expected, but the file has {}", out.len(), self.len);
            return Err(Error::at_offset(&self.path, offset, message));
        }
        self.file.read_exact_at(out, offset).map_err(|e| Error::io(&self.path, e))
    }

    /// As many bytes at `offset` as there are, at most `out.len()`.
    pub(crate) fn read_some(&self, offset: u64, out: &mut [u8]) -> Result<usize, Error> {
        loop {
            match self.file.read_at(out, offset) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => return other.map_err(|e| Error::io(&self.path, e)),
            }
        }
    }
}

/// Reads at places scattered over a file, made in the order of the places: neighbours become one read.
pub(crate) struct Scatter<'a> {
    pub(crate) file: &'a Readable,
    pub(crate) account: &'a Account,
}

/// Unneeded bytes between two needed ones are read along up to here. From the page cache a request takes about 0.4 us, in which 4 KiB
/// can be copied; measured over rows of 400 bytes, 4 KiB was the best of 0, 4, 8 and 16.
const GAP: u64 = 4 << 10;

/// The same where a request takes longer than reading this much on.
const SLOW_GAP: u64 = 128 << 10;

/// The most bytes of one request that serves several pieces.
const REQUEST: u64 = 256 << 10;

impl Scatter<'_> {
    /// Reads pieces of the file, `(place, number)` each, to where in `out` the piece of this number belongs.
    pub(crate) fn read(
        &self,
        pieces: &mut [(u64, u32)],
        out: &mut [u8],
        to: impl Fn(usize) -> Range<usize>,
    ) -> Result<(), Error> {
        let gap = if self.file.is_slow() { SLOW_GAP } else { GAP };
        let (start, mut requests) = (Instant::now(), 0);
        pieces.sort_unstable();
        let mut scratch = Counted::<u8>::new(self.account)?;
        let mut rest = &pieces[..];
        while let Some((start, number)) = rest.first() {
            let first = to(*number as usize);
            let (mut n, mut end) = (1, start + first.len() as u64);
            while let Some((next, number)) = rest.get(n) {
                let next_end = next + to(*number as usize).len() as u64;
                if next_end - start > REQUEST || next.saturating_sub(end) > gap {
                    break;
                }
                (n, end) = (n + 1, end.max(next_end));
            }
            requests += 1;
            if n == 1 {
                self.file.read(*start, &mut out[first])?;
            } else {
                let bytes = (end - start) as usize;
                if scratch.len() < bytes {
                    scratch = Counted::new(self.account)?;
                    if scratch.grow(bytes, 0).is_err() {
                        // Without room for what lies between them they are read one by one.
                        for (place, number) in &rest[..n] {
                            self.file.read(*place, &mut out[to(*number as usize)])?;
                        }
                        rest = &rest[n..];
                        continue;
                    }
                }
                let scratch = &mut scratch[..bytes];
                self.file.read(*start, scratch)?;
                for (place, number) in &rest[..n] {
                    let (from, to) = ((place - start) as usize, to(*number as usize));
                    let from = &scratch[from..from + to.len()];
                    out[to].copy_from_slice(from);
                }
            }
            rest = &rest[n..];
        }
        self.file.requests.fetch_add(requests, Relaxed);
        self.file.spent.fetch_add(start.elapsed().as_nanos() as u64, Relaxed);
        Ok(())
    }
}
