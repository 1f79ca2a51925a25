//! The file below a [`SpillFile`](super::SpillFile): opened without a name, reserved whole, kept out of the page cache.

use super::SpillError;
use plimsoll_budget::Bytes;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What transfers ask of a file. Tests put one that fails in its place.
pub(super) trait Disk: Send + Sync {
    /// As [`FileExt::read_at`].
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize>;

    /// As [`FileExt::write_at`].
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;

    /// Called when these bytes were transferred: they need not stay in the page cache.
    fn transferred(&self, at: u64, n: u64, written: bool) -> io::Result<()>;

    /// Makes the file longer, with space reserved for all of it, or shorter.
    fn resize(&self, old: u64, new: u64) -> Result<(), SpillError>;
}

/// How bytes get to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Past the page cache.
    Direct,
    /// Through the page cache, which is emptied after every piece: the file system refuses direct transfers.
    Buffered,
    /// Nowhere: the file system keeps files in memory, and a control group counts them as memory. No spill file is made there.
    InMemory,
}

/// A file without a name in a directory: it is gone when the process is, however that ends.
pub(super) struct NamelessFile {
    file: File,
    directory: PathBuf,
    way: Way,
}

impl NamelessFile {
    pub(super) fn open(directory: &Path) -> Result<NamelessFile, SpillError> {
        let failed = |cause: io::Error| SpillError::Open { directory: directory.to_owned(), cause };
        let file = open_nameless(directory).map_err(failed)?;
        let way = choose_way(&file);
        if way == Way::Buffered {
            no_reading_ahead(&file);
        }
        Ok(NamelessFile { file, directory: directory.to_owned(), way })
    }

    /// As [`NamelessFile::open`], but no file that is kept in memory.
    pub(super) fn on_disk(directory: &Path) -> Result<NamelessFile, SpillError> {
        let file = NamelessFile::open(directory)?;
        match file.way {
            Way::InMemory => Err(SpillError::InMemory { directory: directory.to_owned() }),
            Way::Direct | Way::Buffered => Ok(file),
        }
    }

    pub(super) fn way(&self) -> Way {
        self.way
    }

    fn failed(&self, cause: io::Error, needed: u64) -> SpillError {
        let directory = self.directory.clone();
        match cause.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
                SpillError::Full { directory, needed: Bytes(needed), free: free(&self.file), cause }
            }
            _ => SpillError::Open { directory, cause },
        }
    }
}

#[cfg(test)]
impl NamelessFile {
    /// The same file, opened once more.
    pub(super) fn again(&self) -> File {
        OpenOptions::new().read(true).write(true).open(format!("/proc/self/fd/{}", self.file.as_raw_fd())).unwrap()
    }

    /// As if the file system refused direct transfers.
    pub(super) fn buffered(self) -> NamelessFile {
        // SAFETY: a flag of our own file.
        assert_eq!(unsafe { libc::fcntl(self.file.as_raw_fd(), libc::F_SETFL, 0) }, 0);
        no_reading_ahead(&self.file);
        NamelessFile { way: Way::Buffered, ..self }
    }

    pub(super) fn reserve_by_writing(&self, old: u64, new: u64) {
        write_zeros(&self.file, old, new).unwrap();
    }

    /// The bytes that the disk holds for it.
    pub(super) fn allocated(&self) -> u64 {
        std::os::unix::fs::MetadataExt::blocks(&self.file.metadata().unwrap()) * 512
    }
}

impl Disk for NamelessFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.file.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.file.write_at(bytes, at)
    }

    fn transferred(&self, at: u64, n: u64, written: bool) -> io::Result<()> {
        match self.way {
            Way::Buffered => empty_cache(&self.file, at, n, written),
            Way::Direct | Way::InMemory => Ok(()),
        }
    }

    fn resize(&self, old: u64, new: u64) -> Result<(), SpillError> {
        let grown = if new > old { reserve(&self.file, old, new) } else { self.file.set_len(new) };
        grown.map_err(|cause| {
            // What was reserved before the disk was full goes back; the error is told either way.
            let error = self.failed(cause, new);
            let _ = self.file.set_len(old.min(new));
            error
        })
    }
}

/// A number for names, so that files of one process differ.
static NUMBER: AtomicU64 = AtomicU64::new(0);

