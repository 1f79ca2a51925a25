//! Broken and hostile files: an error that names the place and what was expected; never a panic, never memory beyond the budget.

use plimsoll_budget::{Budget, Bytes};
use plimsoll_data::{Component, Compression, Csv, Dataset, Kind, TfRecordWriter};
use plimsoll_tensor::DType;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// A file of this test's own that goes away with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("plimsoll-hostile-{}-{name}", std::process::id())))
    }

    fn with(name: &str, bytes: &[u8]) -> Scratch {
        let scratch = Scratch::new(name);
        std::fs::write(&scratch.0, bytes).unwrap();
        scratch
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Reads everything and gives the first error, without the file's name.
fn error(path: &Path, data: Dataset) -> String {
    let budget = Budget::new(Bytes::mib(8));
    let error = match data.iter(&budget) {
        Ok(mut iter) => iter.find_map(|e| e.err()).expect("an error"),
        Err(error) => error,
    };
    let text = error.to_string();
    assert!(text.starts_with(path.to_str().unwrap()), "the file is named: {text}");
    text[path.to_str().unwrap().len()..].to_string()
}

fn npy(descr: &str, shape: &str, data: usize) -> Vec<u8> {
    let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + data, 0);
    bytes
}

#[test]
fn npy_headers_that_lie() {
    let check = |bytes: &[u8], expected: &str| {
        let file = Scratch::with("lie.npy", bytes);
        let found = error(&file.0, Dataset::from_npy(&file.0));
        assert!(found.contains(expected), "{found}\nexpected {expected}");
    };
    check(
        &npy("'<f4'", "(4, 3)", 40),
        "offset 0: the header says shape [4, 3] of '<f4', which takes 48 bytes, but 40 follow it",
    );
    check(&npy("'<f4'", "(1000000000000000, 4)", 40), "takes 16000000000000000 bytes, but 40 follow it");
    check(&npy("'<f8'", "(4294967296, 4294967296, 4294967296)", 40), "the header");
    check(&npy("'<f4'", "()", 4), "holds a scalar");
    check(&npy("'<f4'", "(1,1,1,1,1,1,1,1,1,1)", 4), "10 axes");
    check(&npy("'|O'", "(4,)", 40), "never loaded");
    check(&npy("'<c8'", "(4,)", 40), "is not supported");
    check(&npy("[('a', '<f4')]", "(4,)", 40), "only plain numbers and strings");
    check(b"PK\x03\x04 something else", "expected the magic bytes of a .npy file, found \"PK");
    check(b"", "expected the magic bytes");
    check(b"\x93NUMPY\x01", "the file ends inside the header, after 7 bytes");
    check(b"\x93NUMPY\x02\x00\xff\xff\xff\xffxx", "the header claims 4294967307 bytes");
    check(b"\x93NUMPY\x07\x00\xff\xff", "version 7 of the format");
    check(b"\x93NUMPY\x01\x00\x10\x00not a dictionary", "the header cannot be parsed");
}

#[test]
fn idx_headers_that_lie() {
    let check = |bytes: &[u8], expected: &str| {
        let file = Scratch::with("lie.idx", bytes);
        let found = error(&file.0, Dataset::from_idx([("x", &file.0)]));
        assert!(found.contains(expected), "{found}\nexpected {expected}");
    };
    check(&[0, 0, 8, 1, 0, 0, 0, 5, 1, 2], "offset 4: sizes [5] take 5 bytes, but 2 follow the header");
    check(&[0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255], "more bytes than can be counted");
    check(&[0, 0, 7, 1, 0, 0, 0, 0], "type 0x07");
    check(&[0, 0, 8, 0], "0 axes");
    check(&[0, 0, 8, 2, 0, 0], "ends inside the header");
    check(&[0x1f, 0x8b, 8, 0], "compressed with gzip");
    check(&[1, 2, 3, 4], "expected the first bytes 0, 0");
}

