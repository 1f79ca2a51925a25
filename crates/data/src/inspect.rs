//! What a file holds, and the same in another format: what `plimsoll data inspect` and `convert` call.

use crate::sources::example;
use crate::{Component, Compression, Csv, Dataset, Error, Files, Kind, Spec};
use plimsoll_budget::{Budget, Bytes};
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The formats that can be told from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileFormat {
    /// One NumPy array.
    Npy,
    /// Several NumPy arrays in an archive.
    Npz,
    /// A table in text, separated by commas.
    Csv,
    /// A table in text, separated by tabs.
    Tsv,
    /// Parquet.
    Parquet,
    /// Arrow IPC, also called Feather.
    Arrow,
    /// TensorFlow's records.
    TfRecord,
    /// The format of MNIST.
    Idx,
    /// A folder with a folder of images for each class.
    ImageFolder,
    /// One JPEG or PNG image.
    Image,
    /// Lines of text.
    Lines,
}

impl FileFormat {
    /// Every format with its name and the endings of its files.
    const ALL: &[(FileFormat, &str, &[&str])] = &[
        (FileFormat::Npy, "npy", &["npy"]),
        (FileFormat::Npz, "npz", &["npz"]),
        (FileFormat::Csv, "csv", &["csv"]),
        (FileFormat::Tsv, "tsv", &["tsv"]),
        (FileFormat::Parquet, "parquet", &["parquet", "pq"]),
        (FileFormat::Arrow, "arrow", &["arrow", "feather", "ipc"]),
        (FileFormat::TfRecord, "tfrecord", &["tfrecord", "tfrecords"]),
        (FileFormat::Idx, "idx", &["idx"]),
        (FileFormat::ImageFolder, "image folder", &[]),
        (FileFormat::Image, "image", &["jpg", "jpeg", "png"]),
        (FileFormat::Lines, "lines", &["txt", "text", "log"]),
    ];

    /// The format of a file or folder: by its first bytes where they tell, else by its name.
    ///
    /// # Errors
    /// When it cannot be read, or neither tells.
    pub fn of(path: &Path) -> Result<FileFormat, Error> {
        if path.is_dir() {
            return Ok(FileFormat::ImageFolder);
        }
        let mut head = Vec::new();
        let file = std::fs::File::open(path).map_err(|e| Error::io(path, e))?;
        file.take(16).read_to_end(&mut head).map_err(|e| Error::io(path, e))?;
        Ok(match &head[..] {
            [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => FileFormat::Npy,
            [b'P', b'K', 3 | 5, 4 | 6, ..] => FileFormat::Npz,
            [b'P', b'A', b'R', b'1', ..] => FileFormat::Parquet,
            [b'A', b'R', b'R', b'O', b'W', b'1', ..] => FileFormat::Arrow,
            [0xff, 0xd8, 0xff, ..] | [0x89, b'P', b'N', b'G', ..] => FileFormat::Image,
            [0, 0, 8..=14, 1..=8, ..] => FileFormat::Idx,
            _ => return FileFormat::by_name(path),
        })
    }

    /// The format that a name stands for, whether or not there is such a file; `.gz` at its end is passed over.
    ///
    /// # Errors
    /// When the ending is none that is known.
    pub fn by_name(path: &Path) -> Result<FileFormat, Error> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending);
        let known = FileFormat::ALL.iter().find(|(_, _, endings)| endings.contains(&ending));
        known.map(|(format, ..)| *format).ok_or_else(|| {
            let endings: Vec<&str> = FileFormat::ALL.iter().flat_map(|(_, _, endings)| *endings).copied().collect();
            let message = format!("'.{ending}' is no ending of a known format; known are .{}", endings.join(", ."));
            Error::in_file(path, message)
        })
    }

    /// A data set of files of this format, one after another (of one folder, for a folder of images): columns, types and
    /// features as they are found.
    ///
    /// # Errors
    /// When there is no file, it cannot be read, or this build leaves the format out.
    pub fn open(self, files: &[PathBuf]) -> Result<Dataset, Error> {
        let Some(first) = files.first() else { return Err(Error::pipeline("open", "there are no files")) };
        let (compression, all) = (compression(first), || Files::list(files.to_vec()));
        Ok(match self {
            FileFormat::Npy => Dataset::from_npy(all()),
            FileFormat::Npz => Dataset::from_npz(all()),
            FileFormat::Csv => Dataset::from_csv(all(), Csv::default().compression(compression)),
            FileFormat::Tsv => Dataset::from_csv(all(), Csv::default().delimiter(b'\t').compression(compression)),
            #[cfg(feature = "parquet")]
            FileFormat::Parquet => Dataset::from_parquet(all(), None),
            #[cfg(feature = "parquet")]
            FileFormat::Arrow => Dataset::from_arrow(all(), None),
            FileFormat::TfRecord => records(all(), compression)?,
            FileFormat::Idx => Dataset::from_idx([("x", all())]),
            #[cfg(feature = "images")]
            FileFormat::ImageFolder => Dataset::from_image_folder(first, crate::Images::default()),
            #[cfg(feature = "images")]
            FileFormat::Image => Dataset::from_images(all(), crate::Images::default()),
            FileFormat::Lines => Dataset::from_lines_with(all(), compression),
            #[cfg(not(all(feature = "parquet", feature = "images")))]
            other => return Err(Error::in_file(first, format!("is of format {other}, which this build leaves out"))),
        })
    }
}

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = FileFormat::ALL.iter().find(|(format, ..)| format == self);
        f.pad(known.map_or("unknown", |(_, name, _)| name))
    }
}

