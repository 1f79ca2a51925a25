//! Every format of data in jobs: trained on, evaluated, predicted for; looked at, converted and measured by `plimsoll data`.

mod common;

use common::*;
use plimsoll::{Budget, DType, Tensor};
use plimsoll_data::{Dataset, NpyWriter};
use std::io::Write;
use std::path::Path;

/// Rows of every data set.
const ROWS: usize = 240;

fn class(row: usize) -> usize {
    row % 2
}

/// Three numbers that tell the class, with some noise.
fn numbers(row: usize) -> [f32; 3] {
    let noise = |k: usize| ((row * 7919 + k * 104_729) % 1000) as f32 / 1000.0 - 0.5;
    let side = class(row) as f32 * 2.0 - 1.0;
    [side + noise(1), 0.5 * noise(2) - side, noise(3)]
}

fn table() -> String {
    let row = |i: usize| {
        let [a, b, c] = numbers(i);
        format!("{a},{b},{c},{}\n", class(i))
    };
    "a,b,c,kind\n".to_owned() + &(0..ROWS).map(row).collect::<String>()
}

/// Trains a job on this `[data]`, then evaluates and predicts; the loss falls, classes are learned, and every row has a prediction.
#[track_caller]
fn check(folder: &Folder, name: &str, model: &str, data: &str, rows: usize) {
    let job = format!("{name}.toml");
    folder.write(
        &job,
        &format!("memory_limit = \"256MiB\"\n[model]\n{model}\n[data]\n{data}\n[optimizer]\nlearning_rate = 0.02\n[training]\nepochs = 6\nbatch_size = 16\n"),
    );
    let lines = stdout(&ok(run_in(&folder.0, ["train", &job, "--json", "--quiet"])));
    let epochs: Vec<serde_json::Value> = lines
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .filter(|v: &serde_json::Value| v["event"] == "epoch")
        .collect();
    let figure = |epoch: &serde_json::Value, name: &str| epoch["figures"][name].as_f64().unwrap_or(f64::NAN);
    let (first, last) = (figure(&epochs[0], "loss"), figure(epochs.last().unwrap(), "loss"));
    assert!(last < 0.9 * first, "{name}: the loss goes from {first} to {last}");

    let evaluated: serde_json::Value =
        serde_json::from_str(&stdout(&ok(run_in(&folder.0, ["eval", &job, "--json"])))).unwrap();
    assert!(figure(&evaluated, "loss") < first, "{name}: {evaluated}");

    let predicted = stdout(&ok(run_in(&folder.0, ["predict", &job])));
    assert_eq!(predicted.lines().count(), rows + 1, "{name}: a header and a line per row");
    // And with less memory than a batch of all rows would take, the same bytes.
    let file = format!("{name}.csv");
    ok(run_in(&folder.0, ["predict", &job, "--batch-size", "7", "--output", &file]));
    let other = std::fs::read_to_string(folder.path(&file)).unwrap();
    assert_eq!(other.lines().count(), rows + 1, "{name}");
    let words = |text: &str| text.lines().map(|l| l.split(',').nth(1).unwrap().to_owned()).collect::<Vec<_>>();
    assert_eq!(words(&predicted), words(&other), "{name}: batches change no prediction");
    if predicted.starts_with("row,prediction,score") {
        let right =
            words(&predicted)[1..].iter().enumerate().filter(|(i, word)| class_name(name, *i) == **word).count();
        assert!(right * 10 >= rows * 9, "{name}: {right} of {rows} are right");
    }
}

/// The class of a row as the data calls it; images come folder by folder.
fn class_name(name: &str, row: usize) -> String {
    match name {
        "images" => ["dark", "light"][row / (ROWS / 2)].into(),
        _ => class(row).to_string(),
    }
}

const MLP: &str = "architecture = \"mlp\"\nhidden = [16]";

#[test]
fn tables() {
    let folder = Folder::new("tables");
    folder.write("table.csv", &table());
    folder.write("table.tsv", &table().replace(',', "\t"));
    check(&folder, "csv", MLP, "format = \"csv\"\nfiles = \"table.csv\"\nvalidation_split = 0.25", ROWS);
    check(&folder, "tsv", MLP, "format = \"csv\"\nfiles = \"table.tsv\"\ndelimiter = \"tab\"", ROWS);
    for (format, file) in [("parquet", "table.parquet"), ("arrow", "table.arrow")] {
        ok(run_in(&folder.0, ["data", "convert", "table.csv", file]));
        let data =
            format!("format = \"{format}\"\nfiles = \"{file}\"\nnormalize = \"standard\"\nvalidation_split = 0.25");
        check(&folder, format, MLP, &data, ROWS);
    }
    ok(run_in(&folder.0, ["data", "convert", "table.csv", "table.tfrecord"]));
    let features = "schema = { a = { dtype = \"f32\" }, b = { dtype = \"f32\" }, c = { dtype = \"f32\" }, kind = { dtype = \"i64\" } }";
    check(
        &folder,
        "tfrecord",
        MLP,
        &format!("format = \"tfrecord\"\nfiles = \"table.tfrecord\"\nlabel = \"kind\"\n{features}"),
        ROWS,
    );
}

