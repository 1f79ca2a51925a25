//! Initial values of weights: functions of (seed, weight's name, element's place), so that a model starts the same way on
//! every machine, whatever the order of its layers.

use plimsoll_kernels::random::{self, Distribution, Key};
use plimsoll_tensor::{Shape, Tensor};

/// How a weight starts.
///
/// Names and scales are Keras's. `fan_in` and `fan_out` are the last two sizes times the product of those before (the
/// receptive field of a convolution).
#[derive(Clone, Debug, PartialEq)]
pub enum Initializer {
    /// 0.
    Zeros,
    /// 1.
    Ones,
    /// The same number everywhere.
    Constant(f64),
    /// Uniform between the two.
    Uniform {
        /// Lower end.
        low: f64,
        /// Upper end.
        high: f64,
    },
    /// Normal with mean 0.
    Normal {
        /// Standard deviation.
        std: f64,
    },
    /// Normal with mean 0, cut at two standard deviations.
    TruncatedNormal {
        /// Standard deviation before the cut.
        std: f64,
    },
    /// Uniform within `sqrt(6 / (fan_in + fan_out))`: Keras's default for kernels.
    GlorotUniform,
    /// Truncated normal of variance `2 / (fan_in + fan_out)`.
    GlorotNormal,
    /// Uniform within `sqrt(6 / fan_in)`.
    HeUniform,
    /// Truncated normal of variance `2 / fan_in`.
    HeNormal,
    /// Uniform within `sqrt(3 / fan_in)`.
    LecunUniform,
    /// Truncated normal of variance `1 / fan_in`.
    LecunNormal,
    /// Orthogonal rows or columns: Keras's default for recurrent kernels.
    Orthogonal,
    /// Given values.
    Values(Tensor),
}

impl Initializer {
    /// Fills `out`, the elements of a weight of this shape.
    pub fn fill(&self, seed: u64, name: &str, shape: &Shape, out: &mut [f32]) {
        self.fill_part(seed, name, shape, 0, out);
        if *self == Initializer::Orthogonal {
            orthogonalize(out, shape);
        }
    }

    /// The elements of a weight of this shape, to be had part by part.
    pub fn parts(&self, seed: u64, name: &str, shape: &Shape) -> Parts<'_> {
        let whole = (*self == Initializer::Orthogonal).then(|| {
            let mut whole = vec![0.0; shape.elements()];
            self.fill(seed, name, shape, &mut whole);
            whole
        });
        Parts { initializer: self, seed, name: name.to_owned(), shape: *shape, whole }
    }

    /// Fills `out`, the elements from `start`; those of orthogonal matrices before they are made so.
    fn fill_part(&self, seed: u64, name: &str, shape: &Shape, start: usize, out: &mut [f32]) {
        let key = Key { seed, step: 0, stream: hash(name) };
        let (fan_in, fan_out) = fans(shape);
        let draw = |out: &mut [f32], distribution| random::fill_f32(distribution, key, start as u64, out);
        let uniform = |out: &mut [f32], low: f64, high: f64| {
            draw(out, Distribution::Uniform);
            out.iter_mut().for_each(|v| *v = (low + (high - low) * *v as f64) as f32);
        };
        let normal = |out: &mut [f32], distribution: Distribution, std: f64| {
            draw(out, distribution);
            out.iter_mut().for_each(|v| *v = (*v as f64 * std) as f32);
        };
        // Cutting at two standard deviations leaves a standard deviation of 0.8796: made good, as in Keras.
        let truncated = |out: &mut [f32], variance: f64| {
            normal(out, Distribution::TruncatedNormal, variance.sqrt() / 0.879_625_661_034_239_8)
        };
        let within = |out: &mut [f32], limit: f64| uniform(out, -limit, limit);
        match self {
            Initializer::Zeros => out.fill(0.0),
            Initializer::Ones => out.fill(1.0),
            Initializer::Constant(v) => out.fill(*v as f32),
            Initializer::Uniform { low, high } => uniform(out, *low, *high),
            Initializer::Normal { std } => normal(out, Distribution::Normal, *std),
            Initializer::TruncatedNormal { std } => normal(out, Distribution::TruncatedNormal, *std),
            Initializer::GlorotUniform => within(out, (6.0 / (fan_in + fan_out)).sqrt()),
            Initializer::GlorotNormal => truncated(out, 2.0 / (fan_in + fan_out)),
            Initializer::HeUniform => within(out, (6.0 / fan_in).sqrt()),
            Initializer::HeNormal => truncated(out, 2.0 / fan_in),
            Initializer::LecunUniform => within(out, (3.0 / fan_in).sqrt()),
            Initializer::LecunNormal => truncated(out, 1.0 / fan_in),
            Initializer::Orthogonal => draw(out, Distribution::Normal),
            Initializer::Values(tensor) => copy_part(tensor, start, out),
        }
    }
}

