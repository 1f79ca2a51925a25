//! The inner loops: what happens to a chunk of rows, `[rows, channels]`.
//!
//! Channels are taken in tiles of at most [`WIDTH`]. Where there are fewer, a tile spans several rows and the
//! figures of the channels are repeated to match, so that three channels run as fast as sixty-four. Sums of more channels stay in
//! registers that way; where nothing is summed, wider rows are taken whole, in the order in which they lie in memory.

use crate::Source;
use crate::blocks::apply;
use crate::math::Float;
use crate::norm::CHUNK_ROWS;
use crate::simd;

/// The widest tile.
const WIDTH: usize = 128;

/// The most channels that are merged at a time.
pub(super) const MERGE_WIDTH: usize = 64;

/// A range of columns, seen as rows of `width` elements every `stride` elements from `first`.
#[derive(Clone, Copy)]
struct Tile {
    first: usize,
    width: usize,
    stride: usize,
    channels: usize,
}

/// The width of as many whole rows of so many channels as a tile has room for.
#[inline(always)]
fn whole_rows(channels: usize) -> usize {
    WIDTH / channels * channels
}

/// The tiles of rows with so many channels.
#[inline(always)]
fn tiles(channels: usize) -> impl Iterator<Item = Tile> {
    let (width, stride) = if channels <= WIDTH {
        let whole = whole_rows(channels);
        (whole, whole)
    } else {
        (channels.div_ceil(channels.div_ceil(WIDTH)), channels)
    };
    (0..channels).step_by(width).map(move |first| {
        let width = if channels <= WIDTH { width } else { width.min(channels - first) };
        Tile { first, width, stride, channels }
    })
}

impl Tile {
    /// The pieces of the tile in `len` elements: where each begins and how long it is.
    #[inline(always)]
    fn pieces(self, len: usize) -> impl Iterator<Item = (usize, usize)> {
        (self.first..len).step_by(self.stride).map(move |start| (start, self.width.min(len - start)))
    }

    /// The figures of the tile's columns, repeated where it spans several rows.
    #[inline(always)]
    fn repeated<T: Float>(self, figures: &[T]) -> [T; WIDTH] {
        let mut columns = [T::ZERO; WIDTH];
        if self.channels <= WIDTH {
            for row in columns[..self.width].chunks_exact_mut(self.channels) {
                row.copy_from_slice(figures);
            }
        } else {
            columns[..self.width].copy_from_slice(&figures[self.first..][..self.width]);
        }
        columns
    }

    /// The reverse for sums: adds up what belongs to one channel.
    #[inline(always)]
    fn folded<T: Float>(self, columns: &[T; WIDTH], figures: &mut [T]) {
        if self.channels > WIDTH {
            return figures[self.first..][..self.width].copy_from_slice(&columns[..self.width]);
        }
        let (first, rest) = columns[..self.width].split_at(self.channels);
        figures.copy_from_slice(first);
        for row in rest.chunks_exact(self.channels) {
            for (sum, &term) in figures.iter_mut().zip(row) {
                *sum += term;
            }
        }
    }
}

/// The pieces of `len` elements when nothing is summed: rows, or tiles of several.
#[inline(always)]
fn pieces(channels: usize, len: usize) -> impl Iterator<Item = (usize, usize)> {
    let width = if channels <= WIDTH { whole_rows(channels) } else { channels };
    (0..len).step_by(width).map(move |start| (start, width.min(len - start)))
}

/// The figures of such a piece's columns, in `room` where they are repeated.
#[inline(always)]
fn columns<'a, T: Float>(figures: &'a [T], room: &'a mut [T; WIDTH]) -> &'a [T] {
    let channels = figures.len();
    if channels > WIDTH {
        return figures;
    }
    let rows = &mut room[..whole_rows(channels)];
    for row in rows.chunks_exact_mut(channels) {
        row.copy_from_slice(figures);
    }
    rows
}

