//! Convolution, its two gradients, and the transposed convolution.
//!
//! Images are `[batch, spatial.., channels]` with one to three spatial axes, filters `[spatial.., in_channels / groups,
//! out_channels]`. A convolution is linear in the image and in the filter, so the three ops are each other's gradients,
//! and derivatives of any order exist.

use super::floats::{self, FloatKernel, float_kernel_answers};
use super::spatial::{expect_image, image_shape, outputs, spatial_axes};
use super::{Backward, Cost, Exact, Io, OpAttrs, OpDef, Reference, Types, expect_inputs, find_attr};
use crate::attr::{Attr, AttrValue, Attrs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::split::Split;
use plimsoll_kernels::Pool;
use plimsoll_kernels::conv::{self, Geometry, naive};
use plimsoll_kernels::gemm::{Into, Packing};
use plimsoll_kernels::math::Float;
use plimsoll_tensor::{DType, Shape, TensorType};

/// What is fixed about a convolution besides the sizes of image and filter; the lists have one entry per spatial axis.
///
/// ```
/// use plimsoll_graph::op::{conv::ConvOptions, spatial::Padding};
/// // A 3x3 filter over 32x32 cells that keeps the size.
/// let padding = Padding::Same.cells(&[32, 32], &[3, 3], &[1, 1], &[1, 1]);
/// assert_eq!(padding, [1, 1, 1, 1]);
/// let options = ConvOptions { padding, ..ConvOptions::new(2) };
/// assert_eq!(options.strides, [1, 1]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ConvOptions {
    /// Image cells from one output to the next.
    pub strides: Vec<usize>,
    /// Zeros before and behind the image, in turn: `[before, behind, before, behind, ..]`.
    pub padding: Vec<usize>,
    /// Image cells from one filter cell to the next.
    pub dilations: Vec<usize>,
    /// Groups of channels that do not see each other; as many as channels for a depthwise convolution.
    pub groups: usize,
}

impl ConvOptions {
    /// Strides and dilations of 1, no padding, one group.
    pub fn new(spatial_axes: usize) -> ConvOptions {
        ConvOptions {
            strides: vec![1; spatial_axes],
            padding: vec![0; 2 * spatial_axes],
            dilations: vec![1; spatial_axes],
            groups: 1,
        }
    }

    fn attrs(&self) -> Attrs {
        vec![
            ("strides", self.strides.to_attr()),
            ("padding", self.padding.to_attr()),
            ("dilations", self.dilations.to_attr()),
            ("groups", self.groups.to_attr()),
        ]
    }

    fn parse(attrs: &[(String, Attr)]) -> Result<ConvOptions, String> {
        Ok(ConvOptions {
            strides: find_attr(attrs, "strides")?,
            padding: find_attr(attrs, "padding")?,
            dilations: find_attr(attrs, "dilations")?,
            groups: find_attr(attrs, "groups")?,
        })
    }

    /// The sizes as the kernel sees them, for an image of these spatial sizes.
    fn geometry(&self, batch: usize, image: &[usize], in_channels: usize, filter: &Shape) -> Result<Geometry, String> {
        let rank = image.len();
        let (kernel, [group_in, out_channels]) = (&filter.dims()[..rank], [filter[rank], filter[rank + 1]]);
        let groups = self.groups;
        if groups == 0 || out_channels % groups != 0 {
            return Err(format!("{out_channels} output channels cannot be shared by {groups} groups"));
        }
        if in_channels != group_in * groups {
            let per_group = if groups == 1 { String::new() } else { format!(" in each of {groups} groups") };
            return Err(format!("the image has {in_channels} channels, the filter takes {group_in}{per_group}"));
        }
        let axes = spatial_axes(image, kernel, &self.strides, &self.padding, &self.dilations)?;
        Ok(Geometry { batch, in_channels, out_channels, groups, axes })
    }
}

