//! The least memory that a data set states is enough, for every source and every stage: random chains run to the end with exactly so
//! much, and with a little more, and give what they give without a limit.
//!
//! `PLIMSOLL_CASES` and `PLIMSOLL_FIRST_CASE` choose others than those of every day; with `PLIMSOLL_SAY` every case says how much of
//! its least it used.
#![cfg(all(feature = "images", feature = "parquet"))]

mod common;

use common::Random;
use plimsoll_budget::{Budget, Bytes};
use plimsoll_data::{
    AUTOTUNE, Calls, Component, Compression, Csv, Dataset, Element, Error, Kind, Options, Padding, TfRecordWriter,
};
use plimsoll_tensor::DType;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The components of an element: their shapes and bytes.
type Cells = Vec<(Vec<usize>, Vec<u8>)>;

fn cells(element: &Element) -> Cells {
    let row = element.row();
    let cell = |c: &Component| {
        let values = match c.kind {
            Kind::Number(_) => row.bytes(&c.name).unwrap().to_vec(),
            Kind::Bytes => row.strings(&c.name).unwrap().flat_map(|s| [s, b"|"].concat()).collect(),
        };
        (row.shape(&c.name).unwrap().dims().to_vec(), values)
    };
    element.spec().components().iter().map(cell).collect()
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A length as records have them: mostly short, now and then far longer.
fn length(random: &mut Random) -> usize {
    match random.below(40) {
        0 => 20_000 + random.below(80_000) as usize,
        1..4 => random.below(6_000) as usize,
        _ => random.below(60) as usize,
    }
}

fn text(random: &mut Random) -> String {
    let n = length(random);
    (0..n).map(|i| (b'a' + ((i * i + n) % 26) as u8) as char).collect()
}

/// Files of every format, small ones and some with long records.
fn write_files(folder: &Path) {
    let mut random = Random(99);
    for number in 0..3 {
        let rows = [40, 7, 120][number];
        let path = |name: &str| folder.join(format!("{number}.{name}"));
        let mut csv = String::from("a,text,b,more\n");
        let mut numbers = String::from("a,b,c\n");
        let mut lines = String::new();
        let mut records = TfRecordWriter::create(path("tfrecord"), Compression::None).unwrap();
        let mut packed = TfRecordWriter::create(path("tfrecord.gz"), Compression::Gzip).unwrap();
        for row in 0..rows {
            let more = if random.one_in(3) { format!("\"{}, {}\"", text(&mut random), row) } else { "x".into() };
            csv += &format!("{row},{},{}.5,{more}\n", text(&mut random), row * 2);
            numbers += &format!("{row},{},{}\n", row * 3, "7".repeat(length(&mut random).min(9) + 1));
            lines += &format!("{}{}", text(&mut random), if row % 5 == 0 { "\r\n" } else { "\n" });
            records.write(text(&mut random).as_bytes()).unwrap();
            packed.write(text(&mut random).as_bytes()).unwrap();
        }
        records.finish().unwrap();
        packed.finish().unwrap();
        std::fs::write(path("csv"), csv).unwrap();
        std::fs::write(path("numbers.csv"), numbers).unwrap();
        std::fs::write(path("txt"), &lines).unwrap();
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(lines.as_bytes()).unwrap();
        std::fs::write(path("txt.gz"), gz.finish().unwrap()).unwrap();
        let budget = Budget::unlimited();
        let strings: Vec<String> = (0..rows).map(|_| text(&mut random)).collect();
        let mixed = Dataset::range(0, rows as i64, 1).map(
            [
                Component::new("x", DType::F32, &[3]),
                Component::ragged("list", DType::I64, &[None]),
                Component::new("s", Kind::Bytes, &[]),
            ],
            move |row, out| {
                let i = row.get::<i64>("value")?[0];
                out.set("x", &[3], &[i as f32, 1.5, -2.0])?;
                let n = strings[i as usize].len() / 50;
                out.set("list", &[n], &vec![i; n])?;
                out.string("s", strings[i as usize].as_bytes())
            },
        );
        mixed.write_tfrecords(path("examples"), Compression::None, &budget).unwrap();
        mixed.write_parquet(path("parquet"), &budget).unwrap();
        mixed.write_arrow(path("arrow"), &budget).unwrap();
        mixed.select(&["x"]).write_parquet(path("x.parquet"), &budget).unwrap();
        mixed.select(&["x"]).write_npy("x", path("npy"), &budget).unwrap();
        let mut archive = zip::ZipWriter::new(std::fs::File::create(path("npz")).unwrap());
        let options = zip::write::SimpleFileOptions::default();
        let kind = [zip::CompressionMethod::Deflated, zip::CompressionMethod::Stored][number % 2];
        archive.start_file("x.npy", options.compression_method(kind)).unwrap();
        archive.write_all(&std::fs::read(path("npy")).unwrap()).unwrap();
        archive.finish().unwrap();
        for i in 0..rows / 4 {
            let (width, height) = (random.below(60) as u32 + 1, random.below(60) as u32 + 1);
            let pixels = (0..width * height * 3).map(|v| (v * 7 + i as u32) as u8).collect();
            let picture = image::RgbImage::from_raw(width, height, pixels).unwrap();
            let class = folder.join(format!("images{number}/{}", i % 2));
            std::fs::create_dir_all(&class).unwrap();
            let ending = if i % 3 == 0 { "jpg" } else { "png" };
            let path = class.join(format!("{i}.{ending}"));
            match i % 4 {
                0 => image::DynamicImage::ImageRgb8(picture).to_luma8().save(path).unwrap(),
                _ => picture.save(path).unwrap(),
            }
        }
    }
}

fn source(folder: &Path, random: &mut Random) -> (Dataset, String) {
    use plimsoll_data::{Files, Images};
    let number = random.below(3);
    let file = |name: &str| match random.0 % 3 {
        0 => Files::list((0..3).map(|n| folder.join(format!("{n}.{name}")))),
        _ => Files::from(folder.join(format!("{number}.{name}"))),
    };
    let example = [
        Component::new("x", DType::F32, &[3]),
        Component::ragged("list", DType::I64, &[None]),
        Component::new("s", Kind::Bytes, &[]),
    ];
    let kind = random.0 / 8 % 17;
    let images = folder.join(format!("images{number}"));
    let data = match kind {
        0 => Dataset::from_csv(file("csv"), Csv::default()),
        1 => Dataset::from_csv(file("csv"), Csv::default().select(&["b", "a"])),
        2 => Dataset::from_csv(file("numbers.csv"), Csv::default().column("c", Kind::Bytes)),
        3 => Dataset::from_lines(file("txt")),
        4 => Dataset::from_lines_with(file("txt.gz"), Compression::Gzip),
        5 => Dataset::from_tfrecords(file("tfrecord"), Compression::None),
        6 => Dataset::from_tfrecords(file("tfrecord.gz"), Compression::Gzip),
        7 => Dataset::from_tfrecords(file("examples"), Compression::None).parse_example("record", example),
        8 => Dataset::from_tfrecords(file("examples"), Compression::None)
            .parse_example("record", example[..1].to_vec())
            .parallel(Calls::Fixed(2)),
        9 => Dataset::from_image_folder(images, Images::default()),
        10 => Dataset::from_image_folder(images, Images::resized(9, 14)).prefetch(AUTOTUNE),
        11 => Dataset::from_parquet(file("parquet"), None),
        12 => Dataset::from_parquet(file("x.parquet"), None),
        13 => Dataset::from_arrow(file("arrow"), Some(&["s", "x"])),
        14 => Dataset::from_npz(folder.join(format!("{number}.npz"))),
        15 => Dataset::from_npy(file("npy")),
        _ => Dataset::from_iter(
            [Component::new("n", DType::I64, &[2])],
            |_| 0..50i64,
            |i, out| out.set("n", &[2], &[i, -i]),
        ),
    };
    (data, format!("source {kind} of file {number}"))
}

fn n_open(component: &Component) -> usize {
    component.dims.as_ref().map_or(9, |dims| dims.iter().filter(|d| d.is_none()).count())
}

/// Adds one random stage.
fn extend(data: Dataset, other: Dataset, random: &mut Random) -> (Dataset, String) {
    let spec = data.spec().unwrap();
    let rank = |c: &Component| c.dims.as_ref().map_or(9, Vec::len);
    let highest = spec.components().iter().map(rank).max().unwrap();
    let lowest = spec.components().iter().map(rank).min().unwrap();
    let most_open = spec.components().iter().map(n_open).max().unwrap();
    let (size, seed) = (random.below(7) as usize + 1, random.below(1000));
    let kind = random.below(22);
    let data = match kind {
        0 if spec.bytes().is_some() => {
            let names: Vec<String> = spec.components().iter().map(|c| c.name.clone()).collect();
            let data = data.map(spec.components().to_vec(), move |row, out| {
                names.iter().try_for_each(|name| out.copy(name, row, name))
            });
            if random.one_in(2) { data.parallel(Calls::Fixed(size)) } else { data }
        }
        1 => {
            let names: Vec<&str> = spec.components().iter().rev().map(|c| &c.name[..]).collect();
            let data = data.select(&names);
            if random.one_in(2) { data.parallel(AUTOTUNE) } else { data }
        }
        2 => data.map([Component::new("first", DType::I64, &[])], |row, out| {
            let c = &row.spec().components()[0];
            out.set("first", &[], &[row.shape(&c.name)?.elements() as i64])
        }),
        3 => data.filter(|row| Ok(row.index() % 3 != 1)),
        4 => data.shuffle(size as u64 * 3, seed),
        5 if data.is_indexable().unwrap() => data.shuffle(None, seed),
        6 | 7 if highest < 6 && most_open == 0 => data.batch(size),
        8 if highest < 6 && most_open == 0 => data.batch_exact(size),
        6..=9 if highest < 6 && most_open < 2 => data.padded_batch(size, Padding::default()),
        10 if highest < 6 && most_open == 0 => {
            data.window(size, random.below(4) as usize + 1, random.below(3) as usize + 1, random.one_in(2))
        }
        11 if lowest > 0 => data.unbatch(),
        12 => {
            let whole = data.clone();
            let (cycle, block, parallel) =
                (random.below(3) as usize + 1, random.below(3) as usize + 1, random.one_in(2));
            Dataset::range(0, 4, 1).interleave(spec.components().to_vec(), cycle, block, parallel, move |row| {
                Ok(whole.shard(4, row.get::<i64>("value")?[0] as u64))
            })
        }
        13 => data.cache(),
        14 => data.shuffle_on_disk(std::env::temp_dir(), seed),
        15 => data.prefetch(if random.one_in(2) { AUTOTUNE } else { Calls::Fixed(size) }),
        16 => Dataset::zip(&[data, other]),
        17 => data.concatenate(&data.filter(|row| Ok(row.index() % 2 == 0))),
        18 => [data.take(size as u64 * 9), data.skip(size as u64), data.shard(size as u64, 0)]
            [random.below(3) as usize]
            .clone(),
        19 => data.repeat(2),
        20 => data.ignore_errors(),
        21 if spec.find("number").is_none() => data.enumerate("number", 5),
        _ => return (data, "nothing".into()),
    };
    (data, format!("{kind}({size}, {seed})"))
}

fn all(data: &Dataset, budget: &Budget, threads: usize) -> Result<Vec<Cells>, Error> {
    data.iter_with(&Options::new(budget).threads(threads).epoch(1))?.map(|e| Ok(cells(&e?))).collect()
}

/// The elements put into memory of the caller, as far as they are numbers.
fn all_into(data: &Dataset, budget: &Budget, expected: &[Cells]) -> Result<Vec<Cells>, Error> {
    let mut iter = data.iter_with(&Options::new(budget).threads(2).epoch(1))?;
    let components = iter.spec().components().to_vec();
    // Elements that are left out of a last batch may have been begun.
    let most = |i: usize| 8 * expected.iter().map(|cells| cells[i].1.len()).max().unwrap_or(0);
    let mut memory: Vec<Option<Vec<u64>>> = components
        .iter()
        .enumerate()
        .map(|(i, c)| matches!(c.kind, Kind::Number(_)).then(|| vec![0; most(i).div_ceil(8)]))
        .collect();
    let mut found = Vec::new();
    loop {
        // SAFETY: numbers are plain bytes.
        let bytes = |words: &mut Vec<u64>| unsafe {
            std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), words.len() * 8)
        };
        let mut places: Vec<Option<&mut [u8]>> = memory.iter_mut().map(|words| words.as_mut().map(bytes)).collect();
        let Some(shapes) = iter.next_into(&mut places)? else { return Ok(found) };
        let cell = |i: usize| {
            let n = match components[i].kind {
                Kind::Number(dtype) => shapes[i].elements() * dtype.size(),
                Kind::Bytes => 0,
            };
            (shapes[i].dims().to_vec(), places[i].as_ref().map_or(Vec::new(), |place| place[..n].to_vec()))
        };
        found.push((0..components.len()).map(cell).collect());
    }
}

