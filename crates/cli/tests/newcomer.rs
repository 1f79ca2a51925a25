//! Somebody new: own CSV, a job written by `init` or an example that is edited, trained, evaluated, predicted with, report opened. And every
//! example.

mod common;

use common::*;

/// A table whose label follows from its columns.
fn table(rows: usize) -> String {
    let mut text = String::from("id,height,weight,colour,species\n");
    for i in 0..rows {
        let big = i % 2 == 0;
        let wobble = (i * 7919 % 100) as f64 / 100.0;
        let (height, weight) =
            if big { (30.0 + 5.0 * wobble, 8.0 + wobble) } else { (20.0 + 5.0 * wobble, 4.0 + wobble) };
        let colour = ["grey", "white", "black"][i % 3];
        text += &format!("n{i:05},{height:.2},{weight:.2},{colour},{}\n", if big { "goose" } else { "gull" });
    }
    text
}

#[test]
fn own_table_from_csv_to_predictions() {
    let folder = Folder::new("newcomer");
    folder.write("birds.csv", &table(400));
    let written = ok(run_in(&folder.0, ["init", "birds.csv"]));
    assert_eq!(stdout(&written).trim(), "birds.toml");
    assert!(stderr(&written).contains("left out, since nearly every row differs: id"), "{}", stderr(&written));

    // The job is edited as one would.
    let job = std::fs::read_to_string(folder.path("birds.toml")).unwrap();
    let job = job
        .replace("# memory_limit = \"256MiB\"", "memory_limit = \"128MiB\"")
        .replace("epochs = 20", "epochs = 6")
        .replace("0.001", "0.01");
    folder.write("birds.toml", &job);

    let plan = ok(run_in(&folder.0, ["plan", "birds.toml", "--json"]));
    let plan: serde_json::Value = serde_json::from_str(&stdout(&plan)).unwrap();
    let parts: u64 = plan["parts"].as_array().unwrap().iter().map(|p| p["bytes"].as_u64().unwrap()).sum();
    assert_eq!(parts, plan["planned"].as_u64().unwrap(), "the parts add up");
    assert!(plan["planned"].as_u64() <= plan["memory_limit"].as_u64());

    let trained = ok(run_in(&folder.0, ["train", "birds.toml"]));
    let figures = stdout(&trained);
    let accuracy = |line: &str| -> f64 {
        let value = line.split("sparse_categorical_accuracy=").last().unwrap();
        value.split_whitespace().next().unwrap().parse().unwrap()
    };
    assert!(accuracy(&figures) > 0.95, "{figures}");
    for file in ["log.jsonl", "plan.json", "weights.safetensors", "preprocessing.json", "job.toml", "report.html"] {
        assert!(folder.path("runs/birds").join(file).is_file(), "{file} of the run");
    }

    let evaluated = ok(run_in(&folder.0, ["eval", "birds.toml"]));
    assert!(accuracy(&stdout(&evaluated)) > 0.95);

    // New rows have no label.
    folder.write("new.csv", "id,height,weight,colour\na,33,8.5,grey\nb,21,4.2,black\n");
    let predicted = stdout(&ok(run_in(&folder.0, ["predict", "birds.toml", "new.csv"])));
    let lines: Vec<&str> = predicted.lines().collect();
    assert_eq!(lines[0], "row,prediction,score goose,score gull");
    assert!(lines[1].starts_with("0,goose,") && lines[2].starts_with("1,gull,"), "{predicted}");
    ok(run_in(&folder.0, ["predict", "birds.toml", "new.csv", "-o", "out.npy"]));
    assert!(std::fs::read(folder.path("out.npy")).unwrap().starts_with(b"\x93NUMPY"));

    // A second start finds everything done; damaged checkpoints are found.
    let again = ok(run_in(&folder.0, ["train", "birds.toml"]));
    assert!(stderr(&again).contains("going on after step"), "{}", stderr(&again));
    ok(run_in(&folder.0, ["ckpt", "verify", "runs/birds"]));
    ok(run_in(&folder.0, ["ckpt", "export", "runs/birds", "weights.safetensors"]));
    let mine = std::fs::read(folder.path("weights.safetensors")).unwrap();
    assert_eq!(mine, std::fs::read(folder.path("runs/birds/weights.safetensors")).unwrap());
    let newest =
        std::fs::read_dir(folder.path("runs/birds/checkpoints")).unwrap().flatten().map(|e| e.path()).max().unwrap();
    let mut bytes = std::fs::read(&newest).unwrap();
    let middle = bytes.len() - 9;
    bytes[middle] ^= 1;
    std::fs::write(&newest, bytes).unwrap();
    assert_eq!(run_in(&folder.0, ["ckpt", "verify", "runs/birds"]).status.code(), Some(8));

    // Another model does not take the old checkpoints.
    let refused = run_in(&folder.0, ["train", "birds.toml", "--set", "model.hidden=[8]"]);
    assert_eq!(refused.status.code(), Some(8), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("--fresh"));
}

