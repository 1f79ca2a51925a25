//! The inputs that the fuzz targets found to reach new code, replayed: nothing panics, all memory comes back, no file takes long.
//!
//! `crates/data/fuzz/README.md` says how they are made.
#![cfg(all(feature = "images", feature = "parquet"))]

#[allow(dead_code)] // The fuzz targets use the rest.
#[path = "../fuzz/src/lib.rs"]
mod targets;

use plimsoll_budget::measure;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use targets::{FORMATS, read};

#[test]
fn the_corpus_is_read_or_refused() {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    let before = measure::usage().unwrap().resident;
    for format in FORMATS {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(corpus.join(format.name)).unwrap().map(|f| f.unwrap().path()).collect();
        files.sort();
        let (mut elements, mut errors) = (0, 0);
        for file in &files {
            let start = Instant::now();
            let (e, f) = read(format, file);
            (elements, errors) = (elements + e, errors + f);
            assert!(start.elapsed() < Duration::from_secs(5), "{} took {:?}", file.display(), start.elapsed());
        }
        println!("{}: {} files, {elements} elements, {errors} errors", format.name, files.len());
        assert!(elements > 0 && errors > 0, "{}: {elements} elements, {errors} errors", format.name);
    }
    let grown = measure::usage().unwrap().peak.0.saturating_sub(before.0) >> 20;
    assert!(grown <= 8 + 24, "the process grew by {grown} MiB, with a budget of 8");
}