/// With exactly the least memory, and with some more, a random chain gives what it gives without a limit. Says how much of the least
/// was needed; `None` where the chain has an error of its own.
fn judge(folder: &Path, case: u64) -> Option<f64> {
    let (data, text) = chain(folder, case);
    let Ok(expected) = all(&data, &Budget::unlimited(), 2) else { return None };
    // Made anew for every run, so that nothing is cached.
    let make = || chain(folder, case).0;
    let Some(least) = make().least_memory().unwrap() else {
        // How many items an iterator has nobody knows, so neither what it takes to keep them.
        assert!(text.contains("source 16") && text.contains("| 13"), "{text}: nothing is stated");
        return None;
    };
    let budget = Budget::new(least);
    let found = all(&make(), &budget, 2).unwrap_or_else(|error| panic!("{text}\nwith {least}: {error}"));
    assert!(found == expected, "{text}: other elements with {least}");
    let used = budget.peak().0 as f64 / least.0 as f64;
    for percent in [101, 110, 150, 250] {
        let more = Bytes(least.0 * percent / 100 + case % 2000);
        let found =
            all(&make(), &Budget::new(more), 3).unwrap_or_else(|e| panic!("{text}\nwith {more} of {least}: {e}"));
        assert!(found == expected, "{text}: other elements with {more}");
    }
    if std::env::var("PLIMSOLL_SAY").is_ok() {
        println!("{:.0} % of {least}: {text}", used * 100.0);
    }
    if expected.is_empty() {
        return Some(used);
    }
    let least = make().least_memory_into(|c| c.kind != Kind::Bytes).unwrap().expect("as above");
    let found = all_into(&make(), &Budget::new(least), &expected);
    let found = found.unwrap_or_else(|error| panic!("{text}\ninto given memory with {least}: {error}"));
    let numbers = |cells: &Cells| -> Cells {
        let is_number = |i: usize| matches!(data.spec().unwrap().components()[i].kind, Kind::Number(_));
        cells.iter().enumerate().map(|(i, c)| (c.0.clone(), if is_number(i) { c.1.clone() } else { vec![] })).collect()
    };
    assert!(found.iter().eq(expected.iter().map(numbers).collect::<Vec<_>>().iter()), "{text}: other numbers");
    Some(used)
}

