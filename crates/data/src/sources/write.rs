//! Writing elements to `.npy` and CSV files. TFRecord files are written in `tfrecord.rs`.

use crate::{Component, Dataset, Error, Kind};
use plimsoll_budget::Budget;
use plimsoll_tensor::DType;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

impl Dataset {
    /// Writes one component of every element to a `.npy` file, the elements along the first axis, and says how many there were.
    ///
    /// The file appears under its name when it is complete. `bf16` has no type in NumPy and is refused.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::Dataset;
    /// let path = std::env::temp_dir().join(format!("plimsoll-doc-{}.npy", std::process::id()));
    /// let budget = Budget::unlimited();
    /// assert_eq!(Dataset::range(0, 10, 1).write_npy("value", &path, &budget)?, 10);
    /// let back = Dataset::from_npy(&path).skip(9).iter(&budget)?.next().unwrap()?;
    /// assert_eq!(back.get::<i64>("x")?, [9]);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the component is not of numbers of one shape, the elements cannot be made, or the file cannot be written.
    pub fn write_npy(&self, name: &str, path: impl AsRef<Path>, budget: &Budget) -> Result<u64, Error> {
        let spec = self.spec()?;
        let component = spec.components()[spec.expect("write_npy", name)?].clone();
        let descr = descr(&component).ok_or_else(|| {
            let message = format!("component {component} is not of numbers of one shape that NumPy has a type for");
            Error::pipeline("write_npy", message)
        })?;
        let shape = component.shape().expect("checked with its type");
        let header = |rows: u64| {
            let dims: String = shape.dims().iter().map(|d| format!(", {d}")).collect();
            let comma = if dims.is_empty() { "," } else { "" };
            let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}{dims}{comma}), }}");
            // Room for a larger number, so that the real one can be put in at the end.
            let mut bytes = b"\x93NUMPY\x01\x00\xf6\x00".to_vec();
            bytes.extend_from_slice(text.as_bytes());
            bytes.resize(255, b' ');
            bytes.push(b'\n');
            bytes
        };
        let mut file = NewFile::create(path.as_ref())?;
        file.write(&header(0))?;
        let mut rows = 0;
        for element in self.iter(budget)? {
            file.write(element?.row().bytes(name)?)?;
            rows += 1;
        }
        file.finish(&header(rows))?;
        Ok(rows)
    }

    /// Writes every element to a CSV file with a header, and says how many there were. All components must be scalars.
    ///
    /// # Errors
    /// When a component is not a scalar, the elements cannot be made, or the file cannot be written.
    pub fn write_csv(&self, path: impl AsRef<Path>, budget: &Budget) -> Result<u64, Error> {
        let spec = self.spec()?;
        if let Some(c) = spec.components().iter().find(|c| c.shape().is_none_or(|s| s.rank() > 0)) {
            return Err(Error::pipeline("write_csv", format!("component {c} is not a scalar")));
        }
        let mut file = NewFile::create(path.as_ref())?;
        let names: Vec<Vec<u8>> = spec.components().iter().map(|c| quoted(c.name.as_bytes())).collect();
        file.write(&names.join(&b","[..]))?;
        file.write(b"\n")?;
        let mut rows = 0;
        for element in self.iter(budget)? {
            let element = element?;
            let row = element.row();
            let mut line = Vec::new();
            for (i, c) in spec.components().iter().enumerate() {
                if i > 0 {
                    line.push(b',');
                }
                match c.kind {
                    Kind::Bytes => line.extend(quoted(row.string(&c.name)?)),
                    Kind::Number(DType::I64) => line.extend(row.get::<i64>(&c.name)?[0].to_string().bytes()),
                    Kind::Number(DType::F32) => line.extend(float(row.get::<f32>(&c.name)?[0]).bytes()),
                    Kind::Number(_) => line.extend(float(row.tensor(&c.name)?.to_f64()[0]).bytes()),
                }
            }
            line.push(b'\n');
            file.write(&line)?;
            rows += 1;
        }
        file.finish(b"")?;
        Ok(rows)
    }
}

/// A number in as many digits as identify it; NaN is an empty field.
fn float<T: std::fmt::Display>(value: T) -> String {
    let text = value.to_string();
    if text == "NaN" { String::new() } else { text }
}

fn quoted(field: &[u8]) -> Vec<u8> {
    if !field.iter().any(|b| matches!(b, b',' | b'"' | b'\n' | b'\r')) {
        return field.to_vec();
    }
    let mut out = vec![b'"'];
    for byte in field {
        if *byte == b'"' {
            out.push(b'"');
        }
        out.push(*byte);
    }
    out.push(b'"');
    out
}

fn descr(component: &Component) -> Option<&'static str> {
    component.shape()?;
    let Kind::Number(dtype) = component.kind else { return None };
    Some(match dtype {
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::F16 => "<f2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::I16 => "<i2",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::Bool => "|b1",
        DType::BF16 => return None,
    })
}

/// A file that appears under its name when it is complete.
struct NewFile {
    path: PathBuf,
    partial: PathBuf,
    to: BufWriter<File>,
    done: bool,
}

impl NewFile {
    fn create(path: &Path) -> Result<NewFile, Error> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let to = BufWriter::with_capacity(64 << 10, File::create(&partial).map_err(|e| Error::io(&partial, e))?);
        Ok(NewFile { path: path.into(), partial, to, done: false })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.to.write_all(bytes).map_err(|e| Error::io(&self.partial, e))
    }

    /// Writes `head` over the first bytes and gives the file its name.
    fn finish(mut self, head: &[u8]) -> Result<(), Error> {
        let written = self.to.seek(SeekFrom::Start(0)).and_then(|_| self.to.write_all(head));
        let synced = written.and_then(|()| self.to.flush()).and_then(|()| self.to.get_ref().sync_all());
        synced.map_err(|e| Error::io(&self.partial, e))?;
        std::fs::rename(&self.partial, &self.path).map_err(|e| Error::io(&self.path, e))?;
        self.done = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.done {
            // Never finished, so nobody wants it.
            let _ = std::fs::remove_file(&self.partial);
        }
    }
}
