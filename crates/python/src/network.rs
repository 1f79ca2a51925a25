//! Operations that networks are made of: convolutions, pooling, losses, norms, attention and recurrence.

use crate::operand::{Operand, apply, apply1};
use crate::ops::{Object, dims, list, refs, some, tensors};
use crate::tensor::PyTensor;
use plimsoll_graph::Value;
use plimsoll_graph::op::attention::Attention;
use plimsoll_graph::op::conv::ConvOptions;
use plimsoll_graph::op::pooling::PoolOptions;
use plimsoll_graph::op::rnn::{Cell as Rnn, RecurrentInputs};
use plimsoll_graph::op::spatial::Padding;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// Padding by name or in cells.
#[derive(FromPyObject)]
pub enum Pad {
    /// `same` or `valid`.
    Name(String),
    /// Before and behind, for each axis.
    Cells(Vec<(usize, usize)>),
}

fn padding(pad: Pad) -> PyResult<Padding> {
    match pad {
        Pad::Name(name) if name.eq_ignore_ascii_case("same") => Ok(Padding::Same),
        Pad::Name(name) if name.eq_ignore_ascii_case("valid") => Ok(Padding::Valid),
        Pad::Name(name) => Err(PyValueError::new_err(format!("padding '{name}': it is 'same', 'valid' or a list"))),
        Pad::Cells(cells) => Ok(Padding::Cells(cells)),
    }
}

/// The spatial sizes of an image with channels last and of a filter.
fn spatial(x: &Operand, filter: &Operand) -> PyResult<(Vec<usize>, Vec<usize>)> {
    let (image, kernel) = (dims(x), dims(filter));
    if image.len() < 3 || kernel.len() != image.len() {
        let (a, b) = (image.len(), kernel.len());
        let text = format!(
            "an image with {a} axes and a filter with {b}: [batch, spatial.., channels] and [spatial.., in, out]"
        );
        return Err(PyValueError::new_err(text));
    }
    let n = image.len() - 2;
    Ok((image[1..=n].to_vec(), kernel[..n].to_vec()))
}

/// Convolution, channels last; the filter is `[spatial.., in / groups, out]`.
#[pyfunction(signature = (x, filter, strides=None, padding=Pad::Name("valid".into()), dilations=None, groups=1))]
fn conv(
    py: Python<'_>,
    x: Object<'_>,
    filter: Object<'_>,
    strides: Option<Vec<usize>>,
    padding: Pad,
    dilations: Option<Vec<usize>>,
    groups: usize,
) -> PyResult<PyTensor> {
    let (x, filter) = (Operand::of(&x)?, Operand::of(&filter)?);
    let (image, kernel) = spatial(&x, &filter)?;
    let ones = || vec![1; image.len()];
    let (strides, dilations) = (strides.unwrap_or_else(ones), dilations.unwrap_or_else(ones));
    let padding = self::padding(padding)?.cells(&image, &kernel, &strides, &dilations);
    let options = ConvOptions { strides, padding, dilations, groups };
    apply1(py, &[&x, &filter], |g, v| g.conv(v[0], v[1], &options))
}

/// Transposed convolution: the image whose convolution has the sizes of `x`. The filter is that of the convolution,
/// `[spatial.., image channels / groups, channels of x]`; `output` are the image's spatial sizes.
#[pyfunction(signature = (x, filter, strides=None, padding=Pad::Name("valid".into()), dilations=None, groups=1, output=None))]
fn conv_transpose(
    py: Python<'_>,
    x: Object<'_>,
    filter: Object<'_>,
    strides: Option<Vec<usize>>,
    padding: Pad,
    dilations: Option<Vec<usize>>,
    groups: usize,
    output: Option<Vec<usize>>,
) -> PyResult<PyTensor> {
    let (x, filter) = (Operand::of(&x)?, Operand::of(&filter)?);
    let (cells, kernel) = spatial(&x, &filter)?;
    let ones = || vec![1; cells.len()];
    let (strides, dilations) = (strides.unwrap_or_else(ones), dilations.unwrap_or_else(ones));
    let padding = self::padding(padding)?;
    let n = cells.len();
    if strides.len() != n || dilations.len() != n || output.as_ref().is_some_and(|o| o.len() != n) {
        return Err(PyValueError::new_err(format!("strides, dilations and output have {n} entries")));
    }
    let image = output.unwrap_or_else(|| {
        (0..n).map(|i| padding.transposed(i, cells[i], kernel[i], strides[i], dilations[i])).collect()
    });
    let padding = padding.cells(&image, &kernel, &strides, &dilations);
    let options = ConvOptions { strides, padding, dilations, groups };
    apply1(py, &[&x, &filter], |g, v| g.conv_transpose(v[0], v[1], &options, &image))
}

