//! Everything that `--json` gives validates against the published schemas, with nothing else mixed in.

mod common;

use common::schema::problems;
use common::*;
use serde_json::Value;

fn schema(name: &str) -> Value {
    serde_json::from_str(&stdout(&ok(run(["schema", name])))).unwrap()
}

#[track_caller]
fn check(name: &str, text: &str, lines: bool) -> Vec<Value> {
    let schema = schema(name);
    let values: Vec<Value> = match lines {
        true => text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{name}: {e}: {l}"))).collect(),
        false => vec![serde_json::from_str(text).unwrap_or_else(|e| panic!("{name}: {e}: {text}"))],
    };
    assert!(!values.is_empty(), "{name}");
    for value in &values {
        let problems = problems(&schema, value);
        assert!(problems.is_empty(), "{name}: {problems:?}\n{value}");
    }
    values
}

#[test]
fn outputs_validate() {
    let folder = Folder::new("json");
    std::fs::copy(examples().join("data/houses.csv"), folder.path("houses.csv")).unwrap();
    let json = |arguments: &[&str]| stdout(&ok(run_in(&folder.0, arguments.iter().copied().chain(["--json"]))));
    check("version", &json(&["version"]), false);
    let doctor = check("doctor", &json(&["doctor", "--disk-mib", "8"]), false);
    assert!(doctor[0]["limits"].as_array().unwrap().iter().filter(|l| l["binds"] == true).count() == 1);
    check("init", &json(&["init", "houses.csv", "--label", "price_class"]), false);
    let plan = check("plan-output", &json(&["plan", "houses.toml", "--sweep", "--points", "3"]), false);
    assert_eq!(plan[0]["sweep"].as_array().unwrap().len(), 1, "nothing has to be done under the smallest limit");
    let settings = check("config", &json(&["config", "show", "houses.toml"]), true);
    assert!(settings.len() > 20);
    let lines = check("train", &json(&["train", "houses.toml", "--epochs", "2"]), true);
    let events: Vec<&str> = lines.iter().map(|l| l["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["begin", "epoch", "epoch", "end"]);
    check("log-line", &std::fs::read_to_string(folder.path("runs/houses/log.jsonl")).unwrap(), true);
    check("eval", &json(&["eval", "houses.toml"]), false);
    let predictions = check("predict", &json(&["predict", "houses.toml", "houses.csv"]), true);
    assert_eq!(predictions.len(), 400);
    check("report", &json(&["report", "runs/houses"]), false);
    let found = check("data-inspect", &json(&["data", "inspect", "houses.csv"]), false);
    assert_eq!((found[0]["elements"].as_u64(), found[0]["columns"].as_array().unwrap().len()), (Some(400), 7));
    check("data-bench", &json(&["data", "bench", "houses.csv", "--time", "1s"]), false);
    check("data-convert", &json(&["data", "convert", "houses.csv", "copy.csv"]), false);
    let copied = check("data-inspect", &json(&["data", "inspect", "copy.csv"]), false);
    assert_eq!(copied[0]["columns"], found[0]["columns"]);
    check("ckpt", &json(&["ckpt", "verify", "runs/houses"]), true);
    check("bench", &json(&["bench", "--threads", "1"]), false);
    check("explain", &json(&["explain", "E0301"]), false);
    let refused = run_in(&folder.0, ["train", "houses.toml", "--fresh", "--memory-limit", "4MiB", "--json"]);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    check("error", &stdout(&refused), true);
}

/// Commands whose data is not a run's: each gives JSON, or says with its `--help` that its output is somebody else's.
#[test]
fn every_command_speaks_json() {
    let folder = Folder::new("all-json");
    std::fs::copy(examples().join("data/houses.csv"), folder.path("houses.csv")).unwrap();
    ok(run_in(&folder.0, ["init", "houses.csv", "--label", "price_class"]));
    ok(run_in(&folder.0, ["train", "houses.toml", "--epochs", "2", "--quiet"]));
    let json = |arguments: &[&str]| stdout(&ok(run_in(&folder.0, arguments.iter().copied().chain(["--json"]))));
    check("schema", &json(&["schema"]), false);
    check("completions", &json(&["completions", "bash"]), false);
    check("man", &json(&["man"]), false);
    let pages = check("man", &json(&["man", "--all", "--output", "pages"]), false);
    assert!(pages[0]["files"].as_array().unwrap().iter().all(|f| folder.path(f.as_str().unwrap()).is_file()));
    let exported = check("ckpt", &json(&["ckpt", "export", "runs/houses", "w.safetensors"]), true);
    assert_eq!(exported[0]["bytes"], std::fs::metadata(folder.path("w.safetensors")).unwrap().len());
    check("ckpt", &json(&["ckpt", "list", "runs/houses"]), true);
    check("explain", &json(&["explain"]), true);
    // A run that is over: all of its log, and an end.
    let log = check("log-line", &json(&["watch", "runs/houses"]), true);
    assert_eq!((&log[0]["line"], &log.last().unwrap()["line"]), (&"run".into(), &"end".into()));
    let mut server = plimsoll()
        .current_dir(&folder.0)
        .args(["serve", "runs", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    let address = check("serve", &line, false);
    assert!(address[0]["url"].as_str().unwrap().starts_with("http://127.0.0.1:"), "{line}");
}

/// What a job asks for besides: event files, and a trace with the arena and the room for it as counters.
#[test]
fn what_is_asked_for_is_written() {
    let folder = Folder::new("asked-for");
    std::fs::copy(examples().join("data/houses.csv"), folder.path("houses.csv")).unwrap();
    ok(run_in(&folder.0, ["init", "houses.csv", "--label", "price_class"]));
    let flags = ["--memory-limit", "128MiB", "--set", "training.tensorboard=true", "--set", "training.trace=true"];
    ok(run_in(&folder.0, ["train", "houses.toml", "--epochs", "2", "--quiet"].iter().chain(&flags)));
    let read = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(folder.path("runs/houses").join(name)).unwrap()).unwrap()
    };
    let trace = read("trace.json");
    let events = trace["traceEvents"].as_array().unwrap();
    let named =
        |ph: &str| events.iter().filter(|e| e["ph"] == ph).map(|e| e["name"].as_str().unwrap()).collect::<Vec<_>>();
    assert!(named("C").contains(&"arena in use") && named("C").iter().any(|n| n.contains("limit")), "{:?}", named("C"));
    let (times, plan) = (read("times.json"), read("plan.json"));
    let measured = times["seconds"].as_array().unwrap();
    assert_eq!(measured.len(), plan["instructions"].as_array().unwrap().len());
    assert!(measured.iter().filter_map(Value::as_f64).sum::<f64>() > 0.0);
    let found = std::fs::read_dir(folder.path("runs/houses/tensorboard")).unwrap().count();
    assert_eq!(found, 1, "one event file");
    // The weights are those of training alone.
    let weights = std::fs::read(folder.path("runs/houses/weights.safetensors")).unwrap();
    ok(run_in(&folder.0, ["train", "houses.toml", "--epochs", "2", "--quiet", "--run", "other"]));
    assert_eq!(weights, std::fs::read(folder.path("other/weights.safetensors")).unwrap());
}

#[test]
fn examples_validate_as_jobs() {
    let schema = schema("job");
    for entry in std::fs::read_dir(examples()).unwrap().flatten() {
        if entry.path().extension().is_some_and(|e| e == "toml") {
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let job: Value = serde_json::to_value(toml::from_str::<toml::Value>(&text).unwrap()).unwrap();
            let problems = problems(&schema, &job);
            assert!(problems.is_empty(), "{}: {problems:?}", entry.path().display());
        }
    }
}

/// The validator itself: what it must refuse.
#[test]
fn the_validator_refuses() {
    let schema = serde_json::json!({
        "type": "object", "required": ["a"], "additionalProperties": false,
        "properties": { "a": { "type": "integer", "minimum": 0 }, "b": { "anyOf": [{ "const": "x" }, { "type": "null" }] } },
    });
    let fails = |text: &str| !problems(&schema, &serde_json::from_str(text).unwrap()).is_empty();
    assert!(!fails(r#"{ "a": 1, "b": null }"#) && !fails(r#"{ "a": 0, "b": "x" }"#));
    for bad in
        [r#"{}"#, r#"{ "a": -1 }"#, r#"{ "a": 0.5 }"#, r#"{ "a": 1, "b": "y" }"#, r#"{ "a": 1, "c": 2 }"#, r#"[]"#]
    {
        assert!(fails(bad), "{bad}");
    }
}
