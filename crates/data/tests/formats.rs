//! Files that other programs wrote (`scripts/reference/data_fixtures.py`), read by us, and ours read back.

use plimsoll_budget::{Budget, Bytes};
use plimsoll_data::{AUTOTUNE, Component, Compression, Csv, Dataset, Element, Files, Kind};
use plimsoll_tensor::DType;
use std::path::PathBuf;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn all(data: &Dataset) -> Vec<Element> {
    data.iter(&Budget::unlimited()).unwrap().map(Result::unwrap).collect()
}

fn message(data: &Dataset) -> String {
    match data.iter(&Budget::unlimited()) {
        Ok(mut iter) => iter.find_map(|e| e.err()).expect("an error").to_string(),
        Err(error) => error.to_string(),
    }
}

const N: usize = 7;

/// The rows that every file holds.
fn x(i: usize, j: usize) -> f32 {
    (i * 3 + j) as f32 - 2.5
}

fn label(i: usize) -> i64 {
    (i * i) as i64 - 3
}

fn name(i: usize) -> String {
    format!("row é {i}")
}

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("plimsoll-formats-{}-{name}", std::process::id()))
}

#[track_caller]
fn check_x(rows: &[Element], convert: impl Fn(f32) -> f64) {
    assert_eq!(rows.len(), N);
    for (i, row) in rows.iter().enumerate() {
        let expected: Vec<f64> = (0..3).map(|j| convert(x(i, j))).collect();
        assert_eq!(row.tensor("x").unwrap().to_f64(), expected, "row {i}");
    }
}

#[test]
fn npy_of_every_type() {
    for (file, ty) in [("f4", "f32"), ("f8", "f64"), ("f2", "f16"), ("f4_big", "f32"), ("version2", "f32")] {
        let data = Dataset::from_npy(fixture(&format!("{file}.npy")));
        assert_eq!(data.spec().unwrap().to_string(), format!("{{x: {ty}[3]}}"), "{file}");
        check_x(&all(&data), |v| v as f64);
        // In another order, and by several threads.
        let mut rows = all(&data.enumerate("n", 0).shuffle(None, 3).prefetch(AUTOTUNE));
        rows.sort_by_key(|r| r.get::<i64>("n").unwrap()[0]);
        check_x(&rows, |v| v as f64);
    }
    for (file, ty) in [("i1", "i32"), ("i2", "i32"), ("i4_big", "i32")] {
        let data = Dataset::from_npy(fixture(&format!("{file}.npy")));
        assert_eq!(data.spec().unwrap().to_string(), format!("{{x: {ty}[3]}}"), "{file}");
        check_x(&all(&data), |v| v.trunc() as f64);
    }
    for (file, ty) in [("u1", "u8"), ("u2", "i32"), ("u4", "i64"), ("u8", "i64")] {
        let data = Dataset::from_npy(fixture(&format!("{file}.npy")));
        assert_eq!(data.spec().unwrap().to_string(), format!("{{x: {ty}[3]}}"), "{file}");
        check_x(&all(&data), |v| v.abs().trunc() as f64);
    }
    check_x(&all(&Dataset::from_npy(fixture("bool.npy"))), |v| (v > 0.0) as u8 as f64);
    for file in ["bytes", "text"] {
        let rows = all(&Dataset::from_npy(fixture(&format!("{file}.npy"))));
        assert!((0..N).all(|i| rows[i].row().string("x").unwrap() == name(i).as_bytes()), "{file}");
    }
    assert!(message(&Dataset::from_npy(fixture("fortran.npy"))).contains("Fortran order"));
    assert!(message(&Dataset::from_npy(fixture("object.npy"))).contains("Python objects"));
}

