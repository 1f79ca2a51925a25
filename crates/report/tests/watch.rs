//! The terminal view on a real terminal: it shows the run, answers keys, and gives the terminal back however it ends.
//!
//! The view is a process of its own: this test starts itself again below a pseudo-terminal.

mod common;

use common::Directory;
use plimsoll_run::{AccountLine, Header, Line, RunWriter, Step};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const VARIABLE: &str = "PLIMSOLL_TEST_WATCH";

/// The view itself, of the run that the environment names.
#[test]
fn child() {
    let Ok(path) = std::env::var(VARIABLE) else { return };
    if std::env::var_os("PLIMSOLL_TEST_PANIC").is_some() {
        std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(700));
            panic!("something broke");
        });
    }
    plimsoll_report::watch::run(path).unwrap();
    std::process::exit(0);
}

struct Pty {
    child: Child,
    master: File,
    slave: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
    before: libc::termios,
}

fn settings(fd: &OwnedFd) -> libc::termios {
    // SAFETY: the structure is filled by the call.
    unsafe {
        let mut settings = std::mem::zeroed();
        assert_eq!(libc::tcgetattr(fd.as_raw_fd(), &mut settings), 0);
        settings
    }
}

fn size(n: u16) -> std::num::NonZero<u16> {
    std::num::NonZero::new(n).expect("a terminal has rows and columns")
}

impl Pty {
    fn start(run: &Directory, panics: bool) -> Pty {
        let (mut master, mut slave) = (0, 0);
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the call fills both numbers; they belong to nobody else.
        let (master, slave) = unsafe {
            let done = libc::openpty(&mut master, &mut slave, std::ptr::null_mut(), std::ptr::null(), &size);
            assert_eq!(done, 0);
            (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave))
        };
        let before = settings(&slave);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child", "--nocapture"]).env(VARIABLE, &run.0).env("TERM", "xterm-256color");
        if panics {
            command.env("PLIMSOLL_TEST_PANIC", "1");
        }
        let end = || Stdio::from(slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: only calls that are allowed between fork and exec.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut reading, into) = (master.try_clone().unwrap(), seen.clone());
        std::thread::spawn(move || {
            let mut block = [0; 4096];
            while let Ok(n @ 1..) = reading.read(&mut block) {
                into.lock().unwrap().extend_from_slice(&block[..n]);
            }
        });
        Pty { child, master, slave, seen, before }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    /// What a person sees.
    fn screen(&self) -> String {
        let mut terminal = vt100::Parser::new(size(24), size(80), 0);
        terminal.process(&self.seen.lock().unwrap());
        terminal.screen().contents()
    }

    #[track_caller]
    fn wait_until(&self, what: &str, holds: impl Fn() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{what:?} is not on\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn wait_for(&self, part: &str) {
        self.wait_until(part, || self.screen().contains(part));
    }

    fn press(&mut self, key: &str) {
        self.master.write_all(key.as_bytes()).unwrap();
    }

    /// It ended well, and the terminal is as it was.
    #[track_caller]
    fn expect_given_back(mut self) -> String {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "it goes on: {:?}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{status}: {}", self.text());
        let (before, after) = (self.before, settings(&self.slave));
        assert_eq!((before.c_lflag, before.c_iflag, before.c_oflag), (after.c_lflag, after.c_iflag, after.c_oflag));
        self.wait_until("the end", || self.text().contains("\x1b[?1049l"));
        let text = self.text();
        let left = text.rfind("\x1b[?1049l").unwrap();
        assert!(left > text.rfind("\x1b[?1049h").unwrap(), "the screen is given back last");
        assert!(text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l"), "the cursor is there again");
        text
    }
}

fn run(name: &str) -> Directory {
    let directory = Directory::new(name);
    let mut writer = RunWriter::create(&directory.0).unwrap();
    let ledger = vec![AccountLine { name: "arena".into(), held: 60 << 20, peak: 60 << 20 }];
    let header = Header {
        schema: 1,
        job: "pictures".into(),
        epochs: 4,
        steps_per_epoch: 9,
        limit: Some(64 << 20),
        ledger,
        ..Header::default()
    };
    writer.line(&Line::Run(Box::new(header))).unwrap();
    let step = Step { epoch: 1, step: 3, steps: 3, loss: Some(0.25), seconds: 0.1, ..Step::default() };
    writer.line(&Line::Step(step)).unwrap();
    directory
}

#[test]
fn keys_change_the_view_and_q_leaves() {
    let directory = run("watch-keys");
    let mut pty = Pty::start(&directory, false);
    pty.wait_for("pictures");
    pty.wait_for("64.0 MiB");
    pty.press("?");
    pty.wait_for("load line");
    pty.press("?m");
    pty.wait_until("no help", || !pty.screen().contains("load line"));
    pty.wait_for("no plan in this run directory");
    pty.press("m");
    // A line that comes later is shown.
    let mut writer = RunWriter::create(&directory.0).unwrap();
    writer.event(plimsoll_run::EventKind::Checkpoint, "later").unwrap();
    pty.wait_for("later");
    pty.press("p");
    pty.wait_for("PAUSED");
    pty.press("q");
    pty.expect_given_back();
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    for (name, signal) in [("int", libc::SIGINT), ("term", libc::SIGTERM)] {
        let directory = run(&format!("watch-{name}"));
        let pty = Pty::start(&directory, false);
        pty.wait_for("pictures");
        // SAFETY: sent to the child that this test started and has not waited for.
        unsafe { libc::kill(pty.child.id() as i32, signal) };
        pty.expect_given_back();
    }
    // And Ctrl-C as a key, which is no signal while the terminal is taken.
    let directory = run("watch-ctrl-c");
    let mut pty = Pty::start(&directory, false);
    pty.wait_for("pictures");
    pty.press("\x03");
    pty.expect_given_back();
}

#[test]
fn a_storm_of_resizes_is_survived() {
    let directory = run("watch-resize");
    let mut pty = Pty::start(&directory, false);
    pty.wait_for("pictures");
    for i in 0..60u16 {
        let size = libc::winsize { ws_row: 1 + i * 7 % 50, ws_col: 1 + i * 13 % 160, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the size is read by the call.
        unsafe { libc::ioctl(pty.master.as_raw_fd(), libc::TIOCSWINSZ, &size) };
        std::thread::sleep(Duration::from_millis(5));
    }
    pty.press("q");
    pty.expect_given_back();
}

#[test]
fn a_panic_is_told_on_a_terminal_that_expect_given_back() {
    let directory = run("watch-panic");
    let mut pty = Pty::start(&directory, true);
    pty.wait_for("pictures");
    pty.wait_until("the message", || pty.text().contains("something broke"));
    let text = pty.text();
    assert!(text.find("\x1b[?1049l").unwrap() < text.find("something broke").unwrap(), "the screen goes first");
    let (before, after) = (pty.before, settings(&pty.slave));
    assert_eq!((before.c_lflag, before.c_oflag), (after.c_lflag, after.c_oflag));
    pty.child.kill().unwrap();
    pty.child.wait().unwrap();
}

#[test]
fn without_a_terminal_it_says_so() {
    let directory = run("watch-pipe");
    let this = std::env::current_exe().unwrap();
    let output =
        Command::new(this).args(["--exact", "child", "--nocapture"]).env(VARIABLE, &directory.0).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("not a terminal"), "{text}");
}