fn compression(path: &Path) -> Compression {
    match path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gz")) {
        true => Compression::Gzip,
        false => Compression::None,
    }
}

/// Records, taken apart where the first ones are `tf.train.Example`s.
fn records(files: Files, compression: Compression) -> Result<Dataset, Error> {
    let records = Dataset::from_tfrecords(files, compression);
    let budget = Budget::new(Bytes::mib(16));
    let first: Vec<_> = records.iter(&budget)?.take(100).map_while(Result::ok).collect();
    let bytes = first.iter().map(|element| element.row().string("record")).collect::<Result<Vec<_>, _>>()?;
    Ok(match example::infer(bytes) {
        Some(components) => records.parse_example("record", components),
        None => records,
    })
}

/// What a file or folder holds.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// The file or folder.
    pub path: PathBuf,
    /// Its format.
    pub format: FileFormat,
    /// How many elements it has, where the format says it or the sample reached the end.
    pub rows: Option<u64>,
    /// Its components, in order.
    pub fields: Vec<Field>,
    /// The bytes of an element in memory: of every one where all have as many, else the mean of the sample.
    pub element_bytes: f64,
    /// How many elements were looked at: all, or at most 10,000 or 64 MiB of them; taken from all over the file where elements can be
    /// found by number, else from its beginning.
    pub sampled: u64,
    /// How many elements of the sample cannot be read.
    pub errors: u64,
    /// What is wrong with the first of those.
    pub first_error: Option<Error>,
    /// Whether elements can be found by number: then a complete shuffle needs no buffer, and a resume is a jump.
    pub indexable: bool,
    /// The folders of an image folder, and how many images each has.
    pub classes: Vec<(String, u64)>,
}

/// One component, and what its values are like in the sample.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Field {
    /// Name, type and sizes.
    pub component: Component,
    /// The smallest and the largest number, or length of a string.
    pub range: Option<(f64, f64)>,
    /// The mean of the numbers, or of the lengths of strings.
    pub mean: Option<f64>,
    /// How many values were looked at.
    pub values: u64,
    /// How many of them are missing: NaN, or an empty string.
    pub missing: u64,
}

impl Inspection {
    /// The memory of `shuffle(Some(buffer))`, or of `shuffle(None)`: the elements of the buffer for streams, their numbers only where
    /// elements can be found by number. `None` where a complete shuffle would need them all, and nobody knows how many.
    pub fn shuffle_bytes(&self, buffer: Option<u64>) -> Option<Bytes> {
        let n = match (buffer, self.indexable) {
            (None, true) => return Some(Bytes::ZERO),
            (None, false) => self.rows?,
            (Some(n), _) => n.min(self.rows.unwrap_or(u64::MAX)),
        };
        let each = if self.indexable { 8.0 } else { self.element_bytes };
        Some(Bytes((n as f64 * each).ceil() as u64))
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = self.rows.map_or("an unknown number of".into(), |n| n.to_string());
        let each = Bytes(self.element_bytes.round() as u64);
        writeln!(f, "{}: {}, {rows} elements of {each} each", self.path.display(), self.format)?;
        writeln!(f, "  {:<24} {:>12} {:>12} {:>12} {:>10}", "component", "least", "most", "mean", "missing")?;
        for field in &self.fields {
            let number = |v: Option<f64>| v.map_or("-".into(), |v| format!("{v:.6}"));
            let (least, most) = (number(field.range.map(|r| r.0)), number(field.range.map(|r| r.1)));
            let (mean, missing) = (number(field.mean), field.missing);
            writeln!(f, "  {:<24} {least:>12} {most:>12} {mean:>12} {missing:>10}", field.component.to_string())?;
        }
        for (class, n) in &self.classes {
            writeln!(f, "  class {class}: {n}")?;
        }
        match (self.indexable, self.shuffle_bytes(Some(10_000))) {
            (true, _) => writeln!(f, "  a complete shuffle needs no buffer")?,
            (false, Some(bytes)) => writeln!(f, "  shuffle(10000) holds {bytes}; shuffle_on_disk is complete")?,
            (false, None) => {}
        }
        if let Some(error) = &self.first_error {
            writeln!(f, "  {} of {} elements cannot be read; the first: {error}", self.errors, self.sampled)?;
        }
        Ok(())
    }
}

