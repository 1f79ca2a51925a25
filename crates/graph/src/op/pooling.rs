//! Max and average pooling over windows, with their gradients. Global pooling is a reduction.

use super::floats::{self, FloatKernel, float_kernel_answers};
use super::spatial::{expect_image, image_shape, outputs, spatial_axes};
use super::{Backward, Cost, Io, OpAttrs, OpDef, Reference, Types, expect_inputs, find_attr};
use crate::attr::{Attr, AttrValue, Attrs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::split::Split;
use plimsoll_kernels::Pool;
use plimsoll_kernels::gemm::Into;
use plimsoll_kernels::math::Float;
use plimsoll_kernels::pooling::{self, Windows, naive};
use plimsoll_tensor::{Shape, TensorType};

/// The windows of a pooling; the lists have one entry per spatial axis.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolOptions {
    /// Cells of a window.
    pub window: Vec<usize>,
    /// Image cells from one window to the next.
    pub strides: Vec<usize>,
    /// Cells before and behind the image that windows may reach over, in turn; they count for nothing. See
    /// [`Padding`](super::spatial::Padding).
    pub padding: Vec<usize>,
}

impl PoolOptions {
    /// Windows side by side, without padding.
    pub fn new(window: &[usize]) -> PoolOptions {
        PoolOptions { window: window.into(), strides: window.into(), padding: vec![0; 2 * window.len()] }
    }

    fn attrs(&self) -> Attrs {
        vec![
            ("window", self.window.to_attr()),
            ("strides", self.strides.to_attr()),
            ("padding", self.padding.to_attr()),
        ]
    }

    fn parse(attrs: &[(String, Attr)]) -> Result<PoolOptions, String> {
        Ok(PoolOptions {
            window: find_attr(attrs, "window")?,
            strides: find_attr(attrs, "strides")?,
            padding: find_attr(attrs, "padding")?,
        })
    }

    /// The sizes as the kernel sees them, for an image of these spatial sizes.
    fn windows(&self, batch: usize, image: &[usize], channels: usize) -> Result<Windows, String> {
        let rank = image.len();
        if self.window.len() != rank {
            return Err(format!("windows with {} spatial axes, an image with {rank}", self.window.len()));
        }
        let axes = spatial_axes(image, &self.window, &self.strides, &self.padding, &[1; 3][..rank])?;
        for i in 0..rank {
            let most = self.padding[2 * i].max(self.padding[2 * i + 1]);
            if most >= self.window[i] || image[i] == 0 {
                return Err(format!(
                    "on spatial axis {i} a window of {} cells can miss the image: padding {most}, image {}",
                    self.window[i], image[i]
                ));
            }
        }
        Ok(Windows { batch, channels, axes })
    }

    /// The windows over an image.
    fn over(&self, x: &TensorType) -> Result<Windows, String> {
        let rank = expect_image(x)?;
        self.windows(x.shape[0], &x.dims()[1..=rank], x.shape[rank + 1])
    }
}

fn output_type(windows: &Windows, x: &TensorType) -> TensorType {
    let rank = x.shape.rank() - 2;
    let spatial = outputs(&windows.axes, rank);
    TensorType::new(x.dtype, image_shape(windows.batch, &spatial[..rank], windows.channels))
}

/// One of the four kernels on the sizes of a call.
struct Kernel {
    which: Which,
    windows: Windows,
}

#[derive(Clone, Copy)]
enum Which {
    Max,
    MaxGrad,
    Average,
    AverageGrad,
}

impl FloatKernel for Kernel {
    fn flops(&self) -> usize {
        self.windows.output_len() * self.windows.axes.iter().map(|a| a.kernel).product::<usize>()
    }

    fn scratch<T: Float>(&self, _: usize) -> usize {
        0
    }

    fn run<T: Float>(&self, pool: &Pool, [a, b]: [&[T]; 2], output: &mut [T], _: Into, _: &mut [T]) {
        match self.which {
            Which::Max => pooling::max(pool, &self.windows, a, output),
            Which::MaxGrad => pooling::max_grad(pool, &self.windows, a, b, output),
            Which::Average => pooling::average(pool, &self.windows, a, output),
            Which::AverageGrad => pooling::average_grad(pool, &self.windows, a, output),
        }
    }

    fn run_naive(&self, [a, b]: [&[f64]; 2], output: &mut [f64]) {
        match self.which {
            Which::Max => naive::max_naive(&self.windows, a, output),
            Which::MaxGrad => naive::max_grad_naive(&self.windows, a, b, output),
            Which::Average => naive::average_naive(&self.windows, a, output),
            Which::AverageGrad => naive::average_grad_naive(&self.windows, a, output),
        }
    }
}

/// Windows see one sample and one channel.
fn split_like_image(inputs: &[Split], ty: &TensorType) -> Vec<Split> {
    let last = ty.shape.rank() - 1;
    let own = |s: &Split| matches!(s, Split::Axis(a) if *a == 0 || *a == last);
    vec![match inputs.iter().all(|s| *s == inputs[0]) && (inputs[0] == Split::Whole || own(&inputs[0])) {
        true => inputs[0],
        false => Split::Mixed,
    }]
}