/// The elements of a weight, part by part.
pub struct Parts<'a> {
    initializer: &'a Initializer,
    seed: u64,
    name: String,
    shape: Shape,
    /// All of them, where one cannot be had without the others.
    whole: Option<Vec<f32>>,
}

impl Parts<'_> {
    /// Fills `out` with the elements from `start`.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn fill(&self, start: usize, out: &mut [f32]) {
        match &self.whole {
            Some(whole) => out.copy_from_slice(&whole[start..start + out.len()]),
            None => self.initializer.fill_part(self.seed, &self.name, &self.shape, start, out),
        }
    }
}

/// Copies elements of a tensor from `start`, as numbers; what is beyond its end stays as it is.
fn copy_part(tensor: &Tensor, start: usize, out: &mut [f32]) {
    if let Ok(elements) = tensor.as_slice::<f32>() {
        out.iter_mut().zip(elements.iter().skip(start)).for_each(|(o, v)| *o = *v);
    } else {
        out.iter_mut().zip(tensor.to_f64().into_iter().skip(start)).for_each(|(o, v)| *o = v as f32);
    }
}

/// FNV-1a: the same number for the same name on every machine.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |h, b| (h ^ b as u32).wrapping_mul(0x0100_0193))
}

fn fans(shape: &Shape) -> (f64, f64) {
    match *shape.dims() {
        [] => (1.0, 1.0),
        [n] => (n as f64, n as f64),
        [ref field @ .., i, o] => {
            let field: usize = field.iter().product();
            ((field * i) as f64, (field * o) as f64)
        }
    }
}

/// Gram-Schmidt, twice for accuracy, over the shorter side of the matrix `[all but the last axis, last axis]`.
fn orthogonalize(out: &mut [f32], shape: &Shape) {
    let columns = shape.dims().last().copied().unwrap_or(1).max(1);
    let rows = out.len() / columns;
    let (count, length) = (rows.min(columns), rows.max(columns));
    // Vector v, element e.
    let at = |v: usize, e: usize| if rows <= columns { v * columns + e } else { e * columns + v };
    let mut vectors: Vec<Vec<f64>> = (0..count).map(|v| (0..length).map(|e| out[at(v, e)] as f64).collect()).collect();
    for v in 0..count {
        for _ in 0..2 {
            for u in 0..v {
                let dot: f64 = (0..length).map(|e| vectors[v][e] * vectors[u][e]).sum();
                for e in 0..length {
                    let part = dot * vectors[u][e];
                    vectors[v][e] -= part;
                }
            }
        }
        let norm = vectors[v].iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
        vectors[v].iter_mut().for_each(|x| *x /= norm);
    }
    for v in 0..count {
        (0..length).for_each(|e| out[at(v, e)] = vectors[v][e] as f32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_whole() {
        let shape = Shape::new(&[37, 113]);
        let values = Tensor::from_f64(plimsoll_tensor::DType::I32, shape, &vec![3.0; 37 * 113]).unwrap();
        let floats: Vec<f32> = (0..37 * 113).map(|i| i as f32).collect();
        let all = [
            Initializer::Zeros,
            Initializer::Ones,
            Initializer::Constant(2.5),
            Initializer::Uniform { low: -1.0, high: 3.0 },
            Initializer::Normal { std: 2.0 },
            Initializer::TruncatedNormal { std: 2.0 },
            Initializer::GlorotUniform,
            Initializer::GlorotNormal,
            Initializer::HeUniform,
            Initializer::HeNormal,
            Initializer::LecunUniform,
            Initializer::LecunNormal,
            Initializer::Orthogonal,
            Initializer::Values(values),
            Initializer::Values(Tensor::from_slice(shape, &floats).unwrap()),
        ];
        for init in all {
            let mut whole = vec![f32::NAN; shape.elements()];
            init.fill(5, "w", &shape, &mut whole);
            for size in [1, 7, 64, 1000, 4181] {
                let parts = init.parts(5, "w", &shape);
                let mut found = vec![f32::NAN; whole.len()];
                found.chunks_mut(size).enumerate().for_each(|(i, out)| parts.fill(i * size, out));
                assert_eq!(found, whole, "{init:?} in parts of {size}");
            }
        }
    }
}
