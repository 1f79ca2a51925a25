//! A real browser without a window, told what to do through the DevTools protocol over a pair of pipes.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub struct Chromium {
    child: Child,
    to: PipeWriter,
    from: BufReader<PipeReader>,
    next_id: u64,
    session: Option<String>,
    /// What was told without being asked for.
    pub events: Vec<Value>,
    /// One browser at a time: a machine with few cores would only be slower with more.
    _turn: std::sync::MutexGuard<'static, ()>,
    _profile: super::Directory,
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The browser's program; `None` when there is none.
fn program() -> Option<String> {
    let named = std::env::var("PLIMSOLL_CHROMIUM").ok();
    let known = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
    named.into_iter().chain(known).find(|p| {
        Command::new(p).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
    })
}

impl Chromium {
    /// A browser with an empty page; `None`, said aloud, when no browser is installed.
    pub fn open() -> Option<Chromium> {
        let Some(program) = program() else {
            eprintln!("SKIPPED: no chromium on this machine; install one or name it in PLIMSOLL_CHROMIUM");
            return None;
        };
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        static COUNT: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let profile = super::Directory::new(&format!("browser-{number}"));
        let ((their_in, to), (from, their_out)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
        let (read, write) = (their_in.as_raw_fd(), their_out.as_raw_fd());
        let mut command = Command::new(program);
        command
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.0.display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: only calls that are allowed between fork and exec; the browser wants the pipes as 3 and 4.
        unsafe {
            command.pre_exec(move || {
                let high = |fd| libc::fcntl(fd, libc::F_DUPFD, 64);
                let (read, write) = (high(read), high(write));
                let placed = libc::dup2(read, 3) == 3 && libc::dup2(write, 4) == 4;
                if placed { Ok(()) } else { Err(std::io::Error::last_os_error()) }
            });
        }
        let child = command.spawn().unwrap();
        let mut browser = Chromium {
            child,
            to,
            from: BufReader::new(from),
            next_id: 0,
            session: None,
            events: Vec::new(),
            _turn: turn,
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = browser.call("Target.attachToTarget", json!({"targetId": target["targetId"], "flatten": true}));
        browser.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Network", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls a method and waits for its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser is gone");
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            if answer["id"] == id {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    /// Opens a page of ours and waits until it has drawn itself.
    pub fn open_page(&mut self, url: &str, (width, height): (u32, u32), scheme: &str) {
        self.events.clear();
        let mobile = width < 600;
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features);
        self.call("Page.navigate", json!({"url": url}));
        let begun = Instant::now();
        while self.eval("document.documentElement?.dataset.ready === 'yes'") != json!(true) {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "the page does not draw itself: {:#?}",
                self.complaints()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// The value of an expression in the page.
    pub fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    pub fn key(&mut self, key: &str) {
        for kind in ["keyDown", "keyUp"] {
            self.call("Input.dispatchKeyEvent", json!({"type": kind, "key": key, "code": key}));
        }
    }

    pub fn click(&mut self, x: f64, y: f64) {
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({"type": kind, "x": x, "y": y, "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", params);
        }
    }

    /// A picture of the page, into the directory that PLIMSOLL_SHOTS names; nothing without it.
    pub fn shot(&mut self, name: &str) {
        let Some(directory) = std::env::var_os("PLIMSOLL_SHOTS") else { return };
        let picture = self.call("Page.captureScreenshot", json!({"captureBeyondViewport": true}));
        let bytes = {
            use base64::Engine;
            base64::engine::general_purpose::STANDARD.decode(picture["data"].as_str().unwrap()).unwrap()
        };
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(std::path::Path::new(&directory).join(format!("{name}.png")), bytes).unwrap();
    }

    /// Errors that the page or the browser told.
    pub fn complaints(&self) -> Vec<&Value> {
        let bad = |e: &&Value| {
            e["method"] == "Runtime.exceptionThrown"
                || e["method"] == "Log.entryAdded" && e["params"]["entry"]["level"] == "error"
        };
        self.events.iter().filter(bad).collect()
    }

    /// Addresses that were asked for, apart from the page itself and what it carries.
    pub fn requests(&self) -> Vec<String> {
        let asked = self.events.iter().filter(|e| e["method"] == "Network.requestWillBeSent");
        let url = |e: &Value| e["params"]["request"]["url"].as_str().unwrap_or("?").to_owned();
        asked.map(url).filter(|u| !["file:", "data:", "blob:", "about:"].iter().any(|own| u.starts_with(own))).collect()
    }
}