/// Two operands of the same floating-point type and number of axes.
fn expect_pair(inputs: &[TensorType]) -> Result<usize, String> {
    expect_inputs(inputs, 2)?;
    if inputs[0].dtype != inputs[1].dtype {
        return Err(format!("takes operands of one type, got {} and {}", inputs[0].dtype, inputs[1].dtype));
    }
    if inputs[0].shape.rank() != inputs[1].shape.rank() {
        return Err(format!("numbers of axes differ: {} and {}", inputs[0].shape, inputs[1].shape));
    }
    expect_image(&inputs[0])
}

/// Convolution of an image with a filter.
///
/// `y[n, o, c] = sum over k, i of x[n, o * stride + k * dilation - padding, i] * filter[k, i, c]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv {
    /// Strides, padding, dilations, groups.
    pub options: ConvOptions,
}

/// The gradient of [`Conv`] with respect to the image, from the filter and the output's gradient; by itself, the transposed
/// convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvGradInput {
    /// Those of the convolution.
    pub options: ConvOptions,
    /// The spatial sizes of the image.
    pub image: Vec<usize>,
}

/// The gradient of [`Conv`] with respect to the filter, from the image and the output's gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct ConvGradFilter {
    /// Those of the convolution.
    pub options: ConvOptions,
    /// The spatial sizes of the filter.
    pub kernel: Vec<usize>,
}

/// One of the three kernels on the sizes of a call.
struct Kernel {
    which: Which,
    sizes: Geometry,
}

#[derive(Clone, Copy)]
enum Which {
    Forward,
    GradInput,
    GradFilter,
}

impl FloatKernel for Kernel {
    fn flops(&self) -> usize {
        self.sizes.flops()
    }

    fn scratch<T: Float>(&self, threads: usize) -> usize {
        match self.which {
            Which::Forward => conv::forward_scratch::<T>(&self.sizes, threads),
            Which::GradInput => conv::grad_input_scratch::<T>(&self.sizes, threads),
            Which::GradFilter => conv::grad_filter_scratch::<T>(&self.sizes, threads),
        }
    }

    fn run<T: Float>(&self, pool: &Pool, [a, b]: [&[T]; 2], output: &mut [T], into: Into, scratch: &mut [T]) {
        match self.which {
            Which::Forward => conv::forward(pool, &self.sizes, a, b, output, scratch),
            Which::GradInput => conv::grad_input(pool, &self.sizes, a, b, output, scratch),
            Which::GradFilter => conv::grad_filter(pool, &self.sizes, a, b, output, into, scratch),
        }
    }

    fn run_naive(&self, [a, b]: [&[f64]; 2], output: &mut [f64]) {
        match self.which {
            Which::Forward => naive::forward_naive(&self.sizes, a, b, output),
            Which::GradInput => naive::grad_input_naive(&self.sizes, a, b, output),
            Which::GradFilter => naive::grad_filter_naive(&self.sizes, a, b, output),
        }
    }
}

impl Conv {
    fn kernel(&self, inputs: &[TensorType]) -> Result<Kernel, String> {
        let rank = expect_pair(inputs)?;
        let (x, filter) = (&inputs[0], &inputs[1]);
        let sizes = self.options.geometry(x.shape[0], &x.dims()[1..=rank], x.shape[rank + 1], &filter.shape)?;
        Ok(Kernel { which: Which::Forward, sizes })
    }
}

impl OpAttrs for Conv {
    fn attrs(&self) -> Attrs {
        self.options.attrs()
    }

    fn parse(name: &str, attrs: &[(String, Attr)]) -> Option<Result<Conv, String>> {
        (name == "conv").then(|| Ok(Conv { options: ConvOptions::parse(attrs)? }))
    }
}

