//! Weights on disk: safetensors files, written so that a crash leaves the old file or the new one, never half of one.
//! Tensors are written and read in pieces, so that a file may be larger than the memory that is left.

use crate::error::Error;
use plimsoll_tensor::{DType, Shape, Tensor, TensorType};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::Xxh3;

/// Writes named tensors to a file: to a temporary name beside it, synced, then renamed.
///
/// # Errors
/// With the path, when the file cannot be written. A file that was there before is then still whole.
pub fn save(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), Error> {
    let types: Vec<(&str, TensorType)> = tensors.iter().map(|(name, tensor)| (name.as_str(), *tensor.ty())).collect();
    write(path, &types, |name, write| {
        tensors.iter().find(|(n, _)| n == name).map_or(Ok(()), |(_, tensor)| write(tensor.bytes()))
    })
}

/// Reads all tensors of a file.
///
/// # Errors
/// With the path and what is wrong, when the file cannot be read or is not a safetensors file.
pub fn load(path: &Path) -> Result<Vec<(String, Tensor)>, Error> {
    let file = Reader::open(path)?;
    let tensor = |entry: &Entry| {
        let mut tensor = Tensor::zeros(entry.ty.dtype, entry.ty.shape);
        file.read(&entry.name, 0, tensor.bytes_mut())?;
        Ok((entry.name.clone(), tensor))
    };
    file.entries.iter().map(tensor).collect()
}

