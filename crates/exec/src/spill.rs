//! The spill file: where values go that memory has no room for.
//!
//! A [`SpillFile`] is one file of a fixed size, without a name, whose space is reserved before the first step. Transfers are
//! requests in a bounded queue; two threads take them in order, a piece of at most [`PIECE`] bytes at a time, each through
//! a buffer of its own: while one waits for the disk, the other copies and sums. So memory needs no alignment, the page
//! cache stays out of it, and all that transfers ever hold is known beforehand and taken from the budget.
//!
//! Pieces begin at a slot and every [`PIECE`] bytes from there. The checksum of each is kept in memory and compared when it
//! is read. Therefore all slots are declared when the file is made; a piece of a slot is a slot itself.

mod disk;
#[cfg(test)]
mod tests;

pub use disk::Way;

use crate::arena::{Arena, ArenaError};
use disk::{Disk, NamelessFile};
use plimsoll_budget::{Budget, Bytes, Reservation};
use plimsoll_graph::op::spill::Spill;
use plimsoll_plan::FILE_ALIGNMENT;
use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The most bytes that are transferred, and summed, at once.
pub const PIECE: usize = 1 << 20;

const ALIGNMENT: usize = FILE_ALIGNMENT as usize;

/// Threads, and buffers: while one waits for the disk the other copies.
const WORKERS: usize = 2;

/// The stack of a thread.
const STACK: usize = 64 << 10;

/// Requests that can wait; a caller that has more waits itself.
const QUEUE: usize = 64;

/// What is wrong with a spill file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpillError {
    /// Nobody said where the file may be.
    #[error(
        "values of {needed} must be moved to a file, but no directory is allowed for it: name one, or raise the memory limit"
    )]
    NotAllowed {
        /// The size of the file.
        needed: Bytes,
    },
    /// Files of that directory are memory.
    #[error(
        "the spill file cannot be in '{}': its files are kept in memory (tmpfs) and count as such, so nothing would be \
         saved: name a directory on a disk, or raise the memory limit",
        directory.display()
    )]
    InMemory {
        /// Where.
        directory: PathBuf,
    },
    /// No file can be made there.
    #[error("no spill file can be made in '{}': {cause}", directory.display())]
    Open {
        /// Where.
        directory: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The disk has no room for it.
    #[error("the spill file in '{}' needs {needed}, but only {free} are free there: {cause}", directory.display())]
    Full {
        /// Where.
        directory: PathBuf,
        /// The size of the file.
        needed: Bytes,
        /// What is free.
        free: Bytes,
        /// What the system said.
        cause: io::Error,
    },
    /// There is no memory for its buffers.
    #[error(transparent)]
    Memory(#[from] ArenaError),
    /// A transfer failed.
    #[error("{0}")]
    Transfer(String),
}

/// What went through a spill file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillStats {
    /// Bytes written.
    pub written: u64,
    /// Bytes read.
    pub read: u64,
    /// How long callers waited for transfers.
    pub waited: Duration,
}

/// A file that values are moved to and fetched from.
///
/// ```
/// use plimsoll_budget::Budget;
/// use plimsoll_exec::SpillFile;
/// use plimsoll_graph::op::spill::Spill;
/// let file = SpillFile::create(&Budget::unlimited(), &std::env::temp_dir(), 8192, &[(4096, 3)]).unwrap();
/// let (written, mut read) = ([1u8, 2, 3], [0u8; 3]);
/// // SAFETY: both arrays stay until the slot is finished.
/// unsafe {
///     file.write(4096, written.as_ptr(), 3).unwrap();
///     file.read(4096, read.as_mut_ptr(), 3).unwrap();
/// }
/// file.finish(4096).unwrap();
/// assert_eq!(read, written);
/// ```
pub struct SpillFile {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    way: Way,
    bytes: u64,
    _buffers: Arena,
    /// The checksums and the stacks.
    reservation: Reservation,
}

struct Shared {
    disk: Box<dyn Disk>,
    queue: Mutex<Queue>,
    /// Something may have to be transferred.
    work: Condvar,
    /// Something was transferred.
    over: Condvar,
}

struct Queue {
    /// Those that are not over, in the order they came.
    requests: VecDeque<Request>,
    /// The number of the first of them.
    first: u64,
    /// By the place where a piece begins.
    pieces: Vec<Piece>,
    bytes: u64,
    failed: Option<String>,
    /// Threads that have started.
    started: usize,
    closing: bool,
    stats: SpillStats,
}

