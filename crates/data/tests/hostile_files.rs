//! A folder of files that lie about themselves: each is refused with a text that names the file and what is wrong, within a
//! second, and the process does not grow.
//!
//! `scripts/reference/hostile_files.py` makes the files; `UPDATE_EXPECT=1` writes the texts anew.
#![cfg(all(feature = "images", feature = "parquet"))]

#[allow(dead_code)] // The fuzz targets use the rest.
#[path = "../fuzz/src/lib.rs"]
mod targets;

use plimsoll_budget::{Budget, Bytes, measure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use targets::{FORMATS, read};

/// The first error, without the folder's name.
fn refusal(open: fn(&Path) -> plimsoll_data::Dataset, path: &Path, folder: &Path) -> String {
    let budget = Budget::new(Bytes::mib(8));
    let error = match open(path).iter(&budget) {
        Ok(mut iter) => iter.find_map(|element| element.err()),
        Err(error) => Some(error),
    };
    let Some(error) = error else { return "is read to its end".into() };
    let text = error.to_string().replace('\n', " ");
    text.replace(&format!("{}/", folder.display()), "")
}

#[test]
fn every_one_is_refused_in_words() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/hostile");
    let before = measure::usage().unwrap().resident;
    let mut found = String::new();
    for format in FORMATS {
        let Ok(files) = std::fs::read_dir(folder.join(format.name)) else { continue };
        let mut files: Vec<PathBuf> = files.map(|f| f.unwrap().path()).collect();
        files.sort();
        for file in files {
            let start = Instant::now();
            let text = refusal(format.open, &file, &folder);
            // Reading on behind an error ends, too, and gives all memory back.
            read(format, &file);
            assert!(start.elapsed() < Duration::from_secs(5), "{} took {:?}", file.display(), start.elapsed());
            found += &format!("{}\n    {text}\n", file.strip_prefix(&folder).unwrap().display());
        }
    }
    let grown = measure::usage().unwrap().peak.0.saturating_sub(before.0) >> 20;
    assert!(grown <= 8 + 16, "the process grew by {grown} MiB, with a budget of 8");
    let path = folder.join("expected.txt");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
}
