//! Event files that TensorBoard reads: records with checksums, each a small protocol-buffer message.
//!
//! Only what scalars need is written, by hand: five fields of `tensorflow.Event`. Values that are not finite are written as they
//! are; TensorBoard shows them as such.

use crate::RunError;
use crate::writer::now;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// An event file that grows as figures come in.
///
/// ```
/// use plimsoll_run::tensorboard::EventFile;
/// # let directory = std::env::temp_dir().join(format!("plimsoll-events-{}", std::process::id()));
/// let mut events = EventFile::create(&directory)?;
/// events.scalars(1, &[("loss", 0.5), ("accuracy", 0.75)])?;
/// # std::fs::remove_dir_all(directory)?;
/// # Ok::<(), plimsoll_run::RunError>(())
/// ```
pub struct EventFile {
    path: PathBuf,
    file: File,
    /// Of one record; its room is kept from record to record.
    buffer: Vec<u8>,
}

impl EventFile {
    /// A new event file in this directory, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(directory: impl AsRef<Path>) -> Result<EventFile, RunError> {
        let directory = directory.as_ref();
        std::fs::create_dir_all(directory).map_err(RunError::io(directory))?;
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        // TensorBoard orders the files of a directory by name and takes them as parts of one run.
        let mut path = PathBuf::new();
        for attempt in 0.. {
            let name =
                format!("events.out.tfevents.{:010}.{}.{}.{attempt}", now() as u64, host.trim(), std::process::id());
            path = directory.join(name);
            match OpenOptions::new().create_new(true).append(true).open(&path) {
                Ok(file) => {
                    let mut events = EventFile { path, file, buffer: Vec::with_capacity(4096) };
                    events.record(|message| text(message, 3, "brain.Event:2"))?;
                    return Ok(events);
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => (),
                Err(e) => return Err(RunError::Io { path, source: e }),
            }
        }
        unreachable!("some name is free: {}", path.display())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends figures by name, as they are after so many training steps.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn scalars(&mut self, step: u64, figures: &[(&str, f64)]) -> Result<(), RunError> {
        self.record(|event| {
            tag(event, 2, 0);
            varint(event, step);
            nested(event, 5, |summary| {
                for (name, value) in figures {
                    nested(summary, 1, |entry| {
                        text(entry, 1, name);
                        tag(entry, 2, 5);
                        entry.extend_from_slice(&(*value as f32).to_le_bytes());
                    });
                }
            });
        })
    }

    /// Appends one event, with the time of now.
    fn record(&mut self, fill: impl FnOnce(&mut Vec<u8>)) -> Result<(), RunError> {
        let buffer = &mut self.buffer;
        buffer.clear();
        buffer.extend_from_slice(&[0; 12]);
        tag(buffer, 1, 1);
        buffer.extend_from_slice(&now().to_le_bytes());
        fill(buffer);
        let length = (buffer.len() as u64 - 12).to_le_bytes();
        buffer[..8].copy_from_slice(&length);
        buffer[8..12].copy_from_slice(&masked(&length).to_le_bytes());
        let of_message = masked(&buffer[12..]).to_le_bytes();
        buffer.extend_from_slice(&of_message);
        self.file.write_all(buffer).map_err(RunError::io(&self.path))
    }
}

/// The checksum of a record, rotated and shifted so that a record inside another has another one.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The number and the wire type of a field: 0 varint, 1 eight bytes, 2 with its length, 5 four bytes.
fn tag(out: &mut Vec<u8>, field: u64, wire: u64) {
    varint(out, field << 3 | wire);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn text(out: &mut Vec<u8>, field: u64, text: &str) {
    tag(out, field, 2);
    varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// A message inside a message: its length is known only once it is there, so it moves up by the length's size.
fn nested(out: &mut Vec<u8>, field: u64, fill: impl FnOnce(&mut Vec<u8>)) {
    tag(out, field, 2);
    let start = out.len();
    fill(out);
    let length = out.len() - start;
    varint(out, length as u64);
    let moved = out.len() - start - length;
    out[start..].rotate_right(moved);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_format() {
        // From the first record of a file that TensorFlow 2.15 wrote: its length, 24.
        assert_eq!(masked(&24u64.to_le_bytes()).to_le_bytes(), [0xa3, 0x7f, 0x4b, 0x22]);
    }

    #[test]
    fn messages_are_as_the_encoding_says() {
        let mut out = Vec::new();
        nested(&mut out, 5, |m| text(m, 1, "loss"));
        assert_eq!(out, [0x2a, 6, 0x0a, 4, b'l', b'o', b's', b's']);
        out.clear();
        varint(&mut out, 300);
        assert_eq!(out, [0xac, 2]);
        out.clear();
        nested(&mut out, 1, |m| m.extend([7; 200]));
        assert_eq!((&out[..3], out.len()), (&[0x0a, 0xc8, 1][..], 203));
    }
}
