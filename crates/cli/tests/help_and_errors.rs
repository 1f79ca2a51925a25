//! Help and errors, word for word.

mod common;

use common::*;

/// Every command and subcommand that help is asked of.
const COMMANDS: &[&str] = &[
    "",
    "demo",
    "doctor",
    "init",
    "plan",
    "train",
    "eval",
    "predict",
    "run",
    "report",
    "watch",
    "serve",
    "data",
    "data inspect",
    "data convert",
    "data bench",
    "ckpt",
    "ckpt list",
    "ckpt verify",
    "ckpt export",
    "bench",
    "config",
    "config show",
    "explain",
    "schema",
    "completions",
    "man",
    "version",
];

#[test]
fn help_teaches() {
    for command in COMMANDS {
        let words: Vec<&str> = command.split_whitespace().collect();
        let output = ok(run(words.iter().copied().chain(["--help"])));
        assert!(output.stderr.is_empty(), "{command}");
        let text = stdout(&output);
        let name = if command.is_empty() { "plimsoll".to_owned() } else { command.replace(' ', "-") };
        snapshot(&format!("help/{name}.txt"), &text);
        // Commands that do something show how.
        let leaf = !["", "data", "ckpt", "config", "version"].contains(command);
        assert_eq!(leaf, text.contains("Examples:"), "{command}:\n{text}");
    }
}

#[test]
fn all_commands_are_in_the_list() {
    let text = stdout(&ok(run(["--help"])));
    let listed: Vec<&str> = text
        .split("Commands:\n")
        .nth(1)
        .unwrap()
        .split("\n\n")
        .next()
        .unwrap()
        .lines()
        .filter_map(|l| {
            l.strip_prefix("  ")?.split_whitespace().next().filter(|w| !l.starts_with("   ") && !w.is_empty())
        })
        .collect();
    for command in &listed {
        assert!(COMMANDS.contains(command), "{command} has no snapshot");
    }
    assert!(listed.len() >= 18, "{listed:?}");
}

/// Jobs with a mistake each, and what is told.
#[test]
fn errors_show_the_place() {
    let folder = Folder::new("errors");
    folder.write("rows.csv", "a,b,kind\n1,2,x\n3,oops,y\n5,6,x\n7,8,y\n");
    let good = "[model]\narchitecture = \"mlp\"\n\n[data]\nformat = \"generated\"\ngenerate = \"blobs\"\n";
    let cases: &[(&str, u8, String, &[&str])] = &[
        ("unknown-key", 4, format!("{good}\n[training]\nepocs = 10\n"), &[]),
        ("wrong-type", 4, format!("{good}\n[training]\nepochs = \"ten\"\n"), &[]),
        ("wrong-name", 4, good.replace("\"mlp\"", "\"mpl\""), &[]),
        ("missing-key", 4, "[model]\nlayers = [\n    { layer = \"dense\" },\n]\n\n[data]\nformat = \"generated\"\ngenerate = \"blobs\"\n".into(), &[]),
        ("not-toml", 4, "[model\narchitecture = \"mlp\"\n".into(), &[]),
        ("layer-does-not-fit", 4, good.replace("architecture = \"mlp\"", "layers = [\n    { layer = \"dense\", units = 8 },\n    { layer = \"conv2d\", filters = 8, kernel_size = 3 },\n]"), &[]),
        ("no-file", 4, "[model]\narchitecture = \"mlp\"\n\n[data]\nformat = \"csv\"\nfiles = \"no-such-file.csv\"\n".into(), &[]),
        ("no-column", 4, "[model]\narchitecture = \"mlp\"\n\n[data]\nformat = \"csv\"\nfiles = \"rows.csv\"\nlabel = \"kindd\"\n".into(), &[]),
        ("bad-field", 4, "[model]\narchitecture = \"mlp\"\n\n[data]\nformat = \"csv\"\nfiles = \"rows.csv\"\nlabel = \"kind\"\ncolumns = { b = \"f64\" }\nnormalize = \"standard\"\n".into(), &[]),
        ("bad-limit", 4, format!("memory_limit = \"lots\"\n\n{good}"), &[]),
        ("bad-flag", 4, good.into(), &["--set", "training.epochs=many"]),
        ("diverged", 5, format!("{good}\n[optimizer]\nname = \"sgd\"\nlearning_rate = 1e30\n"), &[]),
    ];
    for (name, code, text, flags) in cases {
        folder.write("job.toml", text);
        let output = run_in(&folder.0, ["train", "job.toml", "--fresh", "--quiet"].iter().chain(flags.iter()));
        assert_eq!(output.status.code(), Some(*code as i32), "{name}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{name}: errors are talk");
        snapshot(&format!("errors/{name}.txt"), &stderr(&output).replace(&*folder.0.to_string_lossy(), "FOLDER"));
    }
}

#[test]
fn errors_as_json_say_the_same() {
    let folder = Folder::new("json-errors");
    let job = folder
        .write("job.toml", "[model]\narchitecture = \"mlp\"\n[data]\nformat = \"generated\"\ngenerate = \"blobz\"\n");
    let output = plimsoll().args(["train", "--json", "--quiet"]).arg(&job).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let error: serde_json::Value = serde_json::from_str(stdout(&output).trim()).unwrap();
    assert_eq!(error["error"]["code"], "E0106");
    assert_eq!(
        (error["error"]["place"]["line"].as_u64(), error["error"]["place"]["column"].as_u64()),
        (Some(5), Some(12))
    );
    assert_eq!(error["error"]["label"], "did you mean 'blobs'?");
}

#[test]
fn wrong_use_ends_with_two() {
    let output = run(["trian"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("'train'"), "{}", stderr(&output));
}

#[test]
fn colours_only_where_they_are_wanted() {
    let failing = |variables: &[(&str, &str)], flags: &[&str]| {
        let output = plimsoll()
            .args(["train", "no-such-job.toml"])
            .args(flags)
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(4));
        stderr(&output).contains('\x1b')
    };
    assert!(!failing(&[], &[]), "a pipe is no terminal");
    assert!(failing(&[("CLICOLOR_FORCE", "1")], &[]));
    assert!(!failing(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], &[]));
    assert!(failing(&[], &["--color", "always"]));
    assert!(!failing(&[("CLICOLOR_FORCE", "1")], &["--color", "never"]));
}
