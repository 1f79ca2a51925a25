//! Where samples come from: anything that can be read by row number.
//!
//! [`Rows`] is the door through which data enters training: a fixed number of rows, each with named fields, read in any
//! order straight into the engine's memory. [`Arrays`] is the implementation for tensors that are already in memory.

use crate::error::Error;
use plimsoll_tensor::{DType, Tensor, TensorType};

/// One field of the samples: a model's input, its labels (named after the output they belong to) or the sample weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// What it is matched by.
    pub name: String,
    /// What it is for.
    pub kind: FieldKind,
    /// The type of one row, without the batch axis.
    pub ty: TensorType,
}

/// What a field is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// An input of the model.
    Input,
    /// What an output is compared with.
    Label,
    /// How much each sample counts.
    Weight,
}

/// Samples that can be read by row number.
pub trait Rows: Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The fields of every row.
    fn fields(&self) -> &[Field];

    /// Writes rows `rows` of field `field`, one after another, to `out`.
    ///
    /// # Errors
    /// When a row cannot be read.
    fn read(&self, field: usize, rows: &[usize], out: &mut [u8]) -> Result<(), Error>;
}

/// Tensors in memory whose first axis counts the samples.
///
/// ```
/// use plimsoll::data::{Arrays, Rows};
/// use plimsoll::Tensor;
/// let x = Tensor::from_slice(&[4, 2], &[0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])?;
/// let y = Tensor::from_slice(&[4, 1], &[0.0f32, 1.0, 1.0, 0.0])?;
/// let data = Arrays::new(x, y)?;
/// assert_eq!(data.len(), 4);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Arrays {
    fields: Vec<Field>,
    tensors: Vec<Tensor>,
    len: usize,
}

impl Arrays {
    /// Inputs and labels of a model with one input and one output.
    ///
    /// # Errors
    /// When the two do not have equally many rows.
    pub fn new(inputs: Tensor, labels: Tensor) -> Result<Arrays, Error> {
        Arrays::inputs_only(inputs)?.with("output", FieldKind::Label, labels)
    }

    /// Inputs of a model with one input, for prediction.
    ///
    /// # Errors
    /// When the tensor is a scalar.
    pub fn inputs_only(inputs: Tensor) -> Result<Arrays, Error> {
        Arrays::default().with("input", FieldKind::Input, inputs)
    }

    /// No fields yet: for models with several inputs or outputs.
    pub fn empty() -> Arrays {
        Arrays::default()
    }

    /// With one more input.
    ///
    /// # Errors
    /// When it does not have as many rows as the fields before.
    pub fn input(self, name: &str, tensor: Tensor) -> Result<Arrays, Error> {
        self.with(name, FieldKind::Input, tensor)
    }

    /// With the labels of an output.
    ///
    /// # Errors
    /// When they do not have as many rows as the fields before.
    pub fn labels(self, output: &str, tensor: Tensor) -> Result<Arrays, Error> {
        self.with(output, FieldKind::Label, tensor)
    }

    /// With a weight for every sample.
    ///
    /// # Errors
    /// When it is not f32 with one number per row.
    pub fn sample_weights(self, tensor: Tensor) -> Result<Arrays, Error> {
        if tensor.dtype() != DType::F32 || tensor.shape().rank() != 1 {
            return Err(Error::config("sample weights", format!("are f32 with one axis, got {}", tensor.ty())));
        }
        self.with("sample weights", FieldKind::Weight, tensor)
    }

    /// With weights made from whole-number labels: `weights[label]` for every sample.
    ///
    /// # Errors
    /// When the labels are not whole numbers, one per sample, below the number of weights.
    pub fn class_weights(self, weights: &[f32]) -> Result<Arrays, Error> {
        let fail = |message: String| Err(Error::config("class weights", message));
        let Some(at) = self.fields.iter().position(|f| f.kind == FieldKind::Label) else {
            return fail("there are no labels".into());
        };
        let labels = &self.tensors[at];
        if labels.elements() != self.len {
            return fail(format!("need one label per sample, got {}", labels.ty()));
        }
        let mut per_sample = Vec::with_capacity(self.len);
        for (row, label) in labels.to_f64().into_iter().enumerate() {
            match weights.get(label as usize) {
                Some(w) if label >= 0.0 && label.fract() == 0.0 => per_sample.push(*w),
                _ => return fail(format!("label {label} in row {row} has no weight among {}", weights.len())),
            }
        }
        let tensor = Tensor::from_slice([self.len], &per_sample)?;
        self.sample_weights(tensor)
    }

    fn with(mut self, name: &str, kind: FieldKind, tensor: Tensor) -> Result<Arrays, Error> {
        let what = || format!("data field '{name}'");
        let Some(&rows) = tensor.shape().dims().first() else {
            return Err(Error::config(what(), "is a scalar; its first axis must count the samples"));
        };
        if let Some(first) = self.fields.first()
            && rows != self.len
        {
            let message = format!("has {rows} rows, but '{}' has {}", first.name, self.len);
            return Err(Error::config(what(), message));
        }
        self.len = rows;
        let ty = TensorType::new(tensor.dtype(), tensor.shape().remove(0));
        self.fields.push(Field { name: name.into(), kind, ty });
        self.tensors.push(tensor);
        Ok(self)
    }
}