impl OpDef for Conv {
    fn name(&self) -> &'static str {
        "conv"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let sizes = self.kernel(inputs)?.sizes;
        let rank = inputs[0].shape.rank() - 2;
        let shape = image_shape(sizes.batch, &outputs(&sizes.axes, rank)[..rank], sizes.out_channels);
        Ok(vec![TensorType::new(inputs[0].dtype, shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, x, filter) = (b.dy(), b.inputs[0], b.inputs[1]);
        // The filter's gradient first: it is the last reader of the image.
        let dfilter = b.wanted[1].then(|| b.graph.conv_grad_filter(x, dy, filter, &self.options)).transpose()?;
        let dx = b.wanted[0].then(|| b.graph.conv_grad_input(filter, dy, x, &self.options)).transpose()?;
        Ok(vec![dx, dfilter])
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let last = types.inputs[0].shape.rank() - 1;
        vec![match (inputs[0], inputs[1]) {
            (Split::Whole, Split::Whole) => Split::Whole,
            (Split::Partial, Split::Whole) | (Split::Whole, Split::Partial) => Split::Partial,
            (Split::Axis(0), Split::Whole) => Split::Axis(0),
            (Split::Whole, Split::Axis(a)) if a == last && self.options.groups == 1 => Split::Axis(last),
            _ => Split::Mixed,
        }]
    }

    fn exact_part(&self, inputs: &[Split], _: &Types<'_>, _: usize) -> Exact {
        // Samples are computed by themselves; the number of channels decides how.
        Exact::all(inputs[1] == Split::Whole)
    }

    float_kernel_answers!();
}

impl ConvGradInput {
    fn kernel(&self, inputs: &[TensorType]) -> Result<Kernel, String> {
        let rank = expect_pair(inputs)?;
        let (filter, dy) = (&inputs[0], &inputs[1]);
        if self.image.len() != rank {
            return Err(format!("an image with {} spatial axes, a filter with {rank}", self.image.len()));
        }
        let in_channels = filter.shape[rank].saturating_mul(self.options.groups);
        let sizes = self.options.geometry(dy.shape[0], &self.image, in_channels, &filter.shape)?;
        expect_outputs(&sizes, rank, &self.image, dy)?;
        Ok(Kernel { which: Which::GradInput, sizes })
    }
}

/// Checks that the output's gradient has the sizes of the output.
fn expect_outputs(sizes: &Geometry, rank: usize, image: &[usize], dy: &TensorType) -> Result<(), String> {
    let (given, outputs) = (&dy.dims()[1..=rank], outputs(&sizes.axes, rank));
    if given != &outputs[..rank] {
        let (image, outputs, given) = (Shape::new(image), Shape::new(&outputs[..rank]), Shape::new(given));
        return Err(format!("an image of {image} cells gives an output of {outputs}, the gradient has {given}"));
    }
    if dy.shape[rank + 1] != sizes.out_channels {
        return Err(format!(
            "the filter gives {} channels, the gradient has {}",
            sizes.out_channels,
            dy.shape[rank + 1]
        ));
    }
    Ok(())
}

impl OpAttrs for ConvGradInput {
    fn attrs(&self) -> Attrs {
        [self.options.attrs(), vec![("image", self.image.to_attr())]].concat()
    }

