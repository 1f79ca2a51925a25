//! Data sets that are not in memory: rows that are read from files, and rows that are drawn when asked for.

use plimsoll::data::{Component, Dataset};
use plimsoll::{DType, Error};
use plimsoll_kernels::random::{self, Distribution, Key};
use std::path::Path;

/// Inputs and labels in `x.npy` and `y.npy` of a directory, and the numbers of one input.
///
/// Nothing is mapped, so what is resident is what training itself holds.
pub fn npy_rows(directory: &Path) -> Result<(Dataset, usize), Error> {
    let part = |name: &str| Dataset::from_npy(directory.join(name));
    let data = Dataset::zip(&[part("x.npy"), part("y.npy")]);
    let features = data.spec()?.components()[0].shape().map_or(1, |shape| shape.elements());
    Ok((data, features))
}

/// Rows of normal numbers of these shapes, drawn when they are read: the same for the same row.
pub fn noise(rows: usize, input: &[usize], label: &[usize]) -> Dataset {
    made(rows, input, label, |row, stream, values| {
        let key = Key { seed: 0, step: 0, stream };
        random::fill_f32(Distribution::Normal, key, row * values.len() as u64, values);
    })
}

/// Inputs with this many features, and for each a yes or no.
pub fn noise_with_answers(rows: usize, features: usize) -> Dataset {
    made(rows, &[features], &[1], |row, stream, values| match stream {
        0 => {
            random::fill_f32(Distribution::Normal, Key { seed: 0, step: 0, stream }, row * values.len() as u64, values)
        }
        _ => values.fill((scatter(row) & 1) as f32),
    })
}

/// Rows made by a function of (row, 0 for the input and 1 for the label).
pub fn made(
    rows: usize,
    input: &[usize],
    label: &[usize],
    fill: impl Fn(u64, u32, &mut [f32]) + Send + Sync + 'static,
) -> Dataset {
    let (input, label) = (input.to_vec(), label.to_vec());
    let components = [Component::new("x", DType::F32, &input), Component::new("y", DType::F32, &label)];
    Dataset::range(0, rows as i64, 1).map(components, move |row, out| {
        let number = row.get::<i64>("value")?[0] as u64;
        fill(number, 0, out.slot("x", &input)?);
        fill(number, 1, out.slot("y", &label)?);
        Ok(())
    })
}

/// A number that looks random, made from another.
pub fn scatter(x: u64) -> u64 {
    let x = (x + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (x ^ x >> 32) >> 16
}
