//! `cache`, `shuffle_on_disk`: a data set read once and kept, in memory or in a file, where its elements can be found by number.

use crate::builder::Builder;
use crate::column::Chunk;
use crate::dataset::{Node, Total, describe, open_flow};
use crate::flow::{Lookup, Open, Stage};
use crate::least::list_bytes;
use crate::memory::Counted;
use crate::pages::{LARGE, PAGE};
use crate::permutation::mix;
use crate::sources::files::{Readable, Scatter};
use crate::{Cardinality, Dataset, Error, Kind, Spec};
use plimsoll_budget::{Bytes, Reservation};
use plimsoll_tensor::{MAX_RANK, Shape};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

impl Dataset {
    /// Keeps the elements in memory once they have been read. They can then be found by number.
    ///
    /// The first use reads everything. What is kept counts in the budget of that use.
    pub fn cache(&self) -> Dataset {
        self.keep(Home::Memory)
    }

    /// Keeps the elements in a file once they have been read. They can then be found by number.
    ///
    /// The first use reads everything and writes the file; a file that a pipeline of the same description wrote is used as it is,
    /// so delete it when the data behind it changes.
    pub fn cache_on_disk(&self, path: impl Into<PathBuf>) -> Dataset {
        self.keep(Home::File(path.into()))
    }

    /// A complete shuffle of a stream of any size: its elements go to a temporary file in `folder` and are read from there in random order.
    pub fn shuffle_on_disk(&self, folder: impl Into<PathBuf>, seed: u64) -> Dataset {
        self.keep(Home::Temporary(folder.into())).shuffle(None, seed)
    }

    fn keep(&self, home: Home) -> Dataset {
        self.then(|input| {
            if input.cardinality() == Cardinality::Infinite {
                return Err(Error::pipeline("cache", "what never ends cannot be kept; use take first"));
            }
            Ok(Cache { input, home, kept: Mutex::new(None) })
        })
    }
}

#[derive(Debug)]
enum Home {
    Memory,
    File(PathBuf),
    /// A file without a name in a folder, which goes away with the process.
    Temporary(PathBuf),
}

struct Cache {
    input: Arc<dyn Node>,
    home: Home,
    kept: Mutex<Option<Arc<dyn Lookup>>>,
}

impl Node for Cache {
    fn describe(&self) -> String {
        match &self.home {
            Home::Memory => "cache in memory".into(),
            Home::File(path) => format!("cache in {}", path.display()),
            Home::Temporary(_) => "keep on disk".into(),
        }
    }

    fn inputs(&self) -> Vec<&Arc<dyn Node>> {
        vec![&self.input]
    }

    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> Cardinality {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.as_ref().map_or(self.input.cardinality(), |kept| Cardinality::Known(kept.len()))
    }

    fn is_lookup(&self) -> bool {
        true
    }

    fn lookup(&self, open: &Open) -> Result<Option<Arc<dyn Lookup>>, Error> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = &*kept {
            return Ok(Some(kept.clone()));
        }
        let lookup: Arc<dyn Lookup> = match &self.home {
            Home::Memory => Arc::new(self.keep_in_memory(open)?),
            Home::File(path) => Arc::new(self.keep_in_file(path, open)?),
            Home::Temporary(folder) => Arc::new(self.keep_in_temporary_file(folder, open)?),
        };
        *kept = Some(lookup.clone());
        Ok(Some(lookup))
    }

    fn working_bytes(&self, rows: usize) -> Option<u64> {
        // All elements are read first, one at a time.
        let reading = super::inlet_bytes(&*self.input)?;
        if let Home::Memory = self.home {
            return Some(reading);
        }
        let writing = reading.checked_add(2 * BUFFER as u64)?;
        // Then they are read from the file: in the form that they have there, with their places.
        let finding = match self.spec().bytes() {
            Some(size) => {
                let places = list_bytes((rows * size_of::<(u64, u32)>()) as u64);
                list_bytes((size as u64).checked_mul(rows as u64)?).checked_add(places)?
            }
            // With shapes and the lengths of strings.
            None => {
                let shapes = (self.spec().components().len() * (1 + 8 * MAX_RANK)) as u64;
                list_bytes(self.largest()?.checked_add(shapes)?)
            }
        };
        Some(writing.max(finding))
    }

    fn counted(&self) -> Option<u64> {
        self.cardinality().known().or_else(|| self.input.counted())
    }

    fn kept_bytes(&self) -> Option<u64> {
        let input = self.input.kept_bytes()?;
        if !matches!(self.home, Home::Memory) {
            return Some(input);
        }
        // All elements, where a part of them is kept (every part may be one element) in lists of their own.
        let Total { elements, bytes } = self.input.total()?;
        let n_lists = 4 * self.spec().components().len() as u64;
        let one = list_bytes(self.largest()?).checked_sub(self.largest()?)?;
        let rounding = if self.largest()? < LARGE as u64 { 0 } else { one.max(n_lists * PAGE as u64) };
        input.checked_add(bytes)?.checked_add(elements.checked_mul(KEPT + rounding)?)
    }

    fn stage(&self, _open: &Open, _epoch: u64) -> Result<Box<dyn Stage>, Error> {
        unreachable!("what is kept is read by number")
    }
}

