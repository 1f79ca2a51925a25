//! `plimsoll predict`: any number of rows in constant memory, and files that are whole or not there.

mod common;

use common::*;

/// A trained job on points that are drawn as they are needed.
fn trained(folder: &Folder) -> String {
    let text = "memory_limit = \"64MiB\"\n[model]\narchitecture = \"mlp\"\nhidden = [8]\n[data]\nformat = \"generated\"\n\
                generate = { set = \"blobs\", rows = 2000, features = 4 }\nclasses = 3\n[optimizer]\nlearning_rate = 0.01\n\
                [training]\nepochs = 3\nbatch_size = 64\n";
    folder.write("points.toml", text);
    ok(run_in(&folder.0, ["train", "points.toml", "--quiet"]));
    "points.toml".into()
}

#[test]
fn a_million_rows_take_no_more_than_the_limit() {
    const ROWS: usize = 1_000_000;
    let folder = Folder::new("many-rows");
    let job = trained(&folder);
    let set = format!("data.generate={{ set = \"blobs\", rows = {ROWS}, features = 4 }}");
    for (file, least) in [("all.csv", 40 << 20), ("all.jsonl", 60 << 20), ("all.npy", 12 * ROWS as u64)] {
        let mut command = plimsoll();
        command.current_dir(&folder.0).args(["predict", &job, "--batch-size", "1024", "--set", &set, "--output", file]);
        let (output, usage) = measured(&mut command);
        ok(output);
        let peak = usage.ru_maxrss;
        let written = std::fs::metadata(folder.path(file)).unwrap().len();
        assert!(written >= least, "{file}: {written} bytes");
        assert!(peak <= 64 << 10, "{file}: {peak} KiB resident for {written} bytes of predictions");
        std::fs::remove_file(folder.path(file)).unwrap();
    }
}

#[test]
fn all_formats_say_the_same() {
    let folder = Folder::new("same");
    let job = trained(&folder);
    for file in ["p.csv", "p.jsonl", "p.npy"] {
        ok(run_in(&folder.0, ["predict", &job, "-o", file]));
    }
    let csv = std::fs::read_to_string(folder.path("p.csv")).unwrap();
    assert_eq!(csv, stdout(&ok(run_in(&folder.0, ["predict", &job]))), "standard output is the same");
    let json = std::fs::read_to_string(folder.path("p.jsonl")).unwrap();
    assert_eq!(json, stdout(&ok(run_in(&folder.0, ["predict", &job, "--json"]))));
    let array = std::fs::read(folder.path("p.npy")).unwrap();
    let logits: Vec<f32> = array[256..].chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!((csv.lines().count(), json.lines().count(), logits.len()), (2001, 2000, 6000));
    for (i, (csv, json)) in csv.lines().skip(1).zip(json.lines()).enumerate() {
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        let fields: Vec<&str> = csv.split(',').collect();
        assert_eq!((fields[0], fields[1]), (i.to_string().as_str(), json["prediction"].as_str().unwrap()));
        // The scores are the logits, each to the power of e, as parts of the whole.
        let row: Vec<f64> = logits[3 * i..3 * i + 3].iter().map(|&v| f64::from(v).exp()).collect();
        for (k, score) in json["scores"].as_array().unwrap().iter().enumerate() {
            let score = score.as_f64().unwrap();
            assert_eq!(score, fields[2 + k].parse::<f64>().unwrap());
            assert!((score - row[k] / row.iter().sum::<f64>()).abs() < 1e-5, "row {i}: {score} of {row:?}");
        }
    }
}

#[test]
fn what_cannot_be_written_is_said_and_leaves_nothing() {
    let folder = Folder::new("unwritable");
    let job = trained(&folder);
    let refused = run_in(&folder.0, ["predict", &job, "-o", "p.parquet"]);
    assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
    assert!(stderr(&refused).contains(".csv, .npy"), "{}", stderr(&refused));
    let nowhere = run_in(&folder.0, ["predict", &job, "-o", "no/such/folder/p.csv"]);
    assert_eq!(nowhere.status.code(), Some(4), "{}", stderr(&nowhere));
    // Rows that turn bad half way: no file, not even a part of one.
    let table: String = (0..500).map(|i| format!("{},{},{}\n", i, i % 7, ["x", "y"][i % 2])).collect();
    folder.write("rows.csv", &format!("a,b,kind\n{table}"));
    folder.write("bad.csv", &format!("a,b\n{}oops,2\n", "1,2\n".repeat(400)));
    folder.write(
        "table.toml",
        "[model]\narchitecture = \"mlp\"\n[data]\nformat = \"csv\"\nfiles = \"rows.csv\"\ncolumns = { a = \"f32\", b = \"f32\" }\n[training]\nepochs = 1\n",
    );
    ok(run_in(&folder.0, ["train", "table.toml", "--quiet"]));
    let broken = run_in(&folder.0, ["predict", "table.toml", "bad.csv", "-o", "half.csv"]);
    assert_eq!(broken.status.code(), Some(4), "{}", stderr(&broken));
    assert!(stderr(&broken).contains("oops"), "{}", stderr(&broken));
    let left: Vec<String> =
        std::fs::read_dir(&folder.0).unwrap().flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    assert!(!left.iter().any(|name| name.starts_with("half")), "{left:?}");
}

/// A model with two outputs: columns have their names.
#[test]
fn several_outputs_stand_side_by_side() {
    let folder = Folder::new("outputs");
    let table: String =
        (0..200).map(|i| format!("{},{},{},{}\n", i % 5, i % 3, ["x", "y"][i % 2], i % 5 + 1)).collect();
    folder.write("rows.csv", &format!("a,b,kind,price\n{table}"));
    folder.write(
        "two.toml",
        "[model]\nlayers = [\n    { layer = \"dense\", units = 8, activation = \"relu\", name = \"trunk\" },\n    \
         { layer = \"dense\", units = 2, name = \"kind_head\", from = \"trunk\" },\n    { layer = \"dense\", units = 1, name = \"price_head\", from = \"trunk\" },\n]\n\
         outputs = [{ name = \"kind\", from = \"kind_head\" }, { name = \"price\", from = \"price_head\" }]\n\
         [data]\nformat = \"csv\"\nfiles = \"rows.csv\"\nfeatures = [\"a\", \"b\"]\nlabels = { kind = \"kind\", price = \"price\" }\ncolumns = { price = \"f32\", a = \"f32\", b = \"f32\" }\n\
         [training]\nepochs = 2\n",
    );
    ok(run_in(&folder.0, ["train", "two.toml", "--quiet"]));
    let csv = stdout(&ok(run_in(&folder.0, ["predict", "two.toml"])));
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("row,kind,kind score x,kind score y,price"));
    assert!(lines.clone().all(|l| l.split(',').count() == 5) && lines.count() == 200, "{csv}");
    let json = stdout(&ok(run_in(&folder.0, ["predict", "two.toml", "--json"])));
    assert_eq!(json.lines().count(), 400);
    ok(run_in(&folder.0, ["predict", "two.toml", "-o", "p.npy"]));
    assert!(folder.path("p.kind.npy").is_file() && folder.path("p.price.npy").is_file());
}