#[test]
fn csv_rows_of_the_wrong_length_and_type() {
    let file = Scratch::with("bad.csv", b"a,b,c\n1,2,3\n4,5\n7,8,9\n1,x,3\n,2,3\n10,11,12\n");
    let csv = || Csv::default().column("a", DType::I64).column("b", DType::I64).column("c", DType::F32);
    let data = Dataset::from_csv(&file.0, csv());
    let mut iter = data.iter(&Budget::unlimited()).unwrap();
    let mut lines = Vec::new();
    for element in iter.by_ref() {
        lines.push(match element {
            Ok(element) => element.get::<i64>("a").unwrap()[0].to_string(),
            Err(error) => error.to_string().strip_prefix(file.0.to_str().unwrap()).unwrap().to_string(),
        });
    }
    let expected = [
        "1",
        ", line 3: 2 fields, but there are 3 columns",
        "7",
        ", line 5: column 'b': 'x' is not i64",
        ", line 6: column 'a': an empty field, which i64 cannot hold; say what it stands for",
        "10",
    ];
    assert_eq!(lines, expected);
    let mut iter = data.ignore_errors().iter(&Budget::unlimited()).unwrap();
    assert_eq!(iter.by_ref().map(|e| e.unwrap().get::<i64>("a").unwrap()[0]).collect::<Vec<_>>(), [1, 7, 10]);
    assert_eq!(iter.report().errors_ignored, 3);
    let empty = Scratch::with("empty.csv", b"");
    assert_eq!(error(&empty.0, Dataset::from_csv(&empty.0, Csv::default())), ": is empty; a header was expected");
    let wide: Vec<String> = (0..300_000).map(|i| format!("c{i}")).collect();
    let wide = Scratch::with("wide.csv", format!("{}\n", wide.join(",")).as_bytes());
    let found = error(&wide.0, Dataset::from_csv(&wide.0, Csv::default()));
    assert_eq!(found, ", line 1: the row has more than 65536 fields, the most that are read");
    let mut endless = b"a,b\n1,\"".to_vec();
    endless.resize(6 << 20, b'x');
    let endless = Scratch::with("endless.csv", &endless);
    let csv = Csv::default().look_at(0).column("a", DType::I64).column("b", Kind::Bytes);
    let data = Dataset::from_csv(&endless.0, csv);
    let found = data.iter(&Budget::unlimited()).unwrap().find_map(|e| e.err()).unwrap().to_string();
    assert!(found.contains("line 2: the row has more than 4194304 bytes; is a quote missing?"), "{found}");
    let found = Dataset::from_lines(&endless.0).iter(&Budget::unlimited()).unwrap().find_map(|e| e.err()).unwrap();
    assert!(found.to_string().contains("line 2: has more than 4194304 bytes"), "{found}");
}

fn masked(bytes: &[u8]) -> [u8; 4] {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8).to_le_bytes()
}

