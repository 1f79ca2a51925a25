//! What the fuzz targets do with bytes, format by format. The tests of the crate do the same with changed fixtures.
//!
//!     mkdir -p corpus/npy && cp ../tests/fixtures/*.npy corpus/npy
//!     cargo +nightly fuzz run npy

use plimsoll_budget::{Budget, Bytes};
#[cfg(feature = "images")]
use plimsoll_data::Images;
use plimsoll_data::{Component, Compression, Csv, Dataset, Kind};
use plimsoll_tensor::DType;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A reader of foreign bytes.
pub struct Format {
    /// The name of the fuzz target.
    pub name: &'static str,
    /// The fixtures from which changed files are made.
    pub seeds: &'static [&'static str],
    /// Opens a file of this format.
    pub open: fn(&Path) -> Dataset,
}

/// NumPy arrays.
pub const NPY: Format = Format {
    name: "npy",
    seeds: &["f4.npy", "i4_big.npy", "text.npy", "version2.npy"],
    open: |p| Dataset::from_npy(p),
};

/// Zip archives of NumPy arrays.
pub const NPZ: Format = Format { name: "npz", seeds: &["plain.npz", "compressed.npz"], open: |p| Dataset::from_npz(p) };

/// IDX arrays.
pub const IDX: Format =
    Format { name: "idx", seeds: &["images.idx", "labels.idx"], open: |p| Dataset::from_idx([("x", p)]) };

/// Tables as text.
pub const CSV: Format = Format { name: "csv", seeds: &["pandas.csv"], open: |p| Dataset::from_csv(p, Csv::default()) };

/// Lines of text in gzip.
pub const LINES: Format =
    Format { name: "lines", seeds: &["lines.txt.gz"], open: |p| Dataset::from_lines_with(p, Compression::Gzip) };

/// TensorFlow's files of records.
pub const TFRECORD: Format = Format {
    name: "tfrecord",
    seeds: &["example.tfrecord"],
    open: |p| Dataset::from_tfrecords(p, Compression::None).parse_example("record", features()),
};

/// The bytes are a message: a file of records would hide it behind sums that changed bytes do not have.
pub const EXAMPLE: Format = Format {
    name: "example",
    seeds: &["example.message"],
    open: |p| {
        let record = std::fs::read(p).unwrap_or_default();
        Dataset::from_strings("record", [record]).parse_example("record", features())
    },
};

/// Parquet files.
#[cfg(feature = "parquet")]
pub const PARQUET: Format = Format {
    name: "parquet",
    seeds: &["arrow_snappy.parquet", "arrow_none.parquet", "arrow_zstd.parquet", "pandas.parquet"],
    open: |p| Dataset::from_parquet(p, None),
};

/// Arrow files.
#[cfg(feature = "parquet")]
pub const ARROW: Format = Format {
    name: "arrow",
    seeds: &["uncompressed.arrow", "lz4.arrow", "zstd.arrow"],
    open: |p| Dataset::from_arrow(p, None),
};

/// PNG and JPEG.
#[cfg(feature = "images")]
pub const IMAGE: Format = Format {
    name: "image",
    seeds: &["images/cats/0.png", "images/dogs/1.jpg"],
    open: |p| Dataset::from_images(p, Images::default()),
};

/// Every reader. A fuzz target names its own instead: what the others link would have to be looked through after each execution.
pub const FORMATS: &[Format] = &[
    NPY,
    NPZ,
    IDX,
    CSV,
    LINES,
    TFRECORD,
    EXAMPLE,
    #[cfg(feature = "parquet")]
    PARQUET,
    #[cfg(feature = "parquet")]
    ARROW,
    #[cfg(feature = "images")]
    IMAGE,
];

fn features() -> [Component; 3] {
    [
        Component::new("x", DType::F32, &[3]),
        Component::new("name", Kind::Bytes, &[]),
        Component::ragged("ragged", DType::I64, &[None]),
    ]
}

/// Reads a file to its end, or up to 200 elements, and says how many elements and errors there were.
///
/// # Panics
/// When memory does not come back.
pub fn read(format: &Format, path: &Path) -> (u64, u64) {
    let budget = Budget::new(Bytes::mib(8));
    let (mut elements, mut errors) = (0, 0);
    match (format.open)(path).iter(&budget) {
        Err(_) => errors += 1,
        Ok(iter) => iter.take(200).for_each(|element| match element {
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

/// Reads bytes as a file of a format.
///
/// # Panics
/// When the bytes cannot be put in a file.
pub fn read_bytes(format: &Format, bytes: &[u8]) {
    // One file for all executions: making and removing it takes longer than reading a small one.
    static FILE: OnceLock<(PathBuf, File)> = OnceLock::new();
    let (path, file) = FILE.get_or_init(|| {
        let path = scratch(format.name);
        let file = File::create(&path).expect("a file");
        (path, file)
    });
    file.write_all_at(bytes, 0).and_then(|()| file.set_len(bytes.len() as u64)).expect("room for the bytes");
    read(format, path);
}
