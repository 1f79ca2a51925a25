//! Weights on disk: safetensors files, written so that a crash leaves the old file or the new one, never half of one.

use crate::error::Error;
use plimsoll_tensor::{DType, Shape, Tensor, TensorType};
use safetensors::tensor::{Dtype, SafeTensors};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes named tensors to a file: to a temporary name beside it, synced, then renamed.
///
/// # Errors
/// With the path, when the file cannot be written. A file that was there before is then still whole.
pub fn save(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), Error> {
    let parts = tensors.iter().map(|(name, t)| Part { name, ty: *t.ty(), bytes: t.bytes() }).collect();
    save_parts(path, parts)
}

/// A tensor to be written, wherever it stands.
pub(crate) struct Part<'a> {
    pub name: &'a str,
    pub ty: TensorType,
    pub bytes: &'a [u8],
}

/// As [`save`], straight from where the tensors stand: takes no memory that grows with them.
pub(crate) fn save_parts(path: &Path, mut parts: Vec<Part<'_>>) -> Result<(), Error> {
    // Wide elements first, so that all are aligned.
    parts.sort_by(|a, b| b.ty.dtype.size().cmp(&a.ty.dtype.size()).then(a.name.cmp(b.name)));
    let header = header(&parts);
    let write = |file: &mut File| {
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        parts.iter().try_for_each(|part| part.bytes.chunks(PIECE).try_for_each(|piece| write_through(file, piece)))
    };
    replace(path, write).map_err(|e| Error::file(path, e.to_string()))
}

/// Bytes that are written at a time.
const PIECE: usize = 2 << 20;

/// Writes and, where a piece is whole, waits until it is on disk and drops it from the page cache, which a control group
/// counts as ours.
fn write_through(file: &mut File, piece: &[u8]) -> std::io::Result<()> {
    file.write_all(piece)?;
    if piece.len() == PIECE {
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

/// The header of a safetensors file: a JSON object, filled up with blanks to a multiple of 8 bytes.
fn header(parts: &[Part<'_>]) -> String {
    let mut text = String::from("{");
    let mut begin = 0;
    for (i, part) in parts.iter().enumerate() {
        let end = begin + part.bytes.len();
        let comma = if i == 0 { "" } else { "," };
        let dtype = to_file(part.ty.dtype);
        let (name, shape) = (json_text(part.name), part.ty.shape.dims());
        text += &format!(r#"{comma}{name}:{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{begin},{end}]}}"#);
        begin = end;
    }
    text.push('}');
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    text
}

fn json_text(text: &str) -> String {
    let mut out = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            control if control < ' ' => out += &format!("\\u{:04x}", control as u32),
            other => out.push(other),
        }
    }
    out.push('"');
    out
}

/// Reads all tensors of a file.
///
/// # Errors
/// With the path and what is wrong, when the file cannot be read or is not a safetensors file.
pub fn load(path: &Path) -> Result<Vec<(String, Tensor)>, Error> {
    let bytes = fs::read(path).map_err(|e| Error::file(path, e.to_string()))?;
    let file =
        SafeTensors::deserialize(&bytes).map_err(|e| Error::file(path, format!("is not a safetensors file: {e}")))?;
    file.tensors()
        .into_iter()
        .map(|(name, view)| {
            let fail = |message: String| Error::file(path, format!("'{name}': {message}"));
            let dtype = from_file(view.dtype()).ok_or_else(|| fail(format!("{:?} is not supported", view.dtype())))?;
            let shape = Shape::try_new(view.shape())
                .ok_or_else(|| fail(format!("{} axes are too many", view.shape().len())))?;
            let mut tensor = Tensor::zeros(dtype, shape);
            if tensor.bytes().len() != view.data().len() {
                return Err(fail(format!(
                    "holds {} bytes, its shape needs {}",
                    view.data().len(),
                    tensor.bytes().len()
                )));
            }
            tensor.bytes_mut().copy_from_slice(view.data());
            Ok((name, tensor))
        })
        .collect()
}

fn replace(path: &Path, write: impl FnOnce(&mut File) -> std::io::Result<()>) -> std::io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut name = path.file_name().ok_or(std::io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder.join(name);
    let write = || {
        let mut file = File::create(&temporary)?;
        write(&mut file)?;
        file.sync_all()?;
        drop_cache(&file);
        fs::rename(&temporary, path)?;
        File::open(&folder)?.sync_all()
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
        DType::I32 => Dtype::I32,
        DType::I64 => Dtype::I64,
        DType::U8 => Dtype::U8,
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
    fn damaged_files_are_named() {
        let folder = folder("damaged");
        let path = folder.join("w.safetensors");
        for bytes in [&b""[..], b"not a tensor file", &[255; 64], &[8, 0, 0, 0, 0, 0, 0, 0, b'{', b'}', b' ', b' ']] {
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
