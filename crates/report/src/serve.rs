//! The page in a browser while a run goes on: a small server on the loopback interface.
//!
//! It is a process of its own that reads run directories; a trainer never listens. Who wants to see the page needs the token
//! that is in its address, and must come by the name of the loopback interface, so that no other site's page can ask through the
//! user's browser. Requests are read into a fixed buffer, in bounded time, by a bounded number of threads.

use crate::ReportError;
use crate::html::{load, page};
use crate::thin::Thinner;
use plimsoll_run::{Line, RunReader, find_runs};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Most connections at a time; more are told to come back.
const CONNECTIONS: usize = 24;

/// Longest request that is read.
const REQUEST_BYTES: usize = 8 << 10;

/// How long a request may take to arrive, and an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(10);

/// How often news are sent.
const NEWS: Duration = Duration::from_millis(500);

/// Shows runs in a browser until the process ends; the address is printed on standard output.
///
/// A path is a run directory, or a directory of run directories. Port 0 takes any that is free.
///
/// # Errors
/// When there is no run, or the port is taken.
pub fn run(paths: &[PathBuf], port: u16) -> Result<(), ReportError> {
    let server = Server::bind(paths, port)?;
    println!("{}", server.url());
    let _ = io::stdout().flush();
    server.run()
}

/// A server that is ready to answer.
pub struct Server {
    listener: TcpListener,
    shared: Arc<Shared>,
}

struct Shared {
    runs: Vec<PathBuf>,
    address: SocketAddr,
    token: String,
    connections: AtomicUsize,
}

impl Server {
    /// Takes the port, on the loopback interface only.
    ///
    /// # Errors
    /// When there is no run, or the port is taken.
    pub fn bind(paths: &[PathBuf], port: u16) -> Result<Server, ReportError> {
        let mut runs = Vec::new();
        for path in paths {
            runs.extend(find_runs(path)?);
        }
        let failed = ReportError::io;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(failed("listening on 127.0.0.1"))?;
        let address = listener.local_addr().map_err(failed("listening on 127.0.0.1"))?;
        let token = token().map_err(failed("reading /dev/urandom"))?;
        Ok(Server { listener, shared: Arc::new(Shared { runs, address, token, connections: AtomicUsize::new(0) }) })
    }

    /// Where the page is, with the token that it takes.
    pub fn url(&self) -> String {
        format!("http://{}/?token={}", self.shared.address, self.shared.token)
    }

    /// Answers until the process ends.
    ///
    /// # Errors
    /// When no connection can be taken any more.
    pub fn run(&self) -> Result<(), ReportError> {
        for stream in self.listener.incoming() {
            let stream = match stream {
                Ok(stream) => stream,
                // A connection that broke while it waited.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(e) => return Err(ReportError::Io { what: "taking a connection", source: e }),
            };
            let shared = self.shared.clone();
            if shared.connections.fetch_add(1, SeqCst) >= CONNECTIONS {
                shared.connections.fetch_sub(1, SeqCst);
                let _ = answer(&stream, "503 Service Unavailable", "text/plain", b"too many connections\n");
                continue;
            }
            let serve = move || {
                let _here = Leaving(&shared.connections);
                // Whoever asked is gone when this fails, and nobody else is to be told.
                let _ = shared.serve(&stream);
            };
            // The answer without a thread: `serve` is dropped, and with it the connection.
            let _ = std::thread::Builder::new().stack_size(256 << 10).spawn(serve);
        }
        Ok(())
    }
}

struct Leaving<'a>(&'a AtomicUsize);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

/// 128 bits from the system, as hexadecimal digits.
fn token() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

/// What a request asks for.
#[derive(Debug, PartialEq)]
struct Request {
    path: String,
    query: Vec<(String, String)>,
    host: Option<String>,
    last_event: Option<String>,
}

impl Request {
    fn get(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_write_timeout(Some(PATIENCE))?;
        let request = match read_request(stream) {
            Ok(request) => request,
            Err(status) => return answer(stream, status, "text/plain", format!("{status}\n").as_bytes()),
        };
        if !self.is_own_host(request.host.as_deref()) || !self.is_token(request.get("token").unwrap_or("")) {
            let text = b"this page is for those who have its whole address, token included\n";
            return answer(stream, "403 Forbidden", "text/plain", text);
        }
        match request.path.as_str() {
            "/" => match self.page() {
                Ok(page) => answer(stream, "200 OK", "text/html; charset=utf-8", page.as_bytes()),
                Err(error) => {
                    answer(stream, "500 Internal Server Error", "text/plain", format!("{error}\n").as_bytes())
                }
            },
            "/events" => self.events(stream, request.last_event.as_deref().or(request.get("at")).unwrap_or("")),
            _ => answer(stream, "404 Not Found", "text/plain", b"there is nothing here\n"),
        }
    }

    /// Pages of other sites reach this address too, under their own names.
    fn is_own_host(&self, host: Option<&str>) -> bool {
        let port = self.address.port();
        host.is_some_and(|host| host == format!("127.0.0.1:{port}") || host == format!("localhost:{port}"))
    }