fn open_nameless(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(0o600);
    #[cfg(target_os = "linux")]
    {
        let nameless = options.clone().custom_flags(libc::O_TMPFILE | libc::O_EXCL).open(directory);
        match nameless {
            // What kernels and file systems that do not know the flag answer.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL)) => (),
            other => return other,
        }
    }
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = directory.join(format!(".plimsoll-spill-{}-{number}", std::process::id()));
    let file = options.create_new(true).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(target_os = "linux")]
fn choose_way(file: &File) -> Way {
    const RAMFS: u32 = 0x8584_58f6;
    const TMPFS: u32 = 0x0102_1994;
    // SAFETY: a plain structure that the call fills.
    let kind = unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        if libc::fstatfs(file.as_raw_fd(), &mut stat) == 0 { stat.f_type as u32 } else { 0 }
    };
    // tmpfs takes the flag for direct transfers and then has nowhere to transfer to.
    if kind == TMPFS || kind == RAMFS {
        return Way::InMemory;
    }
    // SAFETY: a flag of our own file.
    let set = |flags: i32| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) } == 0;
    if !set(libc::O_DIRECT) {
        return Way::Buffered;
    }
    // Some take the flag and refuse the transfers.
    let refused = |e: io::Error| e.raw_os_error() == Some(libc::EINVAL);
    if file.write_at(&ZEROS.0[..super::ALIGNMENT], 0).is_err_and(refused) && set(0) {
        return Way::Buffered;
    }
    Way::Direct
}

#[cfg(not(target_os = "linux"))]
fn choose_way(_: &File) -> Way {
    Way::Buffered
}

#[cfg(target_os = "linux")]
fn reserve(file: &File, old: u64, new: u64) -> io::Result<()> {
    loop {
        // SAFETY: a call on our own file.
        if unsafe { libc::fallocate(file.as_raw_fd(), 0, old as libc::off_t, (new - old) as libc::off_t) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => (),
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => return write_zeros(file, old, new),
            _ => return Err(error),
        }
    }
}

#[cfg(not(target_os = "linux"))]
fn reserve(file: &File, old: u64, new: u64) -> io::Result<()> {
    write_zeros(file, old, new)
}

/// As direct transfers ask for it.
#[repr(align(4096))]
struct Zeros([u8; 1 << 16]);

static ZEROS: Zeros = Zeros([0; 1 << 16]);

/// Reserves space where the file system cannot promise it: by writing.
fn write_zeros(file: &File, old: u64, new: u64) -> io::Result<()> {
    let mut at = old;
    while at < new {
        let n = (new - at).min(ZEROS.0.len() as u64);
        file.write_all_at(&ZEROS.0[..n as usize], at)?;
        empty_cache(file, at, n, true)?;
        at += n;
    }
    Ok(())
}

#[cfg(target_os = "linux")]
fn empty_cache(file: &File, at: u64, n: u64, written: bool) -> io::Result<()> {
    let (fd, at, n) = (file.as_raw_fd(), at as libc::off64_t, n as libc::off64_t);
    if written {
        let wait = libc::SYNC_FILE_RANGE_WAIT_BEFORE | libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        // SAFETY: calls on our own file.
        if unsafe { libc::sync_file_range(fd, at, n, wait) } != 0 {
            match io::Error::last_os_error() {
                e if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::ESPIPE)) => {
                    file.sync_data()?
                }
                e => return Err(e),
            }
        }
    }
    // Advice: a kernel that does not take it keeps the pages until it needs the memory.
    // SAFETY: as above.
    let _ = unsafe { libc::posix_fadvise(fd, at, n, libc::POSIX_FADV_DONTNEED) };
    Ok(())
}

/// What the kernel reads ahead stays in the page cache when the piece before it has left.
#[cfg(target_os = "linux")]
fn no_reading_ahead(file: &File) {
    // SAFETY: advice about our own file.
    let _ = unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
}

#[cfg(not(target_os = "linux"))]
fn no_reading_ahead(_: &File) {}

#[cfg(not(target_os = "linux"))]
fn empty_cache(file: &File, _: u64, _: u64, written: bool) -> io::Result<()> {
    if written { file.sync_data() } else { Ok(()) }
}

/// What is free on the file's disk; 0 when nobody knows.
fn free(file: &File) -> Bytes {
    // SAFETY: a plain structure that the call fills.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        if libc::fstatvfs(file.as_raw_fd(), &mut stat) != 0 {
            return Bytes::ZERO;
        }
        Bytes(stat.f_bavail as u64 * stat.f_frsize as u64)
    }
}
