//! IDX files, in which MNIST and its relatives come.

use super::files::{Files, Readable};
use super::numbers::{Encoding, Raw};
use super::rows::{Segment, Series, dataset};
use crate::{Dataset, Error};
use plimsoll_tensor::MAX_RANK;
use std::sync::Arc;

impl Dataset {
    /// The rows of IDX files side by side, one component for each name: images and labels, for instance.
    ///
    /// ```no_run
    /// use plimsoll_data::Dataset;
    /// let mnist = Dataset::from_idx([("image", "train-images-idx3-ubyte"), ("label", "train-labels-idx1-ubyte")]);
    /// assert_eq!(mnist.spec()?.to_string(), "{image: u8[28,28], label: u8[]}");
    /// # Ok::<(), plimsoll_data::Error>(())
    /// ```
    pub fn from_idx<N: Into<String>, F: Into<Files>>(components: impl IntoIterator<Item = (N, F)>) -> Dataset {
        Dataset::from_result((|| {
            let mut series = Vec::new();
            let mut words = Vec::new();
            for (name, files) in components {
                let (name, files) = (name.into(), files.into());
                words.push(files.words());
                let mut all = None;
                for path in files.expect_some("idx")? {
                    Series::join(&mut all, read(&name, Arc::new(Readable::open(path)?))?)?;
                }
                series.extend(all);
            }
            dataset("idx", words.join(", "), series)
        })())
    }
}

fn read(name: &str, file: Arc<Readable>) -> Result<Series, Error> {
    let mut head = [0; 4 + 4 * 255];
    let n = file.read_some(0, &mut head)?;
    let bad = |offset: u64, message: String| Error::at_offset(&file.path, offset, message);
    let [0, 0, code, rank] = head[..4] else {
        if head.starts_with(&[0x1f, 0x8b]) {
            return Err(bad(0, "is compressed with gzip; unpack it first".into()));
        }
        return Err(bad(0, format!("expected the first bytes 0, 0 of an IDX file, found {:?}", &head[..n.min(4)])));
    };
    let raw = match code {
        0x08 => Raw::U8,
        0x09 => Raw::I8,
        0x0b => Raw::I16,
        0x0c => Raw::I32,
        0x0d => Raw::F32,
        0x0e => Raw::F64,
        _ => return Err(bad(2, format!("type {code:#04x} is none of 0x08, 0x09, 0x0b, 0x0c, 0x0d, 0x0e"))),
    };
    let rank = rank as usize;
    if rank == 0 || rank > MAX_RANK {
        return Err(bad(3, format!("{rank} axes; 1 to {MAX_RANK} are supported")));
    }
    let start = 4 + 4 * rank;
    if n < start {
        return Err(bad(n as u64, format!("the file ends inside the header, which has {start} bytes")));
    }
    let dims: Vec<usize> = head[4..start].as_chunks::<4>().0.iter().map(|d| u32::from_be_bytes(*d) as usize).collect();
    let encoding = Encoding { raw, big_endian: true };
    let needed = Series::row_bytes(encoding, &dims[1..]).and_then(|n| n.checked_mul(dims[0] as u64));
    let present = file.len - start as u64;
    if needed != Some(present) {
        let needed = needed.map_or("more bytes than can be counted".into(), |n| format!("{n} bytes"));
        return Err(bad(4, format!("sizes {dims:?} take {needed}, but {present} follow the header")));
    }
    let segments = vec![Segment { file: file.clone(), start: start as u64, rows: dims[0] as u64 }];
    Ok(Series { name: name.into(), encoding, dims: dims[1..].to_vec(), segments })
}