#[test]
fn several_npy_files_are_one_source() {
    let files = Files::list([fixture("f4.npy"), fixture("version2.npy"), fixture("f4.npy")]);
    let data = Dataset::from_npy_named([("x", files.clone())]).enumerate("n", 0);
    assert_eq!(data.cardinality().unwrap().known(), Some(3 * N as u64));
    let rows = all(&data.shuffle(None, 8).batch(4).unbatch());
    assert_eq!(rows.len(), 3 * N);
    for row in rows {
        let i = row.get::<i64>("n").unwrap()[0] as usize % N;
        assert_eq!(row.get::<f32>("x").unwrap(), [x(i, 0), x(i, 1), x(i, 2)]);
    }
    let mixed = Dataset::from_npy(Files::list([fixture("f4.npy"), fixture("i8.npy")]));
    assert!(
        message(&mixed).contains("i8.npy: holds rows [] of I64, but the files before it [3] of F32"),
        "{}",
        message(&mixed)
    );
    let found = Files::glob(fixture("f*.npy").to_str().unwrap()).unwrap();
    assert_eq!(found.paths().len(), 5);
    assert!(Files::glob("/nowhere/*.npy").unwrap_err().to_string().contains("no file matches"));
    assert!(message(&Dataset::from_npy(Files::list(Vec::<PathBuf>::new()))).contains("empty"));
}

fn check_rows(rows: &[Element]) {
    assert_eq!(rows.len(), N);
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row.get::<f32>("x").unwrap(), [x(i, 0), x(i, 1), x(i, 2)]);
        assert_eq!(row.get::<i64>("label").unwrap(), [label(i)]);
        assert_eq!(row.row().string("name").unwrap(), name(i).as_bytes());
    }
}

#[test]
fn npz_plain_and_compressed() {
    let plain = Dataset::from_npz(fixture("plain.npz"));
    assert!(plain.is_indexable().unwrap());
    check_rows(&all(&plain));
    let compressed = Dataset::from_npz(fixture("compressed.npz"));
    assert!(!compressed.is_indexable().unwrap());
    check_rows(&all(&compressed));
    check_rows(&all(&compressed.batch(3).prefetch(AUTOTUNE).unbatch()));
    check_rows(&all(&Dataset::from_npz(Files::list([fixture("plain.npz"), fixture("compressed.npz")])).skip(N as u64)));
    // Ours, read back; the same data gives the same bytes.
    let numbers = plain.select(&["x", "label"]);
    for packed in [false, true] {
        let path = temporary("back.npz");
        let write = || match packed {
            false => numbers.write_npz(&path, &Budget::new(Bytes::mib(4))),
            true => numbers.write_npz_compressed(&path, &Budget::new(Bytes::mib(4))),
        };
        assert_eq!(write().unwrap(), N as u64);
        let bytes = std::fs::read(&path).unwrap();
        let back = Dataset::from_npz(&path);
        assert_eq!((back.spec().unwrap(), back.is_indexable().unwrap()), (numbers.spec().unwrap(), !packed));
        for (found, expected) in all(&back).iter().zip(all(&numbers)) {
            assert_eq!(found.get::<f32>("x").unwrap(), expected.get::<f32>("x").unwrap());
            assert_eq!(found.get::<i64>("label").unwrap(), expected.get::<i64>("label").unwrap());
        }
        write().unwrap();
        assert!(bytes == std::fs::read(&path).unwrap());
        std::fs::remove_file(path).unwrap();
    }
    let error = plain.write_npz(temporary("text.npz"), &Budget::unlimited()).unwrap_err().to_string();
    assert!(error.contains("component name: bytes[] is not of numbers"), "{error}");
}

#[test]
fn idx_and_lines() {
    let data = Dataset::from_idx([("image", fixture("images.idx")), ("label", fixture("labels.idx"))]);
    assert_eq!(data.spec().unwrap().to_string(), "{image: u8[2,3], label: i32[]}");
    for (i, row) in all(&data).iter().enumerate() {
        let expected: Vec<u8> = (0..6).map(|j| ((i * 6 + j) * 5 % 256) as u8).collect();
        assert_eq!(row.get::<u8>("image").unwrap(), expected);
        assert_eq!(row.get::<i32>("label").unwrap(), [label(i) as i32]);
    }
    for data in [
        Dataset::from_lines(fixture("lines.txt")),
        Dataset::from_lines_with(fixture("lines.txt.gz"), Compression::Gzip),
    ] {
        let rows = all(&data);
        assert_eq!(rows.len(), N);
        assert!((0..N).all(|i| rows[i].row().string("line").unwrap() == name(i).as_bytes()));
    }
}