fn pool_options(x: &Operand, size: Vec<usize>, strides: Option<Vec<usize>>, pad: Pad) -> PyResult<PoolOptions> {
    let image = dims(x);
    if image.len() != size.len() + 2 {
        let text = format!("windows with {} axes over an image {image:?}: [batch, spatial.., channels]", size.len());
        return Err(PyValueError::new_err(text));
    }
    let strides = strides.unwrap_or_else(|| size.clone());
    let cells = padding(pad)?.cells(&image[1..=size.len()], &size, &strides, &vec![1; size.len()]);
    Ok(PoolOptions { window: size, strides, padding: cells })
}

/// The largest cell of each window, channels last.
#[pyfunction(signature = (x, size, strides=None, padding=Pad::Name("valid".into())))]
fn max_pool(
    py: Python<'_>,
    x: Object<'_>,
    size: Vec<usize>,
    strides: Option<Vec<usize>>,
    padding: Pad,
) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let options = pool_options(&x, size, strides, padding)?;
    apply1(py, &[&x], |g, v| g.max_pool(v[0], &options))
}

/// The mean of each window, channels last; padding counts for nothing.
#[pyfunction(signature = (x, size, strides=None, padding=Pad::Name("valid".into())))]
fn avg_pool(
    py: Python<'_>,
    x: Object<'_>,
    size: Vec<usize>,
    strides: Option<Vec<usize>>,
    padding: Pad,
) -> PyResult<PyTensor> {
    let x = Operand::of(&x)?;
    let options = pool_options(&x, size, strides, padding)?;
    apply1(py, &[&x], |g, v| g.avg_pool(v[0], &options))
}

/// The cross-entropy of each row of logits with a label; rows with the label `ignore` have 0.
#[pyfunction(signature = (logits, labels, ignore=None))]
fn sparse_cross_entropy(
    py: Python<'_>,
    logits: Object<'_>,
    labels: Object<'_>,
    ignore: Option<i64>,
) -> PyResult<PyTensor> {
    let (logits, labels) = (Operand::of(&logits)?, Operand::of(&labels)?);
    apply1(py, &[&logits, &labels], |g, v| g.sparse_cross_entropy(v[0], v[1], ignore))
}

/// The cross-entropy of each row of logits with a row of targets.
#[pyfunction]
fn cross_entropy(py: Python<'_>, logits: Object<'_>, targets: Object<'_>) -> PyResult<PyTensor> {
    let (logits, targets) = (Operand::of(&logits)?, Operand::of(&targets)?);
    apply1(py, &[&logits, &targets], |g, v| g.cross_entropy(v[0], v[1]))
}

/// Takes the optional values behind the first, in order.
fn rest(v: &[Value], has: [bool; 2]) -> (Option<Value>, Option<Value>) {
    let scale = has[0].then(|| v[1]);
    let offset = has[1].then(|| v[1 + has[0] as usize]);
    (scale, offset)
}

