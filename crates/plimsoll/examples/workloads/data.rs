//! Data sets that are not in memory: rows that are read from a file, and rows that are drawn when asked for.

use plimsoll::data::{Field, FieldKind, Rows};
use plimsoll::{DType, Error, TensorType};
use plimsoll_kernels::random::{self, Distribution, Key};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Inputs and labels in two `.npy` files of little-endian float32 in C order, read by positional reads.
///
/// Neighbouring rows are read with one call. Nothing is mapped, so what is resident is what training itself holds.
pub struct NpyRows {
    files: [NpyFile; 2],
    fields: [Field; 2],
}

struct NpyFile {
    file: File,
    start: u64,
    shape: Vec<usize>,
}

impl NpyRows {
    /// `x.npy` and `y.npy` of a directory.
    pub fn open(directory: &Path) -> Result<NpyRows, Error> {
        let files = [NpyFile::open(&directory.join("x.npy"))?, NpyFile::open(&directory.join("y.npy"))?];
        let (x, y) = (files[0].shape[0], files[1].shape[0]);
        if x != y {
            return Err(Error::config("data", format!("x.npy has {x} rows, y.npy {y}")));
        }
        let field = |file: &NpyFile, name: &str, kind| Field {
            name: name.into(),
            kind,
            ty: TensorType::new(DType::F32, &file.shape[1..]),
        };
        let fields = [field(&files[0], "input", FieldKind::Input), field(&files[1], "output", FieldKind::Label)];
        Ok(NpyRows { files, fields })
    }

    /// Numbers of one input.
    pub fn features(&self) -> usize {
        self.fields[0].ty.elements()
    }
}

impl NpyFile {
    fn open(path: &Path) -> Result<NpyFile, Error> {
        let broken = |message: &str| Error::file(path, message);
        let failed = |e: std::io::Error| broken(&e.to_string());
        let mut file = File::open(path).map_err(failed)?;
        let mut lead = [0; 10];
        file.read_exact(&mut lead).map_err(failed)?;
        if &lead[..8] != b"\x93NUMPY\x01\x00" {
            return Err(broken("is not a .npy file of version 1.0"));
        }
        let length = u16::from_le_bytes([lead[8], lead[9]]) as usize;
        let mut header = vec![0; length];
        file.read_exact(&mut header).map_err(failed)?;
        let header = String::from_utf8_lossy(&header);
        if !header.contains("'descr': '<f4'") || !header.contains("'fortran_order': False") {
            return Err(broken("is not little-endian float32 in C order"));
        }
        let sizes = header.split_once("'shape': (").and_then(|(_, rest)| rest.split_once(')'));
        let sizes = sizes.ok_or_else(|| broken("has no shape"))?.0;
        let shape: Result<Vec<usize>, _> =
            sizes.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::parse).collect();
        let shape = shape.ok().filter(|s| !s.is_empty()).ok_or_else(|| broken("has no rows"))?;
        let start = (lead.len() + length) as u64;
        let bytes = shape.iter().product::<usize>() as u64 * 4;
        if file.metadata().map_err(failed)?.len() < start + bytes {
            return Err(broken("is shorter than its shape says"));
        }
        Ok(NpyFile { file, start, shape })
    }
}

impl Rows for NpyRows {
    fn len(&self) -> usize {
        self.files[0].shape[0]
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, field: usize, rows: &[usize], out: &mut [u8]) -> Result<(), Error> {
        let file = &self.files[field];
        let size = self.fields[field].ty.bytes();
        let mut done = 0;
        while done < rows.len() {
            let first = rows[done];
            let run = rows[done..].iter().enumerate().take_while(|(i, row)| **row == first + i).count();
            let part = &mut out[done * size..(done + run) * size];
            let read = file.file.read_exact_at(part, file.start + (first * size) as u64);
            read.map_err(|e| Error::config("data", e.to_string()))?;
            done += run;
        }
        Ok(())
    }
}

/// Rows of normal numbers, drawn when they are read: the same for the same row.
pub struct Noise {
    rows: usize,
    fields: [Field; 2],
    /// Labels are 0 or 1 instead of normal numbers.
    answers: bool,
}

impl Noise {
    /// Inputs and labels of these shapes.
    pub fn new(rows: usize, input: &[usize], label: &[usize]) -> Noise {
        let field = |name: &str, kind, sizes: &[usize]| Field {
            name: name.into(),
            kind,
            ty: TensorType::new(DType::F32, sizes),
        };
        let fields = [field("input", FieldKind::Input, input), field("output", FieldKind::Label, label)];
        Noise { rows, fields, answers: false }
    }

    /// Inputs with this many features, and for each a yes or no.
    pub fn with_answers(rows: usize, features: usize) -> Noise {
        Noise { answers: true, ..Noise::new(rows, &[features], &[1]) }
    }
}

impl Rows for Noise {
    fn len(&self) -> usize {
        self.rows
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, field: usize, rows: &[usize], out: &mut [u8]) -> Result<(), Error> {
        let key = Key { seed: 0, step: 0, stream: field as u32 };
        let size = self.fields[field].ty.elements();
        let mut drawn = [0.0f32; 256];
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(4 * size)) {
            for (i, out) in out.chunks_mut(4 * drawn.len()).enumerate() {
                let drawn = &mut drawn[..out.len() / 4];
                if self.answers && field == 1 {
                    drawn.fill((scatter(*row as u64) & 1) as f32);
                } else {
                    random::fill_f32(Distribution::Normal, key, (row * size + i * 256) as u64, drawn);
                }
                for (out, value) in out.chunks_exact_mut(4).zip(drawn) {
                    out.copy_from_slice(&value.to_le_bytes());
                }
            }
        }
        Ok(())
    }
}

/// A number that looks random, made from another.
pub fn scatter(x: u64) -> u64 {
    let x = (x + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (x ^ x >> 32) >> 16
}
