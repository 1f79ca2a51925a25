//! The file itself: no shared libraries, and a start that nobody notices.

mod common;

use common::*;
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_plimsoll");

/// The types of the program headers of a 64-bit ELF file.
fn segments(file: &[u8]) -> Vec<u32> {
    assert_eq!(&file[..5], b"\x7fELF\x02", "a 64-bit ELF file");
    let at = |place: usize, n: usize| {
        file[place..place + n].iter().rev().fold(0u64, |value, &byte| value << 8 | u64::from(byte)) as usize
    };
    let (start, each, n) = (at(32, 8), at(54, 2), at(56, 2));
    (0..n).map(|i| at(start + i * each, 4) as u32).collect()
}

#[test]
fn it_needs_no_shared_libraries() {
    const INTERPRETER: u32 = 3;
    let found = segments(&std::fs::read(PROGRAM).unwrap());
    assert!(found.contains(&1), "something is loaded");
    // Distributions that keep archives apart link as usual; the build says so in no way but this.
    let archive = Command::new("cc").arg("-print-file-name=libc.a").output();
    let path = archive.ok().and_then(|o| String::from_utf8(o.stdout).ok()).unwrap_or_default();
    if !path.trim().contains('/') || std::env::var_os("PLIMSOLL_DYNAMIC").is_some() {
        eprintln!("SKIPPED: this host has no libc.a");
        return;
    }
    assert!(!found.contains(&INTERPRETER), "no loader is asked for: {found:?}");
    // And what is usually behind shared libraries works: threads, unwinding, mathematics, the user's home.
    ok(run(["bench", "--threads", "2", "--json"]));
}

#[test]
fn it_starts_in_twenty_milliseconds() {
    let mut best = i64::MAX;
    for arguments in [["--help"], ["--version"]].iter().cycle().take(20) {
        let (output, usage) = measured(plimsoll().args(arguments));
        ok(output);
        // Time of the processor: how busy the machine is with other things does not count.
        let micros = |t: libc::timeval| t.tv_sec * 1_000_000 + t.tv_usec;
        best = best.min(micros(usage.ru_utime) + micros(usage.ru_stime));
    }
    assert!(best < 20_000, "{best} microseconds");
}
