//! Going on in the middle: the sequence is unbroken, and what lies before the place is not read again.

use plimsoll_budget::{Budget, Bytes};
use plimsoll_data::{Calls, Component, Dataset, Error, Options, Padding};
use plimsoll_tensor::DType;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ROWS: i64 = 100_000;

/// Numbers in random order; says at which place the first one was that was made.
fn source(first: &Arc<AtomicU64>) -> Dataset {
    let first = first.clone();
    Dataset::range(0, ROWS, 1).shuffle(None, 3).enumerate("place", 0).map_in_place(
        "place",
        move |place: &mut [i64]| {
            first.fetch_min(place[0] as u64, Ordering::Relaxed);
        },
    )
}

fn value() -> [Component; 1] {
    [Component::new("value", DType::I64, &[])]
}

/// Chains in which elements are left out or added, evenly over the source.
fn chains(made: &Arc<AtomicU64>) -> Vec<(&'static str, Dataset)> {
    let keep = |data: Dataset, n: i64| data.filter(move |row| Ok(row.get::<i64>("value")?[0] % n != 1));
    let each = |row: &plimsoll_data::Row<'_>| {
        let value = row.get::<i64>("value")?[0];
        Ok(Dataset::range(value, value + value % 4, 1))
    };
    vec![
        ("filter", keep(source(made), 3)),
        ("few are left", source(made).filter(|row| Ok(row.get::<i64>("value")?[0] % 100 == 7))),
        ("filter, batch, prefetch", keep(source(made), 3).batch(7).prefetch(Calls::Fixed(4))),
        ("two filters", keep(keep(source(made), 3).skip(11), 5).shard(2, 1).batch(3).prefetch(Calls::Fixed(4))),
        (
            "map in parallel",
            keep(source(made), 4)
                .map(value(), |row, out| out.set("value", &[], &[row.get::<i64>("value")?[0] * 2]))
                .parallel(Calls::Fixed(2))
                .enumerate("number", 0)
                .take(80_000)
                .batch(5),
        ),
        ("window", keep(source(made), 3).window(4, 3, 2, false).prefetch(Calls::Fixed(4))),
        ("padded batch", keep(source(made), 3).padded_batch(6, Padding::default())),
        (
            "errors",
            source(made)
                .map(value(), |row, out| match row.get::<i64>("value")?[0] {
                    v if v % 7 == 0 => Err(Error::element("sevens are bad")),
                    v => out.set("value", &[], &[v]),
                })
                .ignore_errors()
                .batch(4)
                .prefetch(Calls::Fixed(4)),
        ),
        ("flat map", source(made).flat_map(value(), each).batch(9).prefetch(Calls::Fixed(4))),
        ("filter, flat map", keep(source(made), 3).flat_map(value(), each)),
        ("unbatch", keep(source(made), 3).batch(10).unbatch().batch(3)),
    ]
}

fn values(element: Result<plimsoll_data::Element, Error>) -> Vec<i64> {
    element.unwrap().get::<i64>("value").unwrap().to_vec()
}

#[test]
fn what_lies_before_the_place_is_not_read_again() {
    let (made, first_again) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let budget = Budget::new(Bytes::mib(4));
    let mut places = 0;
    let mut state = 99u64;
    for ((name, data), (_, again)) in chains(&made).into_iter().zip(chains(&first_again)) {
        let options = |threads| Options::new(&budget).threads(threads).epoch(1);
        let expected: Vec<Vec<i64>> = data.iter_with(&options(2)).unwrap().map(values).collect();
        let mut iter = data.iter_with(&options(2)).unwrap();
        let mut at = 0;
        // About twenty places along one pass, from each of which another one goes on.
        while at < expected.len() {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let step = (state >> 33) as usize % (expected.len() / 10) + 1;
            at += iter.by_ref().take(step).count();
            let position = iter.save();
            assert!(position.len() <= 80, "{name}: {} bytes", position.len());
            first_again.store(u64::MAX, Ordering::Relaxed);
            let mut rest = again.resume(&position, &options(places % 3 + 1)).unwrap();
            let first: Vec<Vec<i64>> = rest.by_ref().take(3).map(values).collect();
            drop(rest);
            assert_eq!(first, expected[at..expected.len().min(at + 3)], "{name} at {at}");
            // What lies behind the nearest note, and blocks of 32 KiB on the way.
            let (from, at_place) =
                (first_again.load(Ordering::Relaxed), at as u64 * ROWS as u64 / expected.len() as u64);
            let what = format!("{name}: made from {from} on, at {at} of {}, which is near {at_place}", expected.len());
            assert!(from.saturating_add(3 * 4096) >= at_place, "{what}");
            places += 1;
            if places % 5 == 0 {
                let rest = again.resume(&position, &options(2)).unwrap().map(values);
                assert!(rest.eq(expected[at..].iter().cloned()), "{name} at {at}");
            }
        }
    }
    assert!(places > 200, "{places}");
}

