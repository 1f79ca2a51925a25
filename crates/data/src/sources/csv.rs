//! CSV files.

use super::bytes::{Compression, Format, Sequence, Window};
use super::files::Files;
use super::lines::LONGEST;
use crate::builder::{Builder, ColumnBuilder};
use crate::flow::{Open, Stage};
use crate::memory::Counted;
use crate::{Component, Dataset, Error, Kind, Place, Spec};
use csv_core::ReadRecordResult;
use plimsoll_budget::{Budget, Bytes};
use plimsoll_tensor::{DType, Element as Number, F8E4M3, F8E5M2, Shape};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How a CSV file is written, and what is wanted of it.
///
/// By default: commas, quotes `"`, a header, all columns, types found by looking at the first rows of every file (`i64`, else `f64`, else text).
#[derive(Clone, Debug)]
pub struct Csv {
    delimiter: u8,
    quote: u8,
    header: bool,
    types: Vec<(String, Kind)>,
    select: Option<Vec<String>>,
    missing: Vec<(String, String)>,
    na: Vec<String>,
    look_at: usize,
    compression: Compression,
}

impl Default for Csv {
    fn default() -> Csv {
        Csv {
            delimiter: b',',
            quote: b'"',
            header: true,
            types: Vec::new(),
            select: None,
            missing: Vec::new(),
            na: Vec::new(),
            look_at: 100,
            compression: Compression::None,
        }
    }
}

impl Csv {
    /// Fields are separated by this byte.
    pub fn delimiter(mut self, delimiter: u8) -> Csv {
        self.delimiter = delimiter;
        self
    }

    /// Fields may be enclosed in this byte.
    pub fn quote(mut self, quote: u8) -> Csv {
        self.quote = quote;
        self
    }

    /// There is no header: columns are called `0`, `1`, ...
    pub fn no_header(mut self) -> Csv {
        self.header = false;
        self
    }

    /// A column holds this, whatever the first rows look like.
    pub fn column(mut self, name: &str, kind: impl Into<Kind>) -> Csv {
        self.types.push((name.into(), kind.into()));
        self
    }

    /// Only these columns, in this order.
    pub fn select(mut self, names: &[&str]) -> Csv {
        self.select = Some(names.iter().map(|n| n.to_string()).collect());
        self
    }

    /// What an empty field of a column stands for. Without it: NaN for floats, an error for integers, the empty string for text.
    pub fn missing(mut self, name: &str, value: &str) -> Csv {
        self.missing.push((name.into(), value.into()));
        self
    }

    /// A field that says just this counts as empty: `NA`, for instance. Several can be given.
    pub fn na(mut self, mark: &str) -> Csv {
        self.na.push(mark.into());
        self
    }

    /// How many rows of every file to look at for types.
    pub fn look_at(mut self, rows: usize) -> Csv {
        self.look_at = rows;
        self
    }

    /// The files are compressed.
    pub fn compression(mut self, compression: Compression) -> Csv {
        self.compression = compression;
        self
    }

    /// What a field counts as: empty, where it is a mark for that.
    fn field<'a>(&self, field: &'a [u8]) -> &'a [u8] {
        if self.na.iter().any(|mark| mark.as_bytes() == field) { b"" } else { field }
    }
}

impl Dataset {
    /// The rows of CSV files, one component for each column, one file after another.
    ///
    /// Looking at the first rows takes at most 8 MiB, whatever is in the files.
    ///
    /// ```
    /// use plimsoll_budget::Budget;
    /// use plimsoll_data::{Csv, Dataset};
    /// let path = std::env::temp_dir().join(format!("plimsoll-doc-{}.csv", std::process::id()));
    /// std::fs::write(&path, "age,name\n41,\"Ada, Countess\"\n,Grace\n")?;
    /// let data = Dataset::from_csv(&path, Csv::default());
    /// assert_eq!(data.spec()?.to_string(), "{age: f64[], name: bytes[]}");
    /// let first = data.iter(&Budget::unlimited())?.next().unwrap()?;
    /// assert_eq!((first.get::<f64>("age")?[0], first.row().string("name")?), (41.0, &b"Ada, Countess"[..]));
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_csv(files: impl Into<Files>, csv: Csv) -> Dataset {
        let files = files.into();
        Dataset::from_result((|| {
            // Looking at the first rows needs a little memory before there is a budget to take it from.
            let open = Open::new(Budget::new(LOOK).account("csv"), 1);
            let format = Table::look(files.expect_some("csv")?, csv, &open)?;
            Ok(Dataset::new(Sequence::new(files, format)))
        })())
    }
}