/// The chain of a case.
fn chain(folder: &Path, case: u64) -> (Dataset, String) {
    let mut random = Random(case.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..8).for_each(|_| {
        random.below(2);
    });
    let (mut data, mut text) = source(folder, &mut random);
    for _ in 0..random.below(5) {
        let (other, what_other) = source(folder, &mut random);
        let (next, what) = extend(data, other, &mut random);
        (data, text) = (next, format!("{text} | {what}"));
        if what.starts_with("16") {
            text += &format!(" with {what_other}");
        }
    }
    (data, format!("case {case}: {text}"))
}

#[test]
fn random_chains_work_with_the_least_that_they_state() {
    let folder = Folder(std::env::temp_dir().join(format!("plimsoll-least-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    write_files(&folder.0);
    let number = |name: &str, usual: u64| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (first, n) = (number("PLIMSOLL_FIRST_CASE", 0), number("PLIMSOLL_CASES", 150));
    let mut used = Vec::new();
    let mut failed = Vec::new();
    for case in first..first + n {
        match std::panic::catch_unwind(|| judge(&folder.0, case)) {
            Ok(share) => used.extend(share),
            Err(_) => failed.push(case),
        }
    }
    used.sort_by(f64::total_cmp);
    let at = |part: usize| used[(used.len() - 1) * part / 10] * 100.0;
    println!(
        "{} of {n} chains; of the least they used {:.0} %, {:.0} %, {:.0} % (a tenth, half, all below)",
        used.len(),
        at(1),
        at(5),
        at(10)
    );
    assert!(failed.is_empty(), "{} of {n} failed: {failed:?}", failed.len());
    assert!(used.len() as u64 * 2 > n);
}

/// Where only a part was looked through there is room for records twice as long; a longer one is named.
#[test]
fn a_record_longer_than_planned_for_is_named() {
    let folder = Folder(std::env::temp_dir().join(format!("plimsoll-longer-{}", std::process::id())));
    std::fs::create_dir_all(&folder.0).unwrap();
    let (txt, csv, gz) = (folder.0.join("a.txt"), folder.0.join("a.csv"), folder.0.join("a.gz"));
    // More than is looked through, then a line that nobody expects.
    let line = format!("{}\n", "abcdefghi".repeat(111));
    let many = line.repeat((68 << 20) / line.len());
    let long = "z".repeat(500_000);
    std::fs::write(&txt, format!("{many}{long}\nend\n")).unwrap();
    std::fs::write(&csv, format!("text\n{many}{long}\nend\n")).unwrap();
    let mut records = TfRecordWriter::create(&gz, Compression::Gzip).unwrap();
    (0..many.len() / line.len()).for_each(|_| records.write(line.as_bytes()).unwrap());
    records.write(long.as_bytes()).unwrap();
    records.finish().unwrap();
    let offset = many.len();
    let n_records = many.len() / line.len();
    for (data, path, at) in [
        (Dataset::from_lines(&txt), &txt, offset),
        (Dataset::from_csv(&csv, Csv::default()), &csv, offset + 5),
        (Dataset::from_tfrecords(&gz, Compression::Gzip), &gz, n_records * (line.len() + 16)),
    ] {
        let data = data.shuffle(3, 1);
        let least = data.least_memory().unwrap().unwrap();
        assert!(least < Bytes::kib(400), "{}: {least}", path.display());
        let run = |limit: Bytes| data.iter(&Budget::new(limit)).unwrap().find_map(|element| element.err());
        let Some(Error::TooLarge { place, bytes, planned, limit, error }) = run(least) else {
            panic!("{}: nothing is said", path.display());
        };
        assert_eq!(place, plimsoll_data::Place::Offset(path.clone(), at as u64));
        assert!((500_000..=500_001).contains(&bytes.0), "{}: {bytes}", path.display());
        assert!((1000..2100).contains(&planned.0) && error.limit == least, "{planned}, {error}");
        let text = Error::TooLarge { place, bytes, planned, limit, error }.to_string();
        assert!(text.contains("a record of") && text.contains(&format!("a limit of {limit} would do")), "{text}");
        assert!(run(limit).is_none(), "{}: {limit} will not do", path.display());
    }
}
