//! What the process really holds, as the kernel counts it.
//!
//! The peak of a phase is [`Usage::peak`] at its end, after [`reset_peak`] at its beginning. Figures are
//! the kernel's (`/proc/self/status`): whole pages, and the peak good to about 64 KiB, since each core counts
//! in batches. `ru_maxrss` is not used: it is inherited from the parent over fork and exec. Reading allocates
//! nothing, so that a reading does not change what it reads and can be taken while a step runs.
//!
//! ```
//! use plimsoll_budget::measure;
//! # if !cfg!(target_os = "linux") { return Ok(()) }
//! let usage = measure::usage()?;
//! assert!(usage.peak >= usage.resident && usage.resident > usage.anonymous);
//! # Ok::<(), std::io::Error>(())
//! ```

use crate::Bytes;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What the process holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory now (`VmRSS`): code, heap, stacks, mapped files, shared memory.
    pub resident: Bytes,
    /// The most that was ever resident, or since [`reset_peak`] (`VmHWM`).
    pub peak: Bytes,
    /// The part of `resident` that no file stands behind (`RssAnon`): heap, stacks, the arena.
    pub anonymous: Bytes,
    /// The part of `resident` that files stand behind (`RssFile`): code that has run, mapped files.
    pub file: Bytes,
    /// Code of the program and its libraries (`VmExe` and `VmLib`), resident or not.
    pub code: Bytes,
    /// Page tables (`VmPTE`). They are not in `resident`, but a cgroup charges them: about 1/512 of what is touched.
    pub page_tables: Bytes,
    /// Address space (`VmSize`), which `RLIMIT_AS` limits.
    pub address_space: Bytes,
    /// Private writable mappings (`VmData`), which `RLIMIT_DATA` limits.
    pub data: Bytes,
}

/// What this process holds now.
///
/// # Errors
/// Where `/proc` is not mounted, or not Linux's.
pub fn usage() -> io::Result<Usage> {
    usage_from(Path::new("/proc/self/status"))
}

/// What the process's memory is made of: what it holds itself, and what it may yet read of its own files.
///
/// [`Usage::resident`] differs from run to run by hundreds of KiB, because the kernel maps code in pieces of what happens to be
/// in its cache, and older kernels count in batches per core. This is counted page by page (`/proc/self/smaps`), and a program
/// counts as if all of it had been read. So it is a bound that holds later too, and two runs of a program differ by
/// a few pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Memory that no file stands behind: heap, stacks, changed data of programs.
    pub anonymous: Bytes,
    /// The program and its libraries, whole, without pages that are counted as anonymous. Of files above 32 MiB only what is
    /// resident: nobody reads the whole of those.
    pub program: Bytes,
    /// Other mapped files and shared memory, as far as resident.
    pub files: Bytes,
}

impl Footprint {
    /// The sum.
    pub fn total(&self) -> Bytes {
        self.anonymous + self.program + self.files
    }

    fn add(&mut self, file: &MappedFile) {
        let resident = file.resident.saturating_sub(file.anonymous);
        match file.executable {
            true if file.size <= Bytes::mib(32) => self.program += file.size.saturating_sub(file.anonymous),
            true => self.program += resident,
            false => self.files += resident,
        }
    }
}

/// The mappings of one file, which stand next to each other.
#[derive(Default)]
struct MappedFile {
    inode: u64,
    size: Bytes,
    resident: Bytes,
    anonymous: Bytes,
    executable: bool,
}

/// What this process's memory is made of now.
///
/// # Errors
/// Where `/proc` is not mounted, or not Linux's.
pub fn footprint() -> io::Result<Footprint> {
    footprint_from(Path::new("/proc/self/smaps"))
}

