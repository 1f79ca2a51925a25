//! Seen from outside, a spill file costs its buffers and nothing else: not with the bytes that go through it, and not in the
//! page cache, which a control group would count.
//!
//! The run is a process of its own: this test starts itself again, inside a memory cgroup where one can be made.

mod by_hand;

use by_hand::directory;
use plimsoll_budget::{Budget, Bytes, measure};
use plimsoll_exec::SpillFile;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const VARIABLE: &str = "PLIMSOLL_TEST_SPILL_GROUP";

const EACH: usize = 4 << 20;
const N: usize = 64;

/// Moves 256 MiB to the file and back, and says what its peak was before and after.
#[test]
fn child() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let mut value = vec![1u8; EACH];
    let slots: Vec<(u64, u64)> = (0..N).map(|i| ((i * EACH) as u64, EACH as u64)).collect();
    let file = SpillFile::create(&Budget::unlimited(), &directory(), (N * EACH) as u64, &slots).unwrap();
    file.store(0, &value).unwrap();
    file.fetch(0, &mut value).unwrap();
    let before = measure::usage().unwrap().peak;
    for (i, &(slot, _)) in slots.iter().enumerate() {
        value.fill(i as u8);
        file.store(slot, &value).unwrap();
    }
    for (i, &(slot, _)) in slots.iter().enumerate() {
        file.fetch(slot, &mut value).unwrap();
        assert!(value.iter().all(|&b| b == i as u8));
    }
    let after = measure::usage().unwrap().peak;
    println!("\nRESULT {} {} {:?}", before.0, after.0, file.way());
}

/// A memory cgroup that goes when the test is over.
struct Group(PathBuf);

impl Group {
    /// `None`, with a message, where none can be made.
    fn new(limit: Bytes) -> Option<Group> {
        let path = PathBuf::from(format!("/sys/fs/cgroup/memory/plimsoll-spill-{}", std::process::id()));
        if !Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() || fs::create_dir(&path).is_err() {
            println!("without a cgroup: none can be made here");
            return None;
        }
        let group = Group(path);
        fs::write(group.0.join("memory.limit_in_bytes"), limit.0.to_string()).unwrap();
        Some(group)
    }

    fn number(&self, file: &str) -> u64 {
        fs::read_to_string(self.0.join(file)).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn what_goes_through_the_file_does_not_count() {
    // Well below what goes through: one value, the buffers, the test itself.
    let limit = Bytes::mib(24);
    let group = Group::new(limit);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture", "--test-threads=1"]).env(VARIABLE, "1");
    if let Some(group) = &group {
        let tasks = group.0.join("cgroup.procs");
        // SAFETY: between fork and exec one file is opened and written; with a short path that allocates nothing, so that
        // no lock is asked for that another thread may have held.
        unsafe { command.pre_exec(move || fs::write(&tasks, "0")) };
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find(|l| l.starts_with("RESULT")).unwrap();
    let words: Vec<&str> = line.split(' ').collect();
    let (before, after) = (words[1].parse::<u64>().unwrap(), words[2].parse::<u64>().unwrap());
    println!("peak {} before and {} after, {}", Bytes(before), Bytes(after), words[3]);
    assert!(after <= before + (256 << 10), "256 MiB went through the file, and the peak grew by {}", after - before);
    if let Some(group) = &group {
        let peak = Bytes(group.number("memory.max_usage_in_bytes"));
        let failures = group.number("memory.failcnt");
        let killed = fs::read_to_string(group.0.join("memory.oom_control")).unwrap();
        println!("cgroup of {limit}: peak {peak}, {failures} failures, {}", killed.replace('\n', " "));
        assert!(!killed.contains("oom_kill ") || killed.contains("oom_kill 0"), "{killed}");
        if words[3] == "Direct" {
            assert_eq!(failures, 0, "page cache counts, and there should be none");
        }
    }
}