/// Writes tensors of these names and types to a file, as [`save`]: `bytes` passes on the bytes of the one it is asked for, in
/// pieces of any size.
pub(crate) fn write(
    path: &Path,
    tensors: &[(&str, TensorType)],
    bytes: impl FnMut(&str, &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error>,
) -> Result<(), Error> {
    write_with(path, tensors, None, bytes)
}

/// The key of our own words in a file's metadata.
const ABOUT: &str = "plimsoll";

/// What the digest of a file is while it is not known.
pub(crate) const NO_DIGEST: &str = "0000000000000000";

/// As [`write`], with words about the tensors, in JSON. A `digest` of [`NO_DIGEST`] in them is replaced by one of all else in the
/// file.
pub(crate) fn write_with(
    path: &Path,
    tensors: &[(&str, TensorType)],
    about: Option<&str>,
    mut bytes: impl FnMut(&str, &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut order: Vec<&(&str, TensorType)> = tensors.iter().collect();
    // Types with large elements first, so that all lie at multiples of their size.
    order.sort_by_key(|(name, ty)| (std::cmp::Reverse(to_file(ty.dtype)), *name));
    let mut end = 0;
    let info = |&&(name, ty): &&(&str, TensorType)| {
        let start = end;
        end += ty.bytes();
        let shape = ty.shape.dims().to_vec();
        (name.to_owned(), TensorInfo { dtype: to_file(ty.dtype), shape, data_offsets: (start, end) })
    };
    let infos = order.iter().map(info).collect();
    let has_words = about.is_some();
    let about = about.map(|about| HashMap::from([(ABOUT.to_owned(), about.to_owned())]));
    let header = Metadata::new(about, infos).map_err(|e| Error::file(path, e.to_string()))?;
    let mut header = serde_json::to_vec(&header).map_err(|e| Error::file(path, e.to_string()))?;
    // Spaces, so that the data begins at a multiple of 8.
    header.resize(header.len().next_multiple_of(8), b' ');
    replace(path, |file| {
        let failed = |e: std::io::Error| Error::file(path, e.to_string());
        file.write_all(&(header.len() as u64).to_le_bytes()).map_err(failed)?;
        file.write_all(&header).map_err(failed)?;
        let mut digest = Xxh3::new();
        digest.update(&header);
        for (name, ty) in order {
            let mut written = 0;
            bytes(name, &mut |piece| {
                written += piece.len();
                digest.update(piece);
                write_through(file, piece).map_err(failed)
            })?;
            if written != ty.bytes() {
                return Err(Error::file(path, format!("'{name}' has {written} bytes, its type {ty} needs others")));
            }
        }
        if let Some(at) = find_digest(&header, NO_DIGEST).filter(|_| has_words) {
            let hex = format!("{:016x}", digest.digest());
            file.write_all_at(hex.as_bytes(), 8 + at as u64).map_err(failed)?;
        }
        Ok(())
    })
}

/// Where this digest stands in a header, whose words are quoted.
fn find_digest(header: &[u8], digest: &str) -> Option<usize> {
    let before = r#"\"digest\":\""#;
    let whole = format!("{before}{digest}");
    header.windows(whole.len()).position(|window| window == whole.as_bytes()).map(|at| at + before.len())
}

/// Writes and, where a piece is large, waits until it is on disk and drops it from the page cache, which a control group
/// counts as ours.
fn write_through(file: &mut File, piece: &[u8]) -> std::io::Result<()> {
    const LARGE: usize = 1 << 20;
    file.write_all(piece)?;
    if piece.len() >= LARGE {
        file.sync_data()?;
        drop_cache(file);
    }
    Ok(())
}

fn drop_cache(file: &File) {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        // SAFETY: advice about a file that is open; it changes no contents.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

/// The most bytes that a header may have: what other readers of such files allow.
const MAX_HEADER: u64 = 100_000_000;

/// A file of tensors, of which only the names and types have been read.
pub(crate) struct Reader {
    path: PathBuf,
    file: File,
    entries: Vec<Entry>,
    about: Option<String>,
}

struct Entry {
    name: String,
    ty: TensorType,
    /// Where its bytes begin in the file.
    start: u64,
}

impl Reader {
    /// Reads what is in a file, and makes sure that all of it is there.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        let failed = |e: std::io::Error| Error::file(path, e.to_string());
        let broken = |message: String| Error::file(path, format!("is not a safetensors file: {message}"));
        let mut file = File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut length = [0; 8];
        file.read_exact(&mut length).map_err(|_| broken(format!("it has {size} bytes")))?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER || length > size - 8 {
            return Err(broken(format!("a header of {length} bytes in a file of {size}")));
        }
        let mut header = vec![0; length as usize];
        file.read_exact(&mut header).map_err(failed)?;
        let header: Metadata = serde_json::from_slice(&header).map_err(|e| broken(e.to_string()))?;
        let about = header.metadata().as_ref().and_then(|words| words.get(ABOUT)).cloned();
        let whole = (8 + length).saturating_add(header.data_len() as u64);
        if whole != size {
            return Err(broken(format!("it has {size} bytes, its header speaks of {whole}")));
        }
        let mut entries = Vec::new();
        for (name, info) in header.tensors() {
            let fail = |message: String| Error::file(path, format!("'{name}': {message}"));
            let dtype = from_file(info.dtype).ok_or_else(|| fail(format!("{:?} is not supported", info.dtype)))?;
            let shape =
                Shape::try_new(&info.shape).ok_or_else(|| fail(format!("{} axes are too many", info.shape.len())))?;
            let start = 8 + length + info.data_offsets.0 as u64;
            entries.push(Entry { name, ty: TensorType::new(dtype, shape), start });
        }
        entries.sort_by_key(|e| e.start);
        Ok(Reader { path: path.to_owned(), file, entries, about })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The words about the tensors.
    pub fn about(&self) -> Option<&str> {
        self.about.as_deref()
    }

    /// Reads the whole file and compares it with the digest in its words.
    pub fn verify(&self, digest: &str) -> Result<(), Error> {
        let fail = |message: String| Error::file(&self.path, message);
        let failed = |e: std::io::Error| fail(e.to_string());
        let mut buffer = vec![0; 64 << 10];
        let size = self.file.metadata().map_err(failed)?.len();
        let mut hash = Xxh3::new();
        let mut at = 8;
        let mut written = Some(digest).filter(|digest| digest.len() == NO_DIGEST.len());
        while at < size {
            let piece = &mut buffer[..(size - at).min(64 << 10) as usize];
            self.file.read_exact_at(piece, at).map_err(failed)?;
            // It stands at the beginning, and did not when it was made.
            if let Some(place) = written.take().and_then(|digest| find_digest(piece, digest)) {
                piece[place..place + NO_DIGEST.len()].copy_from_slice(NO_DIGEST.as_bytes());
            }
            hash.update(piece);
            at += piece.len() as u64;
        }
        let found = format!("{:016x}", hash.digest());
        if found != digest {
            return Err(fail(format!("is damaged: its contents have digest {found}, but {digest} was written")));
        }
        Ok(())
    }

    /// The names of the tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|e| e.name.as_str())
    }

    /// The type of a tensor, if it is there.
    pub fn ty(&self, name: &str) -> Option<TensorType> {
        self.entries.iter().find(|e| e.name == name).map(|e| e.ty)
    }

    /// Reads bytes of a tensor, from `at`.
    pub fn read(&self, name: &str, at: usize, bytes: &mut [u8]) -> Result<(), Error> {
        let fail = |message: String| Error::file(&self.path, format!("'{name}': {message}"));
        let entry = self.entries.iter().find(|e| e.name == name).ok_or_else(|| fail("is not there".into()))?;
        if at + bytes.len() > entry.ty.bytes() {
            return Err(fail(format!("has {} bytes, not {}", entry.ty.bytes(), at + bytes.len())));
        }
        self.file.read_exact_at(bytes, entry.start + at as u64).map_err(|e| fail(e.to_string()))?;
        if entry.ty.dtype == DType::Bool && bytes.iter().any(|&b| b > 1) {
            return Err(fail("has a bool that is neither 0 nor 1".into()));
        }
        Ok(())
    }
}

fn replace(path: &Path, fill: impl FnOnce(&mut File) -> Result<(), Error>) -> Result<(), Error> {
    let failed = |e: std::io::Error| Error::file(path, e.to_string());
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut name = path.file_name().ok_or_else(|| failed(std::io::ErrorKind::InvalidInput.into()))?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder.join(name);
    let write = || {
        let mut file = File::create(&temporary).map_err(failed)?;
        fill(&mut file)?;
        file.sync_all().map_err(failed)?;
        drop_cache(&file);
        fs::rename(&temporary, path).map_err(failed)?;
        File::open(&folder).and_then(|f| f.sync_all()).map_err(failed)
    };
    write().inspect_err(|_| {
        // The old file is untouched; what was begun goes.
        let _ = fs::remove_file(&temporary);
    })
}

fn to_file(dtype: DType) -> Dtype {
    match dtype {
        DType::F32 => Dtype::F32,
        DType::F64 => Dtype::F64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        DType::F8E4M3 => Dtype::F8_E4M3,
        DType::F8E5M2 => Dtype::F8_E5M2,
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
        DType::I8 => Dtype::I8,
        DType::I16 => Dtype::I16,
        DType::U16 => Dtype::U16,
        DType::U32 => Dtype::U32,
        DType::Bool => Dtype::BOOL,
    }
}

fn from_file(dtype: Dtype) -> Option<DType> {
    DType::ALL.into_iter().find(|d| to_file(*d) == dtype)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("plimsoll-weights-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = folder("back");
        let path = folder.join("w.safetensors");
        let tensors = vec![
            ("a/kernel".to_owned(), Tensor::from_slice([2, 2], &[1.0f32, -0.0, f32::INFINITY, 4.0]).unwrap()),
            ("b".to_owned(), Tensor::from_slice([3], &[1i64, 2, 3]).unwrap()),
            ("c \"quoted\\\" \u{1} ü".to_owned(), Tensor::from_slice([1], &[7u8]).unwrap()),
            ("d".to_owned(), Tensor::from_slice::<f32>([0, 4], &[]).unwrap()),
        ];
        save(&path, &tensors).unwrap();
        let mut back = load(&path).unwrap();
        back.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(back, tensors);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_bytes_are_those_of_the_format_s_own_writer() {
        let folder = folder("bytes");
        let path = folder.join("w.safetensors");
        let tensors: Vec<(String, Tensor)> = vec![
            ("b".to_owned(), Tensor::from_slice([3], &[1u8, 2, 3]).unwrap()),
            ("c/d".to_owned(), Tensor::from_slice([2, 1], &[1.5f32, 2.5]).unwrap()),
            ("a".to_owned(), Tensor::from_slice([1, 1, 1], &[7.5f32]).unwrap()),
            ("e".to_owned(), Tensor::from_slice([], &[-1i64]).unwrap()),
            ("\"f\"".to_owned(), Tensor::zeros(DType::Bool, [0, 4])),
        ];
        save(&path, &tensors).unwrap();
        let views = tensors.iter().map(|(name, t)| {
            let shape = t.shape().dims().to_vec();
            (name, safetensors::tensor::TensorView::new(to_file(t.dtype()), shape, t.bytes()).unwrap())
        });
        assert_eq!(fs::read(&path).unwrap(), safetensors::serialize(views, None).unwrap());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_writer_that_fails_leaves_the_old_file() {
        let folder = folder("fails");
        let path = folder.join("w.safetensors");
        let old = vec![("w".to_owned(), Tensor::from_slice([2], &[1.0f32, 2.0]).unwrap())];
        save(&path, &old).unwrap();
        let types = [("w", *old[0].1.ty())];
        assert!(write(&path, &types, |_, piece| piece(&[0; 4])).unwrap_err().to_string().contains("has 4 bytes"));
        assert!(write(&path, &types, |_, _| Err(Error::config("disk", "fails"))).is_err());
        assert_eq!(load(&path).unwrap(), old);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no temporary file is left");
        // Cut short anywhere, the file is refused.
        let bytes = fs::read(&path).unwrap();
        for n in 0..bytes.len() {
            fs::write(&path, &bytes[..n]).unwrap();
            assert!(load(&path).unwrap_err().to_string().contains("is not a safetensors file"), "{n} bytes");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn damaged_files_are_named() {
        let folder = folder("damaged");
        let path = folder.join("w.safetensors");
        let huge = format!("{{\"w\":{{\"dtype\":\"U8\",\"shape\":[{0}],\"data_offsets\":[0,{0}]}}}}", u64::MAX);
        let huge = [&(huge.len() as u64).to_le_bytes(), huge.as_bytes()].concat();
        let cut = [8, 0, 0, 0, 0, 0, 0, 0, b'{', b'}', b' ', b' '];
        for bytes in [&b""[..], b"not a tensor file", &[255; 64], &cut, &huge] {
            fs::write(&path, bytes).unwrap();
            let message = load(&path).unwrap_err().to_string();
            assert!(message.contains("w.safetensors"), "{message}");
        }
        assert!(load(&folder.join("absent")).unwrap_err().to_string().contains("absent"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_folder_that_does_not_exist_is_an_error() {
        assert!(save(Path::new("/nonexistent-folder/w.safetensors"), &[]).is_err());
    }
}
