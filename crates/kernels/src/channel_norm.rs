//! Batch norm and group norm: channels, the last axis, are normalised by statistics over the other axes.
//!
//! Both rest on the same passes over `[segments, rows, channels]`, where batch norm has one segment and group
//! norm one for each sample: statistics of each channel over a segment's rows, and (for the gradient) two sums
//! of each channel. Rows are taken in chunks of [`CHUNK_ROWS`]. A chunk's mean and squared deviations are
//! two-pass figures; chunks are merged from left to right in f64 by the formula of Chan, Golub and LeVeque.

mod tiles;

use crate::Source;
use crate::gemm::Into;
use crate::math::Float;
use crate::norm::{CHUNK_ROWS, add_chunks};
use crate::pool::{Pool, SharedSlice};
use tiles::{MERGE_WIDTH, gradient_rows, merge_chunks, normalise_rows, statistics_rows, sums_rows};

/// `[segments, rows, channels]`.
#[derive(Clone, Copy, Debug)]
struct Extent {
    segments: usize,
    rows: usize,
    channels: usize,
}

impl Extent {
    /// The extent of `len` elements in batch norm.
    #[track_caller]
    fn batch(len: usize, channels: usize) -> Extent {
        let rows = len.checked_div(channels).unwrap_or(0);
        assert_eq!(rows * channels, len, "the rows are not whole");
        Extent { segments: 1, rows, channels }
    }

    fn total(&self) -> usize {
        self.segments * self.rows * self.channels
    }

    fn chunks(&self) -> usize {
        self.rows.div_ceil(CHUNK_ROWS)
    }

    /// Elements that hold two figures for each chunk and channel.
    fn partials(&self) -> usize {
        2 * self.segments * self.chunks() * self.channels
    }

    /// Elements that hold `n` figures for each segment and channel.
    fn figures(&self, n: usize) -> usize {
        n * self.segments * self.channels
    }

    /// Runs `body(segment, chunk)` for every chunk.
    fn for_chunks(&self, pool: &Pool, body: &(dyn Fn(usize, usize) + Sync)) {
        if self.total() == 0 {
            return;
        }
        // Several chunks to a task where they are small.
        let group = ((1 << 13) / (CHUNK_ROWS * self.channels.max(1))).max(1);
        let groups = self.chunks().div_ceil(group);
        pool.run_sized(self.segments * groups, self.total() / 4, &|task, _| {
            let (segment, first) = (task / groups, task % groups * group);
            (first..self.chunks().min(first + group)).for_each(|chunk| body(segment, chunk));
        });
    }

    /// The elements of a chunk: where they begin and how many they are.
    fn chunk(&self, segment: usize, chunk: usize) -> (usize, usize) {
        let row = chunk * CHUNK_ROWS;
        let rows = CHUNK_ROWS.min(self.rows - row);
        ((segment * self.rows + row) * self.channels, rows * self.channels)
    }

    /// Every segment with every channel.
    fn segment_channels(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let channels = self.channels;
        (0..self.segments).flat_map(move |segment| (0..channels).map(move |c| (segment, c)))
    }

    /// Where the two figures of a chunk stand.
    fn partial(&self, segment: usize, chunk: usize) -> usize {
        2 * (segment * self.chunks() + chunk) * self.channels
    }
}

/// Elements of scratch that [`batch_stats`] and [`batch_norm_grad`] need.
pub fn batch_norm_scratch(rows: usize, channels: usize) -> usize {
    let extent = Extent { segments: 1, rows, channels };
    extent.partials() + extent.figures(4)
}

/// Mean and variance (divided by the number of rows) of each channel of `x`, which is `[rows, channels]`.
///
/// ```
/// use plimsoll_kernels::{Pool, channel_norm};
/// let x = [1.0f32, 10.0, 3.0, 10.0];
/// let (mut mean, mut variance) = ([0.0; 2], [0.0; 2]);
/// let mut scratch = vec![0.0; channel_norm::batch_norm_scratch(2, 2)];
/// channel_norm::batch_stats(&Pool::new(1), &x, &mut mean, &mut variance, &mut scratch);
/// assert_eq!((mean, variance), ([2.0, 10.0], [1.0, 0.0]));
/// ```
///
/// # Panics
/// When the sizes disagree.
pub fn batch_stats<T: Float>(pool: &Pool, x: &[T], mean: &mut [T], variance: &mut [T], scratch: &mut [T]) {
    let extent = Extent::batch(x.len(), mean.len());
    channel_stats(pool, x, extent, mean, variance, scratch);
}