#[test]
fn records_with_wrong_sums_and_lengths() {
    let file = Scratch::new("sums.tfrecord");
    let mut writer = TfRecordWriter::create(&file.0, Compression::None).unwrap();
    [&b"one"[..], b"two", b"three"].iter().for_each(|r| writer.write(r).unwrap());
    writer.finish().unwrap();
    let good = std::fs::read(&file.0).unwrap();
    let read = |bytes: &[u8]| {
        std::fs::write(&file.0, bytes).unwrap();
        let data = Dataset::from_tfrecords(&file.0, Compression::None);
        data.iter(&Budget::new(Bytes::mib(1)))
            .unwrap()
            .map(|e| match e {
                Ok(e) => String::from_utf8(e.row().string("record").unwrap().to_vec()).unwrap(),
                Err(e) => e.to_string().strip_prefix(file.0.to_str().unwrap()).unwrap().to_string(),
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(read(&good), ["one", "two", "three"]);
    // A bit of the second record: only that one is lost.
    let mut bad = good.clone();
    bad[19 + 12] ^= 1;
    let found = read(&bad);
    assert_eq!((found.len(), &found[0][..], &found[2][..]), (3, "one", "three"));
    assert!(found[1].starts_with(", offset 19: the checksum of a record of 3 bytes is "), "{}", found[1]);
    // A bit of its length: nobody knows where the third begins.
    let mut bad = good.clone();
    bad[19] ^= 1;
    let found = read(&bad);
    assert_eq!(found.len(), 2);
    assert!(found[1].starts_with(", offset 19: the checksum of a record's length is "), "{}", found[1]);
    // Cut off anywhere: whole records, then one error.
    for cut in 1..good.len() {
        let found = read(&good[..cut]);
        let whole = [0, 19, 38, good.len()].iter().filter(|end| **end <= cut).count() - 1;
        let clean = [19, 38].contains(&cut);
        assert_eq!(found.len(), whole + !clean as usize, "cut at {cut}: {found:?}");
    }
    // Lengths with good sums that nothing stands behind.
    for length in [64u64 << 30, 1 << 40, 1 << 62, u64::MAX] {
        let mut bad = good.clone();
        bad.extend_from_slice(&length.to_le_bytes());
        bad.extend_from_slice(&masked(&length.to_le_bytes()));
        bad.extend_from_slice(&[0; 64]);
        let found = read(&bad);
        assert_eq!(found.len(), 4);
        assert_eq!(found[3], format!(", offset 59: a record claims {length} bytes, but at most 64 follow"));
    }
}

#[test]
fn broken_messages_behind_good_sums() {
    let components = || {
        [
            Component::new("x", DType::F32, &[3]),
            Component::new("name", Kind::Bytes, &[]),
            Component::ragged("ragged", DType::I64, &[None]),
        ]
    };
    let file = Scratch::new("messages.tfrecord");
    let data = Dataset::from_tfrecords(fixture("example.tfrecord"), Compression::None);
    let first = data.iter(&Budget::unlimited()).unwrap().nth(3).unwrap().unwrap();
    let good = first.row().string("record").unwrap().to_vec();
    let mut writer = TfRecordWriter::create(&file.0, Compression::None).unwrap();
    let mut state = 1u64;
    for _ in 0..5000 {
        let mut bytes = good.clone();
        for _ in 0..3 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] = (state >> 20) as u8;
        }
        writer.write(&bytes[..bytes.len() - (state >> 60) as usize]).unwrap();
    }
    writer.finish().unwrap();
    let data = Dataset::from_tfrecords(&file.0, Compression::None).parse_example("record", components());
    let mut iter = data.ignore_errors().iter(&Budget::new(Bytes::mib(4))).unwrap();
    let good = iter.by_ref().map(Result::unwrap).count() as u64;
    assert_eq!(good + iter.report().errors_ignored, 5000);
    assert!(good > 10 && iter.report().errors_ignored > 1000, "{good}");
}

#[cfg(feature = "images")]
#[test]
fn pictures_that_are_none_or_too_large() {
    use plimsoll_data::Images;
    let text = Scratch::with("text.png", b"no picture");
    assert_eq!(error(&text.0, Dataset::from_images(&text.0, Images::default())), ": is neither JPEG nor PNG");
    // A header that claims 60,000 x 60,000 pixels.
    let mut bytes = std::fs::read(fixture("images/cats/0.png")).unwrap();
    bytes[16..24].copy_from_slice(&[0, 0, 0xea, 0x60, 0, 0, 0xea, 0x60]);
    let sum = flate2_crc(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    let huge = Scratch::with("huge.png", &bytes);
    let found = error(&huge.0, Dataset::from_images(&huge.0, Images::default()));
    assert!(found.contains("60000 x 60000 pixels") || found.contains("decoded"), "{found}");
}

#[cfg(feature = "images")]
fn flate2_crc(bytes: &[u8]) -> u32 {
    let mut sum = flate2::Crc::new();
    sum.update(bytes);
    sum.sum()
}