impl Cache {
    fn digest(&self) -> u64 {
        let text = format!("{} {}", describe(&*self.input), self.input.spec());
        text.bytes().fold(mix(2), |digest, byte| mix(digest ^ byte as u64))
    }

    /// Every epoch has the elements of the first.
    fn each_chunk(&self, open: &Open, mut take: impl FnMut(Chunk) -> Result<(), Error>) -> Result<(), Error> {
        let mut flow = open_flow(&self.input, open, 0)?;
        let mut block = open.block(flow.size, 256 << 10);
        loop {
            let (chunk, follows) = flow.chunk(block);
            if chunk.rows > 0 {
                if flow.spec.bytes().is_none() {
                    block = open.block_like(&chunk, flow.size, block, 256 << 10);
                }
                take(chunk)?;
            }
            if !follows? {
                return Ok(());
            }
        }
    }

    fn keep_in_memory(&self, open: &Open) -> Result<Kept, Error> {
        let account = open.account.account("cache");
        let (mut chunks, mut ends) = (Vec::new(), Counted::new(&account)?);
        let mut list = account.reserve(Bytes::ZERO)?;
        let mut end = 0u64;
        self.each_chunk(open, |chunk| {
            // A chunk handed over by a thread may share memory with others, and its account is not the cache's.
            let mut own = Builder::new(&account, self.input.spec())?;
            own.append(&chunk, 0..chunk.rows)?;
            end += chunk.rows as u64;
            ends.push(end)?;
            // A list that grows by doubling.
            list.grow(Bytes::from(2 * size_of::<Chunk>()))?;
            chunks.push(own.finish());
            Ok(())
        })?;
        Ok(Kept { chunks, ends, _list: list })
    }

    fn keep_in_file(&self, path: &Path, open: &Open) -> Result<Stored, Error> {
        let digest = self.digest();
        let index = with_suffix(path, ".index");
        if path.exists() {
            let data = Readable::open(path)?;
            let index = if index.exists() { Some(Readable::open(&index)?) } else { None };
            return Stored::open(data, index, self.input.spec(), digest);
        }
        let (temporary, temporary_index) = (with_suffix(path, ".partial"), with_suffix(&index, ".partial"));
        let create = |path: &Path| {
            File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(path)
                .map_err(|e| Error::io(path, e))
        };
        let data = create(&temporary)?;
        let lengths = if self.input.spec().bytes().is_none() { Some(create(&temporary_index)?) } else { None };
        self.write(open, &data, lengths.as_ref(), path)?;
        let rename = |from: &Path, to: &Path, file: &File| {
            file.sync_all().and_then(|()| std::fs::rename(from, to)).map_err(|e| Error::io(to, e))
        };
        // The index first: a file without its index would be refused, an index alone is overwritten.
        if let Some(lengths) = &lengths {
            rename(&temporary_index, &index, lengths)?;
        }
        rename(&temporary, path, &data)?;
        let lengths = lengths.map(|file| Readable::from_file(&index, file)).transpose()?;
        Stored::open(Readable::from_file(path, data)?, lengths, self.input.spec(), digest)
    }