/// The gradients of batch norm with the batch's own statistics, those of [`batch_stats`].
///
/// With `n = (x - mean) * rstd` and means taken over the rows:
/// `dx = scale * rstd * (dy - mean of dy - n * mean of dy * n)`, `dscale = sum of dy * n`, `doffset = sum of dy`.
/// `dx` may be written over `dy`.
///
/// # Panics
/// When the sizes disagree.
pub fn batch_norm_grad<T: Float>(
    pool: &Pool,
    x: &[T],
    mean: &[T],
    variance: &[T],
    epsilon: f64,
    scale: Option<&[T]>,
    dy: Source<'_, T>,
    dx: &mut [T],
    dscale: &mut [T],
    doffset: &mut [T],
    scratch: &mut [T],
) {
    let extent = Extent::batch(x.len(), mean.len());
    let (partial, figures) = scratch.split_at_mut(extent.partials());
    for c in 0..extent.channels {
        set_figures(figures, extent, (0, c), [mean[c], rstd(variance[c], epsilon)]);
    }
    channel_sums(pool, x, dy.read(dx), extent, figures, partial);
    for (which, target) in [&mut *dscale, &mut *doffset].into_iter().enumerate() {
        assert_eq!(target.len(), extent.channels, "a parameter has another width than the rows");
        add_chunks(target, figure(partial, extent.channels, which), Into::Overwrite);
    }
    let n = T::from_f64(extent.rows as f64);
    for c in 0..extent.channels {
        let r = rstd(variance[c], epsilon);
        let slope = parameter(scale, c, T::ONE) * r;
        set_figures(figures, extent, (0, c), [mean[c], slope, slope * (doffset[c] / n), slope * r * (dscale[c] / n)]);
    }
    gradient(pool, x, dy, extent, dx, figures);
}

/// The sizes of a group norm: `x` is `[samples, positions, channels]`, and the channels of a sample are
/// normalised in `groups` groups of neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupNorm {
    /// Size of the first axis.
    pub samples: usize,
    /// Product of the axes between (height times width of an image).
    pub positions: usize,
    /// Size of the last axis.
    pub channels: usize,
    /// Number of groups; divides the channels.
    pub groups: usize,
}

impl GroupNorm {
    fn extent(&self) -> Extent {
        Extent { segments: self.samples, rows: self.positions, channels: self.channels }
    }

    fn channels_per_group(&self) -> usize {
        self.channels.checked_div(self.groups).unwrap_or(0)
    }

    /// The number of elements that share their statistics.
    fn group_len(&self) -> usize {
        self.positions * self.channels_per_group()
    }

    #[track_caller]
    fn check(&self, x: usize, statistics: [usize; 2]) {
        assert_eq!(self.groups * self.channels_per_group(), self.channels, "groups must divide the channels");
        assert_eq!(x, self.samples * self.positions * self.channels, "x has another length than its shape");
        assert_eq!(statistics, [self.samples * self.groups; 2], "statistics differ in number from the groups");
    }

    /// Place and channel of every element of a group (counted through all samples).
    fn members(&self, group: usize) -> Vec<(usize, usize)> {
        let (sample, first) = (group / self.groups, group % self.groups * self.channels_per_group());
        let place = |position: usize, c: usize| ((sample * self.positions + position) * self.channels + c, c);
        let channels = first..first + self.channels_per_group();
        (0..self.positions).flat_map(|position| channels.clone().map(move |c| place(position, c))).collect()
    }

    /// Elements of scratch that [`group_norm`] and [`group_norm_grad`] need.
    pub fn scratch(&self) -> usize {
        let extent = self.extent();
        extent.partials() + extent.figures(6)
    }
}

