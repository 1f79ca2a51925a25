//! How a log survives a crash, and that the formats are what the published schemas say.

use plimsoll_run::{EventKind, Header, Line, RunReader, RunWriter, WRITER_BYTES};
use std::io::Write;
use std::path::PathBuf;

struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("plimsoll-log-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_torn_line_is_left_out_and_the_next_writer_goes_on() {
    let directory = Directory::new("torn");
    let mut writer = RunWriter::create(&directory.0).unwrap();
    writer.event(EventKind::Warning, "first").unwrap();
    drop(writer);
    let log = directory.0.join(plimsoll_run::LOG);
    let mut file = std::fs::OpenOptions::new().append(true).open(&log).unwrap();
    file.write_all(br#"{"line":"event","at":1.0,"ki"#).unwrap();
    let mut reader = RunReader::open(&directory.0);
    assert_eq!(reader.read().unwrap().len(), 1);
    assert_eq!((reader.read().unwrap().len(), reader.n_bad()), (0, 0), "half a line is waited for");
    let mut writer = RunWriter::create(&directory.0).unwrap();
    writer.event(EventKind::Resume, "second").unwrap();
    assert_eq!(reader.read().unwrap().len(), 1);
    assert_eq!(reader.n_bad(), 1);
    // A line that arrives in pieces is read once it is whole.
    file.write_all(br#"{"line":"event","at":1.0,"#).unwrap();
    assert!(reader.read().unwrap().is_empty());
    file.write_all(b"\"kind\":\"stop\",\"message\":\"\"}\n").unwrap();
    assert_eq!(reader.read().unwrap().len(), 1);
    // Lines of kinds that are not known yet.
    file.write_all(b"{\"line\":\"sounding\",\"at\":2}\n").unwrap();
    assert!(reader.read().unwrap().is_empty());
    assert_eq!(reader.n_bad(), 2);
}

#[test]
fn a_line_that_is_too_long_becomes_a_warning() {
    let directory = Directory::new("long");
    let mut writer = RunWriter::create(&directory.0).unwrap();
    writer.event(EventKind::Stop, "x".repeat(WRITER_BYTES)).unwrap();
    let lines = RunReader::open(&directory.0).read().unwrap();
    assert!(matches!(&lines[..], [Line::Event(e)] if e.kind == EventKind::Warning && e.message.contains("left out")));
}

#[test]
fn published_schemas_are_those_of_the_types() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas");
    for (name, schema) in plimsoll_run::schemas() {
        let path = directory.join(name);
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        if std::env::var_os("UPDATE_EXPECT").is_some() {
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let published = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(published, text, "{name} is not up to date: run with UPDATE_EXPECT=1 and look at the difference");
    }
}

#[test]
fn a_header_without_a_limit_is_a_line_too() {
    let line = Line::Run(Box::new(Header { job: "x".into(), ..Header::default() }));
    let text = serde_json::to_string(&line).unwrap();
    assert!(text.contains(r#""limit":null"#));
    assert_eq!(serde_json::from_str::<Line>(&text).unwrap(), line);
}