    /// In a time that does not tell how much of it was right.
    fn is_token(&self, given: &str) -> bool {
        let differences = given.bytes().zip(self.token.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        given.len() == self.token.len() && differences == 0
    }

    fn page(&self) -> Result<String, ReportError> {
        let (mut runs, mut places) = (Vec::new(), Vec::new());
        for directory in &self.runs {
            let (run, place) = load(directory)?;
            places.push(place.to_string());
            runs.push(run);
        }
        page(&runs, Some(&format!("/events?token={}&at={}", self.token, places.join(","))))
    }

    /// Sends new lines of the logs as they come, twice a second, until the reader is gone.
    fn events(&self, mut stream: &TcpStream, places: &str) -> io::Result<()> {
        let mut places = places.split(',').map(|place| place.parse().unwrap_or(0));
        let mut readers: Vec<RunReader> =
            self.runs.iter().map(|run| RunReader::open_at(run, places.next().unwrap_or(0))).collect();
        stream.write_all(head("200 OK", "text/event-stream", None).as_bytes())?;
        stream.write_all(b"retry: 1000\n\n")?;
        let mut spoke = Instant::now();
        loop {
            for run in 0..readers.len() {
                let mut news = Thinner::new();
                readers[run].each(|line| news.take(line)).map_err(io::Error::other)?;
                let lines = news.finish();
                if !lines.is_empty() {
                    let places: Vec<String> = readers.iter().map(|r| r.place().to_string()).collect();
                    let data = serde_json::to_string(&News { run, lines })?;
                    write!(stream, "id: {}\ndata: {data}\n\n", places.join(","))?;
                    spoke = Instant::now();
                }
            }
            // So that a reader who is gone is noticed.
            if spoke.elapsed() > PATIENCE {
                stream.write_all(b": still here\n\n")?;
                spoke = Instant::now();
            }
            std::thread::sleep(NEWS);
        }
    }
}

#[derive(Serialize)]
struct News {
    run: usize,
    lines: Vec<Line>,
}

/// Reads the head of a request, in a fixed buffer and in bounded time.
fn read_request(mut stream: &TcpStream) -> Result<Request, &'static str> {
    let mut buffer = [0u8; REQUEST_BYTES];
    let mut filled = 0;
    let begun = Instant::now();
    loop {
        let left = PATIENCE.checked_sub(begun.elapsed()).filter(|d| !d.is_zero()).ok_or("408 Request Timeout")?;
        stream.set_read_timeout(Some(left)).map_err(|_| "400 Bad Request")?;
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Err("400 Bad Request"),
            Ok(n) => filled += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return Err("408 Request Timeout"),
        }
        if let Some(end) = buffer[..filled].windows(4).position(|w| w == b"\r\n\r\n") {
            return parse(&buffer[..end]);
        }
        if filled == buffer.len() {
            return Err("431 Request Header Fields Too Large");
        }
    }
}

fn parse(head: &[u8]) -> Result<Request, &'static str> {
    let bad = "400 Bad Request";
    let text = std::str::from_utf8(head).map_err(|_| bad)?;
    let mut lines = text.split("\r\n");
    let mut words = lines.next().ok_or(bad)?.split(' ');
    let (method, target, version) = (words.next(), words.next().ok_or(bad)?, words.next().ok_or(bad)?);
    if words.next().is_some() || !version.starts_with("HTTP/1.") {
        return Err(bad);
    }
    if method != Some("GET") {
        return Err("405 Method Not Allowed");
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pair = |pair: &str| pair.split_once('=').map(|(n, v)| (n.to_owned(), v.to_owned()));
    let mut request = Request {
        path: path.to_owned(),
        query: query.split('&').filter_map(pair).collect(),
        host: None,
        last_event: None,
    };
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(bad)?;
        let value = value.trim().to_owned();
        match name.to_ascii_lowercase().as_str() {
            // Two hosts could be read in two ways.
            "host" if request.host.is_some() => return Err(bad),
            "host" => request.host = Some(value),
            "last-event-id" => request.last_event = Some(value),
            _ => (),
        }
    }
    Ok(request)
}

fn head(status: &str, kind: &str, length: Option<usize>) -> String {
    let length = length.map_or(String::new(), |n| format!("Content-Length: {n}\r\n"));
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{length}Connection: close\r\nCache-Control: no-store\r\n\
         X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nX-Frame-Options: DENY\r\n\r\n"
    )
}

fn answer(mut stream: &TcpStream, status: &str, kind: &str, body: &[u8]) -> io::Result<()> {
    stream.write_all(head(status, kind, Some(body.len())).as_bytes())?;
    stream.write_all(body)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_as_written() {
        let request = parse(b"GET /events?token=ab&at=1,2 HTTP/1.1\r\nHost: localhost:80\r\nLast-Event-ID: 7").unwrap();
        assert_eq!(
            (request.path.as_str(), request.get("token"), request.get("at")),
            ("/events", Some("ab"), Some("1,2"))
        );
        assert_eq!((request.host.as_deref(), request.last_event.as_deref()), (Some("localhost:80"), Some("7")));
    }

    #[test]
    fn broken_requests_are_refused() {
        for (text, status) in [
            ("", "400"),
            ("GET /", "400"),
            ("GET / HTTP/2 x", "400"),
            ("POST / HTTP/1.1", "405"),
            ("GET / HTTP/1.1\r\nnonsense", "400"),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b", "400"),
        ] {
            assert!(parse(text.as_bytes()).unwrap_err().starts_with(status), "{text}");
        }
        assert!(parse(b"GET /\xff HTTP/1.1").is_err());
    }
}
