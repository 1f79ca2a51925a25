//! Weights on disk: safetensors files, written so that a crash leaves the old file or the new one, never half of one.

use crate::error::Error;
use plimsoll_tensor::{DType, Shape, Tensor};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Writes named tensors to a file: to a temporary name beside it, synced, then renamed.
///
/// # Errors
/// With the path, when the file cannot be written. A file that was there before is then still whole.
pub fn save(path: &Path, tensors: &[(String, Tensor)]) -> Result<(), Error> {
    let views: Result<Vec<(&str, TensorView<'_>)>, Error> = tensors
        .iter()
        .map(|(name, tensor)| {
            let view = TensorView::new(to_file(tensor.dtype()), tensor.shape().dims().to_vec(), tensor.bytes());
            view.map(|v| (name.as_str(), v)).map_err(|e| Error::file(path, format!("'{name}': {e}")))
        })
        .collect();
    let bytes = safetensors::serialize(views?, None).map_err(|e| Error::file(path, e.to_string()))?;
    replace(path, &bytes).map_err(|e| Error::file(path, e.to_string()))
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

fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder.to_owned(),
        _ => PathBuf::from("."),
    };
    let mut name = path.file_name().ok_or(std::io::ErrorKind::InvalidInput)?.to_owned();
    name.push(format!(".{}.tmp", std::process::id()));
    let temporary = folder.join(name);
    let write = || {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
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