simd! {
    /// Mean of each channel and sum of squared deviations from it, `[2, channels]`.
    pub(super) fn statistics_rows[T: Float](x: &[T], out: &mut [T]) {
        let channels = out.len() / 2;
        let (mean, squares) = out.split_at_mut(channels);
        let n = T::from_f64((x.len() / channels) as f64);
        for tile in tiles(channels) {
            let mut sum = [T::ZERO; WIDTH];
            for (start, len) in tile.pieces(x.len()) {
                apply(&mut sum[..len], Source::InPlace, [&x[start..]], |sum, [x]| sum + x);
            }
            tile.folded(&sum, mean);
        }
        mean.iter_mut().for_each(|mean| *mean /= n);
        for tile in tiles(channels) {
            let mut sum = [T::ZERO; WIDTH];
            let mean = tile.repeated(mean);
            for (start, len) in tile.pieces(x.len()) {
                let deviation = |sum: T, [x, mean]: [T; 2]| sum + (x - mean) * (x - mean);
                apply(&mut sum[..len], Source::InPlace, [&x[start..], &mean], deviation);
            }
            tile.folded(&sum, squares);
        }
    }

    /// Merges the chunks' means and squared deviations (`partial`, as [`statistics_rows`] leaves them) into the mean
    /// and variance of at most [`MERGE_WIDTH`] channels from `first`.
    pub(super) fn merge_chunks[T: Float](
        partial: &[T],
        rows: usize,
        channels: usize,
        first: usize,
        mean: &mut [T],
        variance: &mut [T],
    ) {
        let width = mean.len();
        let (mut means, mut squares) = ([0.0; MERGE_WIDTH], [0.0; MERGE_WIDTH]);
        for (i, figures) in partial.chunks_exact(2 * channels).enumerate() {
            let (before, chunk) = ((i * CHUNK_ROWS) as f64, CHUNK_ROWS.min(rows - i * CHUNK_ROWS) as f64);
            let (shift, spread) = (chunk / (before + chunk), before * chunk / (before + chunk));
            let (chunk_means, chunk_squares) = (&figures[first..][..width], &figures[channels + first..][..width]);
            for c in 0..width {
                let delta = chunk_means[c].to_f64() - means[c];
                means[c] += delta * shift;
                squares[c] += chunk_squares[c].to_f64() + delta * delta * spread;
            }
        }
        for c in 0..width {
            mean[c] = T::from_f64(means[c]);
            variance[c] = T::from_f64(squares[c] / rows as f64);
        }
    }

    /// Sums of `dy * (x - mean) * rstd` and of `dy` for each channel, `[2, channels]`.
    pub(super) fn sums_rows[T: Float](x: &[T], dy: &[T], mean: &[T], rstd: &[T], out: &mut [T]) {
        let channels = mean.len();
        let (products, plain) = out.split_at_mut(channels);
        for tile in tiles(channels) {
            let (mean, rstd) = (tile.repeated(mean), tile.repeated(rstd));
            let (mut product, mut sum) = ([T::ZERO; WIDTH], [T::ZERO; WIDTH]);
            for (start, len) in tile.pieces(x.len()) {
                let (x, dy) = (&x[start..], &dy[start..]);
                apply(&mut product[..len], Source::InPlace, [x, dy, &mean, &rstd], |sum, [x, dy, mean, rstd]| {
                    sum + dy * ((x - mean) * rstd)
                });
                apply(&mut sum[..len], Source::InPlace, [dy], |sum, [dy]| sum + dy);
            }
            tile.folded(&product, products);
            tile.folded(&sum, plain);
        }
    }

    /// `y = (x - f0) * f1 + f2`.
    pub(super) fn normalise_rows[T: Float](x: Source<'_, T>, figures: [&[T]; 3], y: &mut [T]) {
        let mut rooms = [[T::ZERO; WIDTH]; 3];
        let [a, b, c] = &mut rooms;
        let columns = [columns(figures[0], a), columns(figures[1], b), columns(figures[2], c)];
        for (start, len) in pieces(figures[0].len(), y.len()) {
            let y = &mut y[start..start + len];
            apply(y, x.part(start, len), columns, |x, [mean, slope, offset]| (x - mean) * slope + offset);
        }
    }

    /// `dx = dy * f1 - f2 - (x - f0) * f3`.
    pub(super) fn gradient_rows[T: Float](x: &[T], dy: Source<'_, T>, figures: [&[T]; 4], dx: &mut [T]) {
        let mut rooms = [[T::ZERO; WIDTH]; 4];
        let [a, b, c, d] = &mut rooms;
        let [f0, f1, f2, f3] =
            [columns(figures[0], a), columns(figures[1], b), columns(figures[2], c), columns(figures[3], d)];
        for (start, len) in pieces(figures[0].len(), x.len()) {
            let dx = &mut dx[start..start + len];
            apply(dx, dy.part(start, len), [&x[start..], f0, f1, f2, f3], |dy, [x, f0, f1, f2, f3]| {
                dy * f1 - f2 - (x - f0) * f3
            });
        }
    }
}