/// `y = (x - mean) * rstd * scale + offset` with mean and `rstd = 1 / sqrt(variance + epsilon)` of each group.
///
/// Scale and offset are `[channels]`, mean and rstd `[samples, groups]`.
///
/// # Panics
/// When the sizes disagree.
pub fn group_norm<T: Float>(
    pool: &Pool,
    shape: GroupNorm,
    x: Source<'_, T>,
    scale: Option<&[T]>,
    offset: Option<&[T]>,
    epsilon: f64,
    y: &mut [T],
    mean: &mut [T],
    rstd: &mut [T],
    scratch: &mut [T],
) {
    shape.check(y.len(), [mean.len(), rstd.len()]);
    let extent = shape.extent();
    let (partial, rest) = scratch.split_at_mut(extent.partials());
    let (figures, statistics) = rest.split_at_mut(extent.figures(4));
    let (means, variances) = statistics[..extent.figures(2)].split_at_mut(extent.figures(1));
    channel_stats(pool, x.read(y), extent, means, variances, partial);
    let width = shape.channels_per_group();
    for group in 0..mean.len() {
        // The groups of a sample lie side by side, as their channels do.
        let channels = group * width..(group + 1) * width;
        let (m, v) = pooled(&means[channels.clone()], &variances[channels.clone()]);
        mean[group] = T::from_f64(m);
        rstd[group] = T::from_f64(1.0 / (v + epsilon).sqrt());
        for at in channels {
            let (sample, c) = (at / shape.channels, at % shape.channels);
            let slope = rstd[group] * parameter(scale, c, T::ONE);
            set_figures(figures, extent, (sample, c), [mean[group], slope, parameter(offset, c, T::ZERO)]);
        }
    }
    normalise(pool, x, extent, y, figures);
}

/// The gradients of [`group_norm`].
///
/// With `g = dy * scale` and `n = (x - mean) * rstd`: `dx = rstd * (g - mean of g - n * mean of g * n)`, the means
/// taken over the group; `dscale = sum of dy * n` and `doffset = sum of dy` over samples and positions, sample by
/// sample from left to right, to where `into` says. `dx` may be written over `dy`.
///
/// # Panics
/// When the sizes disagree.
pub fn group_norm_grad<T: Float>(
    pool: &Pool,
    shape: GroupNorm,
    x: &[T],
    scale: Option<&[T]>,
    mean: &[T],
    rstd: &[T],
    dy: Source<'_, T>,
    dx: &mut [T],
    dscale: Option<&mut [T]>,
    doffset: Option<&mut [T]>,
    into: Into,
    scratch: &mut [T],
) {
    shape.check(x.len(), [mean.len(), rstd.len()]);
    let extent = shape.extent();
    let (partial, rest) = scratch.split_at_mut(extent.partials());
    let (figures, sums) = rest.split_at_mut(extent.figures(4));
    let sums = &mut sums[..extent.figures(2)];
    let width = shape.channels_per_group().max(1);
    let group_of = |sample: usize, c: usize| sample * shape.groups + c / width;
    for (sample, c) in extent.segment_channels() {
        let group = group_of(sample, c);
        set_figures(figures, extent, (sample, c), [mean[group], rstd[group]]);
    }
    channel_sums(pool, x, dy.read(dx), extent, figures, partial);
    let channels = extent.channels.max(1);
    for (sample, sums) in sums.chunks_exact_mut(2 * channels).enumerate() {
        let partial = &partial[extent.partial(sample, 0)..extent.partial(sample + 1, 0)];
        for (which, sum) in sums.chunks_exact_mut(channels).enumerate() {
            add_chunks(sum, figure(partial, channels, which), Into::Overwrite);
        }
    }
    for (which, target) in [dscale, doffset].into_iter().enumerate() {
        if let Some(target) = target {
            assert_eq!(target.len(), extent.channels, "a parameter has another width than the rows");
            add_chunks(target, figure(sums, channels, which), into);
        }
    }
    let n = T::from_f64(shape.group_len() as f64);
    for first in (0..extent.figures(1)).step_by(width) {
        let (sample, first) = (first / channels, first % channels);
        let group = group_of(sample, first);
        let sums = &sums[2 * sample * channels..][..2 * channels];
        let (mut g, mut gn) = (T::ZERO, T::ZERO);
        for c in first..first + width {
            gn += sums[c] * parameter(scale, c, T::ONE);
            g += sums[channels + c] * parameter(scale, c, T::ONE);
        }
        let r = rstd[group];
        for c in first..first + width {
            let slope = parameter(scale, c, T::ONE) * r;
            set_figures(figures, extent, (sample, c), [mean[group], slope, r * (g / n), r * r * (gn / n)]);
        }
    }
    gradient(pool, x, dy, extent, dx, figures);
}

/// Mean and variance of several channels with the same number of rows.
fn pooled<T: Float>(means: &[T], variances: &[T]) -> (f64, f64) {
    let n = means.len() as f64;
    let mean = means.iter().map(|m| m.to_f64()).sum::<f64>() / n;
    let within = variances.iter().map(|v| v.to_f64()).sum::<f64>() / n;
    let between = means.iter().map(|m| (m.to_f64() - mean).powi(2)).sum::<f64>() / n;
    (mean, within + between)
}