#[test]
fn data_sets_of_elements_do_not_fill_the_report() {
    let each = |row: &plimsoll_data::Row<'_>| {
        let value = row.get::<i64>("value")?[0];
        Ok(Dataset::range(value, value + 1, 1))
    };
    let data = Dataset::range(0, 5000, 1).flat_map(value(), each);
    let mut iter = data.iter(&Budget::unlimited()).unwrap();
    assert_eq!(iter.by_ref().count(), 5000);
    let stages = iter.report().stages;
    assert!(stages.len() <= 65, "{}", stages.len());
    assert!(stages.iter().any(|stage| stage.name == "others" && stage.elements > 4900));
}

#[test]
fn a_position_with_marks_from_elsewhere_is_refused() {
    let data = Dataset::range(0, 100, 1).filter(|row| Ok(row.get::<i64>("value")?[0] % 2 == 0));
    let budget = Budget::unlimited();
    let mut iter = data.iter(&budget).unwrap();
    assert_eq!(iter.by_ref().take(20).count(), 20);
    let position = iter.save();
    assert_eq!(position.len(), 8 + 5 * 8);
    let rest = data.resume(&position, &Options::new(&budget)).unwrap();
    assert_eq!(rest.map(values).collect::<Vec<_>>()[0], [40]);
    // More elements of the input than there are, cut off words, and a mark that is ahead, which is of no use.
    let mut far = position.clone();
    far[40..].copy_from_slice(&1000u64.to_le_bytes());
    let error = data.resume(&far, &Options::new(&budget)).err().unwrap().to_string();
    assert!(error.contains("1000 elements of the input, but there are 100"), "{error}");
    assert!(data.resume(&position[..40], &Options::new(&budget)).is_err());
    assert!(data.resume(&position[..45], &Options::new(&budget)).is_err());
    let mut ahead = position.clone();
    ahead[32..40].copy_from_slice(&21u64.to_le_bytes());
    let rest = data.resume(&ahead, &Options::new(&budget)).unwrap();
    assert_eq!(rest.map(values).collect::<Vec<_>>()[0], [40]);
    assert_eq!(data.resume(&position[..32], &Options::new(&budget)).unwrap().map(values).next().unwrap(), [40]);
}

/// Numbers of which about one in nine is bad, found by number or one after another.
fn with_bad_ones(n: i64, seed: i64, by_number: bool) -> Dataset {
    let source = Dataset::range(0, n, 1);
    let source = if by_number { source } else { source.filter(|_| Ok(true)) };
    source.map(value(), move |row, out| match row.get::<i64>("value")?[0] {
        v if (v * 7919 + seed * 104_729) % 1009 % 9 == 0 => Err(Error::element(format!("{v} is bad"))),
        v => out.set("value", &[], &[v]),
    })
}

type Chain = fn(&Dataset) -> Dataset;

