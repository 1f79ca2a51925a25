//! Opening the data that a job names.

use super::generated;
use super::{Cache, DataKind, DataTable, GeneratedSet};
use crate::diagnostic::{Diagnostic, Origin};
use crate::errors::{Code, diagnose_data};
use crate::job::read::{At, Map, OneOrMore};
use plimsoll::DType;
use plimsoll_data::{Component, Compression, Csv, Dataset, Error, Files, Images, Kind};
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Rows as they are in files.
#[derive(Clone)]
pub struct Source {
    pub rows: Dataset,
    /// For text: which bytes occur, in order; their places are the tokens.
    pub alphabet: Option<Vec<u8>>,
    /// The names of classes, where folders give them.
    pub classes: Option<Vec<String>>,
    pub origin: Origin,
}

impl Source {
    fn plain(rows: Dataset, origin: &Origin) -> Source {
        Source { rows, alphabet: None, classes: None, origin: origin.clone() }
    }
}

/// Opens the data of a job, or other files of the same kind in its place.
///
/// # Errors
/// When files are missing or not what they should be.
pub fn open(
    table: &DataTable,
    folder: &Path,
    instead: Option<&[String]>,
    alphabet: Option<&[u8]>,
) -> Result<Source, Diagnostic> {
    let list = |files: &At<OneOrMore<String>>| find_files(instead.unwrap_or(&files.0), &files.origin, folder);
    let named = |arrays: &At<Map<OneOrMore<String>>>| -> Result<Vec<(String, Files)>, Diagnostic> {
        // Other files stand for the first array; the labels are then not there.
        if let Some(instead) = instead {
            let (name, _) = &arrays.0[0];
            return Ok(vec![(name.clone(), find_files(instead, &arrays.origin, folder)?)]);
        }
        arrays.0.iter().map(|(name, files)| Ok((name.clone(), find_files(&files.0, &arrays.origin, folder)?))).collect()
    };
    let source = match &table.kind {
        DataKind::Csv(s) => {
            let mut csv = Csv::default();
            match s.delimiter.as_bytes() {
                [byte] => csv = csv.delimiter(*byte),
                _ if s.delimiter == "tab" || s.delimiter == "\\t" => csv = csv.delimiter(b'\t'),
                _ => {
                    let title = format!("a delimiter is one character, not '{}'", s.delimiter);
                    return Err(Diagnostic::new(Code::WrongValue, title).at(&s.files.origin, "of these files"));
                }
            }
            if !s.header {
                csv = csv.no_header();
            }
            for (name, ty) in &s.columns.0 {
                csv = csv.column(name, ty.dtype().map_or(Kind::Bytes, Kind::Number));
            }
            for (name, value) in &s.missing.0 {
                csv = csv.missing(name, value);
            }
            Source::plain(Dataset::from_csv(list(&s.files)?, csv), &s.files.origin)
        }
        DataKind::Npy(s) => Source::plain(Dataset::from_npy_named(named(&s.arrays)?), &s.arrays.origin),
        DataKind::Npz(s) => Source::plain(Dataset::from_npz(list(&s.files)?), &s.files.origin),
        DataKind::Parquet(s) => Source::plain(Dataset::from_parquet(list(&s.files)?, None), &s.files.origin),
        DataKind::Arrow(s) => Source::plain(Dataset::from_arrow(list(&s.files)?, None), &s.files.origin),
        DataKind::TfRecord(s) => {
            let components = s.schema.0.iter().map(|(name, feature)| {
                Component::new(name, feature.dtype.dtype().map_or(Kind::Bytes, Kind::Number), &feature.shape)
            });
            let rows = Dataset::from_tfrecords(list(&s.files)?, Compression::None).parse_example("record", components);
            Source::plain(rows, &s.files.origin)
        }
        DataKind::Images(s) => {
            let path = folder.join(instead.and_then(|i| i.first()).unwrap_or(&s.folder));
            let (height, width) = match s.size.0[..] {
                [side] => (side, side),
                [height, width] => (height, width),
                _ => {
                    let title = "'size' is a height and a width";
                    return Err(Diagnostic::new(Code::WrongValue, title).at(&s.folder.origin, "of these images"));
                }
            };
            let images = Images { channels: s.channels, ..Images::resized(height, width) };
            let classes = Dataset::image_classes(&path).map_err(|e| diagnose_data(&e, Some(&s.folder.origin)))?;
            let rows = Dataset::from_image_folder(&path, images).select(&["image", "label"]);
            Source { classes: Some(classes), ..Source::plain(rows, &s.folder.origin) }
        }
        DataKind::Idx(s) => Source::plain(Dataset::from_idx(named(&s.arrays)?), &s.arrays.origin),
        DataKind::Text(s) => {
            let files = list(&s.files)?;
            let stride = s.stride.unwrap_or(s.context);
            text_files(files.paths(), s.context, stride, alphabet, &s.files.origin)?
        }
        DataKind::Generated(s) => match &s.generate {
            GeneratedSet::Blobs(s) => Source::plain(generated::blobs(s), &table.origin),
            GeneratedSet::Digits(s) => Source::plain(generated::digits(s), &table.origin),
            GeneratedSet::Sine(s) => Source::plain(generated::sine(s), &table.origin),
            GeneratedSet::Text(s) => {
                let text = Arc::new(generated::text(s));
                let length = text.len() as u64;
                let occurring = alphabet.map_or_else(|| alphabet_of(&text), <[u8]>::to_vec);
                let read = move |at: u64, out: &mut [u8]| {
                    out.copy_from_slice(&text[at as usize..at as usize + out.len()]);
                    Ok(())
                };
                windows(length, s.context, s.stride.unwrap_or(s.context), occurring, read, &table.origin)?
            }
        },
    };
    source.rows.spec().map_err(|e| diagnose_data(&e, Some(&source.origin)))?;
    Ok(source)
}