    fn parse(name: &str, attrs: &[(String, Attr)]) -> Option<Result<ConvGradInput, String>> {
        let read = || Ok(ConvGradInput { options: ConvOptions::parse(attrs)?, image: find_attr(attrs, "image")? });
        (name == "conv_grad_input").then(read)
    }
}

impl OpDef for ConvGradInput {
    fn name(&self) -> &'static str {
        "conv_grad_input"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let sizes = self.kernel(inputs)?.sizes;
        let shape = image_shape(sizes.batch, &self.image, sizes.in_channels);
        Ok(vec![TensorType::new(inputs[0].dtype, shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dx, filter, dy) = (b.dy(), b.inputs[0], b.inputs[1]);
        let dfilter = b.wanted[0].then(|| b.graph.conv_grad_filter(dx, dy, filter, &self.options)).transpose()?;
        let ddy = b.wanted[1].then(|| b.graph.conv(dx, filter, &self.options)).transpose()?;
        Ok(vec![dfilter, ddy])
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let last = types.inputs[0].shape.rank() - 1;
        let one_group = self.options.groups == 1;
        vec![match (inputs[0], inputs[1]) {
            (Split::Whole, Split::Whole) => Split::Whole,
            (Split::Partial, Split::Whole) | (Split::Whole, Split::Partial) => Split::Partial,
            (Split::Whole, Split::Axis(0)) => Split::Axis(0),
            (Split::Axis(a), Split::Whole) if a == last - 1 && one_group => Split::Axis(last),
            (Split::Axis(a), Split::Axis(c)) if a == last && c == last && one_group => Split::Partial,
            _ => Split::Mixed,
        }]
    }

    fn exact_part(&self, inputs: &[Split], _: &Types<'_>, _: usize) -> Exact {
        // As for the convolution.
        Exact::all(inputs[0] == Split::Whole)
    }

    float_kernel_answers!();
}

impl ConvGradFilter {
    fn kernel(&self, inputs: &[TensorType]) -> Result<Kernel, String> {
        let rank = expect_pair(inputs)?;
        let (x, dy) = (&inputs[0], &inputs[1]);
        let (in_channels, groups) = (x.shape[rank + 1], self.options.groups);
        if self.kernel.len() != rank {
            return Err(format!("a filter with {} spatial axes, an image with {rank}", self.kernel.len()));
        }
        if groups == 0 || in_channels % groups != 0 {
            return Err(format!("{in_channels} image channels cannot be shared by {groups} groups"));
        }
        if x.shape[0] != dy.shape[0] {
            return Err(format!("{} images, but gradients of {} outputs", x.shape[0], dy.shape[0]));
        }
        let filter = self.filter(in_channels / groups, dy.shape[rank + 1]);
        let image = &x.dims()[1..=rank];
        let sizes = self.options.geometry(x.shape[0], image, in_channels, &filter)?;
        expect_outputs(&sizes, rank, image, dy)?;
        Ok(Kernel { which: Which::GradFilter, sizes })
    }

    fn filter(&self, group_in: usize, out_channels: usize) -> Shape {
        let mut dims = [0; 5];
        let rank = self.kernel.len();
        dims[..rank].copy_from_slice(&self.kernel);
        dims[rank..rank + 2].copy_from_slice(&[group_in, out_channels]);
        Shape::new(&dims[..rank + 2])
    }
}

impl OpAttrs for ConvGradFilter {
    fn attrs(&self) -> Attrs {
        [self.options.attrs(), vec![("kernel", self.kernel.to_attr())]].concat()
    }

    fn parse(name: &str, attrs: &[(String, Attr)]) -> Option<Result<ConvGradFilter, String>> {
        let read = || Ok(ConvGradFilter { options: ConvOptions::parse(attrs)?, kernel: find_attr(attrs, "kernel")? });
        (name == "conv_grad_filter").then(read)
    }
}

impl OpDef for ConvGradFilter {
    fn name(&self) -> &'static str {
        "conv_grad_filter"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let sizes = self.kernel(inputs)?.sizes;
        let shape = self.filter(sizes.in_channels / sizes.groups, sizes.out_channels);
        Ok(vec![TensorType::new(inputs[0].dtype, shape)])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dfilter, x, dy) = (b.dy(), b.inputs[0], b.inputs[1]);
        let dx = b.wanted[0].then(|| b.graph.conv_grad_input(dfilter, dy, x, &self.options)).transpose()?;
        let ddy = b.wanted[1].then(|| b.graph.conv(x, dfilter, &self.options)).transpose()?;
        Ok(vec![dx, ddy])
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let last = types.inputs[0].shape.rank() - 1;
        let one_group = self.options.groups == 1;
        vec![match (inputs[0], inputs[1]) {
            (Split::Whole, Split::Whole) => Split::Whole,
            (Split::Partial, Split::Whole) | (Split::Whole, Split::Partial) => Split::Partial,
            (Split::Axis(0), Split::Axis(0)) => Split::Partial,
            (Split::Axis(a), Split::Whole) if a == last && one_group => Split::Axis(last - 1),
            (Split::Whole, Split::Axis(a)) if a == last && one_group => Split::Axis(last),
            _ => Split::Mixed,
        }]
    }