/// What can stand behind elements of which some are bad.
const CHAINS: &[(&str, Chain)] = &[
    ("nothing", |data| data.clone()),
    ("batch", |data| data.batch(4)),
    ("full batches", |data| data.batch_exact(5)),
    ("padded batch", |data| data.padded_batch(3, Padding::default())),
    ("windows that overlap", |data| data.window(4, 2, 1, false)),
    ("windows with gaps", |data| data.window(3, 5, 2, true)),
    ("batches of batches", |data| data.batch_exact(2).batch(3)),
    ("take, skip", |data| data.skip(7).take(60)),
    ("shard", |data| data.shard(3, 1).batch(2)),
    ("repeat", |data| data.repeat(2).batch(6)),
    ("concatenate", |data| data.concatenate(&data.skip(50)).batch(7)),
    ("zip", |data| Dataset::zip(&[data.clone(), data.skip(3)]).rename(&[("1/value", "value")]).batch(2)),
    ("enumerate", |data| data.enumerate("number", 0).batch(3)),
    ("unbatch", |data| data.batch_exact(3).unbatch().batch(2)),
    ("prefetch", |data| data.prefetch(Calls::Fixed(5)).batch(3).prefetch(Calls::Fixed(2))),
];

/// What an iterator gives, errors in words.
fn outcome(element: Result<plimsoll_data::Element, Error>) -> Result<Vec<i64>, String> {
    match element {
        Ok(element) => Ok(element.get::<i64>("value").unwrap().to_vec()),
        Err(error) => Err(error.to_string()),
    }
}

#[test]
fn a_bad_element_counts_the_same_whichever_way_it_is_reached() {
    for (name, chain) in CHAINS {
        for seed in 0..4 {
            let all = |by_number| -> Vec<_> {
                let data = chain(&with_bad_ones(100, seed, by_number));
                data.iter(&Budget::unlimited()).unwrap().map(outcome).map(|o| o.map_err(drop)).collect()
            };
            let expected = all(true);
            assert!(expected.iter().any(Result::is_err) && expected.iter().any(Result::is_ok), "{name} {seed}");
            assert_eq!(all(false), expected, "{name} {seed}");
        }
    }
}

#[test]
fn bad_elements_do_not_move_the_place_at_which_a_pass_goes_on() {
    let budget = Budget::new(Bytes::mib(2));
    let mut places = 0;
    for (name, chain) in CHAINS {
        for (seed, ignored) in [(0, false), (1, true), (2, true)] {
            for by_number in [false, true] {
                let data = chain(&with_bad_ones(90, seed, by_number));
                let data = if ignored { data.ignore_errors().prefetch(Calls::Fixed(3)) } else { data };
                let expected: Vec<_> = data.iter(&budget).unwrap().map(outcome).collect();
                assert_eq!(expected.iter().any(Result::is_err), !ignored, "{name}");
                let mut iter = data.iter_with(&Options::new(&budget).threads(2)).unwrap();
                for at in 0..=expected.len() {
                    let options = Options::new(&budget).threads(places % 3 + 1);
                    let rest = data.resume(&iter.save(), &options).unwrap().map(outcome);
                    assert!(rest.eq(expected[at..].iter().cloned()), "{name} {seed} {by_number}, behind {at}");
                    places += 1;
                    iter.next();
                }
            }
        }
    }
    assert!(places > 2000, "{places}");
}