#[test]
fn csv_as_pandas_writes_it() {
    let check = |data: Dataset, names: [&str; 3]| {
        let rows = all(&data);
        assert_eq!(rows.len(), N);
        for (i, row) in rows.iter().enumerate() {
            let a = row.get::<f64>(names[0]).unwrap()[0];
            assert!(if i == 2 { a.is_nan() } else { a == x(i, 0) as f64 });
            assert_eq!(row.get::<i64>(names[1]).unwrap(), [label(i)]);
            let expected = if i == 3 { "with \"quotes\", commas\nand lines".into() } else { name(i) };
            assert_eq!(row.row().string(names[2]).unwrap(), expected.as_bytes());
        }
    };
    check(Dataset::from_csv(fixture("pandas.csv"), Csv::default()), ["a", "label", "name"]);
    let tabs = Csv::default().delimiter(b'\t').no_header();
    check(Dataset::from_csv(fixture("pandas.tsv"), tabs), ["0", "1", "2"]);
    let two =
        Csv::default().select(&["label", "a"]).column("a", DType::F32).column("label", DType::I32).missing("a", "-9");
    let data = Dataset::from_csv(fixture("pandas.csv"), two);
    assert_eq!(data.spec().unwrap().to_string(), "{label: i32[], a: f32[]}");
    assert_eq!(all(&data)[2].get::<f32>("a").unwrap(), [-9.0]);
    // An empty field is no whole number.
    let strict = Csv::default().column("a", DType::I64);
    let expected = format!("{}, line 2: column 'a': '-2.5' is not i64", fixture("pandas.csv").display());
    assert_eq!(message(&Dataset::from_csv(fixture("pandas.csv"), strict)), expected);
    // Ours, read back.
    let path = temporary("back.csv");
    let data = Dataset::from_csv(fixture("pandas.csv"), Csv::default());
    assert_eq!(data.write_csv(&path, &Budget::unlimited()).unwrap(), N as u64);
    check(Dataset::from_csv(&path, Csv::default()), ["a", "label", "name"]);
    std::fs::remove_file(path).unwrap();
}

fn features() -> [Component; 4] {
    [
        Component::new("x", DType::F32, &[3]),
        Component::new("label", DType::I64, &[]),
        Component::new("name", Kind::Bytes, &[]),
        Component::ragged("ragged", DType::I64, &[None]),
    ]
}

fn check_examples(rows: &[Element]) {
    check_rows(rows);
    for (i, row) in rows.iter().enumerate() {
        assert_eq!(row.get::<i64>("ragged").unwrap(), (0..i as i64).collect::<Vec<_>>());
    }
}

#[test]
fn examples_as_tensorflow_writes_them_and_back() {
    let kinds = [("", Compression::None), (".gzip", Compression::Gzip), (".zlib", Compression::Zlib)];
    for (ending, compression) in kinds {
        let data = Dataset::from_tfrecords(fixture(&format!("example.tfrecord{ending}")), compression);
        let parsed = data.parse_example("record", features());
        check_examples(&all(&parsed));
        check_examples(&all(&parsed.parallel(AUTOTUNE)));
        let path = temporary(&format!("back.tfrecord{ending}"));
        assert_eq!(parsed.write_tfrecords(&path, compression, &Budget::unlimited()).unwrap(), N as u64);
        let back = Dataset::from_tfrecords(&path, compression);
        check_examples(&all(&back.parse_example("record", features())));
        std::fs::remove_file(path).unwrap();
    }
    let data = Dataset::from_tfrecords(fixture("example.tfrecord"), Compression::None);
    let wrong = data.parse_example("record", [Component::new("x", DType::F32, &[4])]);
    assert_eq!(message(&wrong), "map, element 0: feature 'x': 3 values, but x: f32[4] needs 4");
    let wrong = data.parse_example("record", [Component::new("y", DType::F32, &[])]);
    assert_eq!(message(&wrong), "map, element 0: feature 'y': missing, but y: f32[] needs 1");
    let wrong = data.parse_example("record", [Component::new("x", DType::I64, &[3])]);
    assert_eq!(message(&wrong), "map, element 0: feature 'x': is a float_list, but i64 needs a int64_list");
}

/// The messages, for an independent decoder.
mod proto {
    use prost::Message;
    use std::collections::HashMap;

