//! Links the command without shared libraries where the host can: one file that runs on any Linux of this kind of processor.
//!
//! `-C target-feature=+crt-static` would do the same, but it is a setting of the whole build: it needs `--target`, moves the target
//! directory, and leaves no room for the Python module beside it. So the one binary is linked with `-static-pie`, and the libraries that the
//! standard library asks for by name are answered with their archives.
//!
//! Where there are no archives (some distributions package `libc.a` apart), or PLIMSOLL_DYNAMIC is set, it is linked as usual.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What Rust's standard library links with on GNU systems; without shared libraries `gcc_s` is `gcc_eh`.
const LIBRARIES: [&str; 7] = ["c", "m", "rt", "pthread", "util", "dl", "gcc_s"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=PLIMSOLL_DYNAMIC");
    let is = |name: &str, value: &str| std::env::var(format!("CARGO_CFG_{name}")).is_ok_and(|v| v == value);
    let native = std::env::var("HOST").ok() == std::env::var("TARGET").ok();
    let already = std::env::var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|f| f.split(',').any(|f| f == "crt-static"));
    let unwanted = std::env::var_os("PLIMSOLL_DYNAMIC").is_some();
    if !is("TARGET_OS", "linux") || !is("TARGET_ENV", "gnu") || !native || already || unwanted {
        return;
    }
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("set by cargo")).join("archives");
    if answer_with_archives(&folder).is_some() && links(&folder) {
        // As arguments of the binary alone: the tests of this package are linked as usual.
        println!("cargo:rustc-link-arg-bins=-L{}", folder.display());
        println!("cargo:rustc-link-arg-bins=-static-pie");
    }
}

/// Fills a folder with a linker script for each library, in which its archive stands: this folder is searched first.
fn answer_with_archives(folder: &Path) -> Option<()> {
    std::fs::create_dir_all(folder).ok()?;
    let unwinding = archive("gcc_eh")?;
    let compiler = archive("gcc")?;
    for name in LIBRARIES {
        // Archives need each other (unwinding needs the C library and the other way round), so they stand in one group.
        let script = match name {
            "c" => format!("GROUP ( {} {compiler} {unwinding} )\n", archive("c")?),
            "gcc_s" => format!("GROUP ( {unwinding} {compiler} )\n"),
            // Newer C libraries have these inside.
            other => archive(other).map_or(String::new(), |path| format!("INPUT ( {path} )\n")),
        };
        std::fs::write(folder.join(format!("lib{name}.a")), script).ok()?;
    }
    Some(())
}

/// The path of a library's archive; `None` where the compiler knows none.
fn archive(name: &str) -> Option<String> {
    let output = Command::new("cc").arg(format!("-print-file-name=lib{name}.a")).output().ok()?;
    let path = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    // A name that is not found comes back as it was.
    (path.contains('/') && Path::new(&path).is_file()).then_some(path)
}

/// Whether a program links this way and runs.
fn links(folder: &Path) -> bool {
    let (source, program) = (folder.join("try.c"), folder.join("try"));
    if std::fs::write(&source, "#include <math.h>\nint main(int n, char **a) { return n + (int)cos(n) - 1; }\n")
        .is_err()
    {
        return false;
    }
    let linked = Command::new("cc")
        .args(["-static-pie", "-fPIE", "-O0"])
        .args([source.as_path(), Path::new("-o"), program.as_path(), Path::new("-lm")])
        .stderr(std::process::Stdio::null())
        .status();
    linked.is_ok_and(|s| s.success()) && Command::new(&program).status().is_ok_and(|s| s.success())
}
