//! `demo --memory-limit`: the process stays below it as the kernel counts, or refuses before the first step.

use std::process::{Command, Output};

fn demo(limit: &str) -> Output {
    let arguments = ["demo", "--epochs", "1", "--pictures", "1200", "--batch-size", "512", "--memory-limit", limit];
    Command::new(env!("CARGO_BIN_EXE_plimsoll")).args(arguments).output().expect("the binary runs")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The number of KiB after some words.
fn kib_after(text: &str, words: &str) -> u64 {
    let rest = &text[text.find(words).unwrap_or_else(|| panic!("'{words}' stands in:\n{text}")) + words.len()..];
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("a number follows '{words}' in:\n{text}"))
}

#[test]
fn what_is_refused_names_a_limit_that_is_kept() {
    let refused = demo("4MiB");
    let text = stderr(&refused);
    assert_eq!(refused.status.code(), Some(3), "{text}");
    assert!(
        text.contains("does not fit in 4 MiB") && text.contains("at the peak") && !text.contains("epoch 1"),
        "{text}"
    );
    let smallest = kib_after(&text, "the smallest limit that would do is");

    // What a refusal names works, in another process.
    let limit = smallest;
    let kept = demo(&format!("{limit}KiB"));
    let text = stderr(&kept);
    assert_eq!(kept.status.code(), Some(0), "{text}");
    let peak = kib_after(&text, "peak resident memory:");
    assert!(peak <= limit, "{peak} KiB of {limit}:\n{text}");
    let free = demo("1GiB");
    assert_eq!(kept.stdout, free.stdout, "a limit changes no result");
}

#[test]
fn the_variable_counts_when_the_option_is_absent() {
    let demo = |variable: &str, more: &[&str]| {
        let arguments = ["demo", "--epochs", "1", "--pictures", "60"];
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(arguments).args(more).env("PLIMSOLL_MEMORY_LIMIT", variable).output().expect("the binary runs")
    };
    let refused = demo("3MiB", &[]);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    assert!(
        stderr(&refused).contains("limited by   3 MiB (environment, PLIMSOLL_MEMORY_LIMIT)"),
        "{}",
        stderr(&refused)
    );
    let option = demo("3MiB", &["--memory-limit", "50%"]);
    assert_eq!(option.status.code(), Some(0), "{}", stderr(&option));
    let bad = demo("lots", &[]);
    assert_eq!(bad.status.code(), Some(1), "{}", stderr(&bad));
    assert!(stderr(&bad).contains("PLIMSOLL_MEMORY_LIMIT") && stderr(&bad).contains("lots"), "{}", stderr(&bad));
}
