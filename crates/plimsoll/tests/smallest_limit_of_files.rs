//! What a refusal says about a job that reads files whose records have no size of their own, or has batches whose sizes only running tells: the
//! smallest limit trains a whole epoch, and 64 KiB below it nothing begins.
//!
//! Every run is a process of its own, since what a process has taken already counts.

use plimsoll::data::{AUTOTUNE, Component, Compression, Csv, Dataset, Kind, TfRecordWriter};
use plimsoll::layers::{Activation, Dense};
use plimsoll::losses::MeanSquaredError;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::{Fit, Trainer};
use plimsoll::{Budget, DType, Error, measure};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Not a multiple of the batch, so that the last batch is one of its own.
const ROWS: usize = 700;
const WIDTH: usize = 24;

fn value(row: usize, column: usize) -> f32 {
    ((row * 7 + column * 13) % 31) as f32 / 31.0
}

/// A table whose last column is text that nobody reads, now and then a great deal of it.
fn write_csv(path: &Path) {
    let names: Vec<String> = (0..WIDTH).map(|i| format!("x{i}")).collect();
    let mut text = format!("{},y,note\n", names.join(","));
    for row in 0..ROWS {
        let values: Vec<String> = (0..WIDTH).map(|column| value(row, column).to_string()).collect();
        let note = "word ".repeat(if row == 403 { 60_000 } else { row % 9 });
        text += &format!("{},{},{note}\n", values.join(","), value(row, 0));
    }
    std::fs::write(path, text).unwrap();
}

/// The same as examples, the text as a feature that is dropped.
fn write_records(path: &Path) {
    let components = [
        Component::new("x", DType::F32, &[WIDTH]),
        Component::new("y", DType::F32, &[1]),
        Component::new("note", Kind::Bytes, &[]),
    ];
    let rows = Dataset::range(0, ROWS as i64, 1).map(components, |row, out| {
        let row = row.get::<i64>("value")?[0] as usize;
        let x: Vec<f32> = (0..WIDTH).map(|column| value(row, column)).collect();
        out.set("x", &[WIDTH], &x)?;
        out.set("y", &[1], &x[..1])?;
        out.string("note", "word ".repeat(if row == 403 { 60_000 } else { row % 9 }).as_bytes())
    });
    rows.write_tfrecords(path, Compression::None, &Budget::unlimited()).unwrap();
}

fn data(job: &str, file: &Path) -> Dataset {
    let x = [Component::new("x", DType::F32, &[WIDTH]), Component::new("y", DType::F32, &[1])];
    match job {
        "csv" => data("csv rows", file).shuffle(64, 3).batch(32),
        "records" => Dataset::from_tfrecords(file, Compression::None)
            .parse_example("record", x)
            .parallel(AUTOTUNE)
            .batch(32)
            .prefetch(AUTOTUNE),
        // The text comes along and is dropped.
        "text" => {
            let note = Component::new("note", Kind::Bytes, &[]);
            Dataset::from_tfrecords(file, Compression::None)
                .parse_example("record", x.into_iter().chain([note]))
                .shuffle(10, 3)
                .batch(32)
        }
        // Nobody knows how many rows are left for the last batch of each part.
        "filtered" => {
            let parts =
                [(0, 350), (350, 5), (355, 345)].map(|(skip, rows)| data("csv rows", file).skip(skip).take(rows));
            Dataset::concatenate_all(&parts.map(|part| part.filter(|_| Ok(true)).batch(32)))
        }
        "csv rows" => {
            let names: Vec<String> = (0..WIDTH).map(|i| format!("x{i}")).chain(["y".to_string()]).collect();
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let csv = Csv::default().select(&names);
            let csv = names.iter().fold(csv, |csv, name| csv.column(name, DType::F32));
            Dataset::from_csv(file, csv).map(x, |row, out| {
                let values: Vec<f32> = (0..WIDTH).map(|i| row.at::<f32>(i).unwrap()[0]).collect();
                out.set("x", &[WIDTH], &values)?;
                out.set("y", &[1], row.at::<f32>(WIDTH)?)
            })
        }
        other => panic!("{other}"),
    }
}