pub(crate) fn footprint_from(smaps: &Path) -> io::Result<Footprint> {
    let mut total = Footprint::default();
    let mut file = MappedFile::default();
    let mut n_mappings = 0;
    read_lines(File::open(smaps)?, |line| {
        if let Some(mapping) = Mapping::read(line) {
            n_mappings += 1;
            if mapping.inode != file.inode {
                total.add(&file);
                file = MappedFile { inode: mapping.inode, ..MappedFile::default() };
            }
            if file.inode != 0 && mapping.readable {
                file.size += mapping.size;
                file.executable |= mapping.executable;
            }
            return;
        }
        let Some((key, value)) = split_at_colon(line) else { return };
        let kib = || leading_number(value).map_or(Bytes::ZERO, Bytes::kib);
        match key {
            // Memory without a file is anonymous, but for pages that belong to the kernel.
            b"Rss" if file.inode != 0 => file.resident += kib(),
            b"Anonymous" => {
                total.anonymous += kib();
                file.anonymous += if file.inode != 0 { kib() } else { Bytes::ZERO };
            }
            _ => (),
        }
    })?;
    total.add(&file);
    // A mistyped file must not read as "nothing is used".
    if n_mappings > 0 { Ok(total) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// The first line of a mapping: `7f00-7f10 r-xp 00000000 08:01 123 /usr/lib/x.so`.
struct Mapping {
    size: Bytes,
    readable: bool,
    executable: bool,
    inode: u64,
}

impl Mapping {
    fn read(line: &[u8]) -> Option<Mapping> {
        let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let (range, access) = (std::str::from_utf8(words.next()?).ok()?, words.next()?);
        let (from, to) = range.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        let size = Bytes(address(to)?.checked_sub(address(from)?)?);
        let inode = leading_number(words.nth(2)?)?;
        Some(Mapping { size, readable: access.first() == Some(&b'r'), executable: access.get(2) == Some(&b'x'), inode })
    }
}

/// Begins a new [`Usage::peak`] at what is resident now.
///
/// # Errors
/// Where the kernel does not offer it or a sandbox forbids it.
pub fn reset_peak() -> io::Result<()> {
    std::fs::write("/proc/self/clear_refs", "5")
}

pub(crate) fn usage_from(status: &Path) -> io::Result<Usage> {
    let mut usage = Usage::default();
    let mut libraries = Bytes::ZERO;
    let mut n_found = 0;
    read_lines(File::open(status)?, |line| {
        let Some((key, value)) = split_at_colon(line) else { return };
        let field = match key {
            b"VmRSS" => &mut usage.resident,
            b"VmHWM" => &mut usage.peak,
            b"RssAnon" => &mut usage.anonymous,
            b"RssFile" => &mut usage.file,
            b"VmExe" => &mut usage.code,
            b"VmLib" => &mut libraries,
            b"VmPTE" => &mut usage.page_tables,
            b"VmSize" => &mut usage.address_space,
            b"VmData" => &mut usage.data,
            _ => return,
        };
        if let Some(kib) = leading_number(value) {
            *field = Bytes::kib(kib);
            // Kernels differ in how they tell code from data; the others are always there.
            n_found += !matches!(key, b"RssFile" | b"VmExe" | b"VmLib") as usize;
        }
    })?;
    usage.code += libraries;
    // A mistyped file must not read as "nothing is used".
    if n_found == 6 { Ok(usage) } else { Err(io::ErrorKind::InvalidData.into()) }
}

/// Calls `each` for every line, using no memory but a fixed buffer; of longer lines only the end is seen.
fn read_lines(mut from: impl Read, mut each: impl FnMut(&[u8])) -> io::Result<()> {
    let mut buffer = [0u8; 1024];
    let mut filled = 0;
    loop {
        let n = match from.read(&mut buffer[filled..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        filled += n;
        let mut begin = 0;
        while let Some(length) = buffer[begin..filled].iter().position(|&byte| byte == b'\n') {
            each(&buffer[begin..begin + length]);
            begin += length + 1;
        }
        if n == 0 {
            each(&buffer[begin..filled]);
            return Ok(());
        }
        buffer.copy_within(begin..filled, 0);
        filled -= begin;
        if filled == buffer.len() {
            filled = 0;
        }
    }
}

fn split_at_colon(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|&byte| byte == b':')?;
    Some((&line[..at], &line[at + 1..]))
}

fn leading_number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&text[..digits]).ok()?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        let mut lines = Vec::new();
        read_lines(text.as_bytes(), |line| lines.push(String::from_utf8_lossy(line).into_owned())).unwrap();
        lines
    }

    #[test]
    fn lines_longer_than_the_buffer_do_no_harm() {
        assert_eq!(lines("a\nbc\n\nd"), ["a", "bc", "", "d"]);
        let groups = "Groups: ".to_string() + &"1000 ".repeat(1000);
        let seen = lines(&format!("a\n{groups}\nVmRSS: 4 kB\n"));
        assert_eq!((seen.len(), &seen[0][..], &seen[2][..]), (4, "a", "VmRSS: 4 kB"));
        for length in 1020..1030 {
            let seen = lines(&format!("{}\nVmRSS: 4 kB\n", "x".repeat(length)));
            assert_eq!(seen[1], "VmRSS: 4 kB", "{length}");
        }
    }

    #[test]
    fn programs_count_whole_and_other_files_as_far_as_resident() {
        let text = "\
1000-3000 r--p 00000000 08:01 7 /bin/x
Rss:                   4 kB
Anonymous:             0 kB
3000-9000 r-xp 00002000 08:01 7 /bin/x
Rss:                   8 kB
Anonymous:             0 kB
9000-a000 rw-p 00008000 08:01 7 /bin/x
Rss:                   4 kB
Anonymous:             4 kB
a000-f000 rw-p 00000000 00:00 0 [heap]
Rss:                  16 kB
Anonymous:            16 kB
10000-80000 r--s 00000000 08:01 9 /data
Rss:                  12 kB
Anonymous:             0 kB
80000-90000 ---p 00000000 00:00 0
Rss:                   0 kB
Anonymous:             0 kB
90000-91000 r-xp 00000000 00:00 0 [vdso]
Rss:                   4 kB
Anonymous:             0 kB
";
        let path = std::env::temp_dir().join(format!("plimsoll-smaps-{}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let found = footprint_from(&path);
        std::fs::remove_file(&path).unwrap();
        let (anonymous, program, files) = (Bytes::kib(20), Bytes::kib(32), Bytes::kib(12));
        assert_eq!(found.unwrap(), Footprint { anonymous, program, files });
    }

    #[test]
    fn a_file_without_the_figures_is_an_error() {
        assert!(usage_from(Path::new("/proc/self/limits")).is_err());
        assert!(usage_from(Path::new("/nowhere")).is_err());
        assert!(footprint_from(Path::new("/proc/self/limits")).is_err());
    }
}