/// What looking at the first rows may take.
const LOOK: Bytes = Bytes::mib(8);

/// The most columns of a file: what has more is no table of rows.
const MOST_COLUMNS: usize = 1 << 16;

struct Table {
    csv: Csv,
    spec: Arc<Spec>,
    /// All columns of the file.
    names: Vec<String>,
    /// The column of the file for each component, and what stands for an empty field.
    columns: Vec<(usize, Option<String>)>,
}

impl Table {
    /// Looks at the first rows of every file.
    fn look(files: &[PathBuf], csv: Csv, open: &Open) -> Result<Table, Error> {
        let path = &files[0];
        let mut names: Vec<String> = Vec::new();
        let mut guesses: Vec<Guess> = Vec::new();
        let short = |path: &Path, error: Error| match error.is_over_budget() {
            true => Error::in_file(path, format!("its first rows do not fit in the {LOOK} for looking at them")),
            false => error,
        };
        for path in files {
            let mut parser = Parser::open(path, &csv, open)?;
            let mut found = match csv.header {
                true => Some(parser.header().map_err(|error| short(path, error))?),
                false => None,
            };
            for _ in 0..csv.look_at {
                match parser.next() {
                    Ok(true) => {}
                    Ok(false) => break,
                    // Whoever reads the row is told, or passes over it.
                    Err(error) if error.is_data() && found.is_some() => break,
                    Err(error) => return Err(short(path, error)),
                }
                let found = found.get_or_insert_with(|| (0..parser.n_fields()).map(|i| i.to_string()).collect());
                guesses.resize(guesses.len().max(found.len()), Guess::default());
                for (i, guess) in guesses.iter_mut().enumerate().take(parser.n_fields()) {
                    guess.see(csv.field(parser.field(i)));
                }
            }
            let found = found.unwrap_or_default();
            if names.is_empty() {
                names = found;
            } else if !found.is_empty() && found != names {
                let message = format!("has columns {}, but the files before it {}", found.join(", "), names.join(", "));
                return Err(Error::in_file(path, message));
            }
        }
        guesses.resize(names.len(), Guess::default());
        if names.is_empty() {
            return Err(Error::in_file(path, "is empty, so that its columns are unknown"));
        }
        // Of two columns of one name the first is meant.
        let places: HashMap<&str, usize> = names.iter().enumerate().rev().map(|(i, n)| (n.as_str(), i)).collect();
        let index = |name: &str| {
            places.get(name).copied().ok_or_else(|| {
                let message = format!("has no column '{name}'; there are {}", names.join(", "));
                Error::in_file(path, message)
            })
        };
        for (name, _) in csv.types.iter() {
            index(name)?;
        }
        let wanted = csv.select.clone().unwrap_or(names.clone());
        let mut components = Vec::new();
        let mut columns = Vec::new();
        for name in &wanted {
            let i = index(name)?;
            let kind = csv.types.iter().find(|(n, _)| n == name).map_or(guesses[i].kind(), |(_, kind)| *kind);
            components.push(Component::new(name, kind, &[]));
            columns.push((i, csv.missing.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone())));
        }
        let spec = Spec::new(components).map_err(|e| Error::in_file(path, e.to_string()))?;
        Ok(Table { spec: Arc::new(spec), csv, names, columns })
    }
}

impl Format for Table {
    fn describe(&self) -> String {
        format!("csv {}", self.spec)
    }

    fn key(&self) -> String {
        format!("{} {:?}", self.describe(), self.csv)
    }

    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn open(&self, path: &Path, open: &Open) -> Result<Box<dyn Stage>, Error> {
        let mut parser = Parser::open(path, &self.csv, open)?;
        if self.csv.header {
            parser.header()?;
        }
        let (spec, columns) = (self.spec.clone(), self.columns.clone());
        Ok(Box::new(TableStage { parser, csv: self.csv.clone(), spec, columns, width: self.names.len() }))
    }
}

/// What the fields of a column look like.
#[derive(Clone, Copy, Default)]
struct Guess {
    any: bool,
    missing: bool,
    fraction: bool,
    text: bool,
}