/// The most elements, and bytes of elements, that are looked at.
const SAMPLE: (u64, u64) = (10_000, 64 << 20);

/// Looks into a file or folder of any known format.
///
/// ```
/// use plimsoll_budget::{Budget, Bytes};
/// let path = std::env::temp_dir().join(format!("plimsoll-doc-inspect-{}.csv", std::process::id()));
/// std::fs::write(&path, "age,name\n41,Ada\n,Grace\n37,\n")?;
/// let found = plimsoll_data::inspect(&path, &Budget::new(Bytes::mib(8)))?;
/// assert_eq!(found.rows, Some(3));
/// assert_eq!((found.fields[0].range, found.fields[0].mean, found.fields[0].missing), (Some((37.0, 41.0)), Some(39.0), 1));
/// # std::fs::remove_file(path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When the format is not known, the file cannot be opened, or its elements do not fit in the budget. Elements that cannot be
/// read are counted.
pub fn inspect(path: impl AsRef<Path>, budget: &Budget) -> Result<Inspection, Error> {
    let path = path.as_ref();
    let format = FileFormat::of(path)?;
    let data = format.open(&[path.to_owned()])?;
    let (spec, indexable) = (data.spec()?, data.is_indexable()?);
    let mut rows = data.cardinality()?.known();
    // A sample from all over the file, read in the order of the shuffle's numbers, costs no more than one from its beginning.
    let sample = if indexable { data.shuffle(None, 0) } else { data };
    let mut fields: Vec<Tally> = spec.components().iter().map(|c| Tally::new(c.clone())).collect();
    let (mut sampled, mut errors, mut first_error, mut bytes) = (0, 0, None, 0u64);
    let mut iter = sample.iter(budget)?;
    let ended = loop {
        if sampled == SAMPLE.0 || bytes >= SAMPLE.1 {
            break false;
        }
        match iter.next() {
            None => break true,
            Some(Ok(element)) => {
                for (i, field) in fields.iter_mut().enumerate() {
                    bytes += field.see(i, &element.row())?;
                }
            }
            Some(Err(error)) if error.is_data() => {
                errors += 1;
                first_error.get_or_insert(error);
            }
            Some(Err(error)) => return Err(error),
        }
        sampled += 1;
    };
    if ended && rows.is_none() {
        rows = Some(sampled);
    }
    let good = sampled - errors;
    let mean = if good == 0 { 0.0 } else { bytes as f64 / good as f64 };
    Ok(Inspection {
        path: path.into(),
        format,
        rows,
        fields: fields.into_iter().map(Tally::finish).collect(),
        element_bytes: spec.bytes().map_or(mean, |n| n as f64),
        sampled,
        errors,
        first_error,
        indexable,
        classes: if format == FileFormat::ImageFolder { classes(path)? } else { Vec::new() },
    })
}

/// The folders of a folder and how many files with the endings of images each has.
fn classes(path: &Path) -> Result<Vec<(String, u64)>, Error> {
    let mut classes = Vec::new();
    for entry in std::fs::read_dir(path).map_err(|e| Error::io(path, e))? {
        let folder = entry.map_err(|e| Error::io(path, e))?.path();
        if !folder.is_dir() {
            continue;
        }
        let files = std::fs::read_dir(&folder).map_err(|e| Error::io(&folder, e))?;
        let is_image = |path: &Path| FileFormat::by_name(path).is_ok_and(|format| format == FileFormat::Image);
        let n = files.filter_map(Result::ok).filter(|file| is_image(&file.path())).count() as u64;
        classes.push((folder.file_name().unwrap_or_default().to_string_lossy().into_owned(), n));
    }
    classes.sort();
    Ok(classes)
}

/// A component's values as far as they have been seen.
struct Tally {
    component: Component,
    range: Option<(f64, f64)>,
    sum: f64,
    values: u64,
    missing: u64,
}

impl Tally {
    fn new(component: Component) -> Tally {
        Tally { component, range: None, sum: 0.0, values: 0, missing: 0 }
    }

