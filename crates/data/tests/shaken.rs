//! Valid files, changed at random places, thousands of each format: whatever comes out, nothing panics, not even where it would
//! be caught, all memory comes back, and the process does not grow by more than the budget and a few megabytes.
//!
//! One test, because it measures the whole process. The readers are those of the fuzz targets.
#![cfg(all(feature = "images", feature = "parquet"))]

#[allow(dead_code)] // The fuzz targets use the rest.
#[path = "../fuzz/src/lib.rs"]
mod targets;

mod common;

use common::Random;
use plimsoll_budget::{Budget, measure};
use plimsoll_data::{Compression, Dataset};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use targets::{FORMATS, read, scratch};

static PANICS: AtomicU64 = AtomicU64::new(0);

fn fixture(name: &str) -> Vec<u8> {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    if name == "example.message" {
        let data = Dataset::from_tfrecords(fixtures.join("example.tfrecord"), Compression::None);
        let record = data.iter(&Budget::unlimited()).unwrap().nth(3).unwrap().unwrap();
        return record.row().string("record").unwrap().to_vec();
    }
    std::fs::read(fixtures.join(name)).unwrap()
}

fn change(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.place(6) + 1 {
        let n = bytes.len();
        if n == 0 {
            return;
        }
        // Headers and footers decide most.
        let at = match random.place(4) {
            0 => random.place(n.min(64)),
            1 => n - 1 - random.place(n.min(64)),
            _ => random.place(n),
        };
        let to = (at + random.place(16)).min(n);
        match random.place(9) {
            0 => bytes[at] = random.place(256) as u8,
            1 => bytes[at] ^= 1 << random.place(8),
            2 => bytes[at..to].fill([0, 0xff, 0x7f, 0x80][random.place(4)]),
            3 if random.place(4) == 0 => bytes.truncate(at),
            4 => bytes.insert(at, random.place(256) as u8),
            5 => drop(bytes.remove(at)),
            6 => drop(bytes.drain(at..to)),
            7 => {
                let part = bytes[at..to].to_vec();
                bytes.splice(at..at, part);
            }
            _ => {
                let from = random.place(n - (to - at) + 1);
                bytes.copy_within(at..to, from);
            }
        }
    }
}

#[test]
fn changed_files_are_read_or_refused() {
    std::panic::set_hook(Box::new(|info| {
        PANICS.fetch_add(1, Relaxed);
        eprintln!("{info}");
    }));
    let path = scratch("shaken");
    let before = measure::usage().unwrap().resident;
    for format in FORMATS {
        let start = std::time::Instant::now();
        let (mut elements, mut errors, rounds) = (0, 0, 3000 / format.seeds.len());
        for (i, seed) in format.seeds.iter().enumerate() {
            let good = fixture(seed);
            std::fs::write(&path, &good).unwrap();
            assert_eq!(read(format, &path).1, 0, "{seed} is good");
            let mut random = Random(0x2545_f491_4f6c_dd1d + i as u64);
            for _ in 0..rounds {
                let mut bytes = good.clone();
                change(&mut bytes, &mut random);
                std::fs::write(&path, &bytes).unwrap();
                let (e, f) = read(format, &path);
                (elements, errors) = (elements + e, errors + f);
            }
        }
        println!("{}: {elements} elements, {errors} errors, {:.1?}", format.name, start.elapsed());
        // Some changes hit what nothing depends on, others are found.
        assert!(elements > 0 && errors > 100, "{}: {elements} elements, {errors} errors", format.name);
    }
    std::fs::remove_file(path).unwrap();
    assert_eq!(PANICS.load(Relaxed), 0, "panics were printed");
    let grown = measure::usage().unwrap().peak.0.saturating_sub(before.0) >> 20;
    assert!(grown <= 8 + 24, "the process grew by {grown} MiB, with a budget of 8");
}