impl Guess {
    fn see(&mut self, field: &[u8]) {
        let text = std::str::from_utf8(field).unwrap_or("?").trim();
        match text {
            "" => self.missing = true,
            _ => {
                self.any = true;
                self.text |= text.parse::<f64>().is_err();
                self.fraction |= text.parse::<i64>().is_err();
            }
        }
    }

    fn kind(self) -> Kind {
        match self {
            Guess { any: false, .. } | Guess { text: true, .. } => Kind::Bytes,
            Guess { fraction: true, .. } | Guess { missing: true, .. } => DType::F64.into(),
            _ => DType::I64.into(),
        }
    }
}

struct Parser {
    window: Window,
    core: csv_core::Reader,
    fields: Counted<u8>,
    ends: Counted<usize>,
    n_bytes: usize,
    n_fields: usize,
    /// The line on which the row begins.
    line: u64,
}

impl Parser {
    fn open(path: &Path, csv: &Csv, open: &Open) -> Result<Parser, Error> {
        let core = csv_core::ReaderBuilder::new().delimiter(csv.delimiter).quote(csv.quote).build();
        let window = Window::open(path, csv.compression, open)?;
        let (mut fields, mut ends) = (Counted::new(&open.account)?, Counted::new(&open.account)?);
        fields.grow(4096, 0)?;
        ends.grow(64, 0)?;
        let mut parser = Parser { window, core, fields, ends, n_bytes: 0, n_fields: 0, line: 1 };
        // A mark that some editors write in front of UTF-8.
        if parser.window.need(3)? && parser.window.bytes().starts_with(b"\xef\xbb\xbf") {
            parser.window.advance(3);
        }
        Ok(parser)
    }

    fn header(&mut self) -> Result<Vec<String>, Error> {
        if !self.next()? {
            return Err(Error::in_file(&self.window.path, "is empty; a header was expected"));
        }
        let name = |i: usize| {
            let name =
                std::str::from_utf8(self.field(i)).map_err(|_| self.bad("a name in the header is not UTF-8".into()))?;
            Ok(name.trim().to_string())
        };
        (0..self.n_fields).map(name).collect()
    }

    fn n_fields(&self) -> usize {
        self.n_fields
    }

    fn field(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.fields[start..self.ends[i]]
    }

    fn bad(&self, message: String) -> Error {
        Error::data(Place::Line(self.window.path.clone(), self.line), message)
    }

    /// Reads the next row; false at the end.
    fn next(&mut self) -> Result<bool, Error> {
        let offset = self.window.offset();
        let result = self.read();
        if result.as_ref().is_err_and(Error::is_over_budget) {
            self.pass_over_row();
        }
        self.window.met(offset, self.window.offset() - offset);
        result
    }

    /// Finds the end of a row for which there is no room, so that its length can be told.
    fn pass_over_row(&mut self) {
        loop {
            if self.window.bytes().is_empty() && !self.window.more().unwrap_or(false) {
                return;
            }
            let (result, n, ..) = self.core.read_record(self.window.bytes(), &mut self.fields, &mut self.ends);
            self.window.advance(n);
            if matches!(result, ReadRecordResult::Record | ReadRecordResult::End) {
                return;
            }
        }
    }

    fn read(&mut self) -> Result<bool, Error> {
        (self.n_bytes, self.n_fields) = (0, 0);
        self.line = self.core.line();
        // Behind the last byte a line break is read, which ends the last row, and tells whether a quote is still open.
        let (mut ended, mut closed) = (false, false);
        loop {
            if self.window.bytes().is_empty() && !ended {
                ended = !self.window.more()?;
            }
            let (out, ends) = (&mut self.fields[self.n_bytes..], &mut self.ends[self.n_fields..]);
            let (result, _, n_out, n_ends) = if ended && !closed {
                let read = self.core.read_record(b"\n", out, ends);
                if read.2 > 0 {
                    self.core.reset();
                    return Err(self.bad("a quote is opened and never closed".into()));
                }
                closed = read.1 > 0;
                read
            } else {
                let read = self.core.read_record(self.window.bytes(), out, ends);
                self.window.advance(read.1);
                read
            };
            self.n_bytes += n_out;
            self.n_fields += n_ends;
            match result {
                ReadRecordResult::InputEmpty => {}
                ReadRecordResult::OutputFull | ReadRecordResult::OutputEndsFull if self.n_bytes >= LONGEST => {
                    let error = self.bad(format!("the row has more than {LONGEST} bytes; is a quote missing?"));
                    // Where it ends nobody knows.
                    loop {
                        let n = self.window.bytes().len();
                        self.window.advance(n);
                        if !self.window.more()? {
                            return Err(error);
                        }
                    }
                }
                ReadRecordResult::OutputEndsFull if self.n_fields >= MOST_COLUMNS => {
                    self.pass_over_row();
                    return Err(
                        self.bad(format!("the row has more than {MOST_COLUMNS} fields, the most that are read"))
                    );
                }
                ReadRecordResult::OutputFull => drop(self.fields.grow(self.fields.len(), 0)?),
                ReadRecordResult::OutputEndsFull => drop(self.ends.grow(self.ends.len(), 0)?),
                ReadRecordResult::Record => return Ok(true),
                ReadRecordResult::End => return Ok(false),
            }
        }
    }
}

