//! Where the spill file is: on a disk or nowhere, where the user says, and with its space reserved before the first step.
//!
//! Every set-up is a process of its own: this test starts itself again.

#![cfg(target_os = "linux")]

use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, Dense};
use plimsoll::losses::MeanSquaredError;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::{Fit, Trainer};
use plimsoll::{DType, Error, Tensor};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const VARIABLE: &str = "PLIMSOLL_TEST_SPILL_PLACE";
const WIDTH: usize = 768;

/// 108 MiB of weights and moments under a limit of 48 MiB: most of them live in the file.
fn trainer() -> (Trainer, Arrays) {
    let mut model = Model::sequential([WIDTH]);
    for _ in 0..16 {
        model = model.layer(Dense::new(WIDTH).activation(Activation::Tanh));
    }
    let ones = Tensor::from_slice([16, WIDTH], &[0.5f32; 16 * WIDTH]).unwrap();
    let data = Arrays::new(ones, Tensor::zeros(DType::F32, [16, WIDTH])).unwrap();
    (Trainer::new(model, MeanSquaredError, Adam::new(1e-3)).unwrap().threads(2).memory_limit("48MiB"), data)
}

/// Directories in which this process has files without a name.
fn nameless() -> Vec<PathBuf> {
    let links = std::fs::read_dir("/proc/self/fd").unwrap().filter_map(|e| std::fs::read_link(e.unwrap().path()).ok());
    let gone = links.filter(|l| l.as_os_str().to_string_lossy().ends_with("(deleted)"));
    gone.filter_map(|l| l.parent().map(Path::to_owned)).collect()
}

fn losses(trainer: &mut Trainer, data: &Arrays) -> Vec<u64> {
    let history = trainer.fit(data, Fit::epochs(2).batch_size(16).in_order()).unwrap();
    history.get("loss").unwrap().iter().map(|l| l.to_bits()).collect()
}

#[test]
fn child() {
    let Ok(place) = std::env::var(VARIABLE) else { return };
    let (mut trainer, data) = trainer();
    let Some((first, second)) = place.split_once(':') else {
        trainer = if place.is_empty() { trainer } else { trainer.spill_to(&place) };
        return match trainer.fit(&data, Fit::epochs(1).batch_size(16)) {
            Ok(_) => println!("\nRAN with files in {:?}", nameless()),
            Err(Error::WouldNotFit(refusal)) => println!("\nREFUSED after {} steps: {refusal}", trainer.steps_done()),
            Err(other) => println!("\nFAILED after {} steps: {other}", trainer.steps_done()),
        };
    };
    trainer = trainer.spill_to(first);
    let mut seen = losses(&mut trainer, &data);
    assert_eq!(nameless(), [Path::new(first)]);
    trainer = trainer.spill_to(second);
    seen.extend(losses(&mut trainer, &data));
    assert_eq!(nameless(), [Path::new(second)]);
    println!("\nMOVED {seen:?}");
}

fn command(place: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(VARIABLE, place).env_remove("PLIMSOLL_MEMORY_LIMIT");
    command
}

/// The line that a child says.
fn said(mut command: Command) -> String {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let words = ["RAN", "REFUSED", "FAILED", "MOVED"];
    let begin = text.lines().position(|line| words.iter().any(|word| line.starts_with(word)));
    let begin = begin.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr)));
    text.lines().skip(begin).collect::<Vec<_>>().join("\n")
}

/// A new directory beside this program, which is on a disk.
fn directory(name: &str) -> PathBuf {
    let path = std::env::current_exe().unwrap().with_file_name(format!("plimsoll-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

/// A directory whose files are memory, where there is one.
fn in_memory() -> Option<&'static str> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    mounts.contains(" /dev/shm tmpfs ").then_some("/dev/shm")
}

#[test]
fn a_named_directory_in_memory_is_an_error() {
    let Some(memory) = in_memory() else { return println!("skipped: /dev/shm is no tmpfs here") };
    let said = said(command(memory));
    assert!(said.starts_with("FAILED after 0 steps: the spill file cannot be in '/dev/shm'"), "{said}");
    assert!(said.contains("in memory (tmpfs)") && said.contains("name a directory on a disk"), "{said}");
}

#[test]
fn the_usual_directory_is_on_a_disk() {
    let Some(memory) = in_memory() else { return println!("skipped: /dev/shm is no tmpfs here") };
    let here = directory("usual");
    let mut command = command("");
    command.env("TMPDIR", memory).current_dir(&here);
    let said = said(command);
    std::fs::remove_dir(&here).unwrap();
    let (usual, other) = (r#"RAN with files in ["/var/tmp"]"#, format!("RAN with files in [{here:?}]"));
    assert!(said.starts_with(usual) || said.starts_with(&other), "{said}");
}

#[test]
fn a_full_disk_is_refused_before_the_first_step() {
    let here = directory("full");
    let mut command = command(here.to_str().unwrap());
    // SAFETY: between fork and exec only system calls are made. A file may have 16 MiB, as if the disk had no more.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: 16 << 20, rlim_max: 16 << 20 };
            if libc::setrlimit(libc::RLIMIT_FSIZE, &limit) == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    let said = said(command);
    std::fs::remove_dir(&here).unwrap();
    assert!(said.starts_with("FAILED after 0 steps: the spill file in '"), "{said}");
    assert!(said.contains(here.to_str().unwrap()) && said.contains(" needs "), "{said}");
}

/// A file that has states in it moves, and training goes on as if it had been there from the beginning.
#[test]
fn the_file_moves() {
    let (first, second) = (directory("first"), directory("second"));
    let (a, b) = (first.to_str().unwrap(), second.to_str().unwrap());
    let (moved, stayed) = (said(command(&format!("{a}:{b}"))), said(command(&format!("{a}:{a}"))));
    std::fs::remove_dir(&first).unwrap();
    std::fs::remove_dir(&second).unwrap();
    assert!(moved.starts_with("MOVED ["), "{moved}");
    // The harness goes on with how long it took.
    assert_eq!(moved.lines().next(), stayed.lines().next());
}
