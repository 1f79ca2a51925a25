//! How large the records of files are that are read from front to back: found by a look through them.

use super::bytes::Format;
use super::files::Files;
use crate::builder::Builder;
use crate::column::{Chunk, Row};
use crate::flow::Open;
use crate::stages::Writer;
use crate::{Dataset, Error, Options, Spec};
use plimsoll_budget::{Budget, Bytes};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// What a look through files found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// What reading takes besides the elements.
    pub(crate) working: u64,
    /// The bytes of the longest record, in the file.
    pub(crate) longest: u64,
    /// The bytes of the largest element.
    pub(crate) largest: u64,
    /// How many elements there are, and their bytes.
    pub(crate) elements: u64,
    pub(crate) bytes: u64,
    /// How many of them are errors.
    pub(crate) errors: u64,
    /// Whether this is so of all that is in the files.
    pub(crate) is_all: bool,
}

impl Found {
    /// How many elements there are, where all of them are good.
    pub(crate) fn count(&self) -> Option<u64> {
        (self.is_all && self.errors == 0).then_some(self.elements)
    }

    fn with(self, other: Found) -> Found {
        Found {
            working: self.working.max(other.working),
            longest: self.longest.max(other.longest),
            largest: self.largest.max(other.largest),
            elements: self.elements + other.elements,
            bytes: self.bytes + other.bytes,
            errors: self.errors + other.errors,
            is_all: self.is_all && other.is_all,
        }
    }
}

/// How much is looked through: so many bytes of elements. At half a gigabyte per second it does not keep anybody waiting.
const LOOK_THROUGH: u64 = 64 << 20;

/// What of that an error counts: where there are thousands, a row more tells nothing more.
const OF_AN_ERROR: u64 = 16 << 10;

/// How many files are looked into, evenly spread, where there are more.
const FILES: usize = 64;

/// The most that looking may take. There is no record of text that needs more.
const MOST: Bytes = Bytes::mib(16);

/// Looks through files; `None` when one cannot be read, or takes too much. Where not everything has been seen, there is room for twice as much.
pub(crate) fn look<F: Format>(format: &F, files: &Files) -> Option<Found> {
    let paths = files.paths();
    let step = paths.len().div_ceil(FILES).max(1);
    let share = LOOK_THROUGH / paths.len().clamp(1, FILES) as u64;
    let mut all = Found { is_all: step == 1, ..Found::default() };
    for path in paths.iter().step_by(step) {
        all = all.with(remembered(format, path, share)?);
    }
    if !all.is_all {
        for bytes in [&mut all.working, &mut all.longest, &mut all.largest] {
            *bytes = bytes.saturating_mul(2);
        }
    }
    Some(all)
}

/// How a file is read, which it is, and how much of it was looked through.
type Key = (String, PathBuf, u64, Option<SystemTime>, u64);

/// What was found in a file, once for all data sets that are made of it.
fn remembered<F: Format>(format: &F, path: &Path, most: u64) -> Option<Found> {
    static FOUND: Mutex<Option<HashMap<Key, Found>>> = Mutex::new(None);
    const MOST_FILES: usize = 4096;
    let meta = std::fs::metadata(path).ok()?;
    let key = (format.key(), path.to_path_buf(), meta.len(), meta.modified().ok(), most);
    let known = || FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known().as_ref().and_then(|known| known.get(&key)) {
        return Some(*found);
    }
    let found = format.look(path, most)?;
    let mut known = known();
    let known = known.get_or_insert_default();
    if known.len() == MOST_FILES {
        known.clear();
    }
    known.insert(key, found);
    Some(found)
}

/// Reads a file as a pipeline does that has nothing to spare, up to about so many bytes of elements.
pub(crate) fn read<F: Format>(format: &F, path: &Path, most: u64) -> Option<Found> {
    let budget = Budget::new(MOST);
    let (reading, elements) = (budget.account("reading"), budget.account("elements"));
    // All that there is is the least of something, so that nothing is extra.
    let open = Open::beyond(reading.clone(), 1, Some(u64::MAX));
    let mut stage = format.open(path, &open).ok()?;
    let mut found = Found::default();
    while found.bytes + 64 * found.elements + OF_AN_ERROR * found.errors <= most {
        let mut out = Builder::new(&elements, format.spec()).ok()?;
        let result = stage.fill(&mut out, 16);
        let chunk = out.finish();
        found.elements += chunk.rows as u64 + result.is_err() as u64;
        found.errors += result.is_err() as u64;
        for row in 0..chunk.rows {
            let bytes = element_bytes(&chunk, row);
            (found.largest, found.bytes) = (found.largest.max(bytes), found.bytes + bytes);
        }
        match result {
            Ok(true) => {}
            Ok(false) => {
                found.is_all = true;
                break;
            }
            Err(error) if error.is_data() => {}
            Err(_) => return None,
        }
    }
    found.working = reading.peak().0;
    found.longest = open.longest().map_or(u64::MAX, |(_, bytes)| bytes);
    Some(found)
}

/// Looks at what `write` makes of the elements of a data set; `None` when they cannot be read.
pub(crate) fn look_at_made(
    data: &Dataset,
    made: &Spec,
    write: impl Fn(&Row<'_>, &mut Writer<'_, '_>) -> Result<(), Error>,
) -> Option<Found> {
    let budget = Budget::new(MOST);
    let account = budget.account("elements");
    let mut found = Found::default();
    for element in data.iter_with(&Options::new(&budget).threads(1)).ok()? {
        if found.bytes + 64 * found.elements > LOOK_THROUGH {
            return Some(found);
        }
        found.elements += 1;
        let mut out = Builder::new(&account, made).ok()?;
        match element.and_then(|element| Writer::row(made, &mut out, |writer| write(&element.row(), writer))) {
            Ok(()) => {
                let bytes = element_bytes(&out.finish(), 0);
                (found.largest, found.bytes) = (found.largest.max(bytes), found.bytes + bytes);
            }
            Err(error) if error.is_data() => found.errors += 1,
            Err(_) => return None,
        }
    }
    found.is_all = true;
    Some(found)
}

/// What one element of a chunk takes where it is alone.
fn element_bytes(chunk: &Chunk, row: usize) -> u64 {
    chunk.columns.iter().map(|column| (column.slice(row..row + 1).weight() as u64).next_multiple_of(8)).sum()
}
