//! `--memory-limit`: the process stays below it as the kernel counts, or refuses before the first step.

mod common;

use common::*;
use std::process::Output;

/// A small job whose step needs some memory.
fn job(folder: &Folder) -> String {
    let text = "[model]\nlayers = [\n    { layer = \"conv2d\", filters = 16, kernel_size = 3, activation = \"relu\" },\n    \"max_pooling2d\",\n    \
                { layer = \"conv2d\", filters = 32, kernel_size = 3, activation = \"relu\" },\n    \"flatten\",\n    { layer = \"dense\", units = 10 },\n]\n\
                [data]\nformat = \"generated\"\ngenerate = { set = \"digits\", rows = 1024, size = 24 }\nclasses = 10\nnormalize = \"unit\"\n\
                [training]\nepochs = 1\nbatch_size = 512\n";
    folder.write("job.toml", text).to_str().unwrap().to_owned()
}

fn train(path: &str, flags: &[&str]) -> Output {
    plimsoll().args(["train", path, "--fresh"]).args(flags).output().expect("the command runs")
}

/// The smallest limit that a refusal names, in KiB.
fn smallest(output: &Output) -> u64 {
    let text = stderr(output);
    let rest = text.split("1. --memory-limit ").nth(1).unwrap_or_else(|| panic!("{text}"));
    rest.split("KiB").next().unwrap().parse().unwrap_or_else(|_| panic!("{text}"))
}

/// What the kernel counted, from the last line of `--json`.
fn peak_kib(output: &Output) -> u64 {
    let text = stdout(output);
    let end: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    end["peak"].as_u64().unwrap().div_ceil(1024)
}

#[test]
fn what_is_refused_names_a_limit_that_is_kept() {
    let folder = Folder::new("refused");
    let path = job(&folder);
    let refused = train(&path, &["--memory-limit", "4MiB"]);
    let text = stderr(&refused);
    assert_eq!(refused.status.code(), Some(3), "{text}");
    assert!(text.contains("error[E0301]: this training step does not fit in 4 MiB"), "{text}");
    assert!(text.contains("nothing was run") && !text.contains("epoch="), "{text}");

    // What a refusal names works, in another process; and the kernel agrees.
    let limit = smallest(&refused);
    let flags = ["train", &path, "--fresh", "--json", "--memory-limit", &format!("{limit}KiB")];
    let (kept, usage) = measured(plimsoll().args(flags));
    let kept = ok(kept);
    let (peak, to_the_end) = (peak_kib(&kept), usage.ru_maxrss as u64);
    assert!(peak <= limit, "{peak} KiB of {limit}:\n{}", stderr(&kept));
    // Seen from outside and to the very end, the report included.
    assert!(to_the_end <= limit, "{to_the_end} KiB of {limit} at the end:\n{}", stderr(&kept));
    let figures = |output: &Output| {
        let lines = stdout(output);
        let line = lines.lines().find(|l| l.contains("\"event\":\"epoch\"")).unwrap().to_owned();
        serde_json::from_str::<serde_json::Value>(&line).unwrap()["figures"].clone()
    };
    let free = ok(train(&path, &["--json", "--memory-limit", "1GiB"]));
    assert_eq!(figures(&kept), figures(&free), "a limit changes no result");
}

/// A table whose parts for training and validation are drawn row by row, so that only running tells how many rows their last batches have.
#[test]
fn the_smallest_limit_of_a_table_is_true_and_tight() {
    let folder = Folder::new("table");
    let mut text = "age,height,income\n".to_owned();
    for row in 0..1500u32 {
        let (age, height) = (18 + row * 7 % 70, 150 + row * 13 % 50);
        text += &format!("{age},{height},{}\n", age * 300 + height * 10);
    }
    folder.write("people.csv", &text);
    ok(plimsoll().current_dir(&folder.0).args(["init", "people.csv"]).output().unwrap());
    let path = folder.path("people.toml").to_str().unwrap().to_owned();
    for set in ["training.early_stopping.restore_best=false", "training.early_stopping.restore_best=true"] {
        let with = |limit: u64| {
            train(&path, &["--json", "--epochs", "2", "--set", set, "--memory-limit", &format!("{limit}KiB")])
        };
        let told = smallest(&with(2048));
        let less = with(told - 64);
        assert_eq!(less.status.code(), Some(3), "{}", stderr(&less));
        assert!(!stdout(&less).contains("\"event\""), "nothing has run: {}", stdout(&less));
        let kept = ok(with(told));
        assert!(peak_kib(&kept) <= told && stdout(&kept).contains("\"event\":\"epoch\""), "{}", stdout(&kept));
        // What `plan` says is true for training.
        let plan = plimsoll().args(["plan", &path, "--json", "--set", set, "--memory-limit", "1GiB"]).output().unwrap();
        let plan: serde_json::Value = serde_json::from_str(&stdout(&ok(plan))).unwrap();
        let planned = plan["smallest_limit"].as_u64().unwrap().div_ceil(1024);
        assert!(planned.abs_diff(told) <= 32, "planned {planned}, told {told}");
        ok(with(planned));
    }
}