    fn packing(&self, types: &Types<'_>) -> Packing {
        let sizes = self.kernel(types.inputs).expect("checked by `infer`").sizes;
        match types.inputs[0].dtype {
            DType::F64 => conv::grad_filter_packing::<f64>(&sizes),
            _ => conv::grad_filter_packing::<f32>(&sizes),
        }
    }

    fn exact_part(&self, inputs: &[Split], types: &Types<'_>, _: usize) -> Exact {
        // Half precision is rounded after each slice; channels as for the convolution.
        let exact = matches!(types.outputs[0].dtype, DType::F32 | DType::F64);
        match inputs {
            [Split::Axis(0), Split::Axis(0)] if exact => {
                Exact::multiples(conv::chunk_samples(&self.kernel(types.inputs).expect("checked by `infer`").sizes))
            }
            _ => Exact::all(inputs.iter().all(|s| *s == Split::Whole)),
        }
    }

    fn adds(&self) -> bool {
        true
    }

    float_kernel_answers!();
}

impl Graph {
    /// Convolution of the image `x` with a filter.
    ///
    /// # Errors
    /// When sizes, channels or types disagree, or the filter is larger than the padded image.
    pub fn conv(&mut self, x: Value, filter: Value, options: &ConvOptions) -> Result<Value, GraphError> {
        self.push1(Conv { options: options.clone() }, &[x, filter])
    }

    /// Transposed convolution: the image of these spatial sizes whose convolution has the gradient `x`. `filter` is that
    /// of the convolution, `[spatial.., image channels / groups, channels of x]`.
    ///
    /// # Errors
    /// When a convolution of such an image would not have the sizes of `x`; see
    /// [`Padding::transposed`](super::spatial::Padding::transposed).
    pub fn conv_transpose(
        &mut self,
        x: Value,
        filter: Value,
        options: &ConvOptions,
        image: &[usize],
    ) -> Result<Value, GraphError> {
        self.push1(ConvGradInput { options: options.clone(), image: image.to_vec() }, &[filter, x])
    }

    /// The gradient of a convolution with respect to its image, which is like `x`.
    fn conv_grad_input(
        &mut self,
        filter: Value,
        dy: Value,
        x: Value,
        options: &ConvOptions,
    ) -> Result<Value, GraphError> {
        let shape = self.shape(x);
        self.conv_transpose(dy, filter, options, &shape.dims()[1..shape.rank() - 1])
    }