/// An example job edited for an own table, and its report opened in a browser: `scripts/newcomer` does the same from a clone.
#[test]
fn an_example_job_edited_for_an_own_table() {
    let folder = Folder::new("edited");
    folder.write("birds.csv", &table(400));
    let example = std::fs::read_to_string(examples().join("tabular.toml")).unwrap();
    let edited = example.replace("data/houses.csv", "birds.csv").replace("price_class", "species");
    folder.write("birds.toml", &edited.replace("label =", "features = [\"height\", \"weight\", \"colour\"]\nlabel ="));
    let trained = ok(run_in(&folder.0, ["train", "birds.toml"]));
    let accuracy = stdout(&trained).split("val_sparse_categorical_accuracy=").nth(1).map(str::to_owned);
    let accuracy: f64 = accuracy.unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(accuracy > 0.95, "{}", stdout(&trained));
    let talk = stderr(&trained);
    let report = talk.lines().find_map(|l| l.strip_prefix("report: ")).expect("the path of a report");
    open_in_browser(&folder, &folder.0.join(report));
}

/// The page draws itself without a word from the network.
fn open_in_browser(folder: &Folder, page: &std::path::Path) {
    let programs = ["chromium", "chromium-browser", "google-chrome"];
    let shown = programs.iter().find_map(|program| {
        let mut browser = std::process::Command::new(program);
        browser.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]);
        browser.arg(format!("--user-data-dir={}", folder.path("browser").display()));
        browser.arg(format!("file://{}", page.display())).output().ok()
    });
    match shown {
        Some(output) => assert!(stdout(&output).contains("data-ready=\"yes\""), "{}", stderr(&output)),
        None => eprintln!("SKIPPED: no browser on this machine"),
    }
}

/// Every example does what its head says: lines `# expect: FIGURE < NUMBER` are held against the figures of its last epoch, and
/// its memory limit against what the kernel counted.
#[test]
fn every_example_does_what_its_head_says() {
    let folder = Folder::new("examples");
    let mut all = Vec::new();
    for entry in std::fs::read_dir(examples()).unwrap().flatten() {
        if entry.path().extension().is_some_and(|e| e == "toml") {
            all.push(entry.path());
        }
    }
    assert!(all.len() >= 4, "{all:?}");
    for job in all {
        let name = job.file_stem().unwrap().to_string_lossy().into_owned();
        let run_directory = folder.path(&name);
        let command = |word: &str| {
            let mut command = plimsoll();
            command.arg(word).arg(&job).arg("--run").arg(&run_directory);
            command
        };
        let lines = stdout(&ok(command("train").args(["--json", "--quiet"]).output().unwrap()));
        let lines: Vec<serde_json::Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let last = lines.iter().rfind(|l| l["event"] == "epoch").expect("an epoch");
        let text = std::fs::read_to_string(&job).unwrap();
        let expected: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("# expect: ")).collect();
        assert!(!expected.is_empty(), "{name}: the head says what to expect");
        for line in expected {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [figure, compared, bound] = words[..] else { panic!("{name}: {line}") };
            let value = last["figures"][figure].as_f64().unwrap_or_else(|| panic!("{name}: no {figure} in {last}"));
            let bound: f64 = bound.parse().unwrap();
            let holds = match compared {
                "<" => value < bound,
                ">" => value > bound,
                _ => panic!("{name}: {line}"),
            };
            assert!(holds, "{name}: {line}, but it is {value}");
        }
        let (begin, end) = (&lines[0], lines.last().unwrap());
        let (limit, peak) = (begin["memory_limit"].as_u64().unwrap(), end["peak"].as_u64().unwrap());
        assert!(peak <= limit, "{name}: {peak} bytes of {limit}");
        let predicted = command("predict").output().unwrap();
        assert!(stdout(&ok(predicted)).lines().count() > 10, "{name}");
    }
}

#[test]
fn piped_output_is_plain() {
    let folder = Folder::new("piped");
    let job = examples().join("tabular.toml");
    let output =
        plimsoll().arg("train").arg(&job).args(["--epochs", "3", "--run"]).arg(folder.path("run")).output().unwrap();
    let output = ok(output);
    let (out, talk) = (stdout(&output), stderr(&output));
    for text in [&out, &talk] {
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
    let epochs: Vec<&str> = talk.lines().filter(|l| l.starts_with("epoch=")).collect();
    assert_eq!(epochs.len(), 3, "{talk}");
    for line in epochs {
        // logfmt: words of key=value.
        assert!(
            line.split(' ').all(|word| word.split_once('=').is_some_and(|(k, v)| !k.is_empty() && !v.is_empty())),
            "{line}"
        );
        for key in ["step=", "loss=", "val_loss=", "s_per_step=", "peak_mib=", "limit_mib="] {
            assert!(line.contains(key), "{key} in {line}");
        }
    }
    assert_eq!(out.lines().count(), 1, "the figures alone: {out}");
}