#[derive(Clone, Copy)]
struct Request {
    writes: bool,
    slot: u64,
    ptr: *mut u8,
    n: usize,
    /// How much of it was given to threads.
    given: usize,
    /// How many threads are at it.
    running: usize,
}

// SAFETY: who begins a transfer promises that the memory is there, and used by nobody else, until it is finished.
unsafe impl Send for Request {}

impl Request {
    fn is_over(&self) -> bool {
        self.given == self.n && self.running == 0
    }

    /// Whether one must wait for the other.
    fn conflicts(&self, other: &Request) -> bool {
        let end = |r: &Request| r.slot + r.n as u64;
        (self.writes || other.writes) && self.slot < end(other) && other.slot < end(self)
    }
}

/// What is known of a piece of the file.
#[derive(Clone, Copy)]
struct Piece {
    start: u64,
    content: u64,
}

/// Content of a piece that nobody wrote.
const NOTHING: u64 = 0;

/// Content of a piece that is zero, whatever is in the file.
const ZEROS: u64 = 1;

/// The checksum of a piece, never one of the two above. The place is part of it, so that bytes which ended up elsewhere are
/// noticed.
fn checksum(bytes: &[u8], start: u64) -> u64 {
    xxh3_64_with_seed(bytes, start).max(2)
}

/// A piece that a thread is at.
struct Task {
    number: u64,
    writes: bool,
    slot: u64,
    start: u64,
    ptr: *mut u8,
    n: usize,
    content: u64,
}

impl SpillFile {
    /// Makes a file of this size in a directory, for these slots (offset and bytes), and reserves its space.
    ///
    /// # Errors
    /// When the directory does not allow it or is in memory, the disk has no room, or the budget has none for the buffers.
    pub fn create(
        budget: &Budget,
        directory: &Path,
        bytes: u64,
        slots: &[(u64, u64)],
    ) -> Result<SpillFile, SpillError> {
        let file = NamelessFile::on_disk(directory)?;
        let way = file.way();
        SpillFile::on(Box::new(file), way, budget, bytes, slots)
    }

    /// Whether a file can be made in a directory: one is, for a moment.
    ///
    /// # Errors
    /// When the directory does not allow it, or its files are kept in memory.
    pub fn try_directory(directory: &Path) -> Result<(), SpillError> {
        NamelessFile::on_disk(directory).map(|_| ())
    }

    /// The first of these directories in which a file can be made, on a disk.
    ///
    /// ```
    /// use plimsoll_exec::SpillFile;
    /// assert_eq!(SpillFile::first_on_disk(["/nowhere", "/proc"]), None);
    /// ```
    pub fn first_on_disk<P: Into<PathBuf>>(directories: impl IntoIterator<Item = P>) -> Option<PathBuf> {
        directories.into_iter().map(Into::into).find(|directory| SpillFile::try_directory(directory).is_ok())
    }