    /// The gradient of a convolution with respect to its filter.
    fn conv_grad_filter(
        &mut self,
        x: Value,
        dy: Value,
        filter: Value,
        options: &ConvOptions,
    ) -> Result<Value, GraphError> {
        let shape = self.shape(filter);
        let kernel = shape.dims()[..shape.rank() - 2].to_vec();
        self.push1(ConvGradFilter { options: options.clone(), kernel }, &[x, dy])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::{check_op, check_rejects, check_slices, check_values};
    use crate::op::spatial::Padding;
    use plimsoll_tensor::DType;

    fn options(strides: &[usize], padding: &[usize], dilations: &[usize], groups: usize) -> ConvOptions {
        ConvOptions { strides: strides.into(), padding: padding.into(), dilations: dilations.into(), groups }
    }

    /// Checks the convolution and both of its gradients as ops of their own.
    #[track_caller]
    fn check_all(options: ConvOptions, x: &[usize], filter: &[usize]) {
        let types = [x, filter].map(|s| TensorType::new(DType::F32, s));
        let op = Conv { options: options.clone() };
        let y = op.infer(&types).unwrap()[0].shape;
        check_op(op, &[x, filter]);
        let image = x[1..x.len() - 1].to_vec();
        check_op(ConvGradInput { options: options.clone(), image }, &[filter, y.dims()]);
        let kernel = filter[..filter.len() - 2].to_vec();
        check_op(ConvGradFilter { options, kernel }, &[x, y.dims()]);
    }

    #[test]
    fn one_to_three_axes() {
        check_all(options(&[1], &[1, 1], &[1], 1), &[2, 6, 3], &[3, 3, 4]);
        check_all(options(&[1, 2], &[1, 1, 0, 1], &[1, 1], 1), &[2, 4, 5, 2], &[3, 3, 2, 3]);
        check_all(options(&[1, 1, 2], &[0, 1, 1, 0, 0, 0], &[1, 1, 1], 1), &[2, 3, 3, 4, 2], &[2, 2, 2, 2, 2]);
    }

    #[test]
    fn dilations_groups_and_depthwise() {
        check_all(options(&[1, 1], &[2, 2, 2, 2], &[2, 2], 1), &[2, 5, 4, 2], &[3, 3, 2, 2]);
        check_all(options(&[2, 1], &[1, 1, 1, 1], &[1, 1], 2), &[2, 4, 4, 4], &[3, 3, 2, 6]);
        check_all(options(&[1, 1], &[1, 1, 1, 1], &[1, 1], 4), &[2, 4, 5, 4], &[3, 3, 1, 4]);
        check_all(options(&[2, 2], &[0, 0, 0, 0], &[1, 1], 2), &[2, 4, 5, 2], &[2, 2, 1, 4]);
    }

    #[test]
    fn slices_give_the_same_bits() {
        let same = |groups: usize| options(&[1, 1], &[1, 1, 1, 1], &[1, 1], groups);
        // Blocks, grouped and depthwise ones; patches; one cell, of few pixels, of few channels, with a wide filter; a filter
        // that is shared out.
        let cases: [(ConvOptions, &[usize], &[usize]); 9] = [
            (same(1), &[40, 12, 12, 3], &[3, 3, 3, 20]),
            (same(2), &[40, 10, 10, 4], &[3, 3, 2, 6]),
            (same(4), &[40, 9, 9, 4], &[3, 3, 1, 4]),
            (same(1), &[70, 4, 4, 8], &[3, 3, 8, 5]),
            (ConvOptions::new(2), &[70, 3, 3, 5], &[1, 1, 5, 4]),
            (ConvOptions::new(2), &[70, 5, 5, 20], &[1, 1, 20, 2]),
            (ConvOptions::new(2), &[70, 4, 4, 400], &[1, 1, 400, 400]),
            (options(&[2, 2], &[0, 1, 0, 1], &[1, 1], 1), &[70, 8, 8, 6], &[3, 3, 6, 40]),
            (same(1), &[40, 4, 4, 180], &[3, 3, 180, 180]),
        ];
        let (cut, whole) = (Split::Axis(0), Split::Whole);
        for (options, x, filter) in cases {
            let types = [x, filter].map(|s| TensorType::new(DType::F32, s));
            let op = Conv { options: options.clone() };
            let y = op.infer(&types).unwrap()[0].shape;
            check_slices(&op, &[x, filter], &[cut, whole]);
            let image = x[1..x.len() - 1].to_vec();
            let op = ConvGradInput { options: options.clone(), image };
            check_slices(&op, &[filter, y.dims()], &[whole, cut]);
            let kernel = filter[..filter.len() - 2].to_vec();
            check_slices(&ConvGradFilter { options, kernel }, &[x, y.dims()], &[cut, cut]);
        }
    }

    #[test]
    fn pointwise_empty_and_half_precision() {
        check_all(ConvOptions::new(2), &[2, 3, 4, 5], &[1, 1, 5, 4]);
        check_all(ConvOptions::new(1), &[0, 4, 2], &[3, 2, 3]);
        check_all(ConvOptions::new(1), &[2, 4, 2], &[3, 2, 0]);
        check_all(options(&[1], &[2, 1], &[1], 1), &[2, 0, 2], &[2, 2, 3]);
        for dtype in [DType::F16, DType::BF16] {
            let op = Conv { options: options(&[1], &[1, 1], &[1], 1) };
            check_values(op, &[(dtype, &[2, 5, 3]), (dtype, &[3, 3, 2])]);
        }
    }

    #[test]
    fn sizes_must_agree() {
        let conv = |o: ConvOptions| Conv { options: o };
        let plain = ConvOptions::new(2);
        let (x, filter): (&[usize], &[usize]) = (&[1, 4, 4, 6], &[3, 3, 4, 2]);
        check_rejects(conv(plain.clone()), &[x, filter], "the image has 6 channels, the filter takes 4");
        let groups = |groups| conv(ConvOptions { groups, ..plain.clone() });
        check_rejects(groups(2), &[x, filter], "the image has 6 channels, the filter takes 4 in each of 2 groups");
        check_rejects(groups(3), &[x, filter], "2 output channels cannot be shared by 3 groups");
        check_rejects(groups(0), &[x, filter], "2 output channels cannot be shared by 0 groups");
        check_rejects(
            conv(plain.clone()),
            &[&[4, 4], &[3, 3]],
            "takes images [batch, 1 to 3 spatial axes, channels], got 2 axes: [4,4]",
        );
        check_rejects(conv(plain.clone()), &[x, &[3, 4, 2]], "numbers of axes differ: [1,4,4,6] and [3,4,2]");
        let large: &[usize] = &[5, 3, 6, 2];
        check_rejects(
            conv(plain),
            &[x, large],
            "on spatial axis 0 the window reaches over 5 cells, the padded image has 4",
        );
        let short = options(&[1], &[0; 4], &[1, 1], 1);
        check_rejects(conv(short), &[x, &[3, 3, 6, 2]], "strides has 1 entries for 2 spatial axes, takes 2");
        let still = options(&[1, 0], &[0; 4], &[1, 1], 1);
        let message = "stride 0, dilation 1 and kernel size 3 of spatial axis 1 must be at least 1";
        check_rejects(conv(still), &[x, &[3, 3, 6, 2]], message);
        let huge = options(&[1, 1], &[usize::MAX, 0, 0, 0], &[1, 1], 1);
        let message = "padding of 18446744073709551615 is beyond the largest possible, 2147483648";
        check_rejects(conv(huge), &[x, &[3, 3, 6, 2]], message);
    }

    #[test]
    fn gradients_must_fit_the_image() {
        let grad = |image: &[usize]| ConvGradInput { options: ConvOptions::new(1), image: image.into() };
        let message = "an image of [6] cells gives an output of [4], the gradient has [5]";
        check_rejects(grad(&[6]), &[&[3, 2, 4], &[1, 5, 4]], message);
        check_rejects(grad(&[6]), &[&[3, 2, 4], &[1, 4, 3]], "the filter gives 4 channels, the gradient has 3");
        check_rejects(grad(&[6, 6]), &[&[3, 2, 4], &[1, 4, 4]], "an image with 2 spatial axes, a filter with 1");
        let grad = ConvGradFilter { options: ConvOptions::new(1), kernel: vec![3] };
        check_rejects(grad, &[&[2, 6, 2], &[3, 4, 4]], "2 images, but gradients of 3 outputs");
    }

    #[test]
    fn a_transposed_convolution_undoes_the_sizes() {
        for padding in [Padding::Valid, Padding::Same, Padding::Cells(vec![(1, 0)])] {
            for (cells, kernel, stride, dilation) in [(4, 3, 2, 1), (4, 2, 3, 1), (5, 4, 2, 2), (3, 1, 1, 1)] {
                let image = padding.transposed(0, cells, kernel, stride, dilation);
                let mut g = Graph::new();
                let x = g.input("x", TensorType::new(DType::F32, [2, cells, 3]));
                let filter = g.input("filter", TensorType::new(DType::F32, [kernel, 5, 3]));
                let options =
                    options(&[stride], &padding.cells(&[image], &[kernel], &[stride], &[dilation]), &[dilation], 1);
                let y = g.conv_transpose(x, filter, &options, &[image]).unwrap();
                assert_eq!(g.shape(y).dims(), [2, image, 5]);
            }
        }
        // Sizes as Keras gives them for a transposed layer without output padding.
        assert_eq!(Padding::Valid.transposed(0, 4, 3, 2, 1), 9);
        assert_eq!(Padding::Same.transposed(0, 4, 3, 2, 1), 8);
    }
}
