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
        self.parts(seed, name, shape).fill(0, out);
    }

    /// Bytes that [`Initializer::parts`] keeps: where no element can be had without the others, all of them.
    pub fn kept_bytes(&self, shape: &Shape) -> usize {
        if *self == Initializer::Orthogonal { shape.elements() * size_of::<f32>() } else { 0 }
    }

    /// The elements of a weight of this shape, to be had part by part.
    pub fn parts(&self, seed: u64, name: &str, shape: &Shape) -> Parts<'_> {
        let mut parts = Parts { initializer: self, seed, name: name.to_owned(), shape: *shape, whole: None };
        if *self == Initializer::Orthogonal {
            parts.whole = Some(Orthogonal::new(shape, |start, out| parts.draw(start, out)));
        }
        parts
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
    whole: Option<Orthogonal>,
}

impl Parts<'_> {
    /// Fills `out` with the elements from `start`.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn fill(&self, start: usize, out: &mut [f32]) {
        match &self.whole {
            Some(whole) => out.iter_mut().enumerate().for_each(|(i, v)| *v = whole.get(start + i)),
            None => self.draw(start, out),
        }
    }

    fn draw(&self, start: usize, out: &mut [f32]) {
        self.initializer.fill_part(self.seed, &self.name, &self.shape, start, out);
    }
}

/// A matrix `[all but the last axis, last axis]` whose rows or columns, whichever are fewer, are orthogonal and of length 1.
struct Orthogonal {
    /// One after another.
    vectors: Vec<f32>,
    length: usize,
    columns: usize,
    /// Whether the vectors are the rows.
    rows: bool,
}

/// How many vectors are made orthogonal to an earlier one while that is at hand.
const AT_ONCE: usize = 8;

impl Orthogonal {
    /// From a matrix whose elements from some number on are drawn by `draw`, by Gram and Schmidt's method in the form that subtracts one
    /// direction at a time.
    fn new(shape: &Shape, draw: impl Fn(usize, &mut [f32])) -> Orthogonal {
        let columns = shape.dims().last().copied().unwrap_or(1).max(1);
        let rows = shape.elements() / columns;
        let mut of = Orthogonal {
            vectors: vec![0.0; shape.elements()],
            length: rows.max(columns).max(1),
            columns,
            rows: rows <= columns,
        };
        let mut block = [0.0; 1024];
        for start in (0..shape.elements()).step_by(block.len()) {
            let block = &mut block[..(shape.elements() - start).min(1024)];
            draw(start, block);
            for (i, &value) in block.iter().enumerate() {
                let at = of.at(start + i);
                of.vectors[at] = value;
            }
        }
        let stride = AT_ONCE * of.length;
        for from in (0..of.vectors.len()).step_by(stride) {
            let (done, rest) = of.vectors.split_at_mut(from);
            let n = stride.min(rest.len());
            make_orthogonal(&mut rest[..n], done, of.length);
        }
        of
    }

    /// Where the element of a number is.
    fn at(&self, element: usize) -> usize {
        let (row, column) = (element / self.columns, element % self.columns);
        if self.rows { row * self.length + column } else { column * self.length + row }
    }

    fn get(&self, element: usize) -> f32 {
        self.vectors[self.at(element)]
    }
}

/// Makes each vector of a group orthogonal to all that are done and to those before it, and of length 1.
fn make_orthogonal(group: &mut [f32], done: &[f32], length: usize) {
    let before: Vec<f64> = group.chunks(length).map(|v| dot(v, v)).collect();
    for unit in done.chunks(length) {
        group.chunks_mut(length).for_each(|v| subtract(v, unit));
    }
    for (i, squared) in before.into_iter().enumerate() {
        let (earlier, rest) = group.split_at_mut(i * length);
        let vector = &mut rest[..length];
        earlier.chunks(length).for_each(|unit| subtract(vector, unit));
        // What is left of a vector that lost most of its length is inexact: once more is enough (Kahan and Parlett).
        if dot(vector, vector) < 0.5 * squared {
            done.chunks(length).chain(earlier.chunks(length)).for_each(|unit| subtract(vector, unit));
        }
        let norm = dot(vector, vector).sqrt().max(f64::MIN_POSITIVE);
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
    }
}

/// Takes from a vector what it has of a direction.
fn subtract(vector: &mut [f32], unit: &[f32]) {
    let part = dot(vector, unit) as f32;
    vector.iter_mut().zip(unit).for_each(|(x, u)| *x -= part * u);
}

/// The sum of products, in a fixed order: sums of sixteen, so that they can be added side by side.
fn dot(a: &[f32], b: &[f32]) -> f64 {
    const LANES: usize = 16;
    let mut sums = [0.0f32; LANES];
    let mut total = 0.0;
    // Single precision within stretches that are short enough for it.
    for (a, b) in a.chunks(64 * LANES).zip(b.chunks(64 * LANES)) {
        let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
        total += a.remainder().iter().zip(b.remainder()).map(|(x, y)| f64::from(x * y)).sum::<f64>();
        for (x, y) in a.zip(b) {
            (0..LANES).for_each(|l| sums[l] += x[l] * y[l]);
        }
        total += sums.iter().map(|&s| f64::from(s)).sum::<f64>();
        sums = [0.0; LANES];
    }
    total
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orthogonal_matrices_are() {
        for dims in [&[48, 192][..], &[192, 48], &[64, 64], &[3, 3, 5, 7], &[1, 9], &[2100, 3]] {
            let shape = Shape::new(dims);
            let mut q = vec![f32::NAN; shape.elements()];
            Initializer::Orthogonal.fill(7, "w", &shape, &mut q);
            let columns = *dims.last().unwrap();
            let rows = q.len() / columns;
            let (count, length) = (rows.min(columns), rows.max(columns));
            let element =
                |v: usize, e: usize| f64::from(q[if rows <= columns { v * columns + e } else { e * columns + v }]);
            for (u, v) in (0..count).flat_map(|u| (0..=u).map(move |v| (u, v))) {
                let product: f64 = (0..length).map(|e| element(u, e) * element(v, e)).sum();
                let want = f64::from(u8::from(u == v));
                assert!((product - want).abs() < 2e-6, "{dims:?}: vectors {u} and {v} have the product {product}");
            }
        }
    }

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