/// Layer norm over the last axis.
#[pyfunction(signature = (x, scale=None, offset=None, epsilon=1e-3))]
fn layer_norm(
    py: Python<'_>,
    x: Object<'_>,
    scale: Option<Object<'_>>,
    offset: Option<Object<'_>>,
    epsilon: f64,
) -> PyResult<PyTensor> {
    let (x, scale, offset) = (Operand::of(&x)?, some(scale)?, some(offset)?);
    let has = [scale.is_some(), offset.is_some()];
    apply1(py, &refs(&[&x], &[&scale, &offset]), |g, v| {
        let (scale, offset) = rest(v, has);
        g.layer_norm(v[0], scale, offset, epsilon)
    })
}

/// Norm by the root of the mean square over the last axis.
#[pyfunction(signature = (x, scale=None, epsilon=1e-6))]
fn rms_norm(py: Python<'_>, x: Object<'_>, scale: Option<Object<'_>>, epsilon: f64) -> PyResult<PyTensor> {
    let (x, scale) = (Operand::of(&x)?, some(scale)?);
    let has = [scale.is_some(), false];
    apply1(py, &refs(&[&x], &[&scale]), |g, v| g.rms_norm(v[0], rest(v, has).0, epsilon))
}

/// Norm over groups of channels.
#[pyfunction(signature = (x, groups, scale=None, offset=None, epsilon=1e-3))]
fn group_norm(
    py: Python<'_>,
    x: Object<'_>,
    groups: usize,
    scale: Option<Object<'_>>,
    offset: Option<Object<'_>>,
    epsilon: f64,
) -> PyResult<PyTensor> {
    let (x, scale, offset) = (Operand::of(&x)?, some(scale)?, some(offset)?);
    let has = [scale.is_some(), offset.is_some()];
    apply1(py, &refs(&[&x], &[&scale, &offset]), |g, v| {
        let (scale, offset) = rest(v, has);
        g.group_norm(v[0], groups, scale, offset, epsilon)
    })
}

/// Batch norm with the batch's own statistics: the result, and each channel's mean and variance.
#[pyfunction(signature = (x, scale=None, offset=None, epsilon=1e-3))]
fn batch_norm(
    py: Python<'_>,
    x: Object<'_>,
    scale: Option<Object<'_>>,
    offset: Option<Object<'_>>,
    epsilon: f64,
) -> PyResult<Vec<PyTensor>> {
    let (x, scale, offset) = (Operand::of(&x)?, some(scale)?, some(offset)?);
    let has = [scale.is_some(), offset.is_some()];
    let all = apply(py, &refs(&[&x], &[&scale, &offset]), |g, v| {
        let (scale, offset) = rest(v, has);
        g.batch_norm(v[0], scale, offset, epsilon).map(Vec::from)
    })?;
    Ok(tensors(all))
}

/// Mean and variance of each channel (last axis) over all other axes.
#[pyfunction]
fn batch_stats(py: Python<'_>, x: Object<'_>) -> PyResult<Vec<PyTensor>> {
    let x = Operand::of(&x)?;
    Ok(tensors(apply(py, &[&x], |g, v| g.batch_stats(v[0]).map(Vec::from))?))
}

/// Batch norm with the mean and variance of `x` that `batch_stats` has found: the gradient of `x` is by way of them too.
#[pyfunction(signature = (x, mean, variance, scale=None, offset=None, epsilon=1e-3))]
fn batch_norm_with(
    py: Python<'_>,
    x: Object<'_>,
    mean: Object<'_>,
    variance: Object<'_>,
    scale: Option<Object<'_>>,
    offset: Option<Object<'_>>,
    epsilon: f64,
) -> PyResult<PyTensor> {
    let (x, mean, variance) = (Operand::of(&x)?, Operand::of(&mean)?, Operand::of(&variance)?);
    let (scale, offset) = (some(scale)?, some(offset)?);
    let has = [scale.is_some(), offset.is_some()];
    apply1(py, &refs(&[&x, &mean, &variance], &[&scale, &offset]), |g, v| {
        let (scale, offset) = rest(&v[2..], has);
        g.batch_norm_with(v[0], [v[1], v[2]], scale, offset, epsilon)
    })
}