/// Trains one epoch under a limit and says what came of it.
fn train(job: &str, file: &Path, limit: &str) {
    let model = Model::sequential([WIDTH]).layer(Dense::new(64).activation(Activation::Tanh)).layer(Dense::new(1));
    let mut trainer = Trainer::new(model, MeanSquaredError, Adam::new(1e-3)).unwrap().threads(2).memory_limit(limit);
    match trainer.fit(&data(job, file), Fit::epochs(1)) {
        Ok(_) => println!("result RAN {} {}", trainer.steps_done(), measure::usage().unwrap().peak.0 / 1024),
        Err(Error::WouldNotFit(refusal)) => {
            println!("result REFUSED {} {}", trainer.steps_done(), refusal.smallest.0.div_ceil(1024))
        }
        Err(other) => println!("result FAILED {} {other}", trainer.steps_done()),
    }
}

#[test]
fn child() {
    let Ok(arguments) = std::env::var("PLIMSOLL_CHILD") else { return };
    let [job, file, limit] = arguments.lines().collect::<Vec<_>>()[..] else { panic!("{arguments}") };
    train(job, Path::new(file), limit);
}

/// What a run came to: what it says, the steps done, and a number of KiB.
fn run(job: &str, file: &Path, limit_kib: u64) -> (String, u64, u64) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture", "--test-threads=1"]).env_remove("PLIMSOLL_MEMORY_LIMIT");
    command.env("PLIMSOLL_CHILD", format!("{job}\n{}\n{limit_kib}KiB", file.display()));
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let result = text.lines().find_map(|line| line.split_once("result ").map(|(_, rest)| rest.to_string()));
    let result = result.unwrap_or_else(|| panic!("{job}: {text}\n{}", String::from_utf8_lossy(&output.stderr)));
    let words: Vec<&str> = result.split(' ').collect();
    assert_ne!(words[0], "FAILED", "{job} under {limit_kib} KiB: {result}");
    (words[0].to_string(), words[1].parse().unwrap(), words[2].parse().unwrap())
}

#[test]
fn the_smallest_limit_trains_an_epoch_and_less_does_not_begin() {
    let folder = std::env::temp_dir().join(format!("plimsoll-smallest-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (table, records): (PathBuf, PathBuf) = (folder.join("table.csv"), folder.join("records"));
    write_csv(&table);
    write_records(&records);
    for (job, file) in [("csv", &table), ("records", &records), ("text", &records), ("filtered", &table)] {
        let (word, steps, smallest) = run(job, file, 1024);
        assert_eq!((&word[..], steps), ("REFUSED", 0), "{job}");
        let (word, steps, peak) = run(job, file, smallest);
        let batches = ROWS.div_ceil(32) + if job == "filtered" { 1 } else { 0 };
        assert_eq!((&word[..], steps), ("RAN", batches as u64), "{job} under {smallest} KiB: {peak}");
        assert!(peak <= smallest, "{job}: the process took {peak} KiB of {smallest}");
        let (word, steps, again) = run(job, file, smallest - 64);
        assert_eq!((&word[..], steps), ("REFUSED", 0), "{job} under {} KiB", smallest - 64);
        println!(
            "{job}: the smallest limit is {smallest} KiB, the process took {peak} KiB; below it {again} KiB are asked for"
        );
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A record longer than any that was looked at is refused where it is found, in words that say what would do.
#[test]
fn files_are_looked_through() {
    let folder = std::env::temp_dir().join(format!("plimsoll-looked-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("records");
    let mut writer = TfRecordWriter::create(&path, Compression::None).unwrap();
    writer.write(&[0; 10]).unwrap();
    writer.write(&vec![1; 500_000]).unwrap();
    writer.finish().unwrap();
    let least = Dataset::from_tfrecords(&path, Compression::None).least_memory().unwrap().unwrap();
    // The record in the window, while it grew, and twice as an element.
    assert!((2_000_000..2_800_000).contains(&least.0), "{least}");
    std::fs::remove_dir_all(folder).unwrap();
}