struct TableStage {
    parser: Parser,
    csv: Csv,
    spec: Arc<Spec>,
    columns: Vec<(usize, Option<String>)>,
    width: usize,
}

impl Stage for TableStage {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        for _ in 0..want {
            if !self.parser.next()? {
                return Ok(false);
            }
            if self.parser.n_fields() != self.width {
                let message = format!("{} fields, but there are {} columns", self.parser.n_fields(), self.width);
                return Err(self.parser.bad(message));
            }
            for (i, (column, missing)) in self.columns.iter().enumerate() {
                let component = &self.spec.components()[i];
                let field = self.csv.field(self.parser.field(*column));
                let field = if field.is_empty() { missing.as_ref().map_or(field, |m| m.as_bytes()) } else { field };
                add(&mut out.columns[i], component.kind, field).map_err(|error| match error {
                    Error::Data { message, .. } => self.parser.bad(format!("column '{}': {message}", component.name)),
                    other => other,
                })?;
            }
            out.commit_rows(1);
        }
        Ok(true)
    }
}

/// Appends a field as what its column holds.
fn add(column: &mut ColumnBuilder<'_>, kind: Kind, field: &[u8]) -> Result<(), Error> {
    fn put<T: Number>(column: &mut ColumnBuilder<'_>, value: T) -> Result<(), Error> {
        column.add_numbers(&Shape::scalar())?[0] = value;
        Ok(())
    }
    let Kind::Number(dtype) = kind else { return column.add_strings(&Shape::scalar(), [field]) };
    let shown = || String::from_utf8_lossy(&field[..field.len().min(40)]).into_owned();
    let text = std::str::from_utf8(field).map(str::trim).unwrap_or("not UTF-8");
    let bad = || Error::element(format!("'{}' is not {dtype}", shown()));
    let float = || match text {
        "" => Ok(f64::NAN),
        _ => text.parse::<f64>().map_err(|_| bad()),
    };
    let whole = || match text {
        "" => Err(Error::element(format!("an empty field, which {dtype} cannot hold; say what it stands for"))),
        // "3.0" is a whole number too, as programs write them that know only floats.
        _ => text.parse::<i64>().or_else(|_| match text.parse::<f64>() {
            Ok(v) if v.fract() == 0.0 && v.abs() < 9e15 => Ok(v as i64),
            _ => Err(bad()),
        }),
    };
    match dtype {
        DType::F32 => put(column, float()? as f32),
        DType::F64 => put(column, float()?),
        DType::F16 => put(column, half::f16::from_f64(float()?)),
        DType::BF16 => put(column, half::bf16::from_f64(float()?)),
        DType::F8E4M3 => put(column, F8E4M3::from_f64(float()?)),
        DType::F8E5M2 => put(column, F8E5M2::from_f64(float()?)),
        DType::I64 => put(column, whole()?),
        DType::I32 => put(column, i32::try_from(whole()?).map_err(|_| bad())?),
        DType::U8 => put(column, u8::try_from(whole()?).map_err(|_| bad())?),
        DType::I8 => put(column, i8::try_from(whole()?).map_err(|_| bad())?),
        DType::I16 => put(column, i16::try_from(whole()?).map_err(|_| bad())?),
        DType::U16 => put(column, u16::try_from(whole()?).map_err(|_| bad())?),
        DType::U32 => put(column, u32::try_from(whole()?).map_err(|_| bad())?),
        DType::Bool => put(
            column,
            match text.to_ascii_lowercase().as_str() {
                "true" | "t" | "yes" | "1" | "1.0" => true,
                "false" | "f" | "no" | "0" | "0.0" => false,
                _ => return Err(bad()),
            },
        ),
    }
}