    fn keep_in_temporary_file(&self, folder: &Path, open: &Open) -> Result<Stored, Error> {
        let data = nameless(folder)?;
        let index = if self.input.spec().bytes().is_none() { Some(nameless(folder)?) } else { None };
        self.write(open, &data, index.as_ref(), folder)?;
        let index = index.map(|file| Readable::from_file(folder, file)).transpose()?;
        Stored::open(Readable::from_file(folder, data)?, index, self.input.spec(), self.digest())
    }

    fn write(&self, open: &Open, data: &File, index: Option<&File>, path: &Path) -> Result<(), Error> {
        let _held = open.account.account("cache").reserve((2 * BUFFER as u64).into())?;
        let mut data = BufWriter::with_capacity(BUFFER, data);
        let mut index = index.map(|file| BufWriter::with_capacity(BUFFER, file));
        let failed = |e| Error::io(path, e);
        let (mut rows, mut end) = (0u64, HEADER as u64);
        data.write_all(&header(self.digest(), 0)).map_err(failed)?;
        if let Some(index) = &mut index {
            index.write_all(&end.to_le_bytes()).map_err(failed)?;
        }
        self.each_chunk(open, |chunk| {
            for row in 0..chunk.rows {
                end += encode(&chunk, row, index.is_some(), &mut data).map_err(failed)?;
                if let Some(index) = &mut index {
                    index.write_all(&end.to_le_bytes()).map_err(failed)?;
                }
                rows += 1;
            }
            Ok(())
        })?;
        if let Some(index) = &mut index {
            index.flush().map_err(failed)?;
        }
        data.flush().map_err(failed)?;
        // The number of elements is written last: without it the file says that it is empty and not finished.
        std::os::unix::fs::FileExt::write_all_at(*data.get_ref(), &header(self.digest(), rows + 1), 0).map_err(failed)
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// A new file in a folder that nobody else can find, so that it goes away even when the process is killed.
pub(crate) fn nameless(folder: &Path) -> Result<File, Error> {
    static NUMBER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = folder.join(format!(".plimsoll-{}-{number}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(|e| Error::io(&path, e))?;
    std::fs::remove_file(&path).map_err(|e| Error::io(&path, e))?;
    Ok(file)
}

/// The buffers of the files that are written.
const BUFFER: usize = 64 << 10;

/// What a part that is kept takes besides its elements: its place in two lists, each of which may have two places while it grows.
const KEPT: u64 = 2 * size_of::<Chunk>() as u64 + 3 * size_of::<u64>() as u64;

/// Elements in memory.
struct Kept {
    chunks: Vec<Chunk>,
    _list: Reservation,
    ends: Counted<u64>,
}

impl Lookup for Kept {
    fn len(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    fn gather(&self, _epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        for (i, to) in out.columns.iter_mut().enumerate() {
            if let Some(shape) = self.chunks.first().and_then(|chunk| chunk.columns[i].same_shape()) {
                to.reserve(shape, at.len())?;
            }
        }
        let mut rest = at;
        while let Some(first) = rest.first() {
            let chunk = self.ends.partition_point(|end| *end <= *first);
            let start = if chunk == 0 { 0 } else { self.ends[chunk - 1] };
            let run = (0..rest.len()).find(|i| rest[*i] != first + *i as u64 || rest[*i] >= self.ends[chunk]);
            let (row, run) = ((first - start) as usize, run.unwrap_or(rest.len()));
            out.append(&self.chunks[chunk], row..row + run)?;
            rest = &rest[run..];
        }
        Ok(())
    }
}

const MAGIC: [u8; 8] = *b"plimdat2";
const HEADER: usize = 24;

/// `rows` is one more than the number of elements; 0 while the file is being written.
fn header(digest: u64, rows: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..16].copy_from_slice(&digest.to_le_bytes());
    header[16..].copy_from_slice(&rows.to_le_bytes());
    header
}

/// Writes an element: with `shapes`, the shape before each component and the length before each string.
fn encode(chunk: &Chunk, row: usize, shapes: bool, to: &mut impl Write) -> std::io::Result<u64> {
    let mut written = 0;
    let mut put = |bytes: &[u8]| {
        written += bytes.len() as u64;
        to.write_all(bytes)
    };
    for column in &chunk.columns {
        if shapes {
            let shape = column.shape(row);
            put(&[shape.rank() as u8])?;
            shape.dims().iter().try_for_each(|d| put(&(*d as u64).to_le_bytes()))?;
        }
        match column.kind() {
            Kind::Number(_) => put(column.bytes(row..row + 1))?,
            Kind::Bytes => {
                for value in column.values(row..row + 1) {
                    let string = column.string(value);
                    put(&(string.len() as u64).to_le_bytes())?;
                    put(string)?;
                }
            }
        }
    }
    Ok(written)
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("8 bytes"))
}

/// Elements in a file.
struct Stored {
    data: Readable,
    /// For elements of different sizes: where each begins, and where the last one ends.
    index: Option<Readable>,
    spec: Arc<Spec>,
    len: u64,
    /// The bytes of each element, where they are always as many.
    size: Option<u64>,
}

impl Stored {
    fn open(data: Readable, index: Option<Readable>, spec: &Arc<Spec>, digest: u64) -> Result<Stored, Error> {
        let mut found = [0; HEADER];
        data.read(0, &mut found)?;
        let word = |at: usize| word(&found[at..at + 8]);
        let path = data.path.clone();
        if found[..8] != MAGIC || word(16) == 0 {
            return Err(Error::in_file(&path, "is not a finished cache of this library; delete it"));
        }
        if word(8) != digest {
            let message = "was written by a pipeline with another description; delete it or choose another path";
            return Err(Error::in_file(&path, message));
        }
        let (len, size) = (word(16) - 1, spec.bytes().map(|n| n as u64));
        let expected = match (size, &index) {
            (Some(size), _) => len.checked_mul(size).and_then(|n| n.checked_add(HEADER as u64)),
            (None, Some(index)) if index.len / 8 != len + 1 => None,
            (None, Some(index)) => {
                let mut end = [0; 8];
                index.read(len * 8, &mut end)?;
                Some(u64::from_le_bytes(end))
            }
            (None, None) => None,
        };
        if expected != Some(data.len) {
            let message = format!("has {} bytes, which {len} elements do not have; delete it", data.len);
            return Err(Error::in_file(&path, message));
        }
        Ok(Stored { data, index, spec: spec.clone(), len, size })
    }

    fn gather_same(&self, size: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        let account = out.account().clone();
        let mut rows = Counted::<u8>::new(&account)?;
        rows.grow(size as usize * at.len(), 0)?;
        let places = at.iter().zip(0..).map(|(i, row)| (HEADER as u64 + i * size, row));
        let mut places = Counted::collect(&account, at.len(), places)?;
        let to = |row: usize| row * size as usize..(row + 1) * size as usize;
        Scatter { file: &self.data, account: &account }.read(&mut places, &mut rows, to)?;
        let mut start = 0;
        for (component, column) in self.spec.components().iter().zip(&mut out.columns) {
            let bytes = component.bytes().expect("all sizes are known");
            let to = column.add(&component.shape().expect("as its bytes"), at.len())?;
            if bytes > 0 {
                for (row, to) in rows.chunks_exact(size as usize).zip(to.chunks_exact_mut(bytes)) {
                    to.copy_from_slice(&row[start..start + bytes]);
                }
            }
            start += bytes;
        }
        out.commit_rows(at.len());
        Ok(())
    }

    /// Elements of different sizes: where they lie first, then their bytes, both in the order of the file.
    fn gather_each(&self, index: &Readable, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        const ENTRIES: usize = 2 * size_of::<u64>();
        let account = out.account().clone();
        let mut entries = Counted::<u8>::new(&account)?;
        entries.grow(ENTRIES * at.len(), 0)?;
        let places = at.iter().zip(0..).map(|(i, row)| (i * size_of::<u64>() as u64, row));
        let mut places = Counted::collect(&account, at.len(), places)?;
        let to = |row: usize| row * ENTRIES..(row + 1) * ENTRIES;
        Scatter { file: index, account: &account }.read(&mut places, &mut entries, to)?;

        // Where each element ends among the bytes of all that are wanted.
        let mut ends = Counted::collect(&account, at.len(), [])?;
        let mut end = 0;
        for ((row, entry), place) in entries.as_chunks::<ENTRIES>().0.iter().enumerate().zip(places.iter_mut()) {
            let (start, next) = (word(&entry[..8]), word(&entry[8..]));
            let size = next.checked_sub(start).filter(|_| next <= self.data.len && start >= HEADER as u64);
            let size = size.ok_or_else(|| self.broken(at[row], start, "its index is broken"))?;
            end += size as usize;
            ends.push(end)?;
            *place = (start, row as u32);
        }
        let to = |row: usize| if row == 0 { 0..ends[0] } else { ends[row - 1]..ends[row] };
        let mut bytes = Counted::<u8>::new(&account)?;
        bytes.grow(end, 0)?;
        Scatter { file: &self.data, account: &account }.read(&mut places, &mut bytes, to)?;
        for (row, i) in at.iter().enumerate() {
            let element = decode(&self.spec, &bytes[to(row)], out);
            let start = word(&entries[row * ENTRIES..][..8]);
            element.ok_or_else(|| self.broken(*i, start, "is not what was written"))??;
            out.commit_rows(1);
        }
        Ok(())
    }

    fn broken(&self, element: u64, offset: u64, message: &str) -> Error {
        Error::at_offset(&self.data.path, offset, format!("element {element}: {message}"))
    }
}

/// Strings, each behind its length; ends where they are no such thing.
#[derive(Clone)]
struct Strings<'a>(&'a [u8]);

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let length = u64::from_le_bytes(self.0.split_off(..8)?.try_into().ok()?);
        self.0.split_off(..usize::try_from(length).ok()?)
    }
}