    /// Takes in one element; says how many bytes the component has there.
    fn see(&mut self, i: usize, row: &crate::Row<'_>) -> Result<u64, Error> {
        let name = row.spec().components()[i].name.as_str();
        match self.component.kind {
            Kind::Bytes => {
                let mut bytes = 0;
                for string in row.strings(name)? {
                    self.take(string.len() as f64, string.is_empty());
                    bytes += string.len() as u64 + 8;
                }
                Ok(bytes)
            }
            Kind::Number(_) => {
                let tensor = row.tensor(name)?;
                tensor.to_f64().into_iter().for_each(|value| self.take(value, value.is_nan()));
                Ok(tensor.bytes().len() as u64)
            }
        }
    }

    fn take(&mut self, value: f64, missing: bool) {
        self.values += 1;
        if missing {
            self.missing += 1;
            return;
        }
        let (least, most) = self.range.unwrap_or((value, value));
        self.range = Some((least.min(value), most.max(value)));
        self.sum += value;
    }

    fn finish(self) -> Field {
        let n = self.values - self.missing;
        Field {
            component: self.component,
            range: self.range,
            mean: (n > 0).then(|| self.sum / n as f64),
            values: self.values,
            missing: self.missing,
        }
    }
}

/// Writes what one file or folder holds to another in the format that its name stands for (`.npy`, `.csv`, `.parquet`, `.arrow`,
/// `.feather`, `.tfrecord`, the last also with `.gz`), element by element within the budget, and says how many there were.
///
/// ```
/// use plimsoll_budget::{Budget, Bytes};
/// let file = |name: &str| std::env::temp_dir().join(format!("plimsoll-doc-convert-{}{name}", std::process::id()));
/// std::fs::write(file(".csv"), "age,name\n41,Ada\n37,Grace\n")?;
/// let budget = Budget::new(Bytes::mib(8));
/// assert_eq!(plimsoll_data::convert(file(".csv"), file(".tfrecord"), &budget)?, 2);
/// let found = plimsoll_data::inspect(file(".tfrecord"), &budget)?;
/// assert_eq!(found.fields[0].range, Some((37.0, 41.0)));
/// # std::fs::remove_file(file(".csv"))?;
/// # std::fs::remove_file(file(".tfrecord"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// When either format is not known or nothing writes it, both are the same file, an element cannot be read, or the format cannot hold
/// the elements. No file is left behind then.
pub fn convert(from: impl AsRef<Path>, to: impl AsRef<Path>, budget: &Budget) -> Result<u64, Error> {
    let (from, to) = (from.as_ref(), to.as_ref());
    let same = |a: &Path, b: &Path| Some(std::fs::canonicalize(a).ok()? == std::fs::canonicalize(b).ok()?);
    if same(from, to) == Some(true) {
        return Err(Error::in_file(to, "would be written over itself"));
    }
    FileFormat::by_name(to)?;
    write(&FileFormat::of(from)?.open(&[from.to_owned()])?, to, budget)
}

/// Writes a data set to a file in the format that its name stands for, as [`convert`] does, and says how many elements there were.
///
/// # Errors
/// When the format is not known or nothing writes it, an element cannot be made, or the format cannot hold the elements. No file is left
/// behind then.
pub fn write(data: &Dataset, to: impl AsRef<Path>, budget: &Budget) -> Result<u64, Error> {
    let to = to.as_ref();
    match FileFormat::by_name(to)? {
        FileFormat::Npy => {
            let name = only_component(to, &data.spec()?)?;
            data.write_npy(&name, to, budget)
        }
        FileFormat::Npz => data.write_npz(to, budget),
        FileFormat::Csv if compression(to) == Compression::None => data.write_csv(to, budget),
        #[cfg(feature = "parquet")]
        FileFormat::Parquet => data.write_parquet(to, budget),
        #[cfg(feature = "parquet")]
        FileFormat::Arrow => data.write_arrow(to, budget),
        FileFormat::TfRecord => data.write_tfrecords(to, compression(to), budget),
        other => {
            let message =
                format!("{other} files are not written; .npy, .npz, .csv, .parquet, .arrow and .tfrecord are");
            Err(Error::in_file(to, message))
        }
    }
}

fn only_component(to: &Path, spec: &Arc<Spec>) -> Result<String, Error> {
    match spec.components() {
        [one] => Ok(one.name.clone()),
        several => {
            let message = format!(
                "a .npy file holds one component, but there are {}: {spec}; .npz, .parquet, .arrow and .tfrecord hold several",
                several.len()
            );
            Err(Error::in_file(to, message))
        }
    }
}
