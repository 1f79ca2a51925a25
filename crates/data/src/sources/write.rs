//! Writing elements to `.npy`, `.npz` and CSV files. TFRecord files are written in `tfrecord.rs`, Parquet and Arrow files in `table.rs`.

use crate::stages::nameless;
use crate::{Component, Dataset, Error, Kind};
use plimsoll_budget::Budget;
use plimsoll_tensor::DType;
use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use zip::CompressionMethod;

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
        let (dtype, dims) = array_of("write_npy", &spec.components()[spec.expect("write_npy", name)?])?;
        let mut file = NpyWriter::create(path, dtype, &dims)?;
        for element in self.iter(budget)? {
            file.put(element?.row().bytes(name)?)?;
        }
        file.finish()
    }

    /// Writes every component to an array in a `.npz` archive, as `np.savez` does, and says how many elements there were.
    ///
    /// The elements are made once: the arrays grow side by side in files without names in the folder of the archive, and are put
    /// together at the end.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::Dataset;
    /// let path = std::env::temp_dir().join(format!("plimsoll-doc-{}.npz", std::process::id()));
    /// let budget = Budget::unlimited();
    /// assert_eq!(Dataset::range(0, 10, 1).enumerate("number", 5).write_npz(&path, &budget)?, 10);
    /// let back = Dataset::from_npz(&path);
    /// assert_eq!(back.spec()?.to_string(), "{number: i64[], value: i64[]}");
    /// assert_eq!(back.iter(&budget)?.last().unwrap()?.get::<i64>("number")?, [14]);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a component is not of numbers of one shape, the elements cannot be made, or the file cannot be written.
    pub fn write_npz(&self, path: impl AsRef<Path>, budget: &Budget) -> Result<u64, Error> {
        self.write_archive(path.as_ref(), CompressionMethod::Stored, budget)
    }

    /// As [`Dataset::write_npz`], compressed as `np.savez_compressed` does. Rows of such arrays cannot be read at their places.
    ///
    /// # Errors
    /// As [`Dataset::write_npz`].
    pub fn write_npz_compressed(&self, path: impl AsRef<Path>, budget: &Budget) -> Result<u64, Error> {
        self.write_archive(path.as_ref(), CompressionMethod::Deflated, budget)
    }

    fn write_archive(&self, path: &Path, method: CompressionMethod, budget: &Budget) -> Result<u64, Error> {
        const BUFFER: usize = 64 << 10;
        let what = "write_npz";
        let (spec, failed) = (self.spec()?, |e: std::io::Error| Error::io(path, e));
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // A buffer for every array, and those of the archive with its compressor.
        let n_buffers = spec.components().len() as u64 + 8;
        let _held = budget.account(what).reserve((n_buffers * BUFFER as u64).into())?;
        let mut arrays = Vec::new();
        for component in spec.components() {
            let mut array = BufWriter::with_capacity(BUFFER, nameless(folder)?);
            let (dtype, dims) = array_of(what, component)?;
            let descr = descr(dtype).expect("asked just now");
            array.write_all(&header(descr, &dims, 0)).map_err(failed)?;
            arrays.push((array, descr, dims));
        }
        let mut rows = 0;
        for element in self.iter(budget)? {
            let element = element?;
            for (component, (array, ..)) in spec.components().iter().zip(&mut arrays) {
                array.write_all(element.row().bytes(&component.name)?).map_err(failed)?;
            }
            rows += 1;
        }
        let bad = |e: zip::result::ZipError| Error::in_file(path, format!("cannot be written: {e}"));
        let mut archive = zip::ZipWriter::new(NewFile::create(path)?);
        for (component, (mut array, descr, dims)) in spec.components().iter().zip(arrays) {
            array.seek(SeekFrom::Start(0)).map_err(failed)?;
            array.write_all(&header(descr, &dims, rows)).map_err(failed)?;
            let bytes = array.seek(SeekFrom::End(0)).map_err(failed)?;
            array.seek(SeekFrom::Start(0)).map_err(failed)?;
            // A time would make two archives of the same data differ.
            let options = zip::write::SimpleFileOptions::default()
                .compression_method(method)
                .last_modified_time(zip::DateTime::default())
                .large_file(bytes >= u32::MAX as u64);
            archive.start_file(format!("{}.npy", component.name), options).map_err(bad)?;
            std::io::copy(array.get_mut(), &mut archive).map_err(failed)?;
        }
        archive.finish().map_err(bad)?.finish(b"")?;
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

/// Type and sizes of a component's elements, if NumPy can have arrays of them.
fn array_of(what: &str, component: &Component) -> Result<(DType, Vec<usize>), Error> {
    match (component.kind, component.shape()) {
        (Kind::Number(dtype), Some(shape)) if descr(dtype).is_some() => Ok((dtype, shape.dims().to_vec())),
        _ => {
            let message = format!("component {component} is not of numbers of one shape that NumPy has a type for");
            Err(Error::pipeline(what, message))
        }
    }
}

/// The header of a `.npy` file: always of one length, so that the number of rows can be put in at the end.
fn header(descr: &str, dims: &[usize], rows: u64) -> Vec<u8> {
    let dims: String = dims.iter().map(|d| format!(", {d}")).collect();
    let comma = if dims.is_empty() { "," } else { "" };
    let text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}{dims}{comma}), }}");
    let mut bytes = b"\x93NUMPY\x01\x00\xf6\x00".to_vec();
    bytes.extend_from_slice(text.as_bytes());
    bytes.resize(255, b' ');
    bytes.push(b'\n');
    bytes
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
        DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => return None,
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
        writer.file.put(&header(descr, dims, 0))?;
        Ok(writer)
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
        self.file.finish(&header(self.descr, &self.dims, self.rows))?;
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

impl Seek for NewFile {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.to.seek(to)
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