    fn on(
        disk: Box<dyn Disk>,
        way: Way,
        budget: &Budget,
        bytes: u64,
        slots: &[(u64, u64)],
    ) -> Result<SpillFile, SpillError> {
        let pieces = pieces(slots);
        let reservation = reserve(budget, heap_of(&pieces))?;
        let buffers = Arena::new(reserve(budget, Bytes::from(WORKERS * PIECE))?)?;
        let bytes = bytes.next_multiple_of(FILE_ALIGNMENT);
        disk.resize(0, bytes)?;
        let queue = Queue {
            requests: VecDeque::with_capacity(QUEUE),
            first: 0,
            pieces,
            bytes,
            failed: None,
            started: 0,
            closing: false,
            stats: SpillStats::default(),
        };
        let shared = Arc::new(Shared { disk, queue: Mutex::new(queue), work: Condvar::new(), over: Condvar::new() });
        let mut file =
            SpillFile { shared, threads: Vec::with_capacity(WORKERS), way, bytes, _buffers: buffers, reservation };
        for i in 0..WORKERS {
            // SAFETY: inside the mapping, which stays until the threads have ended.
            let buffer = Buffer(unsafe { file._buffers.ptr().add(i * PIECE) });
            let shared = file.shared.clone();
            let thread = std::thread::Builder::new().name(format!("spill {i}")).stack_size(STACK);
            // SAFETY: a buffer of this thread alone.
            let started = thread.spawn(move || unsafe { shared.work(buffer) });
            file.threads.push(started.map_err(|e| SpillError::Transfer(format!("no thread for transfers: {e}")))?);
        }
        // What starting a thread takes is taken now, not during a step.
        let mut queue = file.shared.lock();
        while queue.started < WORKERS {
            queue = file.shared.over.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        drop(queue);
        Ok(file)
    }

    /// The memory that any file takes from the budget: buffers and stacks. Checksums are 16 bytes a piece.
    pub const FIXED_MEMORY: Bytes = Bytes((WORKERS * (PIECE + STACK)) as u64);

    /// The memory that a file with these slots takes from the budget.
    pub fn memory(slots: &[(u64, u64)]) -> Bytes {
        Bytes::from(WORKERS * PIECE) + heap_of(&pieces(slots))
    }

    /// Gives the file another size and other slots. What is in slots that stay where they are stays; if the file becomes
    /// shorter, what is beyond its end is gone.
    ///
    /// # Errors
    /// When the disk or the budget has no room; the file is then as before.
    pub fn resize(&mut self, bytes: u64, slots: &[(u64, u64)]) -> Result<(), SpillError> {
        self.settle();
        let mut pieces = pieces(slots);
        // What is held already is not asked for again: beside a full arena there may be no room for a second time.
        let (before, needed) = (self.reservation.bytes(), heap_of(&pieces));
        self.reservation.resize(before.max(needed)).map_err(ArenaError::from)?;
        let bytes = bytes.next_multiple_of(FILE_ALIGNMENT);
        if bytes != self.bytes
            && let Err(error) = self.shared.disk.resize(self.bytes, bytes)
        {
            self.reservation.shrink(self.reservation.bytes() - before);
            return Err(error);
        }
        let mut queue = self.shared.lock();
        for piece in &mut pieces {
            if let Some(old) = queue.find(piece.start) {
                piece.content = queue.pieces[old].content;
            }
        }
        queue.pieces = pieces;
        queue.bytes = bytes;
        drop(queue);
        self.bytes = bytes;
        self.reservation.shrink(self.reservation.bytes() - needed);
        Ok(())
    }

    /// Makes a slot zero without writing to it.
    ///
    /// # Errors
    /// When there is no such slot.
    pub fn clear(&mut self, slot: u64, bytes: u64) -> Result<(), SpillError> {
        self.settle();
        let mut queue = self.shared.lock();
        for start in (slot..slot + bytes).step_by(PIECE) {
            let found = queue.find(start).ok_or_else(|| SpillError::Transfer(unknown(start)))?;
            queue.pieces[found].content = ZEROS;
        }
        Ok(())
    }

    /// Waits until no transfer is under way, whether they failed or not: no memory is used any more.
    pub fn settle(&self) {
        let mut queue = self.shared.lock();
        while !queue.requests.is_empty() {
            queue = self.shared.wait_until_over(queue);
        }
    }

    /// Writes bytes and waits until they are in the file.
    ///
    /// # Errors
    /// When this or an earlier transfer failed, or there is no such slot.
    pub fn store(&self, slot: u64, bytes: &[u8]) -> Result<(), SpillError> {
        // SAFETY: the bytes are borrowed until the slot is finished.
        let begun = unsafe { self.write(slot, bytes.as_ptr(), bytes.len()) };
        begun.and_then(|()| self.finish(slot)).map_err(SpillError::Transfer)
    }

    /// Reads bytes and waits until they are there.
    ///
    /// # Errors
    /// When this or an earlier transfer failed, what is read is not what was written, or there is no such slot.
    pub fn fetch(&self, slot: u64, bytes: &mut [u8]) -> Result<(), SpillError> {
        // SAFETY: the bytes are borrowed, by us alone, until the slot is finished.
        let begun = unsafe { self.read(slot, bytes.as_mut_ptr(), bytes.len()) };
        begun.and_then(|()| self.finish(slot)).map_err(SpillError::Transfer)
    }

    /// How bytes get to the disk.
    pub fn way(&self) -> Way {
        self.way
    }

    /// The size of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The memory it takes: buffers, stacks and checksums.
    pub fn memory_held(&self) -> Bytes {
        self.reservation.bytes() + Bytes((WORKERS * PIECE) as u64)
    }

    /// Whether a transfer failed: then none is made any more.
    pub fn has_failed(&self) -> bool {
        self.shared.lock().failed.is_some()
    }

    /// What went through it so far.
    pub fn stats(&self) -> SpillStats {
        self.shared.lock().stats
    }
}

impl Spill for SpillFile {
    unsafe fn write(&self, slot: u64, bytes: *const u8, n: usize) -> Result<(), String> {
        self.shared.begin(Request { writes: true, slot, ptr: bytes.cast_mut(), n, given: 0, running: 0 })
    }

    unsafe fn read(&self, slot: u64, bytes: *mut u8, n: usize) -> Result<(), String> {
        self.shared.begin(Request { writes: false, slot, ptr: bytes, n, given: 0, running: 0 })
    }

