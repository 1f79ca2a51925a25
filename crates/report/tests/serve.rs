//! The live page over the loopback interface: who may see it, what it says, and that nobody can keep others from it.

mod common;

use common::Directory;
use plimsoll_report::serve::Server;
use plimsoll_run::{Epoch, EventKind, Header, Line, RunWriter};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

struct Live {
    directory: Directory,
    address: String,
    token: String,
}

/// Two runs behind a server of their own.
fn live(name: &str) -> Live {
    let directory = Directory::new(name);
    for run in ["one", "two"] {
        let mut writer = RunWriter::create(directory.0.join(run)).unwrap();
        let header = Header { schema: 1, job: format!("job {run}"), epochs: 3, ..Header::default() };
        writer.line(&Line::Run(Box::new(header))).unwrap();
    }
    let server = Server::bind(std::slice::from_ref(&directory.0), 0).unwrap();
    let url = server.url();
    let (address, token) = url.strip_prefix("http://").unwrap().split_once("/?token=").unwrap();
    let live = Live { directory, address: address.into(), token: token.into() };
    std::thread::spawn(move || server.run());
    live
}

impl Live {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn send(&self, request: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The server may close while the rest of a long request is still coming.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn get(&self, path: &str) -> String {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address))
    }

    #[track_caller]
    fn expect(&self, answer: &str, status: &str) {
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{}", &answer[..answer.len().min(300)]);
        assert!(!answer.contains(&self.token) || status == "200");
    }
}

#[test]
fn only_who_has_the_address_sees_the_page() {
    let live = live("serve-token");
    assert!(live.address.starts_with("127.0.0.1:"));
    let token = &live.token;
    assert_eq!(token.len(), 32);
    let page = live.get(&format!("/?token={token}"));
    live.expect(&page, "200");
    assert!(page.contains("<!doctype html>") && page.contains("Cache-Control: no-store"));
    let wrong = if token.starts_with('0') { token.replacen('0', "1", 1) } else { format!("0{}", &token[1..]) };
    for path in
        ["/".into(), "/?token=".into(), format!("/?token={wrong}"), format!("/?token={token}0"), "/events".into()]
    {
        live.expect(&live.get(&path), "403");
    }
    live.expect(&live.get(&format!("/else?token={token}")), "404");
    live.expect(&live.get(&format!("/../log.jsonl?token={token}")), "404");
}

#[test]
fn pages_of_other_sites_and_odd_requests_are_refused() {
    let live = live("serve-host");
    let token = &live.token;
    let port = live.address.split_once(':').unwrap().1;
    let ask = |host: &str| live.send(&format!("GET /?token={token} HTTP/1.1\r\n{host}\r\n"));
    live.expect(&ask(&format!("Host: localhost:{port}\r\n")), "200");
    live.expect(&ask("Host: evil.example\r\n"), "403");
    live.expect(&ask(&format!("Host: evil.example:{port}\r\n")), "403");
    live.expect(&ask("Accept: */*\r\n"), "403");
    live.expect(&live.send(&format!("POST /?token={token} HTTP/1.1\r\nHost: {}\r\n\r\n", live.address)), "405");
    live.expect(&live.send("nonsense\r\n\r\n"), "400");
    live.expect(&live.send(&format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9000))), "431");
}

#[test]
fn news_come_within_a_second_or_two_and_once() {
    let live = live("serve-news");
    let mut stream = live.connect();
    write!(stream, "GET /events?token={}&at=0,0 HTTP/1.1\r\nHost: {}\r\n\r\n", live.token, live.address).unwrap();
    let mut seen = String::new();
    let mut until = |stream: &mut TcpStream, part: &str| {
        let begun = Instant::now();
        let mut block = [0; 4096];
        while !seen.contains(part) {
            assert!(begun.elapsed() < Duration::from_secs(15), "{part} is not in {seen}");
            let n = stream.read(&mut block).unwrap();
            seen += &String::from_utf8_lossy(&block[..n]);
        }
        seen.clone()
    };
    until(&mut stream, "job two");
    let mut writer = RunWriter::create(live.directory.0.join("two")).unwrap();
    writer.line(&Line::Epoch(Box::new(Epoch { epoch: 1, ..Epoch::default() }))).unwrap();
    writer.event(EventKind::Checkpoint, "after the first").unwrap();
    let text = until(&mut stream, "after the first");
    assert!(text.contains("text/event-stream") && text.contains(r#""run":1"#));
    assert_eq!(text.matches("job one").count(), 1);
    // Who comes back says how far it was, and is told only what is new.
    let last = text.lines().rev().find_map(|l| l.strip_prefix("id: ")).unwrap();
    let mut again = live.connect();
    let request = format!(
        "GET /events?token={}&at=0,0 HTTP/1.1\r\nHost: {}\r\nLast-Event-ID: {last}\r\n\r\n",
        live.token, live.address
    );
    again.write_all(request.as_bytes()).unwrap();
    writer.event(EventKind::Stop, "the second").unwrap();
    let begun = Instant::now();
    let (mut text, mut block) = (String::new(), [0; 4096]);
    while !text.contains("the second") && begun.elapsed() < Duration::from_secs(15) {
        let n = again.read(&mut block).unwrap();
        text += &String::from_utf8_lossy(&block[..n]);
    }
    assert!(text.contains("the second") && !text.contains("after the first") && !text.contains("job one"), "{text}");
}

#[test]
fn silent_connections_do_not_pile_up() {
    let live = live("serve-many");
    let silent: Vec<TcpStream> = (0..24).map(|_| live.connect()).collect();
    std::thread::sleep(Duration::from_millis(500));
    live.expect(&live.get(&format!("/?token={}", live.token)), "503");
    drop(silent);
    std::thread::sleep(Duration::from_millis(500));
    live.expect(&live.get(&format!("/?token={}", live.token)), "200");
}

#[test]
fn where_no_run_is_nothing_is_served() {
    let directory = Directory::new("serve-none");
    let refused = Server::bind(std::slice::from_ref(&directory.0), 0).err().unwrap().to_string();
    assert!(refused.contains("no run is here"), "{refused}");
}
