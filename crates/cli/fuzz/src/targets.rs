//! Readers of bytes that anybody may have written: whatever they are, nothing panics, hangs or takes more memory than there are bytes.

use crate::job::{Job, optimizer, settings};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What is done with bytes; whether they were accepted.
type Target = fn(&[u8]) -> bool;

/// Every target: its name, and whether the bytes were understood.
pub const TARGETS: [(&str, Target); 3] = [("job", job), ("weights", weights), ("checkpoint", checkpoint)];

/// A job file, with all that is made of it before its data is opened; an error is shown in both ways.
pub fn job(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let read = Job::from_text("job.toml", text, Path::new("job.toml"), [], &[]).and_then(|job| {
        settings(&job);
        job.run_directory();
        let training = &job.table.training;
        training.loss.iter().for_each(|loss| drop(loss.build(true)));
        training.metrics.iter().flatten().for_each(|metric| drop(metric.build()));
        optimizer::build(&job.table.optimizer)?;
        // What is written beside a run is read again as the same.
        let again = Job::from_text("again.toml", job.tree.to_document(), Path::new("job.toml"), [], &[])?;
        assert_eq!(again.tree.to_document(), job.tree.to_document());
        Ok(())
    });
    if let Err(diagnostic) = &read {
        diagnostic.render(true);
        diagnostic.json();
    }
    read.is_ok()
}

/// Weights, read whole.
///
/// # Panics
/// When tensors have more bytes than the file.
pub fn weights(bytes: &[u8]) -> bool {
    let read = plimsoll::weights::load(in_file(bytes));
    let held: usize = read.iter().flatten().map(|(_, tensor)| tensor.bytes().len()).sum();
    assert!(held <= bytes.len(), "{held} bytes of tensors in a file of {}", bytes.len());
    read.is_ok()
}

/// A checkpoint, compared with its digest. That almost no bytes have a right one is no matter: it is looked at last.
pub fn checkpoint(bytes: &[u8]) -> bool {
    plimsoll::trainer::verify_checkpoint(in_file(bytes)).is_ok()
}

/// One file for all executions, in memory where that can be had.
fn in_file(bytes: &[u8]) -> &'static Path {
    static FILE: OnceLock<(PathBuf, File)> = OnceLock::new();
    let (path, file) = FILE.get_or_init(|| {
        let folder = if Path::new("/dev/shm").is_dir() { "/dev/shm".into() } else { std::env::temp_dir() };
        let path = folder.join(format!("plimsoll-fuzz-{}", std::process::id()));
        let file = File::create(&path).expect("a file");
        (path, file)
    });
    file.write_all_at(bytes, 0).and_then(|()| file.set_len(bytes.len() as u64)).expect("room for the bytes");
    path
}