    fn finish(&self, slot: u64) -> Result<(), String> {
        let mut queue = self.shared.lock();
        while queue.requests.iter().any(|r| r.slot == slot && !r.is_over()) {
            queue = self.shared.wait_until_over(queue);
        }
        queue.failed.clone().map_or(Ok(()), Err)
    }
}

impl Drop for SpillFile {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.closing = true;
        queue.give_up();
        drop(queue);
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

/// Where a thread's buffer begins.
struct Buffer(*mut u8);

// SAFETY: each thread has its own.
unsafe impl Send for Buffer {}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Every change under the lock is complete or not begun.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_until_over<'a>(&self, queue: MutexGuard<'a, Queue>) -> MutexGuard<'a, Queue> {
        let start = Instant::now();
        let mut queue = self.over.wait(queue).unwrap_or_else(PoisonError::into_inner);
        queue.stats.waited += start.elapsed();
        queue
    }

    fn begin(&self, request: Request) -> Result<(), String> {
        let mut queue = self.lock();
        queue.accepts(&request)?;
        while queue.requests.len() == QUEUE {
            queue = self.wait_until_over(queue);
        }
        if let Some(failed) = &queue.failed {
            return Err(failed.clone());
        }
        if request.n > 0 {
            queue.requests.push_back(request);
            drop(queue);
            self.work.notify_all();
        }
        Ok(())
    }

    /// What a thread does.
    ///
    /// # Safety
    /// The buffer has [`PIECE`] bytes, aligned to [`ALIGNMENT`], of this thread alone.
    unsafe fn work(&self, buffer: Buffer) {
        // SAFETY: the caller's promise.
        let buffer = unsafe { std::slice::from_raw_parts_mut(buffer.0, PIECE) };
        self.lock().started += 1;
        self.over.notify_all();
        while let Some(task) = self.next() {
            let outcome = match task.writes {
                true => self.write(&task, buffer),
                false => self.read(&task, buffer),
            };
            self.over(&task, outcome);
        }
    }

    /// The next piece; `None` when the file is closed.
    fn next(&self) -> Option<Task> {
        let mut queue = self.lock();
        loop {
            if queue.closing {
                return None;
            }
            if let Some(task) = queue.take() {
                return Some(task);
            }
            // Taking may have failed what was waiting.
            self.over.notify_all();
            queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn over(&self, task: &Task, outcome: Result<u64, String>) {
        let mut queue = self.lock();
        match outcome {
            Ok(content) => {
                if let Some(found) = queue.find(task.start) {
                    queue.pieces[found].content = content;
                }
                let counted = if task.writes { &mut queue.stats.written } else { &mut queue.stats.read };
                *counted += task.n as u64;
            }
            Err(message) => queue.fail(message),
        }
        let at = (task.number - queue.first) as usize;
        queue.requests[at].running -= 1;
        queue.forget_those_over();
        drop(queue);
        self.over.notify_all();
        // The other thread may have waited for this one's request.
        self.work.notify_all();
    }

    fn write(&self, task: &Task, buffer: &mut [u8]) -> Result<u64, String> {
        let whole = task.n.next_multiple_of(ALIGNMENT);
        // SAFETY: the memory is there until the slot is finished, which is after this.
        let bytes = unsafe { std::slice::from_raw_parts(task.ptr, task.n) };
        buffer[..task.n].copy_from_slice(bytes);
        buffer[task.n..whole].fill(0);
        let content = checksum(&buffer[..task.n], task.start);
        move_whole(whole, |done| self.disk.write_at(&buffer[done..whole], task.start + done as u64))
            .and_then(|()| self.disk.transferred(task.start, whole as u64, true))
            .map_err(|e| failed("written", task, &e))?;
        Ok(content)
    }

    fn read(&self, task: &Task, buffer: &mut [u8]) -> Result<u64, String> {
        // SAFETY: as in `write`; nobody else uses it.
        let bytes = unsafe { std::slice::from_raw_parts_mut(task.ptr, task.n) };
        if task.content == ZEROS {
            bytes.fill(0);
            return Ok(ZEROS);
        }
        let whole = task.n.next_multiple_of(ALIGNMENT);
        move_whole(whole, |done| self.disk.read_at(&mut buffer[done..whole], task.start + done as u64))
            .and_then(|()| self.disk.transferred(task.start, whole as u64, false))
            .map_err(|e| failed("read", task, &e))?;
        let found = checksum(&buffer[..task.n], task.start);
        if found != task.content {
            let (slot, at, n) = (task.slot, task.start - task.slot, task.n);
            return Err(format!(
                "what was read from the spill file is not what was written: slot {slot}, {n} bytes from {at}, \
                 checksum {found:016x} instead of {:016x}; the disk or its memory is faulty",
                task.content
            ));
        }
        bytes.copy_from_slice(&buffer[..task.n]);
        Ok(found)
    }
}

/// Transfers all bytes: `transfer` goes on from where it is told and says how far it came.
fn move_whole(n: usize, mut transfer: impl FnMut(usize) -> io::Result<usize>) -> io::Result<()> {
    let (mut done, mut idle) = (0, 0);
    while done < n {
        let moved = match transfer(done) {
            Ok(moved) => moved,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
        // Direct transfers go on at whole blocks: what is beyond the last one is moved again.
        let whole = if done + moved >= n { moved } else { moved / ALIGNMENT * ALIGNMENT };
        done += whole;
        idle = if whole == 0 { idle + 1 } else { 0 };
        if idle == 100 {
            let message = format!("only {done} of {n} bytes were moved");
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
    }
    Ok(())
}

fn failed(what: &str, task: &Task, cause: &io::Error) -> String {
    let (slot, at) = (task.slot, task.start - task.slot);
    format!("{} bytes could not be {what} at slot {slot} + {at} of the spill file: {cause}", task.n)
}

fn unknown(start: u64) -> String {
    format!("no slot of the spill file begins at {start}")
}

impl Queue {
    fn find(&self, start: u64) -> Option<usize> {
        self.pieces.binary_search_by_key(&start, |p| p.start).ok()
    }

    /// Whether there is room in the file for a request.
    fn accepts(&self, request: &Request) -> Result<(), String> {
        let (slot, n) = (request.slot, request.n as u64);
        if slot % FILE_ALIGNMENT != 0 || slot.checked_add(n).is_none_or(|end| end > self.bytes) {
            return Err(format!("slot {slot} with {n} bytes is misplaced in a spill file of {} bytes", self.bytes));
        }
        match (slot..slot + n).step_by(PIECE).find(|&start| self.find(start).is_none()) {
            Some(start) => Err(unknown(start)),
            None => Ok(()),
        }
    }

    /// The next piece to transfer, if there is one and nothing before it is in its way.
    fn take(&mut self) -> Option<Task> {
        let at = self.requests.iter().position(|r| r.given < r.n)?;
        let request = self.requests[at];
        if self.requests.range(..at).any(|earlier| !earlier.is_over() && earlier.conflicts(&request)) {
            return None;
        }
        let start = request.slot + request.given as u64;
        let content = self.find(start).map_or(NOTHING, |found| self.pieces[found].content);
        if !request.writes && content == NOTHING {
            self.fail(format!("nothing was written to slot {} + {}, which is read", request.slot, request.given));
            return None;
        }
        let n = PIECE.min(request.n - request.given);
        // SAFETY: inside the memory of the request.
        let ptr = unsafe { request.ptr.add(request.given) };
        self.requests[at].given += n;
        self.requests[at].running += 1;
        Some(Task {
            number: self.first + at as u64,
            writes: request.writes,
            slot: request.slot,
            start,
            ptr,
            n,
            content,
        })
    }

    fn fail(&mut self, message: String) {
        self.failed.get_or_insert(message);
        self.give_up();
    }

    /// Nothing more is transferred but what threads are at.
    fn give_up(&mut self) {
        self.requests.iter_mut().for_each(|r| r.given = r.n);
        self.forget_those_over();
    }

    fn forget_those_over(&mut self) {
        while self.requests.front().is_some_and(Request::is_over) {
            self.requests.pop_front();
            self.first += 1;
        }
    }
}

/// Where the pieces of these slots begin, in order.
fn pieces(slots: &[(u64, u64)]) -> Vec<Piece> {
    let starts = slots.iter().flat_map(|&(slot, bytes)| (slot..slot + bytes).step_by(PIECE));
    let mut pieces: Vec<Piece> = starts.map(|start| Piece { start, content: NOTHING }).collect();
    pieces.sort_unstable_by_key(|p| p.start);
    pieces.dedup_by_key(|p| p.start);
    pieces.shrink_to_fit();
    pieces
}

/// The memory of checksums and stacks.
fn heap_of(pieces: &[Piece]) -> Bytes {
    Bytes::from(size_of_val(pieces) + WORKERS * STACK)
}

fn reserve(budget: &Budget, bytes: Bytes) -> Result<Reservation, ArenaError> {
    Ok(budget.account("spill").reserve(bytes)?)
}