#[test]
fn the_plan_says_what_training_takes() {
    let folder = Folder::new("plan");
    let path = job(&folder);
    let plan = |flags: &[&str]| -> serde_json::Value {
        let output = ok(plimsoll().args(["plan", &path, "--json"]).args(flags).output().unwrap());
        serde_json::from_str(&stdout(&output)).unwrap()
    };
    let wide = plan(&["--memory-limit", "1GiB"]);
    let smallest = wide["smallest_limit"].as_u64().unwrap();
    assert!(smallest < wide["unlimited"].as_u64().unwrap());
    // A limit half way is planned within, and training takes no more.
    let limit = (smallest + wide["unlimited"].as_u64().unwrap()) / 2;
    let narrow = plan(&["--memory-limit", &limit.to_string()]);
    let planned = narrow["planned"].as_u64().unwrap();
    assert!(planned <= limit);
    let parts: u64 = narrow["parts"].as_array().unwrap().iter().map(|p| p["bytes"].as_u64().unwrap()).sum();
    assert_eq!(parts, planned);
    assert_ne!(narrow["kept"]["text"], "nothing had to be done");
    let trained = ok(train(&path, &["--json", "--memory-limit", &limit.to_string()]));
    assert!(peak_kib(&trained) * 1024 <= limit, "{}", stderr(&trained));
    let begin: serde_json::Value = serde_json::from_str(stdout(&trained).lines().next().unwrap()).unwrap();
    // The trainer's own ledger differs by what the process happens to hold, and the pipeline is not open yet.
    let input = narrow["parts"].as_array().unwrap().iter().find(|p| p["what"] == "input pipeline").unwrap();
    let planned = planned - input["bytes"].as_u64().unwrap();
    let ledger = begin["planned"].as_u64().unwrap();
    assert!(ledger.abs_diff(planned) < 4 << 20, "planned {planned}, in the ledger {ledger}");
    // The curve begins at the smallest limit, validation included.
    let swept = plan(&["--memory-limit", "1GiB", "--sweep", "--points", "3", "--set", "data.validation_split=0.25"]);
    let first = swept["sweep"][0]["memory_limit"].as_u64().unwrap();
    assert_eq!(first, swept["smallest_limit"].as_u64().unwrap());
    assert_eq!(swept["sweep"].as_array().unwrap().len(), 3);
    let text = stdout(&ok(plimsoll().args(["plan", &path, "--sweep", "--points", "4"]).output().unwrap()));
    assert!(
        text.contains("where the ") && text.contains("smallest limit that works") && text.contains("slower"),
        "{text}"
    );
}

#[test]
fn the_variable_counts_when_the_flag_is_absent() {
    let folder = Folder::new("variable");
    let path = job(&folder);
    let with = |variable: &str, flags: &[&str]| {
        plimsoll()
            .args(["train", &path, "--fresh"])
            .args(flags)
            .env("PLIMSOLL_MEMORY_LIMIT", variable)
            .output()
            .unwrap()
    };
    let refused = with("3MiB", &[]);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("environment PLIMSOLL_MEMORY_LIMIT=3MiB"), "{}", stderr(&refused));
    ok(with("3MiB", &["--memory-limit", "50%"]));
    let bad = with("lots", &[]);
    assert_eq!(bad.status.code(), Some(4), "{}", stderr(&bad));
    assert!(stderr(&bad).contains("PLIMSOLL_MEMORY_LIMIT=lots"), "{}", stderr(&bad));
}

#[test]
fn every_technique_can_be_switched_off() {
    let folder = Folder::new("techniques");
    let path = job(&folder);
    let none = ["--set", "limit.split=false", "--set", "limit.recompute=false", "--set", "limit.spill=false"];
    let with = |limit: &str, more: &[&str]| train(&path, &[&["--memory-limit", limit], more].concat());
    let refused = with("4MiB", &none);
    assert!(stderr(&refused).contains("tried nothing"), "{}", stderr(&refused));
    let plainly = smallest(&refused);
    let at_best = smallest(&with("4MiB", &[]));
    assert!(at_best < plainly, "{at_best} and {plainly}");
    let between = format!("{}KiB", (at_best + plainly) / 2);
    let refused = with(&between, &none);
    assert_eq!(refused.status.code(), Some(3));
    assert!(stderr(&refused).contains("allowing slices of the batch"), "{}", stderr(&refused));
    let kept = ok(with(&between, &[]));
    assert!(stderr(&kept).contains("to keep the limit: "), "{}", stderr(&kept));
}

#[test]
fn the_demo_trains_on_more_data_than_its_limit() {
    let folder = Folder::new("demo");
    let (output, usage) = measured(plimsoll().current_dir(&folder.0).args([
        "demo",
        "--memory-limit",
        "112MiB",
        "--data-size",
        "192MiB",
        "--epochs",
        "1",
        "--batch-size",
        "256",
        "--units",
        "1024",
        "--json",
    ]));
    let output = ok(output);
    assert!(peak_kib(&output) <= 112 << 10 && usage.ru_maxrss <= 112 << 10, "{}", stderr(&output));
    let talk = stderr(&output);
    assert!(talk.contains("the data has 192 MiB") && talk.contains("report: "), "{talk}");
    assert!(folder.path("plimsoll-demo/runs/demo/report.html").is_file());
    assert!(!folder.path("plimsoll-demo/pictures.npy").exists(), "the pictures go at the end");
}