/// The largest cell of every window.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxPool {
    /// The windows.
    pub options: PoolOptions,
}

/// The gradient of [`MaxPool`] from its image and the output's gradient: the first of a window's largest cells gets it. Nothing
/// but the image is kept for it.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxPoolGrad {
    /// The windows.
    pub options: PoolOptions,
}

/// The mean of every window's cells inside the image.
#[derive(Clone, Debug, PartialEq)]
pub struct AvgPool {
    /// The windows.
    pub options: PoolOptions,
}

/// The gradient of [`AvgPool`] from the output's gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct AvgPoolGrad {
    /// The windows.
    pub options: PoolOptions,
    /// The spatial sizes of the image.
    pub image: Vec<usize>,
}

macro_rules! options_alone {
    ($op:ident = $name:literal) => {
        impl OpAttrs for $op {
            fn attrs(&self) -> Attrs {
                self.options.attrs()
            }

            fn parse(name: &str, attrs: &[(String, Attr)]) -> Option<Result<$op, String>> {
                (name == $name).then(|| Ok($op { options: PoolOptions::parse(attrs)? }))
            }
        }
    };
}

options_alone!(MaxPool = "max_pool");
options_alone!(MaxPoolGrad = "max_pool_grad");
options_alone!(AvgPool = "avg_pool");

impl OpDef for MaxPool {
    fn name(&self) -> &'static str {
        "max_pool"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![output_type(&self.kernel(inputs)?.windows, &inputs[0])])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, x) = (b.dy(), b.inputs[0]);
        Ok(vec![Some(b.graph.push1(MaxPoolGrad { options: self.options.clone() }, &[x, dy])?)])
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        split_like_image(inputs, &types.inputs[0])
    }

    float_kernel_answers!();
}

impl MaxPool {
    fn kernel(&self, inputs: &[TensorType]) -> Result<Kernel, String> {
        expect_inputs(inputs, 1)?;
        Ok(Kernel { which: Which::Max, windows: self.options.over(&inputs[0])? })
    }
}

impl OpDef for MaxPoolGrad {
    fn name(&self) -> &'static str {
        "max_pool_grad"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        self.kernel(inputs)?;
        Ok(vec![inputs[0]])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (layer, op) = (b.graph.layer().to_owned(), "max_pool_grad");
        let message = "second derivatives through max pooling are not available; average pooling has them".into();
        Err(GraphError::NoGradient { layer, op, message })
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        split_like_image(inputs, &types.inputs[0])
    }

    float_kernel_answers!();
}

impl MaxPoolGrad {
    fn kernel(&self, inputs: &[TensorType]) -> Result<Kernel, String> {
        expect_inputs(inputs, 2)?;
        let windows = self.options.over(&inputs[0])?;
        let output = output_type(&windows, &inputs[0]);
        if inputs[1] != output {
            return Err(format!("an image {} gives an output {output}, the gradient is {}", inputs[0], inputs[1]));
        }
        Ok(Kernel { which: Which::MaxGrad, windows })
    }
}

impl OpDef for AvgPool {
    fn name(&self) -> &'static str {
        "avg_pool"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        Ok(vec![output_type(&self.kernel(inputs)?.windows, &inputs[0])])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let (dy, shape) = (b.dy(), b.graph.shape(b.inputs[0]));
        let image = shape.dims()[1..shape.rank() - 1].to_vec();
        Ok(vec![Some(b.graph.push1(AvgPoolGrad { options: self.options.clone(), image }, &[dy])?)])
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        if inputs[0] == Split::Partial { vec![Split::Partial] } else { split_like_image(inputs, &types.inputs[0]) }
    }

    float_kernel_answers!();
}

impl AvgPool {
    fn kernel(&self, inputs: &[TensorType]) -> Result<Kernel, String> {
        expect_inputs(inputs, 1)?;
        Ok(Kernel { which: Which::Average, windows: self.options.over(&inputs[0])? })
    }
}

impl OpAttrs for AvgPoolGrad {
    fn attrs(&self) -> Attrs {
        [self.options.attrs(), vec![("image", self.image.to_attr())]].concat()
    }

    fn parse(name: &str, attrs: &[(String, Attr)]) -> Option<Result<AvgPoolGrad, String>> {
        let read = || Ok(AvgPoolGrad { options: PoolOptions::parse(attrs)?, image: find_attr(attrs, "image")? });
        (name == "avg_pool_grad").then(read)
    }
}

impl OpDef for AvgPoolGrad {
    fn name(&self) -> &'static str {
        "avg_pool_grad"
    }

    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String> {
        let windows = self.kernel(inputs)?.windows;
        Ok(vec![TensorType::new(inputs[0].dtype, image_shape(windows.batch, &self.image, windows.channels))])
    }

    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError> {
        let dx = b.dy();
        Ok(vec![Some(b.graph.avg_pool(dx, &self.options)?)])
    }

    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        if inputs[0] == Split::Partial { vec![Split::Partial] } else { split_like_image(inputs, &types.inputs[0]) }
    }

    float_kernel_answers!();
}

