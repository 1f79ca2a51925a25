//! `inspect` and `convert` over the files that other programs wrote (`scripts/reference/data_fixtures.py`).
#![cfg(all(feature = "images", feature = "parquet"))]

use plimsoll_budget::{Budget, Bytes};
use plimsoll_data::{Dataset, FileFormat, Kind, convert, inspect};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn budget() -> Budget {
    Budget::new(Bytes::mib(8))
}

/// The x of the seven rows: `3 i + j - 2.5`.
fn x() -> Vec<f64> {
    (0..7).flat_map(|i| (0..3).map(move |j| 3.0 * i as f64 + j as f64 - 2.5)).collect()
}

#[track_caller]
fn check(name: &str, format: FileFormat, rows: u64, indexable: bool) -> plimsoll_data::Inspection {
    let found = inspect(fixture(name), &budget()).unwrap();
    assert_eq!((found.format, found.rows, found.indexable), (format, Some(rows), indexable), "{found}");
    assert_eq!((found.sampled, found.errors), (rows, 0), "{found}");
    found
}

#[test]
fn every_format_is_recognised_and_summed_up() {
    let mean = x().iter().sum::<f64>() / 21.0;
    for (name, format, indexable) in [
        ("f4.npy", FileFormat::Npy, true),
        ("plain.npz", FileFormat::Npz, true),
        ("compressed.npz", FileFormat::Npz, false),
        ("arrow_zstd.parquet", FileFormat::Parquet, false),
        ("zstd.arrow", FileFormat::Arrow, false),
        ("example.tfrecord", FileFormat::TfRecord, false),
    ] {
        let found = check(name, format, 7, indexable);
        let field = found.fields.iter().find(|f| f.component.name == "x").unwrap();
        assert_eq!((field.range, field.values, field.missing), (Some((-2.5, 17.5)), 21, 0), "{name}");
        assert!((field.mean.unwrap() - mean).abs() < 1e-9, "{name}");
    }
    check("pandas.csv", FileFormat::Csv, 7, false);
    // This one has no header, so its first row is taken for one.
    check("pandas.tsv", FileFormat::Tsv, 6, false);
    check("lines.txt.gz", FileFormat::Lines, 7, false);
    check("images.idx", FileFormat::Idx, inspect(fixture("images.idx"), &budget()).unwrap().rows.unwrap(), true);
    check("images/cats/0.png", FileFormat::Image, 1, true);
    let images = check("images", FileFormat::ImageFolder, 8, true);
    assert_eq!(images.classes, [("cats".to_string(), 4), ("dogs".to_string(), 4)]);
    let label = images.fields.iter().find(|f| f.component.name == "label").unwrap();
    assert_eq!((label.range, label.mean), (Some((0.0, 1.0)), Some(0.5)));
}

#[test]
fn what_a_shuffle_costs() {
    let array = inspect(fixture("f4.npy"), &budget()).unwrap();
    assert_eq!(array.element_bytes, 12.0);
    assert_eq!(array.shuffle_bytes(None), Some(Bytes::ZERO));
    assert_eq!(array.shuffle_bytes(Some(5)), Some(Bytes(40)));
    let stream = inspect(fixture("compressed.npz"), &budget()).unwrap();
    assert_eq!(stream.shuffle_bytes(Some(5)), Some(Bytes((5.0 * stream.element_bytes).ceil() as u64)));
    assert_eq!(stream.shuffle_bytes(Some(500)), stream.shuffle_bytes(None));
}

/// Every element as text, with the components in the order of their names.
fn elements(data: &Dataset) -> Vec<String> {
    let mut components = data.spec().unwrap().components().to_vec();
    components.sort_by(|a, b| a.name.cmp(&b.name));
    let text = |element: plimsoll_data::Element| {
        let values = components.iter().map(|c| match c.kind {
            Kind::Bytes => format!("{:?}", element.strings(&c.name).unwrap().collect::<Vec<_>>()),
            Kind::Number(_) => format!("{:?}", element.tensor(&c.name).unwrap().to_f64()),
        });
        values.collect::<Vec<_>>().join(" ")
    };
    data.iter(&Budget::unlimited()).unwrap().map(|e| text(e.unwrap())).collect()
}

fn open(path: &Path) -> Dataset {
    match path.extension().unwrap().to_str().unwrap() {
        "npy" => Dataset::from_npy(path),
        "csv" => Dataset::from_csv(path, plimsoll_data::Csv::default()),
        "parquet" => Dataset::from_parquet(path, None),
        "arrow" | "feather" => Dataset::from_arrow(path, None),
        other => panic!("{other}"),
    }
}

