//! Training on a terminal: the bar, the gauge, Ctrl-C, and a screen that is left clean.

mod common;

use common::*;
use std::fs::File;
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

fn size(n: u16) -> NonZero<u16> {
    NonZero::new(n).expect("a size")
}

/// A terminal of 24 lines and a command that runs in it.
struct Terminal {
    master: File,
    child: Child,
    screen: vt100::Parser,
    raw: Vec<u8>,
}

impl Terminal {
    fn start(arguments: &[&str], columns: u16) -> Terminal {
        let (mut master, mut slave) = (0, 0);
        let window = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: all pointers are valid for the call; the name and the settings are not wanted.
        let opened =
            unsafe { libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null_mut(), &window) };
        assert_eq!(opened, 0, "a terminal");
        // SAFETY: both were just opened and belong to nobody else.
        let (master, slave) = unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave)) };
        let end = || Stdio::from(slave.try_clone().unwrap());
        let mut command = plimsoll();
        command.args(arguments).stdin(end()).stdout(end()).stderr(end());
        // SAFETY: only calls that are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().expect("the command runs");
        drop(slave);
        // SAFETY: the descriptor is open.
        unsafe { libc::fcntl(master.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        Terminal { master, child, screen: vt100::Parser::new(size(24), size(columns), 200), raw: Vec::new() }
    }

    fn read(&mut self) {
        let mut block = [0u8; 4096];
        while let Ok(n @ 1..) = self.master.read(&mut block) {
            self.screen.process(&block[..n]);
            self.raw.extend_from_slice(&block[..n]);
        }
    }

    fn text(&self) -> String {
        // Row by row: a row that is full to its edge does not go on in the next.
        let screen = self.screen.screen();
        let rows: Vec<String> = screen.rows(0, screen.size().1.into()).map(|row| row.trim_end().to_owned()).collect();
        rows.join("\n").trim_end().to_owned()
    }

    /// Waits until the screen shows something.
    #[track_caller]
    fn wait_for(&mut self, what: &str) {
        let start = Instant::now();
        while !self.text().contains(what) {
            self.read();
            assert!(start.elapsed() < Duration::from_secs(60), "'{what}' did not come:\n{}", self.text());
            let ended = self.child.try_wait().unwrap();
            self.read();
            assert!(ended.is_none() || self.text().contains(what), "ended without '{what}':\n{}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for the end; gives the exit code.
    fn end(&mut self) -> Option<i32> {
        let start = Instant::now();
        loop {
            self.read();
            if let Some(status) = self.child.try_wait().unwrap() {
                self.read();
                return status.code();
            }
            if start.elapsed() > Duration::from_secs(60) {
                let _ = self.child.kill();
                panic!("did not end:\n{}", self.text());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// No bar, gauge or escape is left, and the cursor is there.
    #[track_caller]
    fn assert_clean(&self) {
        let text = self.text();
        assert!(!text.contains('━') && !text.contains('▕'), "the bar is still there:\n{text}");
        assert!(!self.screen.screen().hide_cursor(), "the cursor is hidden");
        let (row, column) = self.screen.screen().cursor_position();
        assert_eq!(column, 0, "the cursor stands in row {row}, column {column}:\n{text}");
    }
}

/// A job whose steps are quick and many.
fn job(folder: &Folder) -> String {
    let text = "memory_limit = \"128MiB\"\n[model]\narchitecture = \"mlp\"\nhidden = [256, 256]\n[data]\nformat = \"generated\"\n\
                generate = { set = \"blobs\", rows = 20000, features = 32 }\nclasses = 3\n[training]\nepochs = 200\nbatch_size = 16\n";
    folder.write("long.toml", text).to_str().unwrap().to_owned()
}

#[test]
fn a_bar_and_a_gauge_while_it_runs() {
    let folder = Folder::new("bar");
    let path = job(&folder);
    let mut terminal = Terminal::start(&["train", &path, "--epochs", "1"], 120);
    terminal.wait_for("memory ▕");
    let text = terminal.text();
    let bar = text.lines().find(|l| l.contains("epoch 1/1") && l.contains('/')).unwrap_or_else(|| panic!("{text}"));
    assert!(bar.contains("1250") && bar.contains("loss"), "{bar}");
    let gauge = text.lines().find(|l| l.starts_with("memory ▕")).unwrap();
    assert!(gauge.contains("/ 128.0 MiB") && gauge.contains("planned"), "{gauge}");
    assert_eq!(terminal.end(), Some(0));
    terminal.assert_clean();
    let text = terminal.text();
    assert!(text.contains("epoch 1/1  loss") && text.contains("report: "), "{text}");
}

#[test]
fn a_narrow_terminal_does_not_break_lines() {
    let folder = Folder::new("narrow");
    let path = job(&folder);
    let mut terminal = Terminal::start(&["train", &path, "--epochs", "1"], 80);
    terminal.wait_for("memory ▕");
    let shown = terminal.text().lines().filter(|l| l.starts_with("memory ▕")).count();
    assert_eq!(shown, 1, "{}", terminal.text());
    assert_eq!(terminal.end(), Some(0));
    terminal.assert_clean();
}

#[test]
fn ctrl_c_saves_and_the_next_start_goes_on() {
    let folder = Folder::new("ctrl-c");
    let path = job(&folder);
    let mut terminal = Terminal::start(&["train", &path], 120);
    terminal.wait_for("epoch 2/200");
    terminal.master.write_all(b"\x03").unwrap();
    assert_eq!(terminal.end(), Some(130));
    terminal.assert_clean();
    let text = terminal.text();
    assert!(text.contains("stopped after step"), "{text}");
    let steps: u64 = text.split("stopped after step ").nth(1).unwrap().split(';').next().unwrap().parse().unwrap();
    assert!(steps > 1250, "{steps}");
    // The same command goes on after exactly that step.
    let output = ok(run(["train", &path, "--epochs", "2"]));
    assert!(stderr(&output).contains(&format!("going on after step {steps},")), "{}", stderr(&output));
}

#[test]
fn sigterm_saves_and_ends_with_143() {
    let folder = Folder::new("sigterm");
    let path = job(&folder);
    let mut child = plimsoll().args(["train", &path]).stderr(Stdio::null()).spawn().unwrap();
    let log = folder.path("runs/long/log.jsonl");
    let start = Instant::now();
    // Behind the line of the run comes one of a step, or of an epoch where that is over sooner.
    while !std::fs::read_to_string(&log).is_ok_and(|text| text.lines().count() > 1) {
        assert!(start.elapsed() < Duration::from_secs(60), "training began");
        std::thread::sleep(Duration::from_millis(20));
    }
    // SAFETY: the process is our child and was not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(std::fs::read_dir(folder.path("runs/long/checkpoints")).unwrap().flatten().count() > 0);
}

#[test]
fn a_dumb_terminal_gets_plain_lines() {
    let folder = Folder::new("dumb");
    let path = job(&folder);
    let mut terminal = Terminal::start(&["train", &path, "--epochs", "1", "--color", "never"], 120);
    // The variable is the command's, so it is started again with it.
    let _ = terminal.child.kill();
    let _ = terminal.child.wait();
    let output =
        ok(plimsoll().args(["train", &path, "--epochs", "1", "--fresh"]).env("TERM", "dumb").output().unwrap());
    assert!(!stderr(&output).contains('\x1b') && stderr(&output).contains("epoch=1/1"), "{}", stderr(&output));
}