#[cfg(feature = "parquet")]
#[test]
fn rows_lost_with_a_broken_page_are_lost_however_they_are_reached() {
    use arrow_array::{Int64Array, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;
    use parquet::file::reader::{FileReader, SerializedFileReader};
    let path = std::env::temp_dir().join(format!("plimsoll-resume-{}.parquet", std::process::id()));
    let pages = WriterProperties::builder()
        .set_dictionary_enabled(false)
        .set_data_page_row_count_limit(10)
        .set_write_batch_size(10)
        .set_compression(parquet::basic::Compression::SNAPPY);
    let table = |first: i64| {
        let numbers = |factor: i64| Arc::new(Int64Array::from_iter_values((first..first + 40).map(|v| v * factor)));
        RecordBatch::try_from_iter([("value", numbers(1) as _), ("other", numbers(7919) as _)]).unwrap()
    };
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, table(0).schema(), Some(pages.build())).unwrap();
    for group in 0..5 {
        writer.write(&table(group * 40)).unwrap();
        writer.flush().unwrap();
    }
    writer.close().unwrap();
    // A page in the middle of a column, and the first of another.
    let mut bytes = std::fs::read(&path).unwrap();
    let metadata = SerializedFileReader::new(std::fs::File::open(&path).unwrap()).unwrap();
    for (group, column, part) in [(1, 1, 0.6), (3, 0, 0.12)] {
        let column = metadata.metadata().row_group(group).column(column);
        let at = column.data_page_offset() as usize + (column.compressed_size() as f64 * part) as usize;
        bytes[at..at + 12].fill(0xff);
    }
    std::fs::write(&path, bytes).unwrap();
    check_lost(Dataset::from_parquet(&path, None), 20..=80);
    std::fs::remove_file(path).unwrap();
}

#[cfg(feature = "parquet")]
#[test]
fn rows_lost_with_a_broken_record_batch_are_lost_however_they_are_reached() {
    use arrow_array::{Int64Array, RecordBatch};
    use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
    let path = std::env::temp_dir().join(format!("plimsoll-resume-{}.arrow", std::process::id()));
    let table = |first: i64| {
        let numbers = Arc::new(Int64Array::from_iter_values((first..first + 40).map(|v| v * 7919)));
        RecordBatch::try_from_iter([("value", numbers as _)]).unwrap()
    };
    let zstd = IpcWriteOptions::default().try_with_compression(Some(arrow_ipc::CompressionType::ZSTD)).unwrap();
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = FileWriter::try_new_with_options(file, &table(0).schema(), zstd).unwrap();
    (0..5).for_each(|batch| writer.write(&table(batch * 40)).unwrap());
    writer.finish().unwrap();
    drop(writer);
    let mut bytes = std::fs::read(&path).unwrap();
    // The second and the last of the packed buffers, known by the mark in front.
    let packed: Vec<usize> =
        bytes.windows(4).enumerate().filter(|(_, w)| *w == [0x28, 0xb5, 0x2f, 0xfd]).map(|(at, _)| at).collect();
    assert_eq!(packed.len(), 5);
    [1, 4].iter().for_each(|batch| bytes[packed[*batch]] ^= 0xff);
    std::fs::write(&path, bytes).unwrap();
    let data = Dataset::from_arrow(&path, None);
    assert_eq!(data.cardinality().unwrap().known(), Some(200));
    check_lost(data, 80..=80);
    std::fs::remove_file(path).unwrap();
}

/// 200 rows of which some cannot be read: the same ones however few are made at a time, and wherever a pass goes on.
#[cfg(feature = "parquet")]
fn check_lost(data: Dataset, n_lost: std::ops::RangeInclusive<usize>) {
    let all = |budget: Bytes| -> Vec<_> { data.iter(&Budget::new(budget)).unwrap().map(outcome).collect() };
    let expected = all(Bytes::mib(8));
    let lost = expected.iter().filter(|row| row.is_err()).count();
    println!("{lost} of {} rows are lost", expected.len());
    assert!(expected.len() == 200 && n_lost.contains(&lost), "{lost} of {}", expected.len());
    // With another number of rows at a time.
    let words = |rows: &[Result<Vec<i64>, String>]| rows.iter().map(|r| r.clone().ok()).collect::<Vec<_>>();
    assert_eq!(words(&all(Bytes::kib(24))), words(&expected));
    let budget = Budget::new(Bytes::mib(8));
    for data in [data.clone(), data.ignore_errors()] {
        let expected: Vec<_> = data.iter(&budget).unwrap().map(outcome).collect();
        let mut iter = data.iter(&budget).unwrap();
        for at in 0..=expected.len() {
            let rest = data.resume(&iter.save(), &Options::new(&budget)).unwrap().map(outcome);
            assert!(words(&rest.collect::<Vec<_>>()) == words(&expected[at..]), "behind {at}");
            iter.next();
        }
    }
}