#[test]
fn converted_files_hold_the_same() {
    let folder = std::env::temp_dir().join(format!("plimsoll-convert-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let to = |name: &str| folder.join(name);
    // Through all formats of tables and back.
    let wanted = elements(&Dataset::from_parquet(fixture("arrow_none.parquet"), None));
    assert_eq!(wanted.len(), 7);
    let mut from = fixture("arrow_none.parquet");
    for name in ["1.arrow", "2.parquet", "3.feather", "4.parquet"] {
        assert_eq!(convert(&from, to(name), &budget()).unwrap(), 7);
        from = to(name);
        assert_eq!(elements(&open(&from)), wanted, "{name}");
    }
    // Records keep numbers as f32 and i64, and sort nothing away.
    assert_eq!(convert(fixture("example.tfrecord"), to("5.parquet"), &budget()).unwrap(), 7);
    assert_eq!(convert(to("5.parquet"), to("6.tfrecord"), &budget()).unwrap(), 7);
    assert_eq!(convert(to("6.tfrecord"), to("7.arrow"), &budget()).unwrap(), 7);
    assert_eq!(elements(&open(&to("7.arrow"))), elements(&open(&to("5.parquet"))));
    assert_eq!(convert(fixture("f8.npy"), to("8.parquet"), &budget()).unwrap(), 7);
    assert_eq!(convert(to("8.parquet"), to("9.npy"), &budget()).unwrap(), 7);
    assert_eq!(elements(&Dataset::from_npy(to("9.npy"))), elements(&Dataset::from_npy(fixture("f8.npy"))));
    assert_eq!(convert(fixture("pandas.csv"), to("10.parquet"), &budget()).unwrap(), 7);
    assert_eq!(convert(to("10.parquet"), to("11.csv"), &budget()).unwrap(), 7);
    assert_eq!(elements(&open(&to("11.csv"))), elements(&open(&to("10.parquet"))));
    // What cannot be says why, and leaves nothing behind.
    let count = || std::fs::read_dir(&folder).unwrap().count();
    let before = count();
    let refused = |from: &Path, name: &str, expected: &str| {
        let error = convert(from, to(name), &budget()).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(count(), before);
    };
    refused(&fixture("images"), "x.csv", "component image: u8[?,?,3] is not a scalar");
    refused(&fixture("images"), "x.parquet", "neither a scalar nor of one axis");
    refused(&fixture("pandas.csv"), "x.npy", "a .npy file holds one component, but there are");
    refused(&fixture("pandas.csv"), "x.npz", "write_npz: component name: bytes[] is not of numbers");
    refused(&fixture("pandas.csv"), "x.idx", "files are not written");
    refused(&fixture("pandas.csv"), "x.what", "'.what' is no ending of a known format");
    refused(&to("11.csv"), "11.csv", "would be written over itself");
    refused(&fixture("no.csv"), "x.parquet", "No such file");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn bad_elements_are_counted_and_a_large_file_is_sampled() {
    let folder = std::env::temp_dir().join(format!("plimsoll-inspect-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("bad.csv");
    std::fs::write(&path, "a,b\n1,2\n3\n4,5\n").unwrap();
    let found = inspect(&path, &budget()).unwrap();
    assert_eq!((found.sampled, found.errors, found.rows), (3, 1, Some(3)));
    assert!(found.to_string().contains("1 of 3 elements cannot be read; the first: "), "{found}");
    let path = folder.join("many.npy");
    Dataset::range(0, 100_000, 1).write_npy("value", &path, &budget()).unwrap();
    let found = inspect(&path, &budget()).unwrap();
    assert_eq!((found.rows, found.sampled), (Some(100_000), 10_000));
    // From all over the file: the mean of 10,000 of 0..100,000 has a deviation of 289.
    assert!((found.fields[0].mean.unwrap() - 49_999.5).abs() < 5.0 * 289.0, "{found}");
    // More than the sample, and far more than the budget, streams.
    let path = folder.join("many.csv");
    Dataset::range(0, 20_000, 1).write_csv(&path, &budget()).unwrap();
    let found = inspect(&path, &Budget::new(Bytes::kib(512))).unwrap();
    assert_eq!((found.rows, found.sampled, found.fields[0].range), (None, 10_000, Some((0.0, 9_999.0))));
    std::fs::remove_dir_all(folder).unwrap();
}
