//! Writing elements to `.npy` and CSV files. TFRecord files are written in `tfrecord.rs`, Parquet and Arrow files in `table.rs`.

use crate::{Dataset, Error, Kind};
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
        let refused = || {
            let message = format!("component {component} is not of numbers of one shape that NumPy has a type for");
            Error::pipeline("write_npy", message)
        };
        let (Kind::Number(dtype), Some(shape)) = (component.kind, component.shape()) else { return Err(refused()) };
        descr(dtype).ok_or_else(refused)?;
        let mut file = NpyWriter::create(path, dtype, shape.dims())?;
        for element in self.iter(budget)? {
            file.put(element?.row().bytes(name)?)?;
        }
        file.finish()
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
        file.put(&names.join(&b","[..]))?;
        file.put(b"\n")?;
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
            file.put(&line)?;
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

/// NumPy's name of a type.
fn descr(dtype: DType) -> Option<&'static str> {
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

/// A `.npy` file that is written row by row, however many there will be; it appears under its name when it is complete.
///
/// ```
/// use plimsoll_data::{Dataset, NpyWriter};
/// use plimsoll_tensor::DType;
/// let path = std::env::temp_dir().join(format!("plimsoll-doc-rows-{}.npy", std::process::id()));
/// let mut file = NpyWriter::create(&path, DType::U8, &[3])?;
/// file.put(&[1, 2, 3])?;
/// file.put(&[4, 5, 6, 7, 8, 9])?;
/// assert_eq!(file.finish()?, 3);
/// assert_eq!(Dataset::from_npy(&path).cardinality()?.known(), Some(3));
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct NpyWriter {
    file: NewFile,
    descr: &'static str,
    dims: Vec<usize>,
    row_bytes: usize,
    rows: u64,
}

impl NpyWriter {
    /// A file whose rows have this type and these sizes.
    ///
    /// # Errors
    /// When NumPy lacks the type (`bf16`), or the file cannot be made.
    pub fn create(path: impl AsRef<Path>, dtype: DType, dims: &[usize]) -> Result<NpyWriter, Error> {
        let path = path.as_ref();
        let descr = descr(dtype).ok_or_else(|| Error::in_file(path, format!("NumPy has no type {dtype}")))?;
        let row_bytes = dims.iter().product::<usize>() * dtype.size();
        let mut writer = NpyWriter { file: NewFile::create(path)?, descr, dims: dims.to_vec(), row_bytes, rows: 0 };
        let header = writer.header(0);
        writer.file.put(&header)?;
        Ok(writer)
    }

    /// The header, with room for a larger number of rows, so that the real one can be put in at the end.
    fn header(&self, rows: u64) -> Vec<u8> {
        let dims: String = self.dims.iter().map(|d| format!(", {d}")).collect();
        let comma = if dims.is_empty() { "," } else { "" };
        let descr = self.descr;
        let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}{dims}{comma}), }}");
        let mut bytes = b"\x93NUMPY\x01\x00\xf6\x00".to_vec();
        bytes.extend_from_slice(text.as_bytes());
        bytes.resize(255, b' ');
        bytes.push(b'\n');
        bytes
    }

    /// Writes some whole rows: one, where rows have no bytes.
    ///
    /// # Errors
    /// When the last row is not whole, or the disk refuses.
    pub fn put(&mut self, rows: &[u8]) -> Result<(), Error> {
        let n = match self.row_bytes {
            0 => 1,
            each if rows.len().is_multiple_of(each) => rows.len() / each,
            each => {
                let message = format!("{} bytes are no whole number of rows of {each}", rows.len());
                return Err(Error::in_file(&self.file.path, message));
            }
        };
        self.rows += n as u64;
        self.file.put(rows)
    }

    /// Gives the file its name, and says how many rows it has.
    ///
    /// # Errors
    /// When the disk refuses; there is no file then.
    pub fn finish(self) -> Result<u64, Error> {
        let header = self.header(self.rows);
        self.file.finish(&header)?;
        Ok(self.rows)
    }
}

/// A file that appears under its name when it is complete: what is dropped before that leaves nothing behind.
pub struct NewFile {
    path: PathBuf,
    partial: PathBuf,
    to: BufWriter<File>,
    done: bool,
}

impl NewFile {
    /// Begins a file of this name; until it is finished it is called `NAME.partial`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path) -> Result<NewFile, Error> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let to = BufWriter::with_capacity(64 << 10, File::create(&partial).map_err(|e| Error::io(&partial, e))?);
        Ok(NewFile { path: path.into(), partial, to, done: false })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.to.write_all(bytes).map_err(|e| Error::io(&self.partial, e))
    }

    /// Writes `head` over the first bytes and gives the file its name.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(mut self, head: &[u8]) -> Result<(), Error> {
        let written = self.to.seek(SeekFrom::Start(0)).and_then(|_| self.to.write_all(head));
        let synced = written.and_then(|()| self.to.flush()).and_then(|()| self.to.get_ref().sync_all());
        synced.map_err(|e| Error::io(&self.partial, e))?;
        std::fs::rename(&self.partial, &self.path).map_err(|e| Error::io(&self.path, e))?;
        self.done = true;
        Ok(())
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.to.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
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