#[test]
fn arrays() {
    let folder = Folder::new("arrays");
    let x: Vec<f32> = (0..ROWS).flat_map(numbers).collect();
    let y: Vec<i64> = (0..ROWS).map(|i| class(i) as i64).collect();
    write_npy(&folder.path("x.npy"), DType::F32, &[3], Tensor::from_slice([ROWS, 3], &x).unwrap().bytes());
    write_npy(&folder.path("y.npy"), DType::I64, &[], Tensor::from_slice([ROWS], &y).unwrap().bytes());
    let arrays = "arrays = { x = \"x.npy\", y = \"y.npy\" }\nlabel = \"y\"";
    check(&folder, "npy", MLP, &format!("format = \"npy\"\n{arrays}\nvalidation_split = 0.25"), ROWS);
    // Other files stand for the inputs alone.
    let other = stdout(&ok(run_in(&folder.0, ["predict", "npy.toml", "x.npy"])));
    assert_eq!(other, stdout(&ok(run_in(&folder.0, ["predict", "npy.toml"]))));

    let mut archive = zip::ZipWriter::new(std::fs::File::create(folder.path("both.npz")).unwrap());
    for name in ["x.npy", "y.npy"] {
        archive.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        archive.write_all(&std::fs::read(folder.path(name)).unwrap()).unwrap();
    }
    archive.finish().unwrap();
    check(&folder, "npz", MLP, "format = \"npz\"\nfiles = \"both.npz\"\nlabel = \"y\"", ROWS);

    // IDX: a magic number with type and axes, the sizes, the bytes.
    let pixels: Vec<u8> =
        (0..ROWS).flat_map(|i| (0..16).map(move |p| (class(i) * 120 + (i * 31 + p * 17) % 100) as u8)).collect();
    let idx = |sizes: &[usize], bytes: &[u8]| {
        let mut file = vec![0, 0, 8, sizes.len() as u8];
        sizes.iter().for_each(|&n| file.extend((n as u32).to_be_bytes()));
        file.extend(bytes);
        file
    };
    let labels: Vec<u8> = (0..ROWS).map(|i| class(i) as u8).collect();
    std::fs::write(folder.path("images-idx3-ubyte"), idx(&[ROWS, 4, 4], &pixels)).unwrap();
    std::fs::write(folder.path("labels-idx1-ubyte"), idx(&[ROWS], &labels)).unwrap();
    let model = "layers = [\"flatten\", { layer = \"dense\", units = 8, activation = \"relu\" }, { layer = \"dense\", units = 2 }]";
    let data = "format = \"idx\"\narrays = { x = \"images-idx3-ubyte\", y = \"labels-idx1-ubyte\" }\nlabel = \"y\"\nnormalize = \"unit\"";
    check(&folder, "idx", model, data, ROWS);
}

#[test]
fn images_and_text() {
    let folder = Folder::new("images-and-text");
    write_images(&folder);
    let model = "layers = [{ layer = \"conv2d\", filters = 4, kernel_size = 3, activation = \"relu\" }, \"flatten\", { layer = \"dense\", units = 2 }]";
    let data = "format = \"images\"\nfolder = \"photos\"\nsize = 8\nchannels = 1\nnormalize = \"unit\"";
    check(&folder, "images", model, data, ROWS);

    let line = "the quick brown fox jumps over the lazy dog. ";
    folder.write("book.txt", &line.repeat(80));
    let context = 16;
    let rows = (80 * line.len() - context - 1) / context + 1;
    let model = "architecture = \"gpt\"\nblocks = 1\nheads = 2\nwidth = 16";
    check(&folder, "text", model, &format!("format = \"text\"\nfiles = \"book.txt\"\ncontext = {context}"), rows);
}