/// Appends an element written by `encode`; `None` when it is not one.
fn decode(spec: &Spec, mut from: &[u8], out: &mut Builder<'_>) -> Option<Result<(), Error>> {
    for (component, column) in spec.components().iter().zip(&mut out.columns) {
        let rank = *from.split_off_first()? as usize;
        let mut dims = [0; MAX_RANK];
        for dim in dims.get_mut(..rank)? {
            *dim = usize::try_from(u64::from_le_bytes(from.split_off(..8)?.try_into().ok()?)).ok()?;
        }
        let shape = Shape::try_new(&dims[..rank])?;
        let n = shape.dims().iter().try_fold(1usize, |n, d| n.checked_mul(*d))?;
        match component.kind {
            Kind::Number(dtype) => {
                let bytes = from.split_off(..n.checked_mul(dtype.size())?)?;
                match column.add(&shape, 1) {
                    Ok(to) => to.copy_from_slice(bytes),
                    Err(error) => return Some(Err(error)),
                }
            }
            Kind::Bytes => {
                if n > from.len() / 8 {
                    return None;
                }
                let strings = Strings(from).take(n);
                let (mut found, mut bytes) = (0, 0);
                for string in strings.clone() {
                    (found, bytes) = (found + 1, bytes + 8 + string.len());
                }
                if found < n {
                    return None;
                }
                if let Err(error) = column.add_strings(&shape, strings) {
                    return Some(Err(error));
                }
                from.split_off(..bytes)?;
            }
        }
    }
    from.is_empty().then_some(Ok(()))
}

impl Lookup for Stored {
    fn len(&self) -> u64 {
        self.len
    }

    fn gather(&self, _epoch: u64, at: &[u64], out: &mut Builder<'_>) -> Result<(), Error> {
        match (self.size, &self.index) {
            (Some(size), _) => self.gather_same(size, at, out),
            (None, Some(index)) => self.gather_each(index, at, out),
            (None, None) => unreachable!("`open` refuses this"),
        }
    }

    fn preferred_bytes(&self) -> usize {
        if self.data.is_slow() { 8 << 20 } else { 512 << 10 }
    }
}
