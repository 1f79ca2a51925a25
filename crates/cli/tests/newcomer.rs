//! Somebody new: own CSV, a job written by `init`, edited, trained, evaluated, predicted with, report made. And every example.

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

#[test]
fn every_example_trains() {
    let folder = Folder::new("examples");
    let small: &[(&str, &[&str])] = &[
        ("tabular", &["--epochs", "2"]),
        ("images", &["--epochs", "1", "--set", "data.generate={ set = \"digits\", rows = 300, size = 16 }"]),
        (
            "text",
            &[
                "--epochs",
                "1",
                "--set",
                "data.generate={ set = \"text\", length = 6000, context = 32 }",
                "--set",
                "model.width=32",
            ],
        ),
        ("timeseries", &["--epochs", "1", "--set", "data.generate={ set = \"sine\", rows = 400 }"]),
    ];
    let all: Vec<String> = std::fs::read_dir(examples())
        .unwrap()
        .flatten()
        .filter_map(|e| Some(e.path().file_name()?.to_str()?.strip_suffix(".toml")?.to_owned()))
        .collect();
    assert_eq!(all.len(), small.len(), "every example is run: {all:?}");
    for (name, flags) in small {
        let job = examples().join(format!("{name}.toml"));
        let run_directory = folder.path(name);
        let output = plimsoll().arg("train").arg(&job).arg("--run").arg(&run_directory).args(*flags).output().unwrap();
        let output = ok(output);
        assert!(stdout(&output).contains("loss="), "{name}: {}", stderr(&output));
        let predicted =
            plimsoll().arg("predict").arg(&job).arg("--run").arg(&run_directory).args(*flags).output().unwrap();
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