/// `plimsoll data` on every format.
#[test]
fn all_formats_are_inspected_measured_and_converted() {
    let folder = Folder::new("data-commands");
    folder.write("table.csv", &table());
    folder.write("lines.txt", "one\ntwo\nthree\n");
    write_images(&folder);
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&stdout(&ok(run_in(&folder.0, arguments.iter().copied().chain(["--json"]))))).unwrap()
    };
    let original = json(&["data", "inspect", "table.csv"]);
    for (file, format) in [
        ("t.parquet", "parquet"),
        ("t.arrow", "arrow"),
        ("t.feather", "arrow"),
        ("t.tfrecord", "tfrecord"),
        ("t.csv", "csv"),
    ] {
        let converted = json(&["data", "convert", "table.csv", file]);
        assert_eq!(converted["elements"], ROWS, "{file}");
        let found = json(&["data", "inspect", file]);
        assert_eq!((&found["format"], &found["elements"]), (&format.into(), &ROWS.into()), "{file}");
        // The same columns with the same figures, whatever holds them.
        let figures = |found: &serde_json::Value| -> Vec<(String, Option<i64>)> {
            let mut all: Vec<_> = (found["columns"].as_array().unwrap().iter())
                .map(|c| (c["name"].as_str().unwrap().to_owned(), c["mean"].as_f64().map(|m| (m * 1e4).round() as i64)))
                .collect();
            all.sort();
            all
        };
        assert_eq!(figures(&found), figures(&original), "{file}");
        // And back: the same table.
        json(&["data", "convert", file, "back.csv"]);
        let back = json(&["data", "inspect", "back.csv"]);
        assert_eq!(figures(&back), figures(&original), "{file} and back");
        let bench = json(&["data", "bench", file, "--time", "1s", "--shuffle"]);
        assert!(bench["elements"].as_u64().unwrap() >= ROWS as u64, "{file}: {bench}");
    }
    let arrays = json(&["data", "convert", "table.csv", "t.npy"]);
    assert_eq!(arrays["files"], serde_json::json!(["t.a.npy", "t.b.npy", "t.c.npy", "t.kind.npy"]));
    assert_eq!(json(&["data", "inspect", "t.a.npy"])["elements"], ROWS);
    let photos = json(&["data", "inspect", "photos"]);
    assert_eq!((&photos["elements"], &photos["classes"]), (&ROWS.into(), &serde_json::json!(["dark", "light"])));
    assert!(json(&["data", "bench", "photos", "--time", "1s"])["elements"].as_u64().unwrap() > 0);
    let lines = json(&["data", "inspect", "lines.txt"]);
    assert_eq!((&lines["elements"], &lines["format"]), (&3.into(), &"lines".into()));
    assert!(json(&["data", "bench", "lines.txt", "--time", "1s"])["elements"].as_u64().unwrap() > 0);
    // The first bytes tell more than the name.
    std::fs::copy(folder.path("t.parquet"), folder.path("mislabelled.csv")).unwrap();
    assert_eq!(json(&["data", "inspect", "mislabelled.csv"])["format"], "parquet");
    // What cannot be is said, and nothing is written over itself.
    for (arguments, code) in [
        (vec!["data", "convert", "table.csv", "table.csv"], 4),
        (vec!["data", "convert", "table.csv", "t.xyz"], 4),
        (vec!["data", "inspect", "t.parquet", "table.csv"], 4),
        (vec!["data", "inspect", "nothing.csv"], 4),
    ] {
        assert_eq!(run_in(&folder.0, &arguments).status.code(), Some(code), "{arguments:?}");
    }
    assert_eq!(std::fs::read_to_string(folder.path("table.csv")).unwrap(), table());
    // A field that is no number is counted, and the rest is told.
    folder.write("torn.csv", &(table() + "1,oops,3,1\n"));
    let torn = json(&["data", "inspect", "torn.csv"]);
    assert_eq!(torn["columns"].as_array().unwrap().len(), 4, "{torn}");
}

fn write_npy(path: &Path, dtype: DType, dims: &[usize], bytes: &[u8]) {
    let mut file = NpyWriter::create(path, dtype, dims).unwrap();
    file.put(bytes).unwrap();
    file.finish().unwrap();
    assert_eq!(Dataset::from_npy(path).iter(&Budget::unlimited()).unwrap().count(), ROWS);
}

/// Grey pictures in a folder for each class.
fn write_images(folder: &Folder) {
    for i in 0..ROWS {
        let name = ["dark", "light"][class(i)];
        std::fs::create_dir_all(folder.path("photos").join(name)).unwrap();
        let pixel =
            |x: u32, y: u32| image::Luma([(class(i) as u32 * 130 + (i as u32 * 13 + x * 7 + y * 11) % 90) as u8]);
        image::GrayImage::from_fn(12, 10, pixel)
            .save(folder.path("photos").join(format!("{name}/{i:03}.png")))
            .unwrap();
    }
}