/// Whether rows must be parsed one after another, so that keeping them in a file makes later epochs fast and shuffles complete.
pub fn wants_cache(cache: Cache, rows: &Dataset) -> bool {
    cache == Cache::Auto && !rows.is_indexable().unwrap_or(true)
}

/// Files by name or pattern, below the folder of the job file.
fn find_files(patterns: &[String], origin: &Origin, folder: &Path) -> Result<Files, Diagnostic> {
    let mut paths: Vec<PathBuf> = Vec::new();
    for pattern in patterns {
        let path = folder.join(pattern);
        if path.is_file() {
            paths.push(path);
            continue;
        }
        let found = if pattern.contains(['*', '?', '[']) { Files::glob(&path.to_string_lossy()).ok() } else { None };
        match found {
            Some(found) if !found.paths().is_empty() => paths.extend(found.paths().iter().cloned()),
            _ => {
                let title = format!("there is no file '{}'", path.display());
                return Err(Diagnostic::new(Code::DataUnreadable, title)
                    .at(origin, "named here")
                    .note("do", "paths are taken from the folder of the job file"));
            }
        }
    }
    if paths.is_empty() {
        return Err(Diagnostic::new(Code::DataUnreadable, "there are no data files").at(origin, "named here"));
    }
    Ok(Files::list(paths))
}

fn alphabet_of(text: &[u8]) -> Vec<u8> {
    let mut seen = [false; 256];
    text.iter().for_each(|&b| seen[b as usize] = true);
    (0..=255u8).filter(|&b| seen[b as usize]).collect()
}

/// Windows over files that are read at their places, so that text of any size takes no memory.
fn text_files(
    paths: &[PathBuf],
    context: usize,
    stride: usize,
    alphabet: Option<&[u8]>,
    origin: &Origin,
) -> Result<Source, Diagnostic> {
    let unreadable = |path: &Path, e: std::io::Error| {
        Diagnostic::new(Code::DataUnreadable, format!("{}: {e}", path.display())).at(origin, "named here")
    };
    let mut files: Vec<(u64, u64, File)> = Vec::new();
    let mut seen = [false; 256];
    let mut length = 0;
    for path in paths {
        let mut file = File::open(path).map_err(|e| unreadable(path, e))?;
        let own = file.metadata().map_err(|e| unreadable(path, e))?.len();
        if alphabet.is_none() {
            let mut block = vec![0u8; 64 << 10];
            loop {
                let n = file.read(&mut block).map_err(|e| unreadable(path, e))?;
                if n == 0 {
                    break;
                }
                block[..n].iter().for_each(|&b| seen[b as usize] = true);
            }
        }
        files.push((length, own, file));
        length += own;
    }
    let occurring = alphabet.map_or_else(|| (0..=255u8).filter(|&b| seen[b as usize]).collect(), <[u8]>::to_vec);
    let files = Arc::new(files);
    let read = move |at: u64, out: &mut [u8]| {
        let mut done = 0;
        for (start, own, file) in files.iter() {
            let here = at + done as u64;
            if done < out.len() && here >= *start && here < start + own {
                let n = (out.len() - done).min((start + own - here) as usize);
                file.read_exact_at(&mut out[done..done + n], here - start)
                    .map_err(|e| Error::element(format!("text at byte {here}: {e}")))?;
                done += n;
            }
        }
        Ok(())
    };
    windows(length, context, stride, occurring, read, origin)
}

/// Windows of `context` bytes as tokens, with the bytes that follow each of them as labels.
fn windows(
    length: u64,
    context: usize,
    stride: usize,
    alphabet: Vec<u8>,
    read: impl Fn(u64, &mut [u8]) -> Result<(), Error> + Send + Sync + 'static,
    origin: &Origin,
) -> Result<Source, Diagnostic> {
    if context == 0 || stride == 0 || length <= context as u64 {
        let title = format!("text of {length} bytes has no windows of {context} bytes and one to follow");
        return Err(Diagnostic::new(Code::BadData, title).at(origin, "this text"));
    }
    let n = (length - context as u64 - 1) / stride as u64 + 1;
    let mut tokens = [-1i32; 256];
    alphabet.iter().enumerate().for_each(|(i, &b)| tokens[b as usize] = i as i32);
    let components = [Component::new("input", DType::I32, &[context]), Component::new("label", DType::I32, &[context])];
    let rows = Dataset::range(0, n as i64, 1).map(components, move |row, out| {
        let at = row.get::<i64>("value")?[0] as u64 * stride as u64;
        // Windows are short; a vector of their size is all that a thread holds.
        let mut bytes = vec![0u8; context + 1];
        read(at, &mut bytes)?;
        for (name, bytes) in [("input", &bytes[..context]), ("label", &bytes[1..])] {
            for (token, &byte) in out.slot::<i32>(name, &[context])?.iter_mut().zip(bytes) {
                *token = tokens[byte as usize];
                if *token < 0 {
                    return Err(Error::element(format!("byte {byte} did not occur in the training text")));
                }
            }
        }
        Ok(())
    });
    Ok(Source { rows, alphabet: Some(alphabet), classes: None, origin: origin.clone() })
}