impl AvgPoolGrad {
    fn kernel(&self, inputs: &[TensorType]) -> Result<Kernel, String> {
        expect_inputs(inputs, 1)?;
        let dy = &inputs[0];
        let rank = expect_image(dy)?;
        if self.image.len() != rank {
            return Err(format!("an image with {} spatial axes, a gradient with {rank}", self.image.len()));
        }
        let windows = self.options.windows(dy.shape[0], &self.image, dy.shape[rank + 1])?;
        let (given, outputs) = (&dy.dims()[1..=rank], outputs(&windows.axes, rank));
        if given != &outputs[..rank] {
            let (image, outputs, given) = (Shape::new(&self.image), Shape::new(&outputs[..rank]), Shape::new(given));
            return Err(format!("an image of {image} cells gives an output of {outputs}, the gradient has {given}"));
        }
        Ok(Kernel { which: Which::AverageGrad, windows })
    }
}

impl Graph {
    /// The largest cell of every window of the image `x`.
    ///
    /// # Errors
    /// When the windows do not fit the image.
    pub fn max_pool(&mut self, x: Value, options: &PoolOptions) -> Result<Value, GraphError> {
        self.push1(MaxPool { options: options.clone() }, &[x])
    }

    /// The mean of every window of the image `x`; cells outside the image are not counted.
    ///
    /// # Errors
    /// When the windows do not fit the image.
    pub fn avg_pool(&mut self, x: Value, options: &PoolOptions) -> Result<Value, GraphError> {
        self.push1(AvgPool { options: options.clone() }, &[x])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::check::{check_on, check_op, check_rejects, check_values, random};
    use plimsoll_tensor::DType;

    fn options(window: &[usize], strides: &[usize], padding: &[usize]) -> PoolOptions {
        PoolOptions { window: window.into(), strides: strides.into(), padding: padding.into() }
    }

    #[track_caller]
    fn check_all(options: PoolOptions, x: &[usize]) {
        check_op(MaxPool { options: options.clone() }, &[x]);
        check_op(AvgPool { options: options.clone() }, &[x]);
        let y = MaxPool { options: options.clone() }.infer(&[TensorType::new(DType::F32, x)]).unwrap()[0].shape;
        let image = x[1..x.len() - 1].to_vec();
        check_op(AvgPoolGrad { options: options.clone(), image }, &[y.dims()]);
        let inputs = [random(DType::F64, x, 0), random(DType::F64, y.dims(), 1)];
        check_on(MaxPoolGrad { options }, &inputs, false);
    }

    #[test]
    fn one_to_three_axes() {
        check_all(PoolOptions::new(&[2]), &[2, 6, 3]);
        check_all(PoolOptions::new(&[2, 2]), &[2, 4, 6, 4]);
        check_all(options(&[3, 2], &[2, 1], &[1, 1, 0, 1]), &[2, 5, 4, 17]);
        check_all(options(&[2, 2, 3], &[2, 1, 2], &[0, 0, 1, 0, 1, 1]), &[1, 4, 3, 5, 2]);
    }

    #[test]
    fn half_precision_and_no_samples() {
        check_values(MaxPool { options: PoolOptions::new(&[2]) }, &[(DType::F16, &[2, 4, 3])]);
        check_values(AvgPool { options: PoolOptions::new(&[2]) }, &[(DType::BF16, &[2, 4, 3])]);
        check_all(PoolOptions::new(&[2]), &[0, 4, 3]);
    }

    #[test]
    fn windows_must_fit() {
        let max = |o: PoolOptions| MaxPool { options: o };
        let message = "on spatial axis 0 the window reaches over 5 cells, the padded image has 4";
        check_rejects(max(PoolOptions::new(&[5])), &[&[1, 4, 2]], message);
        let message = "on spatial axis 1 a window of 2 cells can miss the image: padding 2, image 4";
        check_rejects(max(options(&[2, 2], &[1, 1], &[0, 0, 1, 2])), &[&[1, 4, 4, 2]], message);
        check_rejects(max(PoolOptions::new(&[2])), &[&[1, 4, 4, 2]], "windows with 1 spatial axes, an image with 2");
        let grad = AvgPoolGrad { options: PoolOptions::new(&[2]), image: vec![6] };
        check_rejects(grad, &[&[1, 4, 2]], "an image of [6] cells gives an output of [3], the gradient has [4]");
        let grad = MaxPoolGrad { options: PoolOptions::new(&[2]) };
        let message = "an image f32[1,6,2] gives an output f32[1,3,2], the gradient is f32[1,4,2]";
        check_rejects(grad, &[&[1, 6, 2], &[1, 4, 2]], message);
    }
}
