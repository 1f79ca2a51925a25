//! Ops whose kernels exist for f32 and f64: the answers that are the same for all of them.
//!
//! Half precision is widened to f32, computed and rounded once.

use super::{Io, Reference, Types};
use crate::match_float;
use plimsoll_kernels::Pool;
use plimsoll_kernels::gemm::Into;
use plimsoll_kernels::math::Float;
use plimsoll_tensor::{DType, Element, TensorType, bf16, f16};

/// The most inputs such a kernel has.
const INPUTS: usize = 2;

/// A kernel over one or two inputs and one output of one type, on the sizes of a call.
pub(super) trait FloatKernel {
    /// Floating-point operations.
    fn flops(&self) -> usize;
    /// Elements of scratch.
    fn scratch<T: Float>(&self, threads: usize) -> usize;
    /// Runs it; the second input is empty if there is only one. Only a sum over the batch is asked to add.
    fn run<T: Float>(&self, pool: &Pool, inputs: [&[T]; INPUTS], output: &mut [T], into: Into, scratch: &mut [T]);
    /// Its plain definition.
    fn run_naive(&self, inputs: [&[f64]; INPUTS], output: &mut [f64]);
}

/// The answers of an op that has `fn kernel(&self, inputs: &[TensorType]) -> Result<impl FloatKernel, String>`.
macro_rules! float_kernel_answers {
    () => {
        fn cost(&self, types: &Types<'_>) -> Cost {
            let kernel = self.kernel(types.inputs).expect("checked by `infer`");
            Cost { flops: FloatKernel::flops(&kernel) as u64, bytes: types.bytes() }
        }

        fn workspace(&self, types: &Types<'_>, threads: usize) -> usize {
            floats::workspace(&self.kernel(types.inputs).expect("checked by `infer`"), types, threads)
        }

        fn run(&self, io: &Io<'_>) -> Result<(), RunError> {
            let (types, n) = floats::input_types(io);
            floats::run(&self.kernel(&types[..n]).expect("checked by `infer`"), io);
            Ok(())
        }

        fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError> {
            let types: Vec<TensorType> = inputs.iter().map(|r| r.ty).collect();
            Ok(floats::reference(&self.kernel(&types).expect("checked by `infer`"), inputs, outputs[0]))
        }
    };
}
pub(super) use float_kernel_answers;

/// The types of a node's inputs, without a heap: they are the first so many.
pub(super) fn input_types(io: &Io<'_>) -> ([TensorType; INPUTS], usize) {
    let n = io.inputs().len();
    (std::array::from_fn(|i| *io.in_ty(i.min(n - 1))), n)
}

/// The output by the plain definition.
pub(super) fn reference(kernel: &impl FloatKernel, inputs: &[&Reference], output: TensorType) -> Vec<Reference> {
    let mut y = Reference::zeros(output);
    let inputs = std::array::from_fn(|i| inputs.get(i).map_or(&[][..], |r| &r.data[..]));
    kernel.run_naive(inputs, &mut y.data);
    vec![y]
}

/// Elements of a part of the workspace: whole cache lines.
fn room(elements: usize) -> usize {
    elements.next_multiple_of(16)
}

/// Workspace of [`run`] in bytes.
pub(super) fn workspace(kernel: &impl FloatKernel, types: &Types<'_>, threads: usize) -> usize {
    match types.outputs[0].dtype {
        DType::F64 => kernel.scratch::<f64>(threads) * size_of::<f64>(),
        DType::F32 => kernel.scratch::<f32>(threads) * size_of::<f32>(),
        _ => {
            let operands: usize = types.inputs.iter().chain(types.outputs).map(|t| room(t.elements())).sum();
            (operands + kernel.scratch::<f32>(threads)) * size_of::<f32>()
        }
    }
}

/// Runs a kernel on a node's operands.
pub(super) fn run(kernel: &impl FloatKernel, io: &Io<'_>) {
    let n = io.inputs().len();
    match_float!(io.out_ty(0).dtype, T => {
        let inputs = std::array::from_fn(|i| if i < n { io.input::<T>(i) } else { &[] });
        kernel.run(io.pool(), inputs, io.output::<T>(0), io.into(), io.workspace::<T>());
    }, else match io.out_ty(0).dtype {
        DType::F16 => run_half::<f16>(kernel, io),
        _ => run_half::<bf16>(kernel, io),
    });
}

fn run_half<H: Element>(kernel: &impl FloatKernel, io: &Io<'_>) {
    let output = io.output::<H>(0);
    let (wide_output, mut rest) = io.workspace::<f32>().split_at_mut(room(output.len()));
    let mut inputs: [&[f32]; INPUTS] = [&[]; INPUTS];
    for (i, wide) in inputs.iter_mut().enumerate().take(io.inputs().len()) {
        let input = io.input::<H>(i);
        let (to, behind) = rest.split_at_mut(room(input.len()));
        to.iter_mut().zip(input).for_each(|(to, from)| *to = from.to_f64() as f32);
        (*wide, rest) = (&to[..input.len()], behind);
    }
    let wide_output = &mut wide_output[..output.len()];
    if io.into() == Into::Add {
        wide_output.iter_mut().zip(&*output).for_each(|(to, from)| *to = from.to_f64() as f32);
    }
    kernel.run(io.pool(), inputs, wide_output, io.into(), rest);
    output.iter_mut().zip(wide_output).for_each(|(to, from)| *to = H::from_f64(*from as f64));
}