    #[derive(Clone, PartialEq, Message)]
    pub struct Example {
        #[prost(message, optional, tag = "1")]
        pub features: Option<Features>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Features {
        #[prost(map = "string, message", tag = "1")]
        pub feature: HashMap<String, Feature>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Feature {
        #[prost(oneof = "Kind", tags = "1, 2, 3")]
        pub kind: Option<Kind>,
    }

    #[derive(Clone, PartialEq, prost::Oneof)]
    pub enum Kind {
        #[prost(message, tag = "1")]
        Bytes(BytesList),
        #[prost(message, tag = "2")]
        Float(FloatList),
        #[prost(message, tag = "3")]
        Int64(Int64List),
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct BytesList {
        #[prost(bytes = "vec", repeated, tag = "1")]
        pub value: Vec<Vec<u8>>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct FloatList {
        #[prost(float, repeated, tag = "1")]
        pub value: Vec<f32>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct Int64List {
        #[prost(int64, repeated, tag = "1")]
        pub value: Vec<i64>,
    }
}

#[test]
fn examples_agree_with_a_general_decoder() {
    use prost::Message;
    let path = temporary("agree.tfrecord");
    let data =
        Dataset::from_tfrecords(fixture("example.tfrecord"), Compression::None).parse_example("record", features());
    data.write_tfrecords(&path, Compression::None, &Budget::unlimited()).unwrap();
    for source in [fixture("example.tfrecord"), path.clone()] {
        for (i, row) in all(&Dataset::from_tfrecords(source, Compression::None)).iter().enumerate() {
            let example = proto::Example::decode(row.row().string("record").unwrap()).unwrap();
            let feature = example.features.unwrap().feature;
            let kind = |name: &str| feature[name].kind.clone().unwrap();
            let floats = proto::FloatList { value: (0..3).map(|j| x(i, j)).collect() };
            assert_eq!(kind("x"), proto::Kind::Float(floats));
            assert_eq!(kind("label"), proto::Kind::Int64(proto::Int64List { value: vec![label(i)] }));
            assert_eq!(kind("name"), proto::Kind::Bytes(proto::BytesList { value: vec![name(i).into_bytes()] }));
            let ragged = proto::Int64List { value: (0..i as i64).collect() };
            assert_eq!(kind("ragged"), proto::Kind::Int64(ragged));
        }
    }
    std::fs::remove_file(path).unwrap();
}

/// Two files of a format as one source, by list and by glob: rows in order, how many there are where files tell, and an error that names
/// the second file and both facts when it is of another kind.
#[track_caller]
fn check_two(
    ending: &str,
    make: impl Fn(Files) -> Dataset,
    rows: Option<u64>,
    check: impl Fn(&[Element]),
    fixture_name: &str,
    error: &str,
) {
    let folder = temporary(&format!("two-{}", ending.replace('.', "-")));
    std::fs::create_dir_all(&folder).unwrap();
    let part = |i: usize| folder.join(format!("part-{i}.{ending}"));
    let original = format!("{fixture_name}.{ending}");
    let copy = |name: &str, i: usize| std::fs::copy(fixture(name), part(i)).unwrap();
    copy(&original, 0);
    copy(&original, 1);
    for files in [Files::list([part(0), part(1)]), Files::glob(folder.join("part-*").to_str().unwrap()).unwrap()] {
        let data = make(files);
        assert_eq!(data.cardinality().unwrap().known(), rows, "{ending}");
        let all = all(&data);
        assert_eq!(all.len(), 2 * N);
        check(&all[..N]);
        check(&all[N..]);
        check(&crate::all(&data.prefetch(AUTOTUNE))[N..]);
    }
    if !error.is_empty() {
        let (bad, words) = error.split_once(' ').unwrap();
        copy(bad, 1);
        let found = message(&make(Files::list([part(0), part(1)])));
        assert!(found.contains(&format!("part-1.{ending}: {words}")), "{found}");
    }
    assert!(message(&make(Files::list(Vec::<PathBuf>::new()))).contains("the list of files is empty"), "{ending}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn several_files_of_every_format_are_one_source() {
    let all_rows = Some(2 * N as u64);
    let names = |rows: &[Element]| assert!((0..N).all(|i| rows[i].row().string("line").unwrap() == name(i).as_bytes()));
    let labels = |rows: &[Element]| assert!((0..N).all(|i| rows[i].get::<i64>("label").unwrap() == [label(i)]));
    let x = |rows: &[Element]| check_x(rows, |v| v as f64);
    let error = "i8.npy holds rows [] of I64, but the files before it [3] of F32";
    check_two("npy", Dataset::from_npy, all_rows, x, "f4", error);
    check_two("npz", Dataset::from_npz, all_rows, check_rows, "plain", "");
    check_two("npz", Dataset::from_npz, all_rows, check_rows, "compressed", "");
    let images = |rows: &[Element]| assert_eq!(rows[2].get::<u8>("image").unwrap()[0], 2 * 6 * 5);
    let error = "labels.idx holds rows [] of I16, but the files before it [2, 3] of U8";
    check_two("idx", |files| Dataset::from_idx([("image", files)]), all_rows, images, "images", error);
    let csv = |files| Dataset::from_csv(files, Csv::default());
    let error = "pandas.tsv has columns -2.5\t-3\trow é 0, but the files before it a, label, name";
    check_two("csv", csv, None, labels, "pandas", error);
    check_two("txt", Dataset::from_lines, None, names, "lines", "");
    check_two("txt.gz", |files| Dataset::from_lines_with(files, Compression::Gzip), None, names, "lines", "");
    let records =
        |compression| move |files| Dataset::from_tfrecords(files, compression).parse_example("record", features());
    check_two("tfrecord", records(Compression::None), None, check_examples, "example", "");
    check_two("tfrecord.gzip", records(Compression::Gzip), None, check_examples, "example", "");
    #[cfg(feature = "parquet")]
    {
        let error =
            "pandas.parquet has columns {a: f64[], label: i64[], name: bytes[]}, but the files before it {label: i64[]";
        check_two("parquet", |f| Dataset::from_parquet(f, None), all_rows, labels, "arrow_snappy", error);
        let two = |files| Dataset::from_arrow(files, Some(&["name", "label"]));
        check_two("arrow", two, all_rows, labels, "zstd", "");
    }
    // Of these two kinds there is only one fixture.
    let (a, b) = (Dataset::range(0, 4, 1), Dataset::range(0, 4, 1).batch_exact(2));
    let budget = Budget::unlimited();
    let paths = |ending: &str| [temporary(&format!("a.{ending}")), temporary(&format!("b.{ending}"))];
    let check = |paths: [PathBuf; 2], data: Dataset, words: &str| {
        let error = message(&data);
        assert!(error.contains(&format!("{}: {words}", paths[1].display())), "{error}");
        paths.into_iter().for_each(|path| std::fs::remove_file(path).unwrap());
    };
    let [first, second] = paths("npz");
    a.write_npz(&first, &budget).unwrap();
    b.write_npz(&second, &budget).unwrap();
    let both = Dataset::from_npz(Files::list([&first, &second]));
    check([first, second], both, "holds rows {value: i64[2]}, but the files before it {value: i64[]}");
    #[cfg(feature = "parquet")]
    {
        let [first, second] = paths("arrow");
        a.write_arrow(&first, &budget).unwrap();
        b.write_arrow(&second, &budget).unwrap();
        let both = Dataset::from_arrow(Files::list([&first, &second]), None);
        check([first, second], both, "has columns {value: i64[2]}, but the files before it {value: i64[]}");
    }
}

#[test]
fn columns_of_csv_files_are_what_all_files_say() {
    let folder = temporary("columns");
    std::fs::create_dir_all(&folder).unwrap();
    let write = |i: usize, text: &str| std::fs::write(folder.join(format!("{i}.csv")), text).unwrap();
    write(0, "a,b,c\n1,2,x\n3,4,NA\n");
    write(1, "a,b,c\n1.5,NA,y\n");
    let files = || Files::glob(folder.join("*.csv").to_str().unwrap()).unwrap();
    let data = Dataset::from_csv(files(), Csv::default().na("NA").missing("c", "none"));
    assert_eq!(data.spec().unwrap().to_string(), "{a: f64[], b: f64[], c: bytes[]}");
    let rows = all(&data);
    let column = |name: &str| rows.iter().map(|r| r.get::<f64>(name).unwrap()[0]).collect::<Vec<_>>();
    assert_eq!(column("a"), [1.0, 3.0, 1.5]);
    assert!(column("b")[..2] == [2.0, 4.0] && column("b")[2].is_nan());
    assert_eq!(rows.iter().map(|r| r.row().string("c").unwrap()).collect::<Vec<_>>(), [&b"x"[..], b"none", b"y"]);
    // Without headers as many columns are expected.
    let plain = |rows: usize| Csv::default().no_header().look_at(rows);
    write(1, "1,2\n");
    let error = message(&Dataset::from_csv(files(), plain(100)));
    assert!(error.contains("1.csv: has columns 0, 1, but the files before it 0, 1, 2"), "{error}");
    // A bad row of a later file is told in its place.
    write(1, "a,b,c\n5,6,y\n7,8\n9,10,z\n");
    let mut iter = Dataset::from_csv(files(), Csv::default()).ignore_errors().iter(&Budget::unlimited()).unwrap();
    assert_eq!((iter.by_ref().count(), iter.report().errors_ignored), (4, 1));
    std::fs::remove_dir_all(folder).unwrap();
}

#[cfg(feature = "parquet")]
mod columnar {
    use super::*;

    fn check(rows: &[Element]) {
        assert_eq!(rows.len(), N);
        for (i, row) in rows.iter().enumerate() {
            assert_eq!(row.get::<i64>("label").unwrap(), [label(i)]);
            assert_eq!(row.get::<i32>("small").unwrap(), [label(i) as i32]);
            assert_eq!(row.get::<bool>("flag").unwrap(), [i % 2 == 1]);
            let a = row.get::<f32>("a").unwrap()[0];
            assert!(if i == 2 { a.is_nan() } else { a == x(i, 0) });
            let expected = if i == 3 { String::new() } else { name(i) };
            assert_eq!(row.row().string("name").unwrap(), expected.as_bytes());
            assert_eq!(row.row().string("class").unwrap(), [&b"cat"[..], b"dog"][i % 2]);
            assert_eq!(row.get::<f32>("x").unwrap(), [x(i, 0), x(i, 1), x(i, 2)]);
            assert_eq!(row.get::<i64>("ragged").unwrap(), (0..i as i64).collect::<Vec<_>>());
        }
    }

    #[test]
    fn parquet_as_pyarrow_writes_it() {
        for codec in ["none", "snappy", "gzip", "zstd", "lz4"] {
            let data = Dataset::from_parquet(fixture(&format!("arrow_{codec}.parquet")), None);
            assert_eq!(data.cardinality().unwrap().known(), Some(N as u64));
            check(&all(&data));
            for skip in 0..=N as u64 {
                let rest = all(&data.skip(skip));
                let labels: Vec<i64> = rest.iter().map(|r| r.get::<i64>("label").unwrap()[0]).collect();
                assert_eq!(labels, (skip as usize..N).map(label).collect::<Vec<_>>(), "{codec}");
            }
            let two = Dataset::from_parquet(fixture(&format!("arrow_{codec}.parquet")), Some(&["x", "label"]));
            assert_eq!(two.spec().unwrap().to_string(), "{x: f32[3], label: i64[]}");
            assert!(all(&two).iter().enumerate().all(|(i, r)| r.get::<i64>("label").unwrap() == [label(i)]));
        }
        let many =
            Dataset::from_parquet(Files::list([fixture("arrow_none.parquet"), fixture("arrow_zstd.parquet")]), None);
        assert_eq!(all(&many).len(), 2 * N);
        let error = message(&Dataset::from_parquet(fixture("arrow_none.parquet"), Some(&["nothing"])));
        assert!(error.contains("has no column 'nothing'; there are label, small, flag"), "{error}");
    }

    #[test]
    fn parquet_as_pandas_writes_it() {
        let rows = all(&Dataset::from_parquet(fixture("pandas.parquet"), None));
        for (i, row) in rows.iter().enumerate() {
            let a = row.get::<f64>("a").unwrap()[0];
            assert!(if i == 2 { a.is_nan() } else { a == x(i, 0) as f64 });
            assert_eq!(row.get::<i64>("label").unwrap(), [label(i)]);
        }
    }

    #[test]
    fn arrow_files_as_pyarrow_writes_them() {
        for codec in ["uncompressed", "lz4", "zstd"] {
            let path = fixture(&format!("{codec}.arrow"));
            check(&all(&Dataset::from_arrow(&path, None)));
            let whole = Dataset::from_arrow(&path, None);
            assert_eq!(whole.cardinality().unwrap().known(), Some(N as u64));
            for skip in 0..=N as u64 {
                let rest = all(&whole.skip(skip));
                let labels: Vec<i64> = rest.iter().map(|r| r.get::<i64>("label").unwrap()[0]).collect();
                assert_eq!(labels, (skip as usize..N).map(label).collect::<Vec<_>>(), "{codec}");
            }
            let two = Dataset::from_arrow(&path, Some(&["name", "label"]));
            let spec = two.spec().unwrap().to_string();
            assert_eq!(spec, "{name: bytes[], label: i64[]}");
            for (i, row) in all(&two).iter().enumerate() {
                assert_eq!(row.get::<i64>("label").unwrap(), [label(i)], "{codec}");
            }
        }
    }
}

#[cfg(feature = "images")]
#[test]
fn image_folders_as_pillow_writes_them() {
    use plimsoll_data::Images;
    let folder = fixture("images");
    assert_eq!(Dataset::image_classes(&folder).unwrap(), ["cats", "dogs"]);
    let data = Dataset::from_image_folder(&folder, Images::default());
    assert_eq!(data.cardinality().unwrap().known(), Some(8));
    for row in all(&data.prefetch(AUTOTUNE)) {
        let path = String::from_utf8(row.row().string("path").unwrap().to_vec()).unwrap();
        let dog = path.contains("dogs");
        assert_eq!(row.get::<i64>("label").unwrap(), [dog as i64]);
        let shape = row.shape("image").unwrap().dims().to_vec();
        assert_eq!(shape, if path.ends_with("png") { [4, 6, 3] } else { [8, 12, 3] });
        let blue = if path.contains("/1.") { 40 } else { 0 };
        let expected = if dog { [0, 200, blue] } else { [200, 0, blue] };
        for pixel in row.get::<u8>("image").unwrap().chunks(3) {
            for (found, expected) in pixel.iter().zip(expected) {
                // PNG is exact; one colour all over, JPEG is nearly so.
                let most = if path.ends_with("png") { 0 } else { 3 };
                assert!(found.abs_diff(expected) <= most, "{path}: {pixel:?} {expected:?}");
            }
        }
    }
    let resized = Dataset::from_image_folder(&folder, Images::resized(5, 7)).shuffle(None, 1).batch_exact(4);
    assert_eq!(resized.spec().unwrap().to_string(), "{image: u8[4,5,7,3], label: i64[4], path: bytes[4]}");
    assert_eq!(all(&resized).len(), 2);
    let grey = Dataset::from_images(
        Files::glob(folder.join("cats/*.png").to_str().unwrap()).unwrap(),
        Images { channels: 1, ..Images::default() },
    );
    assert_eq!(all(&grey)[0].shape("image").unwrap().dims(), [4, 6, 1]);
    let none = Dataset::from_images(Files::list(Vec::<PathBuf>::new()), Images::default());
    assert!(message(&none).contains("the list of files is empty"));
}

#[test]
fn readers_give_their_memory_back() {
    let budget = Budget::new(Bytes::mib(8));
    for data in [
        Dataset::from_npy(fixture("f4.npy")),
        Dataset::from_npz(fixture("compressed.npz")),
        Dataset::from_csv(fixture("pandas.csv"), Csv::default()),
        Dataset::from_tfrecords(fixture("example.tfrecord.gzip"), Compression::Gzip),
    ] {
        assert_eq!(data.prefetch(AUTOTUNE).iter(&budget).unwrap().filter(|e| e.is_ok()).count(), N);
        // Blocks of files stay for the next pass, unless somebody needs their place.
        assert_eq!(budget.held(), budget.spare());
        drop(budget.account("all").reserve(Bytes::mib(8)).unwrap());
        assert_eq!(budget.held(), Bytes::ZERO);
    }
}

#[cfg(feature = "parquet")]
#[test]
fn tables_are_written_and_read_again() {
    let kinds = [DType::F16, DType::F32, DType::F64, DType::I32, DType::I64, DType::U8, DType::Bool];
    let mut components: Vec<Component> = kinds.iter().map(|d| Component::new(d.name(), *d, &[])).collect();
    components.push(Component::new("fixed", DType::F32, &[3]));
    components.push(Component::ragged("ragged", DType::I64, &[None]));
    components.push(Component::new("text", Kind::Bytes, &[]));
    components.push(Component::new("binary", Kind::Bytes, &[]));
    components.push(Component::ragged("words", Kind::Bytes, &[None]));
    let data = Dataset::range(0, 3000, 1).map(components, |row, out| {
        let i = row.get::<i64>("value")?[0];
        out.set("f16", &[], &[half::f16::from_f64(i as f64 / 8.0)])?;
        out.set("f32", &[], &[i as f32 / 3.0])?;
        out.set("f64", &[], &[i as f64 / 3.0])?;
        out.set("i32", &[], &[-(i as i32)])?;
        out.set("i64", &[], &[i << 40])?;
        out.set("u8", &[], &[i as u8])?;
        out.set("bool", &[], &[i % 3 == 0])?;
        out.set("fixed", &[3], &[i as f32, f32::INFINITY, -0.0])?;
        let n = (i % 5) as usize;
        out.set("ragged", &[n], &vec![i; n])?;
        out.string("text", format!("row é {i}").as_bytes())?;
        out.string("binary", &[0xff, i as u8])?;
        out.strings("words", &[n], &vec![b"w".as_slice(); n])
    });
    let folder = std::env::temp_dir().join(format!("plimsoll-tables-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // Little memory makes many row groups and record batches.
    for limit in [Bytes::kib(768), Bytes::mib(64)] {
        let budget = Budget::new(limit);
        let (parquet, arrow) = (folder.join("t.parquet"), folder.join("t.arrow"));
        assert_eq!(data.write_parquet(&parquet, &budget).unwrap(), 3000);
        assert_eq!(data.write_arrow(&arrow, &budget).unwrap(), 3000);
        assert_eq!((budget.held(), std::fs::read_dir(&folder).unwrap().count()), (Bytes::ZERO, 2));
        for back in [Dataset::from_parquet(&parquet, None), Dataset::from_arrow(&arrow, None)] {
            assert_eq!(back.spec().unwrap(), data.spec().unwrap());
            let mut wanted = data.iter(&Budget::unlimited()).unwrap();
            for found in back.iter(&Budget::unlimited()).unwrap() {
                let (found, wanted) = (found.unwrap(), wanted.next().unwrap().unwrap());
                for c in data.spec().unwrap().components() {
                    assert_eq!(found.shape(&c.name).unwrap(), wanted.shape(&c.name).unwrap());
                    match c.kind {
                        Kind::Bytes => assert!(found.strings(&c.name).unwrap().eq(wanted.strings(&c.name).unwrap())),
                        _ => assert_eq!(found.row().bytes(&c.name).unwrap(), wanted.row().bytes(&c.name).unwrap()),
                    }
                }
            }
            assert!(wanted.next().is_none());
        }
    }
    // Nothing to write is a table without rows; what no table holds is refused, and nothing is left behind.
    let budget = Budget::unlimited();
    assert_eq!(data.take(0).write_parquet(folder.join("none.parquet"), &budget).unwrap(), 0);
    assert_eq!(Dataset::from_parquet(folder.join("none.parquet"), None).iter(&budget).unwrap().count(), 0);
    let deep = Dataset::range(0, 4, 1).batch_exact(2).batch_exact(2);
    let error = deep.write_arrow(folder.join("deep.arrow"), &budget).unwrap_err().to_string();
    assert_eq!(
        error,
        "write_arrow: component value: i64[2,2] is neither a scalar nor of one axis of a type that Arrow has"
    );
    let mixed =
        Dataset::from_strings("s", [&b"text"[..]; 9000]).concatenate(&Dataset::from_strings("s", [&b"\xff"[..]]));
    let error = mixed.write_arrow(folder.join("mixed.arrow"), &budget).unwrap_err().to_string();
    assert!(error.ends_with("row 9000: column 's': a string that is not UTF-8, though the first ones are"), "{error}");
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3);
    std::fs::remove_dir_all(folder).unwrap();
}
