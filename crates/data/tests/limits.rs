//! What the kernel says: the pipeline inside its limit, measured in processes of their own, and killed and resumed.

use plimsoll_budget::{Budget, Bytes, measure};
use plimsoll_data::{AUTOTUNE, Component, Dataset, Kind, Options, TfRecordWriter};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Runs one of the functions below in a process of its own and gives what it prints behind `result `.
fn run(child: &str, arguments: &[&str]) -> String {
    let output = command(child, arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let result = text.lines().find_map(|line| line.split_once("result ").map(|(_, rest)| rest.to_string()));
    result.unwrap_or_else(|| panic!("{child}: {text}\n{}", String::from_utf8_lossy(&output.stderr)))
}

fn command(child: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--nocapture", "--test-threads=1"]);
    command.env("PLIMSOLL_CHILD", child).env("PLIMSOLL_ARGUMENTS", arguments.join("\n"));
    command
}

#[test]
fn child() {
    let Ok(child) = std::env::var("PLIMSOLL_CHILD") else { return };
    let arguments = std::env::var("PLIMSOLL_ARGUMENTS").unwrap();
    let arguments: Vec<&str> = arguments.lines().collect();
    match &child[..] {
        "twenty" => twenty(Path::new(arguments[0])),
        "growth" => growth(),
        "requests" => requests(Path::new(arguments[0])),
        "go on" => go_on(&arguments),
        "bombs" => bombs(Path::new(arguments[0])),
        "read" => read_in_a_few_megabytes(Path::new(arguments[0])),
        "describe" => describe(Path::new(arguments[0])),
        other => panic!("{other}"),
    }
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("plimsoll-limits-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

const LIMIT: u64 = 16 << 20;
const COLUMNS: usize = 100;
const ROWS: usize = 20 * LIMIT as usize / (COLUMNS * 4) + 1;

/// A file of `ROWS` rows, the first value of each its number.
fn write_rows(path: &Path) {
    let mut file = std::io::BufWriter::new(std::fs::File::create(path).unwrap());
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({ROWS}, {COLUMNS}), }}").into_bytes();
    header.resize(117, b' ');
    header.push(b'\n');
    file.write_all(b"\x93NUMPY\x01\x00\x76\x00").unwrap();
    file.write_all(&header).unwrap();
    let mut row = [0f32; COLUMNS];
    for i in 0..ROWS {
        row[0] = i as f32;
        row[1] = (i % 97) as f32;
        // SAFETY: floats are plain bytes.
        let bytes: &[u8] = unsafe { std::slice::from_raw_parts(row.as_ptr().cast(), COLUMNS * 4) };
        file.write_all(bytes).unwrap();
    }
    file.flush().unwrap();
}

fn twenty(path: &Path) {
    // The checks' own memory is touched before the pipeline's is counted.
    let mut seen = vec![1u8; ROWS];
    let mut cells = vec![1u64; 400];
    seen.fill(0);
    cells.fill(0);
    // The pipeline fills its budget with blocks of the file; beside it come the pages of its code, 1.7 MiB without optimisation.
    let (before, margin) = (measure::usage().unwrap().peak, 2 << 20);
    let budget = Budget::new(Bytes(LIMIT - before.0 - margin));
    let data = Dataset::from_npy(path)
        .map_in_place("x", |x: &mut [f32]| x.iter_mut().for_each(|v| *v = *v * 2.0 - 1.0))
        .shuffle(None, 7)
        .batch(32)
        .prefetch(AUTOTUNE);
    let mut place = 0usize;
    for batch in data.iter(&budget).unwrap() {
        let batch = batch.unwrap();
        for row in batch.get::<f32>("x").unwrap().chunks(COLUMNS) {
            let number = ((row[0] + 1.0) / 2.0) as usize;
            assert_eq!(row[1], (number % 97) as f32 * 2.0 - 1.0);
            assert_eq!(row[2], -1.0);
            seen[number] += 1;
            cells[place * 20 / ROWS * 20 + number * 20 / ROWS] += 1;
            place += 1;
        }
    }
    assert!(seen.iter().all(|n| *n == 1), "every element once");
    let mean = ROWS as f64 / 400.0;
    let chi: f64 = cells.iter().map(|c| (*c as f64 - mean).powi(2) / mean).sum();
    println!("result {} {} {chi}", measure::usage().unwrap().peak.0, budget.peak().0);
}

#[test]
fn twenty_times_the_limit_shuffled_completely() {
    let file = Scratch::new("rows.npy");
    write_rows(&file.0);
    assert!(std::fs::metadata(&file.0).unwrap().len() > 20 * LIMIT);
    let result = run("twenty", &[file.0.to_str().unwrap()]);
    let words: Vec<f64> = result.split(' ').map(|w| w.parse().unwrap()).collect();
    println!(
        "process {:.1} MiB, reserved {:.1} MiB, chi-square {:.0}",
        words[0] / 1048576.0,
        words[1] / 1048576.0,
        words[2]
    );
    assert!(words[0] <= LIMIT as f64, "the process took {} bytes of {LIMIT}", words[0]);
    // 361 degrees of freedom: a table with fixed margins; p > 0.01 both ways is 300 .. 427.
    assert!((300.0..427.0).contains(&words[2]), "chi-square {}", words[2]);
}

/// How many reads the kernel did for this process so far, and of how many bytes.
fn reads() -> (u64, u64) {
    let io = std::fs::read_to_string("/proc/self/io").unwrap();
    let line = |name: &str| io.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().parse().unwrap();
    (line("syscr:"), line("rchar:"))
}

/// Strings of different lengths and rows of one size, each shuffled completely from a file.
fn requests(path: &Path) {
    const N: u64 = 50_000;
    let strings = Dataset::range(0, N as i64, 1).map([Component::new("s", Kind::Bytes, &[])], |row, out| {
        let n = row.get::<i64>("value")?[0];
        out.string("s", &vec![n as u8; n as usize % 300])
    });
    let folder = path.parent().unwrap();
    let rows = Dataset::from_npy(path);
    for data in [strings.filter(|_| Ok(true)).shuffle_on_disk(folder, 3), rows.shuffle(None, 3)] {
        let mut iter = data.prefetch(AUTOTUNE).iter(&Budget::new(Bytes::mib(8))).unwrap();
        let before = reads();
        let n = iter.by_ref().count() as u64;
        let after = reads();
        println!("result {n} {} {}", after.0 - before.0, after.1 - before.1);
    }
}

#[test]
fn a_shuffle_reads_neighbours_together_and_in_the_order_of_the_file() {
    let file = Scratch::new("requests.npy");
    write_rows(&file.0);
    let output = command("requests", &[file.0.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let results: Vec<Vec<u64>> = text
        .lines()
        .filter_map(|line| {
            line.split_once("result ").map(|(_, rest)| rest.split(' ').map(|w| w.parse().unwrap()).collect())
        })
        .collect();
    println!("{results:?}");
    let [strings, rows] = &results[..] else { panic!("{text}") };
    // One request for each would be 50,000, and as many for their places; 14,247 were counted.
    assert!(strings[0] == 50_000 && strings[1] < 25_000, "{strings:?}");
    // The file is 40 times the limit: a block of rows that are made at a time has one in about 300 rows of the file, 120 KiB apart.
    // So nearly every row that is not in a block in memory is a request, and no more than that.
    assert!(rows[0] == ROWS as u64 && rows[1] < rows[0], "{rows:?}");
}

fn growth() {
    let x = plimsoll_tensor::Tensor::zeros(plimsoll_tensor::DType::F32, [2000, 50]);
    let data = Dataset::from_array("x", x)
        .map_in_place("x", |x: &mut [f32]| x[0] += 1.0)
        .shuffle(500, 3)
        .filter(|_| Ok(true))
        .shuffle(100, 4)
        .batch(16)
        .prefetch(AUTOTUNE);
    let budget = Budget::new(Bytes::mib(4));
    // Programs are left out: code that runs for the first time comes in by 64 KiB.
    let anonymous = || measure::usage().unwrap().anonymous.0;
    let (mut early, mut most) = (0, 0);
    for epoch in 0..220 {
        assert_eq!(data.iter_with(&Options::new(&budget).epoch(epoch)).unwrap().count(), 125);
        if epoch == 19 {
            // The first epochs warm up what the allocator keeps per thread.
            early = anonymous();
        }
        most = most.max(anonymous());
    }
    println!("result {early} {most}");
}

#[test]
fn two_hundred_epochs_do_not_grow() {
    let result = run("growth", &[]);
    let (early, late) = result.split_once(' ').unwrap();
    let (early, late): (u64, u64) = (early.parse().unwrap(), late.parse().unwrap());
    // One of the kernel's counting steps. A leak of a third of a kilobyte in every epoch is more.
    println!("{} KiB more after 220 epochs than after 20", late.saturating_sub(early) >> 10);
    assert!(late <= early + (64 << 10), "{early} bytes after 20 epochs, {late} after 220");
}

/// A chain per number, made anew in every process.
fn chain(number: usize, folder: &Path) -> Dataset {
    let file = folder.join("kill.npy");
    let rows = Dataset::from_npy(file);
    match number {
        0 => rows.shuffle(None, 5).batch(7).prefetch(AUTOTUNE),
        1 => rows.shuffle(50, 5).repeat(3).batch(5).prefetch(AUTOTUNE),
        2 => rows.filter(|r| Ok(r.get::<f32>("x")?[0] % 3.0 != 1.0)).shuffle(40, 9).batch(3).prefetch(AUTOTUNE),
        3 => {
            let all = rows.clone();
            Dataset::range(0, 5, 1)
                .interleave(rows.spec().unwrap().components().to_vec(), 3, 2, true, move |row| {
                    Ok(all.shard(5, row.get::<i64>("value")?[0] as u64))
                })
                .map([plimsoll_data::Component::ragged("x", plimsoll_tensor::DType::F32, &[None])], |row, out| {
                    let v = row.get::<f32>("x")?[0];
                    out.set("x", &[v as usize % 3 + 1], &vec![v; v as usize % 3 + 1])
                })
                .parallel(plimsoll_data::Calls::Fixed(2))
                .filter(|r| Ok(r.get::<f32>("x")?[0] % 4.0 != 2.0))
                .padded_batch(3, plimsoll_data::Padding::default())
        }
        _ => rows.shard(2, 1).shuffle_on_disk(std::env::temp_dir(), 4).window(4, 3, 1, false).prefetch(AUTOTUNE),
    }
}

fn go_on(arguments: &[&str]) {
    let [number, folder, rest @ ..] = arguments else { panic!("{arguments:?}") };
    let data = chain(number.parse().unwrap(), Path::new(folder));
    let options = Options::new(&Budget::new(Bytes::mib(2))).threads(rest.len() % 3 + 1);
    let mut iter = match rest.first() {
        None => data.iter_with(&options).unwrap(),
        Some(position) => {
            let bytes: Vec<u8> =
                (0..position.len() / 2).map(|i| u8::from_str_radix(&position[2 * i..2 * i + 2], 16).unwrap()).collect();
            data.resume(&bytes, &options).unwrap()
        }
    };
    while let Some(element) = iter.next() {
        let values: Vec<String> = element.unwrap().get::<f32>("x").unwrap().iter().map(|v| v.to_string()).collect();
        let position: String = iter.save().iter().map(|b| format!("{b:02x}")).collect();
        println!("element {position} {}", values.join(","));
    }
    println!("end");
}

#[test]
fn killed_at_two_hundred_places_the_sequence_is_unbroken() {
    let folder = std::env::temp_dir().join(format!("plimsoll-limits-{}-kill", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    Dataset::range(0, 600, 1)
        .map([plimsoll_data::Component::new("x", plimsoll_tensor::DType::F32, &[2])], |row, out| {
            let v = row.get::<i64>("value")?[0] as f32;
            out.set("x", &[2], &[v, -v])
        })
        .write_npy("x", folder.join("kill.npy"), &Budget::unlimited())
        .unwrap();
    let mut kills = 0;
    let mut state = 12345u64;
    for number in 0..5 {
        let expected: Vec<String> = chain(number, &folder)
            .iter(&Budget::unlimited())
            .unwrap()
            .map(|e| e.unwrap().get::<f32>("x").unwrap().iter().map(|v| v.to_string()).collect::<Vec<_>>().join(","))
            .collect();
        let mut round = 0;
        while round < 50 {
            let (mut joined, mut position) = (Vec::new(), None::<String>);
            loop {
                let number = number.to_string();
                let mut arguments = vec![&number[..], folder.to_str().unwrap()];
                arguments.extend(position.as_deref());
                let mut process = command("go on", &arguments).stdout(Stdio::piped()).spawn().unwrap();
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                // Anywhere in what is left, sometimes behind the end.
                let stop = (state >> 33) as usize
                    % (expected.len() + expected.len() / 8 - joined.len().min(expected.len()) + 1);
                let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
                let mut ended = false;
                let mut taken = 0;
                while taken < stop {
                    let line = lines.next().expect("the child says when it is done").unwrap();
                    if line.ends_with("end") {
                        ended = true;
                        break;
                    }
                    let Some((_, rest)) = line.split_once("element ") else { continue };
                    let (place, values) = rest.split_once(' ').unwrap();
                    position = Some(place.to_string());
                    joined.push(values.to_string());
                    taken += 1;
                }
                process.kill().unwrap();
                process.wait().unwrap();
                if ended {
                    break;
                }
                kills += 1;
                round += 1;
            }
            assert_eq!(joined, expected, "chain {number}");
        }
    }
    assert!(kills >= 200, "{kills}");
    std::fs::remove_dir_all(folder).unwrap();
}

#[cfg(not(feature = "parquet"))]
fn bombs(_: &Path) {}

/// Small files that unpack to a great deal are read within the budget.
#[cfg(feature = "parquet")]
fn bombs(folder: &Path) {
    let budget = Budget::new(Bytes::mib(8));
    measure::reset_peak().unwrap();
    let before = measure::usage().unwrap().peak.0;
    let mut rows = 0;
    for element in Dataset::from_npz(folder.join("bomb.npz")).batch(64).iter(&budget).unwrap() {
        rows += element.unwrap().shape("x").unwrap().dims()[0];
    }
    assert_eq!(rows, 200_000);
    rows = 0;
    for element in Dataset::from_parquet(folder.join("numbers.parquet"), None).batch(1000).iter(&budget).unwrap() {
        rows += element.unwrap().shape("n").unwrap().dims()[0];
    }
    assert_eq!(rows, 10_000_000);
    rows = 0;
    for element in Dataset::from_parquet(folder.join("strings.parquet"), None).iter(&budget).unwrap().take(500) {
        assert_eq!(element.unwrap().row().string("s").unwrap().len(), 300_000);
        rows += 1;
    }
    assert_eq!(rows, 500);
    let after = measure::usage().unwrap().peak.0;
    println!("result {}", after - before);
}

#[cfg(feature = "parquet")]
#[test]
fn bombs_are_streamed() {
    use arrow_array::{Int64Array, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use std::sync::Arc;
    let folder = std::env::temp_dir().join(format!("plimsoll-limits-{}-bombs", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // 200,000 rows of 250 floats: 191 MiB of zeros in about 200 KiB.
    let mut archive = zip::ZipWriter::new(std::fs::File::create(folder.join("bomb.npz")).unwrap());
    let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated);
    archive.start_file("x.npy", options).unwrap();
    let mut header =
        b"\x93NUMPY\x01\x00\x76\x00{'descr': '<f4', 'fortran_order': False, 'shape': (200000, 250), }".to_vec();
    header.resize(127, b' ');
    header.push(b'\n');
    archive.write_all(&header).unwrap();
    for _ in 0..200 {
        archive.write_all(&vec![0; 1_000_000]).unwrap();
    }
    archive.finish().unwrap();
    // Ten million equal numbers, and long strings that are all the same one.
    let write = |name: &str, batch: RecordBatch, times: usize| {
        let file = std::fs::File::create(folder.join(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), None).unwrap();
        (0..times).for_each(|_| writer.write(&batch).unwrap());
        writer.close().unwrap();
    };
    let numbers: Arc<Int64Array> = Arc::new(std::iter::repeat_n(7, 100_000).collect::<Vec<i64>>().into());
    write("numbers.parquet", RecordBatch::try_from_iter([("n", numbers as _)]).unwrap(), 100);
    let long = "x".repeat(300_000);
    let strings: Arc<StringArray> = Arc::new(vec![long.as_str(); 100].into());
    write("strings.parquet", RecordBatch::try_from_iter([("s", strings as _)]).unwrap(), 20);
    for name in ["bomb.npz", "numbers.parquet", "strings.parquet"] {
        assert!(std::fs::metadata(folder.join(name)).unwrap().len() < 2 << 20, "{name}");
    }
    let growth: u64 = run("bombs", &[folder.to_str().unwrap()]).parse().unwrap();
    println!("unpacking took {:.1} MiB", growth as f64 / 1048576.0);
    assert!(growth <= 16 << 20, "{growth}");
    std::fs::remove_dir_all(folder).unwrap();
}

/// The budget of what reads one of the files below.
const SMALL: Bytes = Bytes::mib(8);

/// Reads a file to its end: how much the process grew, how many elements there were, and the first error.
#[cfg(all(feature = "parquet", feature = "images"))]
fn read_in_a_few_megabytes(path: &Path) {
    use plimsoll_data::{Compression, Images};
    let budget = Budget::new(SMALL);
    measure::reset_peak().unwrap();
    let before = measure::usage().unwrap().peak.0;
    let data = match path.extension().unwrap().to_str().unwrap() {
        "parquet" => Dataset::from_parquet(path, None),
        "tfrecord" => Dataset::from_tfrecords(path, Compression::Gzip),
        "png" => Dataset::from_images(path, Images::resized(256, 256)),
        other => panic!("{other}"),
    };
    let (mut elements, mut error) = (0, String::new());
    for element in data.iter(&budget).unwrap() {
        match element {
            Ok(_) => elements += 1,
            Err(e) if error.is_empty() => error = e.to_string().replace('\n', " "),
            Err(_) => {}
        }
    }
    println!("result {} {elements} {error}", measure::usage().unwrap().peak.0 - before);
}

#[cfg(not(all(feature = "parquet", feature = "images")))]
fn read_in_a_few_megabytes(_: &Path) {}

/// A picture of zeros, with a chunk of one's own behind its header.
#[cfg(feature = "images")]
fn png(width: u32, height: u32, chunk: Option<(&[u8; 4], Vec<u8>)>) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut add = |kind: &[u8; 4], body: &[u8]| {
        let mut sum = flate2::Crc::new();
        [&kind[..], body].iter().for_each(|part| sum.update(part));
        bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
        bytes.extend_from_slice(kind);
        bytes.extend_from_slice(body);
        bytes.extend_from_slice(&sum.sum().to_be_bytes());
    };
    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    add(b"IHDR", &[&size[..], &[8, 0, 0, 0, 0]].concat());
    if let Some((kind, body)) = chunk {
        add(kind, &body);
    }
    add(b"IDAT", &zlib((width as usize + 1) * height as usize));
    add(b"IEND", &[]);
    bytes
}

/// So many zeros, packed.
#[cfg(feature = "images")]
fn zlib(zeros: usize) -> Vec<u8> {
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(&vec![0; zeros]).unwrap();
    packed.finish().unwrap()
}

#[cfg(all(feature = "parquet", feature = "images"))]
#[test]
fn scratch_memory_is_reserved_before_it_is_taken() {
    use arrow_array::builder::{Int64Builder, ListBuilder};
    use arrow_array::{BinaryArray, Int64Array, LargeStringArray, RecordBatch};
    use parquet::arrow::ArrowWriter;
    use parquet::basic::{Compression, GzipLevel};
    use parquet::file::properties::WriterProperties;
    use std::sync::Arc;
    let folder = std::env::temp_dir().join(format!("plimsoll-limits-{}-scratch", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let parquet = |name: &str, array: arrow_array::ArrayRef, properties: WriterProperties| {
        let batch = RecordBatch::try_from_iter([("x", array)]).unwrap();
        let file = std::fs::File::create(folder.join(name)).unwrap();
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(&batch).unwrap();
        writer.close().unwrap();
    };
    let plain = || WriterProperties::builder().set_dictionary_enabled(false);
    // Rows of 700 KB each, of which sixteen at a time are more than there is.
    let pictures: Vec<Vec<u8>> = (0..40u32)
        .map(|i| (0..700_000u32).map(|j| ((i + j).wrapping_mul(2_654_435_761) >> 24) as u8).collect())
        .collect();
    let pictures = BinaryArray::from_iter_values(&pictures);
    parquet("rows-of-700-kb.parquet", Arc::new(pictures), plain().build());
    // A string of 200 KB, a thousand times: in a dictionary, but of a type that does not stay in it.
    let long = "x".repeat(200_000);
    parquet(
        "one-string.parquet",
        Arc::new(LargeStringArray::from(vec![long.as_str(); 1000])),
        WriterProperties::default(),
    );
    // One row, a list of eight million equal numbers.
    let mut list = ListBuilder::new(Int64Builder::new());
    list.values().append_slice(&vec![7; 8_000_000]);
    list.append(true);
    parquet("one-list.parquet", Arc::new(list.finish()), WriterProperties::default());
    // Short lists, many of them: 16 MB in all.
    let mut list = ListBuilder::new(Int64Builder::new());
    for i in 0..200_000i64 {
        list.values().append_slice(&[i, i + 1, i + 2, i * 7919]);
        list.values().append_slice(&vec![i % 1000; (i % 13) as usize]);
        list.append(true);
    }
    parquet("short-lists.parquet", Arc::new(list.finish()), WriterProperties::default());
    // A page that unpacks to 8 MiB, and one that says 100 bytes instead.
    let zeros: Arc<Int64Array> = Arc::new(vec![0i64; 8 << 20].into());
    let gzip = plain()
        .set_compression(Compression::GZIP(GzipLevel::default()))
        .set_data_page_size_limit(1 << 30)
        .set_data_page_row_count_limit(1 << 30)
        .set_write_batch_size(1 << 24);
    parquet("large-page.parquet", zeros, gzip.build());
    let mut bytes = std::fs::read(folder.join("large-page.parquet")).unwrap();
    // Type and size are the first fields of the header; the size is given as a varint of as many bytes as it has.
    assert_eq!(bytes[4..7], [0x15, 0, 0x15]);
    let n = bytes[7..].iter().position(|b| *b < 0x80).unwrap();
    bytes[7] = 200 | 0x80;
    bytes[8] = 0x80 | 1;
    bytes[9..7 + n].fill(0x80);
    bytes[7 + n] = 0;
    std::fs::write(folder.join("page-that-lies.parquet"), bytes).unwrap();
    let mut record = TfRecordWriter::create(folder.join("packed.tfrecord"), plimsoll_data::Compression::Gzip).unwrap();
    record.write(b"small").unwrap();
    record.write(&vec![0; 64 << 20]).unwrap();
    record.finish().unwrap();
    // Small, but between the two passes of resizing it has 8000 x 256 pixels of floats.
    std::fs::write(folder.join("wide.png"), png(8000, 20, None)).unwrap();
    std::fs::write(folder.join("plain.png"), png(200, 200, None)).unwrap();
    let profile = [b"p\0\0", &zlib(64 << 20)[..]].concat();
    std::fs::write(folder.join("profile.png"), png(20, 20, Some((b"iCCP", profile)))).unwrap();
    for (name, elements, error) in [
        ("rows-of-700-kb.parquet", 40, ""),
        ("one-string.parquet", 1000, ""),
        ("one-list.parquet", 0, "pipeline"),
        ("short-lists.parquet", 200_000, ""),
        ("large-page.parquet", 0, "pipeline"),
        ("page-that-lies.parquet", 0, "a page claims to unpack to 100 bytes, but there are more"),
        ("packed.tfrecord", 1, "pipeline"),
        ("wide.png", 0, "pipeline"),
        ("plain.png", 1, ""),
        ("profile.png", 1, ""),
    ] {
        let result = run("read", &[folder.join(name).to_str().unwrap()]);
        let mut words = result.splitn(3, ' ');
        let grown: u64 = words.next().unwrap().parse().unwrap();
        println!(
            "{name}: the process grew by {:.1} MiB; {}",
            grown as f64 / 1048576.0,
            words.clone().collect::<String>()
        );
        assert_eq!(words.next().unwrap(), elements.to_string(), "{name}: {result}");
        let found = words.next().unwrap_or_default();
        assert!(found.contains(error) && (found.is_empty() == error.is_empty()), "{name}: {found}");
        // Beside the budget come the pages of code that runs for the first time.
        assert!(grown <= SMALL.0 + (4 << 20), "{name}: the process grew by {grown} bytes with a budget of {SMALL}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Describes a file: how much the process grew, and what is known of its elements.
fn describe(path: &Path) {
    use plimsoll_data::Csv;
    measure::reset_peak().unwrap();
    let before = measure::usage().unwrap().peak.0;
    let data = match path.extension().unwrap().to_str().unwrap() {
        "csv" => Dataset::from_csv(path, Csv::default()),
        #[cfg(feature = "parquet")]
        "parquet" => Dataset::from_parquet(path, None),
        #[cfg(feature = "parquet")]
        "arrow" => Dataset::from_arrow(path, None),
        other => panic!("{other}"),
    };
    let spec = data.spec().map_or_else(|error| error.to_string(), |spec| spec.to_string());
    println!("result {} {spec}", measure::usage().unwrap().peak.0 - before);
}

/// What is found out before there is a budget takes a few megabytes, whatever is in the files.
#[test]
fn describing_takes_a_few_megabytes() {
    let folder = std::env::temp_dir().join(format!("plimsoll-limits-{}-describe", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let zeros = |n: usize, tail: &[u8]| [&vec![0; n][..], tail].concat();
    let large = 64u32 << 20;
    let files: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "long-name.csv",
            [&vec![b'x'; 64 << 20][..], b"\n1\n"].concat(),
            "line 1: the row has more than 4194304 bytes",
        ),
        // Whoever reads the row is told, or passes over it.
        ("long-row.csv", [b"a,b\n1,", &vec![b'7'; 64 << 20][..]].concat(), "{a: bytes[], b: bytes[]}"),
        ("columns.csv", vec![b','; 64 << 20], "line 1: the row has more than 65536 fields, the most that are read"),
        ("70000.csv", vec![b','; 70_000], "line 1: the row has more than 65536 fields, the most that are read"),
        ("fine.csv", [b"a,b\n1,", &vec![b'x'; 1 << 20][..]].concat(), "{a: i64[], b: bytes[]}"),
        #[cfg(feature = "parquet")]
        (
            "footer.parquet",
            zeros(large as usize, &[&large.to_le_bytes()[..], b"PAR1"].concat()),
            "a footer of 64 MiB; at most 16 MiB are read",
        ),
        #[cfg(feature = "parquet")]
        (
            "footer.arrow",
            zeros(large as usize, &[&large.to_le_bytes()[..], b"ARROW1"].concat()),
            "a footer of 64 MiB; at most 16 MiB are read",
        ),
    ];
    for (name, bytes, expected) in files {
        let path = folder.join(name);
        std::fs::write(&path, bytes).unwrap();
        let result = run("describe", &[path.to_str().unwrap()]);
        let (grown, text) = result.split_once(' ').unwrap();
        let grown: u64 = grown.parse().unwrap();
        println!("{name}: the process grew by {:.1} MiB; {text}", grown as f64 / 1048576.0);
        assert!(text.contains(expected), "{name}: {text}");
        // Beside the 8 MiB come the pages of code that runs for the first time.
        assert!(grown <= 10 << 20, "{name}: the process grew by {grown} bytes");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