fn rstd<T: Float>(variance: T, epsilon: f64) -> T {
    T::ONE / (variance + T::from_f64(epsilon)).sqrt()
}

fn parameter<T: Float>(parameter: Option<&[T]>, channel: usize, missing: T) -> T {
    parameter.map_or(missing, |parameter| parameter[channel])
}

/// Sets the first figures of one channel; four stand one after the other for each segment, `[segments, 4, channels]`.
fn set_figures<T: Float, const N: usize>(
    figures: &mut [T],
    extent: Extent,
    (segment, c): (usize, usize),
    values: [T; N],
) {
    for (i, value) in values.into_iter().enumerate() {
        figures[(4 * segment + i) * extent.channels + c] = value;
    }
}

/// A segment's figures.
fn figures_of<T>(figures: &[T], extent: Extent, segment: usize) -> [&[T]; 4] {
    [0, 1, 2, 3].map(|i| &figures[(4 * segment + i) * extent.channels..][..extent.channels])
}

/// The first or the second of the two figures of each chunk, chunk by chunk.
fn figure<T>(partial: &[T], channels: usize, which: usize) -> impl Iterator<Item = &[T]> {
    partial.chunks_exact(channels.max(1)).skip(which).step_by(2)
}

/// Mean and variance of each channel over the rows of each segment, `[segments, channels]`.
fn channel_stats<T: Float>(
    pool: &Pool,
    x: &[T],
    extent: Extent,
    mean: &mut [T],
    variance: &mut [T],
    scratch: &mut [T],
) {
    assert_eq!([mean.len(), variance.len()], [extent.figures(1); 2], "statistics differ in number from the channels");
    let partial = &mut scratch[..extent.partials()];
    let out = SharedSlice::new(partial);
    extent.for_chunks(pool, &|segment, chunk| {
        let (start, len) = extent.chunk(segment, chunk);
        // SAFETY: each chunk owns its figures.
        let out = unsafe { out.slice(extent.partial(segment, chunk), 2 * extent.channels) };
        statistics_rows(&x[start..start + len], out);
    });
    let partial = &*partial;
    let (mean, variance) = (SharedSlice::new(mean), SharedSlice::new(variance));
    let blocks = extent.channels.div_ceil(MERGE_WIDTH);
    pool.run_sized(extent.segments * blocks, partial.len(), &|task, _| {
        let (segment, first) = (task / blocks, task % blocks * MERGE_WIDTH);
        let (at, width) = (segment * extent.channels + first, MERGE_WIDTH.min(extent.channels - first));
        let partial = &partial[extent.partial(segment, 0)..extent.partial(segment + 1, 0)];
        // SAFETY: each task owns its channels.
        let (mean, variance) = unsafe { (mean.slice(at, width), variance.slice(at, width)) };
        merge_chunks(partial, extent.rows, extent.channels, first, mean, variance);
    });
}

/// Two sums of each chunk and channel: `dy * (x - mean) * rstd` and `dy`, mean and rstd being the first figures.
fn channel_sums<T: Float>(pool: &Pool, x: &[T], dy: &[T], extent: Extent, figures: &[T], partial: &mut [T]) {
    assert_eq!([x.len(), dy.len()], [extent.total(); 2], "x and dy differ in length");
    let out = SharedSlice::new(partial);
    extent.for_chunks(pool, &|segment, chunk| {
        let (start, len) = extent.chunk(segment, chunk);
        // SAFETY: each chunk owns its figures.
        let out = unsafe { out.slice(extent.partial(segment, chunk), 2 * extent.channels) };
        let [mean, rstd, ..] = figures_of(figures, extent, segment);
        sums_rows(&x[start..start + len], &dy[start..start + len], mean, rstd, out);
    });
}

/// `y = (x - f0) * f1 + f2` with the figures `f` of each channel.
fn normalise<T: Float>(pool: &Pool, x: Source<'_, T>, extent: Extent, y: &mut [T], figures: &[T]) {
    x.check_len(y.len());
    let out = SharedSlice::new(y);
    extent.for_chunks(pool, &|segment, chunk| {
        let (start, len) = extent.chunk(segment, chunk);
        let [mean, slope, offset, _] = figures_of(figures, extent, segment);
        // SAFETY: each chunk owns its rows.
        normalise_rows(x.part(start, len), [mean, slope, offset], unsafe { out.slice(start, len) });
    });
}

