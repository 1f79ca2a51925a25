//! Sounding: whether memory is really there, found out by a child process that touches it.
//!
//! Inside a control group nothing returns "out of memory": a mapping always succeeds, and touching it past the limit ends
//! the process. So a child process touches as much as will be needed, first in line for the kernel's killer, and ends; its
//! parent learns the outcome and lives. The child stops by itself when the machine would be left with little.

use plimsoll_budget::Bytes;
use std::fmt;

/// What a sounding found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sounding {
    /// The memory is there.
    Found,
    /// The kernel refused the mapping: an address-space or commit limit.
    NotMapped,
    /// The kernel killed the child while it touched the memory: a group's limit that could not be seen.
    Killed,
    /// The machine would have been left with less free memory than asked.
    WouldExhaust,
    /// No child could be started, or its end could not be seen: nothing is known.
    Unknown,
}

impl fmt::Display for Sounding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Sounding::Found => "the memory is there",
            Sounding::NotMapped => "the kernel refuses to map that much",
            Sounding::Killed => "the kernel killed a child process that touched that much",
            Sounding::WouldExhaust => "the machine would be left with hardly any free memory",
            Sounding::Unknown => "no child process could be started to find out",
        })
    }
}

/// Touches so many bytes in a child process, which stops when less than `keep_free` is left on the machine.
pub fn sound(bytes: Bytes, keep_free: Bytes) -> Sounding {
    #[cfg(target_os = "linux")]
    return linux::sound(bytes, keep_free);
    #[cfg(not(target_os = "linux"))]
    return {
        let _ = (bytes, keep_free);
        Sounding::Unknown
    };
}

#[cfg(target_os = "linux")]
mod linux {
    use super::Sounding;
    use plimsoll_budget::Bytes;

    const NOT_MAPPED: libc::c_int = 11;
    const WOULD_EXHAUST: libc::c_int = 12;

    /// How much is touched between looks at the machine's free memory.
    const PIECE: usize = 32 << 20;

    pub fn sound(bytes: Bytes, keep_free: Bytes) -> Sounding {
        // SAFETY: the child calls only functions that are allowed after `fork` in a process with several threads: system
        // calls and `_exit`, no allocation, no locks.
        let child = unsafe { libc::fork() };
        if child < 0 {
            return Sounding::Unknown;
        }
        if child == 0 {
            // SAFETY: as above; this is the child, which ends here.
            unsafe { touch_and_exit(bytes.to_usize(), keep_free.0) };
        }
        let mut status = 0;
        // SAFETY: `status` is valid for the call; the child is ours.
        while unsafe { libc::waitpid(child, &mut status, 0) } < 0 {
            if std::io::Error::last_os_error().kind() != std::io::ErrorKind::Interrupted {
                return Sounding::Unknown;
            }
        }
        if libc::WIFSIGNALED(status) {
            return Sounding::Killed;
        }
        match libc::WEXITSTATUS(status) {
            0 => Sounding::Found,
            NOT_MAPPED => Sounding::NotMapped,
            WOULD_EXHAUST => Sounding::WouldExhaust,
            _ => Sounding::Unknown,
        }
    }

    /// # Safety
    /// Only in a child process just forked.
    unsafe fn touch_and_exit(bytes: usize, keep_free: u64) -> ! {
        // SAFETY: system calls on memory and files of this process alone.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            // First in line for the killer: anybody may raise this.
            let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
            libc::write(file, c"1000".as_ptr().cast(), 4);
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let ptr = libc::mmap(std::ptr::null_mut(), bytes.max(1), access, kind, -1, 0);
            if ptr == libc::MAP_FAILED {
                libc::_exit(NOT_MAPPED);
            }
            let ptr: *mut u8 = ptr.cast();
            for at in (0..bytes).step_by(4096) {
                if at % PIECE == 0 && available().is_some_and(|free| free < keep_free.saturating_add(PIECE as u64)) {
                    libc::_exit(WOULD_EXHAUST);
                }
                ptr.add(at).write_volatile(1);
            }
            libc::_exit(0)
        }
    }

    /// The machine's free memory, read without allocating.
    fn available() -> Option<u64> {
        let mut text = [0u8; 512];
        // SAFETY: the buffer is valid for its length; the file is closed again.
        let n = unsafe {
            let file = libc::open(c"/proc/meminfo".as_ptr(), libc::O_RDONLY);
            let n = libc::read(file, text.as_mut_ptr().cast(), text.len());
            libc::close(file);
            n
        };
        let text = &text[..usize::try_from(n).ok()?];
        let name = b"MemAvailable:";
        let at = text.windows(name.len()).position(|window| window == name)? + name.len();
        let digits = text[at..].trim_ascii_start().iter().take_while(|byte| byte.is_ascii_digit());
        let kib = digits.fold(0u64, |sum, byte| sum.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')));
        kib.checked_mul(1024)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_there_is_found_and_given_back() {
        let before = plimsoll_budget::measure::usage().unwrap();
        assert_eq!(sound(Bytes::mib(64), Bytes::ZERO), Sounding::Found);
        let after = plimsoll_budget::measure::usage().unwrap();
        assert!(after.peak < before.peak + Bytes::mib(16), "the child touched, not we: {before:?} {after:?}");
    }

    #[test]
    fn the_machine_is_left_with_what_was_asked() {
        assert_eq!(sound(Bytes::gib(1), Bytes::MAX), Sounding::WouldExhaust);
    }

    #[test]
    fn more_than_there_are_addresses_is_not_mapped() {
        assert_eq!(sound(Bytes(1 << 60), Bytes::ZERO), Sounding::NotMapped);
    }
}
