//! What the host allows is found before the first step, and the error says which limit it was: its value and its file.
//!
//! Every set-up is a process of its own: this test starts itself again under the limit.

#![cfg(target_os = "linux")]

use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, Dense};
use plimsoll::losses::MeanSquaredError;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::{Fit, Techniques, Trainer};
use plimsoll::{Bytes, DType, Error, Tensor};
use plimsoll_exec::sound;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const VARIABLE: &str = "PLIMSOLL_TEST_LIMIT";

/// Trains a step of about 150 MiB that values computed again can bring down to about 60, under the limit of the environment.
#[test]
fn child() {
    let Ok(limit) = std::env::var(VARIABLE) else { return };
    if let Some(mib) = limit.strip_prefix("sound ") {
        return println!("\nSOUNDING {:?}", sound(Bytes::mib(mib.parse().unwrap()), Bytes::ZERO));
    }
    let n = 8192;
    let mut model = Model::sequential([64]);
    for _ in 0..16 {
        model = model.layer(Dense::new(256).activation(Activation::Tanh));
    }
    let mut trainer = Trainer::new(model.layer(Dense::new(4)), MeanSquaredError, Adam::new(1e-3)).unwrap().threads(2);
    trainer = trainer.techniques(Techniques { split: false, spill: false, ..Techniques::ALL });
    if limit != "found" {
        trainer = trainer.memory_limit(limit.as_str());
    }
    let data = Arrays::new(Tensor::zeros(DType::F32, [n, 64]), Tensor::zeros(DType::F32, [n, 4])).unwrap();
    match trainer.fit(&data, Fit::epochs(1).batch_size(n)) {
        Ok(_) => println!("\nRAN under {}", trainer.limit_source().unwrap()),
        Err(Error::WouldNotFit(refusal)) => println!("\nREFUSED after {} steps: {refusal}", trainer.steps_done()),
        Err(Error::HostTooSmall(error)) => println!("\nSOUNDED after {} steps: {error}", trainer.steps_done()),
        Err(other) => println!("\nFAILED {other}"),
    }
}

fn command(limit: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(VARIABLE, limit).env_remove("PLIMSOLL_MEMORY_LIMIT");
    command
}

#[track_caller]
fn check(output: Output, expected: &[&str]) {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "ended with {:?}: {text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    for words in expected {
        assert!(text.contains(words), "'{words}' should stand in: {text}");
    }
}

/// A memory control group of version 1, removed at the end.
struct Group(PathBuf);

impl Group {
    fn new(below: Option<&Group>, name: &str, limit_mib: Option<u64>) -> Option<Group> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = groups.lines().find_map(|l| l.split_once(":memory:"))?.1;
        let parent = Path::new("/sys/fs/cgroup/memory").join(own.trim_start_matches('/'));
        let parent = below.map_or(parent, |group| group.0.clone());
        let group = Group(parent.join(format!("plimsoll-{}-{name}", std::process::id())));
        std::fs::create_dir(&group.0).ok()?;
        if let Some(mib) = limit_mib {
            std::fs::write(group.0.join("memory.limit_in_bytes"), (mib << 20).to_string()).ok()?;
        }
        Some(group)
    }

    fn run(&self, mut command: Command) -> Output {
        let file = std::ffi::CString::new(self.0.join("cgroup.procs").to_str().unwrap()).unwrap();
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(move || {
                let file = libc::open(file.as_ptr(), libc::O_WRONLY);
                let written = libc::write(file, c"0".as_ptr().cast(), 1);
                libc::close(file);
                if written == 1 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        command.output().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_control_group() {
    let Some(group) = Group::new(None, "leaf", Some(30)) else { return println!("no control groups here") };
    let file = group.0.join("memory.limit_in_bytes").display().to_string();
    let expected = ["REFUSED after 0 steps", "limited by   30 MiB (cgroup v1, ", &file];
    check(group.run(command("found")), &expected);
    check(group.run(command("4GiB")), &[&expected[..], &["4 GiB were asked for"]].concat());
}

#[test]
fn a_control_group_above() {
    let Some(above) = Group::new(None, "above", Some(30)) else { return println!("no control groups here") };
    let group = Group::new(Some(&above), "below", None).unwrap();
    let file = above.0.join("memory.limit_in_bytes").display().to_string();
    check(group.run(command("found")), &["REFUSED after 0 steps", "limited by   30 MiB (cgroup v1, ", &file]);
}

#[test]
fn a_run_fits_into_a_group_that_is_found() {
    let Some(group) = Group::new(None, "fits", Some(110)) else { return println!("no control groups here") };
    // Without a limit of its own it takes more; the group's limit is found and kept, and sounding finds the memory there.
    check(group.run(command("found")), &["RAN under 110 MiB (cgroup v1, "]);
}

/// The kernel kills in a group instead of refusing: it kills the child of a sounding, not the process that asked.
#[test]
fn sounding_finds_what_cannot_be_seen() {
    let Some(group) = Group::new(None, "sounding", Some(60)) else { return println!("no control groups here") };
    for (mib, expected) in
        [("20", "SOUNDING Found"), ("50", "SOUNDING Found"), ("60", "SOUNDING Killed"), ("300", "SOUNDING Killed")]
    {
        check(group.run(command(&format!("sound {mib}"))), &[expected]);
    }
}

fn with_limit(resource: libc::__rlimit_resource_t, bytes: u64) -> Output {
    let mut command = command("found");
    // SAFETY: between fork and exec only a system call is made.
    unsafe {
        command.pre_exec(move || {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            match libc::setrlimit(resource, &limit) {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        });
    }
    command.output().unwrap()
}

#[test]
fn address_space() {
    check(with_limit(libc::RLIMIT_AS, 160 << 20), &["REFUSED after 0 steps", "(ulimit -v, RLIMIT_AS"]);
    // There is room for the step beside addresses that are never touched.
    check(with_limit(libc::RLIMIT_AS, 600 << 20), &["RAN under 600 MiB (ulimit -v, RLIMIT_AS"]);
}

#[test]
fn data_size() {
    check(with_limit(libc::RLIMIT_DATA, 30 << 20), &["REFUSED after 0 steps", "(ulimit -d, RLIMIT_DATA"]);
}

#[test]
fn slurm() {
    let output = command("found").env("SLURM_MEM_PER_NODE", "30").output().unwrap();
    check(output, &["REFUSED after 0 steps", "limited by   30 MiB (slurm, SLURM_MEM_PER_NODE)"]);
}

#[test]
fn the_variable() {
    let output = command("found").env("PLIMSOLL_MEMORY_LIMIT", "30MiB").output().unwrap();
    check(output, &["REFUSED after 0 steps", "limited by   30 MiB (environment, PLIMSOLL_MEMORY_LIMIT)"]);
    let output = command("found").env("PLIMSOLL_MEMORY_LIMIT", "plenty").output().unwrap();
    check(output, &["FAILED memory limit: environment variable PLIMSOLL_MEMORY_LIMIT", "plenty"]);
    let output = command("20%%").output().unwrap();
    check(output, &["FAILED memory limit: ", "20%%"]);
}

#[test]
fn more_than_the_machine_has() {
    check(command("64TiB").output().unwrap(), &["RAN under ", "free memory, /proc/meminfo MemAvailable"]);
}