/// `dx = dy * f1 - f2 - (x - f0) * f3` with the figures `f` of each channel.
fn gradient<T: Float>(pool: &Pool, x: &[T], dy: Source<'_, T>, extent: Extent, dx: &mut [T], figures: &[T]) {
    assert_eq!(x.len(), dx.len(), "x and dx differ in length");
    let out = SharedSlice::new(dx);
    extent.for_chunks(pool, &|segment, chunk| {
        let (start, len) = extent.chunk(segment, chunk);
        // SAFETY: each chunk owns its rows.
        let dx = unsafe { out.slice(start, len) };
        gradient_rows(&x[start..start + len], dy.part(start, len), figures_of(figures, extent, segment), dx);
    });
}

/// Mean and variance of [`batch_stats`] in the plainest way.
pub fn batch_stats_naive(x: &[f64], mean: &mut [f64], variance: &mut [f64]) {
    let channels = mean.len();
    for c in 0..channels {
        let column = || x.iter().skip(c).step_by(channels);
        let n = column().count() as f64;
        mean[c] = column().sum::<f64>() / n;
        variance[c] = column().map(|x| (x - mean[c]).powi(2)).sum::<f64>() / n;
    }
}

/// [`batch_norm_grad`] in the plainest way.
pub fn batch_norm_grad_naive(
    x: &[f64],
    mean: &[f64],
    variance: &[f64],
    epsilon: f64,
    scale: Option<&[f64]>,
    dy: &[f64],
    dx: &mut [f64],
    dscale: &mut [f64],
    doffset: &mut [f64],
) {
    let channels = mean.len();
    let n = (x.len() / channels.max(1)) as f64;
    for c in 0..channels {
        let rows = || (c..x.len()).step_by(channels);
        let r = rstd(variance[c], epsilon);
        let normal = |i: usize| (x[i] - mean[c]) * r;
        dscale[c] = rows().map(|i| dy[i] * normal(i)).sum();
        doffset[c] = rows().map(|i| dy[i]).sum();
        for i in rows() {
            let centred = dy[i] - doffset[c] / n - normal(i) * dscale[c] / n;
            dx[i] = parameter(scale, c, 1.0) * r * centred;
        }
    }
}

/// [`group_norm`] in the plainest way.
pub fn group_norm_naive(
    shape: GroupNorm,
    x: &[f64],
    scale: Option<&[f64]>,
    offset: Option<&[f64]>,
    epsilon: f64,
    y: &mut [f64],
    mean: &mut [f64],
    rstd: &mut [f64],
) {
    for group in 0..shape.samples * shape.groups {
        let members = shape.members(group);
        let n = members.len() as f64;
        mean[group] = members.iter().map(|&(i, _)| x[i]).sum::<f64>() / n;
        let variance = members.iter().map(|&(i, _)| (x[i] - mean[group]).powi(2)).sum::<f64>() / n;
        rstd[group] = 1.0 / (variance + epsilon).sqrt();
        for (i, c) in members {
            let n = (x[i] - mean[group]) * rstd[group];
            y[i] = n * parameter(scale, c, 1.0) + parameter(offset, c, 0.0);
        }
    }
}

/// [`group_norm_grad`] in the plainest way, the gradients of scale and offset always given.
pub fn group_norm_grad_naive(
    shape: GroupNorm,
    x: &[f64],
    scale: Option<&[f64]>,
    mean: &[f64],
    rstd: &[f64],
    dy: &[f64],
    dx: &mut [f64],
    dscale: &mut [f64],
    doffset: &mut [f64],
) {
    dscale.fill(0.0);
    doffset.fill(0.0);
    for group in 0..shape.samples * shape.groups {
        let members = shape.members(group);
        let normal = |i: usize| (x[i] - mean[group]) * rstd[group];
        let g = |i: usize, c: usize| dy[i] * parameter(scale, c, 1.0);
        let n = members.len() as f64;
        let mean_g = members.iter().map(|&(i, c)| g(i, c)).sum::<f64>() / n;
        let mean_gn = members.iter().map(|&(i, c)| g(i, c) * normal(i)).sum::<f64>() / n;
        for (i, c) in members {
            dx[i] = rstd[group] * (g(i, c) - mean_g - normal(i) * mean_gn);
            dscale[c] += dy[i] * normal(i);
            doffset[c] += dy[i];
        }
    }
}

#[cfg(test)]
mod tests;