/// Attention of queries `[batch, queries, heads, depth]` to keys and values `[batch, keys, kv_heads, ..]`, without a matrix of
/// scores in memory. The mask is bool (false hides) or added to the scores.
#[pyfunction(signature = (q, k, v, scale=None, causal=false, mask=None, dropout=0.0, key=None))]
fn attention(
    py: Python<'_>,
    q: Object<'_>,
    k: Object<'_>,
    v: Object<'_>,
    scale: Option<f64>,
    causal: bool,
    mask: Option<Object<'_>>,
    dropout: f64,
    key: Option<Object<'_>>,
) -> PyResult<PyTensor> {
    let (q, k, v) = (Operand::of(&q)?, Operand::of(&k)?, Operand::of(&v)?);
    let (mask, key) = (some(mask)?, some(key)?);
    let depth = dims(&q).last().copied().unwrap_or(1);
    if (dropout > 0.0) != key.is_some() {
        return Err(PyTypeError::new_err("dropout takes a key, and a key is for dropout"));
    }
    let op = Attention {
        scale: scale.unwrap_or_else(|| 1.0 / (depth as f64).sqrt()),
        causal,
        packed: false,
        mask: mask.is_some(),
        dropout,
        stream: 0,
        first_sample: 0,
    };
    apply1(py, &refs(&[&q, &k, &v], &[&mask, &key]), |g, v| Ok(g.push(op, v)?[0]))
}

/// A recurrent layer (`lstm`, `gru` or `simple`) from the projections `[batch, steps, gates * units]` of its inputs on: the
/// state after every step, and the last states.
#[pyfunction(signature = (cell, projections, kernel, bias=None, initial=vec![], mask=None, reverse=false, training=true))]
fn recurrence(
    py: Python<'_>,
    cell: &str,
    projections: Object<'_>,
    kernel: Object<'_>,
    bias: Option<Object<'_>>,
    initial: Vec<Object<'_>>,
    mask: Option<Object<'_>>,
    reverse: bool,
    training: bool,
) -> PyResult<(PyTensor, Vec<PyTensor>)> {
    let cell = match cell {
        "lstm" => Rnn::Lstm,
        "gru" => Rnn::Gru,
        "simple" => Rnn::Simple,
        other => return Err(PyValueError::new_err(format!("there is no cell '{other}': lstm, gru or simple"))),
    };
    let (projections, kernel, initial) = (Operand::of(&projections)?, Operand::of(&kernel)?, list(&initial)?);
    let (bias, mask) = (some(bias)?, some(mask)?);
    let mut operands = refs(&[&projections, &kernel], &[&bias]);
    operands.extend(&initial);
    operands.extend(&mask);
    let (has_bias, n_initial, has_mask) = (bias.is_some(), initial.len(), mask.is_some());
    let all = apply(py, &operands, |g, v| {
        let mut rest = v[2..].iter().copied();
        let bias = if has_bias { rest.next() } else { None };
        let initial: Vec<Value> = rest.by_ref().take(n_initial).collect();
        let mask = if has_mask { rest.next() } else { None };
        let inputs = RecurrentInputs { projections: v[0], kernel: v[1], bias, initial, mask, reverse, training };
        let out = g.recurrence(cell, &inputs)?;
        Ok([out.h].into_iter().chain(out.last).collect())
    })?;
    let mut all = tensors(all).into_iter();
    Ok((all.next().expect("the states"), all.collect()))
}

/// Adds the operations to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($name:ident),* $(,)?) => {$( module.add_function(wrap_pyfunction!($name, module)?)?; )*};
    }
    add!(
        conv,
        conv_transpose,
        max_pool,
        avg_pool,
        sparse_cross_entropy,
        cross_entropy,
        layer_norm,
        rms_norm,
        group_norm,
        batch_norm,
        batch_stats,
        batch_norm_with,
        attention,
        recurrence
    );
    Ok(())
}
