//! What the fuzz targets do with bytes, format by format. The tests of the crate do the same with changed fixtures.
//!
//!     mkdir -p corpus/npy && cp ../tests/fixtures/*.npy corpus/npy
//!     cargo +nightly fuzz run npy

use plimsoll_budget::{Budget, Bytes};
#[cfg(feature = "images")]
use plimsoll_data::Images;
use plimsoll_data::{Component, Compression, Csv, Dataset, Kind};
use plimsoll_tensor::DType;
use std::path::{Path, PathBuf};

/// A reader of foreign bytes.
pub struct Format {
    /// The name of the fuzz target.
    pub name: &'static str,
    /// The fixtures from which changed files are made.
    pub seeds: &'static [&'static str],
    /// Opens a file of this format.
    pub open: fn(&Path) -> Dataset,
}

/// Every reader. `npz` is the one for zip archives.
pub const FORMATS: &[Format] = &[
    Format {
        name: "npy",
        seeds: &["f4.npy", "i4_big.npy", "text.npy", "version2.npy"],
        open: |p| Dataset::from_npy(p),
    },
    Format { name: "npz", seeds: &["plain.npz", "compressed.npz"], open: |p| Dataset::from_npz(p) },
    Format { name: "idx", seeds: &["images.idx", "labels.idx"], open: |p| Dataset::from_idx([("x", p)]) },
    Format { name: "csv", seeds: &["pandas.csv"], open: |p| Dataset::from_csv(p, Csv::default()) },
    Format { name: "lines", seeds: &["lines.txt.gz"], open: |p| Dataset::from_lines_with(p, Compression::Gzip) },
    Format {
        name: "tfrecord",
        seeds: &["example.tfrecord"],
        open: |p| Dataset::from_tfrecords(p, Compression::None).parse_example("record", features()),
    },
    // The bytes are a message: a file of records would hide it behind sums that changed bytes do not have.
    Format {
        name: "example",
        seeds: &["example.message"],
        open: |p| {
            let record = std::fs::read(p).unwrap_or_default();
            Dataset::from_strings("record", [record]).parse_example("record", features())
        },
    },
    #[cfg(feature = "parquet")]
    Format {
        name: "parquet",
        seeds: &["arrow_snappy.parquet", "arrow_none.parquet", "arrow_zstd.parquet", "pandas.parquet"],
        open: |p| Dataset::from_parquet(p, None),
    },
    #[cfg(feature = "parquet")]
    Format {
        name: "arrow",
        seeds: &["uncompressed.arrow", "lz4.arrow", "zstd.arrow"],
        open: |p| Dataset::from_arrow(p, None),
    },
    #[cfg(feature = "images")]
    Format {
        name: "image",
        seeds: &["images/cats/0.png", "images/dogs/1.jpg"],
        open: |p| Dataset::from_images(p, Images::default()),
    },
];

fn features() -> [Component; 3] {
    [
        Component::new("x", DType::F32, &[3]),
        Component::new("name", Kind::Bytes, &[]),
        Component::ragged("ragged", DType::I64, &[None]),
    ]
}

/// Reads a file to its end, or up to 1000 elements, and says how many elements and errors there were.
///
/// # Panics
/// When memory does not come back.
pub fn read(format: &Format, path: &Path) -> (u64, u64) {
    let budget = Budget::new(Bytes::mib(8));
    let (mut elements, mut errors) = (0, 0);
    match (format.open)(path).iter(&budget) {
        Err(_) => errors += 1,
        Ok(iter) => iter.take(1000).for_each(|element| match element {
            Ok(_) => elements += 1,
            Err(_) => errors += 1,
        }),
    }
    assert_eq!(budget.held(), Bytes::ZERO, "{}", format.name);
    (elements, errors)
}

/// The name of a file of this process alone, in memory where that can be had.
pub fn scratch(name: &str) -> PathBuf {
    let folder = if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
    folder.join(format!("plimsoll-fuzz-{}-{name}", std::process::id()))
}

/// Reads bytes as a file of the format of this name.
///
/// # Panics
/// When there is no such format, or the bytes cannot be put in a file.
pub fn read_bytes(name: &str, bytes: &[u8]) {
    let format = FORMATS.iter().find(|f| f.name == name).expect("a format");
    let path = scratch(name);
    std::fs::write(&path, bytes).expect("room for a file");
    read(format, &path);
    let _ = std::fs::remove_file(path);
}
