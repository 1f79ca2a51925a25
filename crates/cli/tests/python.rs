//! `plimsoll run`: finds a Python that has the package, gives it the limit, and stands aside.
//!
//! A package of the same name stands in for the real one and tells what it was given; the real one has tests of its own.

mod common;

use common::*;
use std::path::PathBuf;
use std::process::Command;

/// A folder with a package `plimsoll` whose `run` prints its arguments and does what the program's name says.
fn package(folder: &Folder) -> PathBuf {
    folder.write("site/plimsoll/__init__.py", "");
    folder.write(
        "site/plimsoll/run.py",
        "import os, sys\nprint(sys.argv[1:])\nprint(os.getppid(), file=sys.stderr)\nif 'killed.py' in sys.argv: os.kill(os.getpid(), 15)\nsys.exit(7)\n",
    );
    folder.path("site")
}

fn has_python() -> bool {
    let there = Command::new("python3").arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        eprintln!("SKIPPED: no python3 on this machine");
    }
    there
}

#[test]
fn the_program_gets_its_words_and_the_limit() {
    if !has_python() {
        return;
    }
    let folder = Folder::new("python");
    let site = package(&folder);
    let run = |words: &[&str]| {
        plimsoll().arg("run").args(words).env("PYTHONPATH", &site).env_remove("VIRTUAL_ENV").output().unwrap()
    };
    let cases: &[(&[&str], &str)] = &[
        (
            &["train.py", "--memory-limit", "2GiB", "--epochs", "3"],
            "['--memory-limit', '2GiB', 'train.py', '--epochs', '3']",
        ),
        (&["--memory-limit", "50%", "train.py", "--json"], "['--memory-limit', '50%', 'train.py', '--json']"),
        (&["train.py"], "['train.py']"),
        (&["-m", "package.train", "-v"], "['-m', 'package.train', '-v']"),
        (&["--memory-limit=1GiB", "--", "-m", "package.train"], "['--memory-limit', '1GiB', '-m', 'package.train']"),
    ];
    for (words, given) in cases {
        let output = run(words);
        assert_eq!(output.status.code(), Some(7), "{words:?}: the exit code is the program's\n{}", stderr(&output));
        assert_eq!(stdout(&output).trim(), *given, "{words:?}");
        // It took the place of the command: its parent is this test.
        assert_eq!(stderr(&output).trim(), std::process::id().to_string(), "{words:?}");
    }
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(run(&["killed.py"]).status.signal(), Some(15), "signals are the program's");
}

#[test]
fn what_is_missing_is_said() {
    if !has_python() {
        return;
    }
    let folder = Folder::new("no-package");
    let plain = |words: &[&str]| {
        let mut command = plimsoll();
        command.arg("run").args(words).current_dir(&folder.0).env_remove("VIRTUAL_ENV").env_remove("PYTHONPATH");
        // Whatever this machine's own Python has, an environment without packages has not.
        command.arg("train.py").output().unwrap()
    };
    let refused = plain(&["--python", "/no/such/python"]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("E0701") && stderr(&refused).contains("/no/such/python"), "{}", stderr(&refused));
    folder.write("bare", "#!/bin/sh\nexec python3 -I -S \"$@\"\n");
    let bare = folder.path("bare");
    std::fs::set_permissions(&bare, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let refused = plain(&["--python", bare.to_str().unwrap()]);
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    let text = stderr(&refused);
    assert!(text.contains("has no package plimsoll") && text.contains("pip install ./python"), "{text}");
    let wrong = plain(&["--memory-limit", "lots"]);
    assert_eq!(wrong.status.code(), Some(4), "{}", stderr(&wrong));
}

#[test]
fn the_environment_that_is_active_comes_first() {
    if !has_python() {
        return;
    }
    let folder = Folder::new("environment");
    let site = package(&folder);
    let script = format!("#!/bin/sh\nPYTHONPATH={} exec python3 \"$@\"\n", site.display());
    let python = folder.write("venv/bin/python", &script);
    std::fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let output = plimsoll()
        .args(["run", "--verbose", "train.py"])
        .env("VIRTUAL_ENV", folder.path("venv"))
        .env_remove("PYTHONPATH")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert!(stderr(&output).contains("venv/bin/python"), "{}", stderr(&output));
}