impl Rows for Arrays {
    fn len(&self) -> usize {
        self.len
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, field: usize, rows: &[usize], out: &mut [u8]) -> Result<(), Error> {
        let size = self.fields[field].ty.bytes();
        let all = self.tensors[field].bytes();
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(size.max(1))) {
            out.copy_from_slice(&all[row * size..(row + 1) * size]);
        }
        Ok(())
    }
}

/// A permutation of `0 .. n` without a table: row `i` of the epoch is row `at(i)` of the data.
///
/// A Feistel network over the smallest even number of bits that covers `n`, walked until it lands inside (at most a few
/// steps). It takes no memory however large `n` is, and every epoch has its own by another key.
///
/// ```
/// use plimsoll::data::Permutation;
/// let p = Permutation::new(1000, 7, 0);
/// let mut seen: Vec<usize> = (0..1000).map(|i| p.at(i)).collect();
/// assert_ne!(seen[..3], [0, 1, 2]);
/// seen.sort();
/// assert!(seen.into_iter().eq(0..1000));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Permutation {
    n: u64,
    half_bits: u32,
    keys: [u64; Permutation::ROUNDS],
}

impl Permutation {
    const ROUNDS: usize = 6;

    /// The permutation of `0 .. n` for a seed and an epoch.
    pub fn new(n: usize, seed: u64, epoch: u64) -> Permutation {
        let bits = 64 - (n.max(2) as u64 - 1).leading_zeros();
        let mut state = mix(seed) ^ mix(epoch.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let keys = std::array::from_fn(|_| {
            state = mix(state);
            state
        });
        Permutation { n: n as u64, half_bits: bits.div_ceil(2), keys }
    }

    /// Where `i` goes.
    pub fn at(&self, i: usize) -> usize {
        debug_assert!((i as u64) < self.n);
        let mut x = i as u64;
        loop {
            x = self.encrypt(x);
            if x < self.n {
                return x as usize;
            }
        }
    }

    fn encrypt(&self, x: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (x >> self.half_bits, x & mask);
        for key in self.keys {
            (left, right) = (right, left ^ (mix(right ^ key) & mask));
        }
        left << self.half_bits | right
    }
}

/// A bijection of 64-bit numbers that scatters well (the finaliser of SplitMix64).
fn mix(x: u64) -> u64 {
    let z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_are_complete_and_differ() {
        for n in [1, 2, 3, 5, 64, 65, 1000, 4097] {
            let orders: Vec<Vec<usize>> =
                (0..3).map(|epoch| (0..n).map(|i| Permutation::new(n, 1, epoch).at(i)).collect()).collect();
            for order in &orders {
                let mut sorted = order.clone();
                sorted.sort_unstable();
                assert!(sorted.into_iter().eq(0..n));
            }
            assert!(n < 64 || orders[0] != orders[1] && orders[1] != orders[2]);
        }
    }

    #[test]
    fn every_row_comes_first_about_equally_often() {
        // Chi-square with 9 degrees of freedom: 27.9 is passed once in a thousand times by chance.
        let mut counts = [0.0f64; 10];
        (0..10_000).for_each(|epoch| counts[Permutation::new(10, 3, epoch).at(0)] += 1.0);
        let chi: f64 = counts.iter().map(|c| (c - 1000.0) * (c - 1000.0) / 1000.0).sum();
        assert!(chi < 27.9, "chi-square {chi}");
    }

    #[test]
    fn rows_must_agree() {
        let x = Tensor::zeros(DType::F32, [3, 2]);
        let y = Tensor::zeros(DType::F32, [4, 1]);
        let error = Arrays::new(x, y).unwrap_err().to_string();
        assert_eq!(error, "data field 'output': has 4 rows, but 'input' has 3");
    }

    #[test]
    fn class_weights_follow_the_labels() {
        let x = Tensor::zeros(DType::F32, [3, 2]);
        let y = Tensor::from_slice([3], &[1i64, 0, 1]).unwrap();
        let data = Arrays::new(x.clone(), y).unwrap().class_weights(&[1.0, 5.0]).unwrap();
        let mut out = [0u8; 12];
        data.read(2, &[0, 1, 2], &mut out).unwrap();
        let weights: Vec<f32> = out.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(weights, [5.0, 1.0, 5.0]);
        let y = Tensor::from_slice([3], &[1i64, 0, 2]).unwrap();
        let error = Arrays::new(x, y).unwrap().class_weights(&[1.0, 5.0]).unwrap_err().to_string();
        assert_eq!(error, "class weights: label 2 in row 2 has no weight among 2");
    }
}
