//! Ops: what each one is, in one place.
//!
//! [`OpDef`] is every question that the rest of the system asks of an op. A family's file holds its ops' structs, their
//! answers, the builder methods of [`Graph`] and the tests; the list at the end of this file names the ops so that text
//! form can be read. Nothing else in the system knows an op by name.

use crate::attr::{Attr, AttrValue, Attrs};
use crate::error::{GraphError, RunError};
use crate::graph::{Graph, Value};
use crate::split::Split;
use plimsoll_kernels::gemm::{Into, Packing};
use plimsoll_kernels::pointwise::Step;
use plimsoll_kernels::{Pool, Source};
use plimsoll_tensor::{DType, Element, Shape, Tensor, TensorType};
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

#[cfg(test)]
pub(crate) mod check;

pub mod adding;
pub mod attention;
pub mod contraction;
pub mod conv;
pub mod cross_entropy;
mod einsum;
pub mod elementwise;
mod floats;
pub mod gather;
pub mod given;
pub mod norm;
pub mod optimizer;
pub mod pieces;
pub mod pooling;
pub mod reduce;
pub mod rnn;
pub mod scan;
pub mod shape;
pub mod softmax;
pub mod sort;
pub mod spatial;
pub mod spill;
pub mod state;

impl Graph {
    /// What the library for matrix products packs for any node, at most.
    pub fn packing(&self) -> Packing {
        let of_node = |node: &crate::graph::Node| {
            let types = |values: &[Value]| -> Vec<TensorType> { values.iter().map(|&v| *self.ty(v)).collect() };
            let (inputs, outputs) = (types(&node.inputs), types(&node.outputs));
            node.op.packing(&Types { inputs: &inputs, outputs: &outputs })
        };
        self.nodes().map(|(_, node)| of_node(node)).fold(Packing::NONE, Packing::max)
    }
}

/// Everything the system needs to know about an op.
pub trait OpDef: OpAttrs + Debug + Send + Sync + 'static {
    /// The name in text form and messages.
    fn name(&self) -> &'static str;

    /// The types of the outputs, or what is wrong with the inputs' (both facts that disagree).
    ///
    /// # Errors
    /// With a message when the op does not accept such inputs.
    fn infer(&self, inputs: &[TensorType]) -> Result<Vec<TensorType>, String>;

    /// The gradient with respect to each input, as new nodes, given the outputs' gradients.
    ///
    /// Inputs whose gradient is not wanted may get `None`; so may those through which nothing flows.
    ///
    /// # Errors
    /// When the op has no gradient.
    fn gradient(&self, b: &mut Backward<'_>) -> Result<Vec<Option<Value>>, GraphError>;

    /// How the outputs relate to the batch axis when the inputs relate to it like this.
    fn split(&self, inputs: &[Split], types: &Types<'_>) -> Vec<Split> {
        let whole = inputs.iter().all(|s| *s == Split::Whole);
        vec![if whole { Split::Whole } else { Split::Mixed }; types.outputs.len()]
    }

    /// The op that runs on a slice of the batch, when its constants name sizes or places that differ there. `None` when the
    /// op itself will do.
    fn on_part(&self, _slice: &Sliced<'_>) -> Option<Arc<dyn OpDef>> {
        None
    }

    /// The slices that give the same bits as the whole batch: for every `Axis` output put side by side, for every `Partial` output added up
    /// by [`OpDef::adds`].
    ///
    /// Asked only for splits that [`OpDef::split`] allows; `batch` is the number of entries of the whole batch, of which a
    /// split axis has one or a multiple each.
    fn exact_part(&self, _inputs: &[Split], _types: &Types<'_>, _batch: usize) -> Exact {
        Exact::ANY
    }

    /// Whether the kernel can add its `Partial` outputs to what is there, going on with the sum as if it had never
    /// stopped: it then asks [`Io::into`].
    fn adds(&self) -> bool {
        false
    }

    /// What running it takes. By default one operation per output element and all operands' bytes.
    fn cost(&self, types: &Types<'_>) -> Cost {
        Cost { flops: types.outputs.iter().map(|t| t.elements() as u64).sum(), bytes: types.bytes() }
    }

    /// Scratch memory of a run in bytes.
    fn workspace(&self, _types: &Types<'_>, _threads: usize) -> usize {
        0
    }

    /// What the library for matrix products packs for it outside the workspace.
    fn packing(&self, _types: &Types<'_>) -> Packing {
        Packing::NONE
    }

    /// Pairs (input, output): the output *is* the input's memory, changed in place. The input must be a state, a value read
    /// from the spill file, or such an output itself.
    fn mutates(&self) -> &[(usize, usize)] {
        &[]
    }

    /// Whether it may run again to have its outputs again: not what goes on with something that earlier nodes began, which
    /// would all have to run again.
    fn repeats(&self) -> bool {
        self.mutates().is_empty()
    }

    /// Whether the kernel allows `output` to be written over `input`, should that die here.
    fn may_overwrite(&self, _input: usize, _output: usize, _types: &Types<'_>) -> bool {
        false
    }

    /// Whether the output is the first input's bytes, or a part of them, under another shape.
    fn is_view(&self) -> bool {
        false
    }

    /// Whether the outputs are the first inputs and all other inputs matter to the gradient alone: what is planned is without such a node.
    fn passes_on(&self) -> bool {
        false
    }

    /// Where in the input's memory a view begins, in bytes.
    fn view_offset(&self, _types: &Types<'_>) -> usize {
        0
    }

    /// Whether there is something to run: not for views, which are only another name for their input's memory.
    fn runs(&self) -> bool {
        !self.is_view()
    }

    /// What it moves to or from the spill file; `None` for all ops that compute.
    fn transfer(&self) -> Option<spill::Transfer> {
        None
    }

    /// The op as a step of an element-wise program whose registers 0, 1, .. hold the inputs; `None` for other ops.
    /// Element-wise chains are fused.
    fn pointwise(&self) -> Option<Step> {
        None
    }

    /// Runs the kernel.
    ///
    /// # Errors
    /// When the values themselves are at fault (an index out of range, say).
    fn run(&self, io: &Io<'_>) -> Result<(), RunError>;

    /// The plain definition over f64: the twin that the kernel is compared with.
    ///
    /// # Errors
    /// As [`OpDef::run`].
    fn reference(&self, inputs: &[&Reference], outputs: &[TensorType]) -> Result<Vec<Reference>, RunError>;
}

/// An op's constants. Implemented by [`op_attrs!`](crate::op_attrs).
pub trait OpAttrs {
    /// Names and values of the constants, in printing order.
    fn attrs(&self) -> Attrs;

    /// The op from its name and constants; `None` when the name is another's.
    fn parse(name: &str, attrs: &[(String, Attr)]) -> Option<Result<Self, String>>
    where
        Self: Sized;
}

/// The attribute `name`, for [`OpAttrs::parse`].
///
/// # Errors
/// When it is missing or of another kind.
pub fn find_attr<T: AttrValue>(attrs: &[(String, Attr)], name: &str) -> Result<T, String> {
    let (_, attr) = attrs.iter().find(|(n, _)| n == name).ok_or_else(|| format!("attribute '{name}' is missing"))?;
    T::from_attr(attr).ok_or_else(|| format!("attribute '{name}' has the wrong kind of value: {attr:?}"))
}

/// The types of a node's operands.
#[derive(Clone, Copy, Debug)]
pub struct Types<'a> {
    /// Of the inputs.
    pub inputs: &'a [TensorType],
    /// Of the outputs.
    pub outputs: &'a [TensorType],
}

impl Types<'_> {
    /// Bytes of all operands.
    pub fn bytes(&self) -> u64 {
        self.inputs.iter().chain(self.outputs).map(|t| t.bytes() as u64).sum()
    }
}

/// Which slices of a batch give the bits of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// All but the last have a multiple of so many entries; 0 when no slice will do.
    pub multiple: usize,
    /// None has fewer entries, the last one included.
    pub least: usize,
}

impl Exact {
    /// All slices do.
    pub const ANY: Exact = Exact { multiple: 1, least: 1 };
    /// None does.
    pub const NONE: Exact = Exact { multiple: 0, least: 1 };

    /// Slices of multiples of so many entries.
    pub fn multiples(multiple: usize) -> Exact {
        Exact { multiple, least: 1 }
    }

    /// All slices or none.
    pub(crate) fn all(all: bool) -> Exact {
        if all { Exact::ANY } else { Exact::NONE }
    }
}

/// Some entries of the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first entry.
    pub start: usize,
    /// The entry after the last.
    pub end: usize,
    /// The entries of the whole batch.
    pub batch: usize,
}

impl Part {
    /// Where the part lies along a split axis of this size, which holds one entry of the batch after another.
    pub fn along(&self, size: usize) -> Range<usize> {
        let each = size / self.batch;
        self.start * each..self.end * each
    }

    /// The type of a value's part.
    #[must_use]
    pub fn of(&self, ty: &TensorType, split: Split) -> TensorType {
        let mut part = *ty;
        if let Split::Axis(axis) = split {
            part.shape.dims_mut()[axis] = self.along(ty.shape[axis]).len();
        }
        part
    }
}

/// An op on a slice of the batch.
#[derive(Clone, Copy, Debug)]
pub struct Sliced<'a> {
    /// Which slice.
    pub part: Part,
    /// How the inputs relate to the batch.
    pub inputs: &'a [Split],
    /// How the outputs do.
    pub outputs: &'a [Split],
    /// The operands of the whole batch.
    pub types: &'a Types<'a>,
}

impl Sliced<'_> {
    /// The type of output `i` on the slice.
    pub fn output(&self, i: usize) -> TensorType {
        self.part.of(&self.types.outputs[i], self.outputs[i])
    }

    /// The range of the slice along the split axis of output `i`; `None` when it is not split.
    pub fn range(&self, i: usize) -> Option<Range<usize>> {
        match self.outputs[i] {
            Split::Axis(axis) => Some(self.part.along(self.types.outputs[i].shape[axis])),
            _ => None,
        }
    }
}

/// What running an op takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

/// What a gradient rule works with.
pub struct Backward<'a> {
    /// The graph that the gradient is added to.
    pub graph: &'a mut Graph,
    /// The node's inputs.
    pub inputs: &'a [Value],
    /// The node's outputs.
    pub outputs: &'a [Value],
    /// The gradients of the outputs; `None` where nothing flows back.
    pub grads: &'a [Option<Value>],
    /// For each input, whether its gradient is wanted.
    pub wanted: &'a [bool],
}

impl Backward<'_> {
    /// The gradient of the first output.
    ///
    /// # Panics
    /// When there is none; a rule is only asked when some output has one.
    pub fn dy(&self) -> Value {
        self.grads[0].expect("a gradient rule is asked only when a gradient flows back")
    }

    /// The gradients of the same outputs written with other ops: `build` makes them from the inputs.
    ///
    /// For what is asked too rarely to deserve a kernel, such as gradients of gradients.
    ///
    /// # Errors
    /// When `build` fails or one of its ops has no gradient.
    pub fn by_formula(
        &mut self,
        build: impl FnOnce(&mut Graph, &[Value]) -> Result<Vec<Value>, GraphError>,
    ) -> Result<Vec<Option<Value>>, GraphError> {
        // Views of the inputs, so that the walk back ends there and not where an input itself comes from.
        let alias = |&v: &Value| {
            let shape = self.graph.shape(v);
            self.graph.push1(shape::Reshape { shape }, &[v])
        };
        let inputs = self.inputs.iter().map(alias).collect::<Result<Vec<Value>, GraphError>>()?;
        let outputs = build(self.graph, &inputs)?;
        let seeds: Vec<(Value, Value)> =
            outputs.iter().zip(self.grads).filter_map(|(&y, dy)| dy.map(|dy| (y, dy))).collect();
        let of_interest: Vec<Value> = inputs.iter().zip(self.wanted).filter_map(|(&v, w)| w.then_some(v)).collect();
        let mut grads = crate::gradients_from(self.graph, &seeds, &of_interest)?.into_iter();
        Ok(self.wanted.iter().map(|wanted| if *wanted { grads.next().flatten() } else { None }).collect())
    }
}

/// A node's operand at run time: its memory and its type.
#[derive(Clone, Copy, Debug)]
pub struct Operand {
    /// The first byte.
    pub ptr: *mut u8,
    /// Type and shape.
    pub ty: TensorType,
}

/// What a kernel call works with.
pub struct Io<'a> {
    inputs: &'a [Operand],
    outputs: &'a [Operand],
    workspace: *mut u8,
    workspace_bytes: usize,
    pool: &'a Pool,
    into: Into,
    spill: Option<&'a dyn spill::Spill>,
}

impl<'a> Io<'a> {
    /// The operands of one call.
    ///
    /// # Safety
    /// Every operand points to valid memory of its type, aligned to 64 bytes; the outputs and the workspace overlap
    /// nothing else, except that an output may be exactly an input that the op may overwrite or mutates. Each output and
    /// the workspace are asked for at most once per call.
    pub unsafe fn new(
        inputs: &'a [Operand],
        outputs: &'a [Operand],
        workspace: *mut u8,
        workspace_bytes: usize,
        pool: &'a Pool,
    ) -> Io<'a> {
        Io { inputs, outputs, workspace, workspace_bytes, pool, into: Into::Overwrite, spill: None }
    }

    /// The same call with a file that values can be moved to.
    #[must_use]
    pub fn with_spill(self, spill: Option<&'a dyn spill::Spill>) -> Io<'a> {
        Io { spill, ..self }
    }

    /// The file that values are moved to.
    ///
    /// # Errors
    /// When there is none.
    pub fn spill(&self, op: &'static str) -> Result<&'a dyn spill::Spill, RunError> {
        self.spill.ok_or_else(|| RunError { op, message: "there is no spill file".into() })
    }

    /// The same call with the first `n_inputs` inputs, adding its partial outputs to what is there.
    #[must_use]
    pub fn adding(&self, n_inputs: usize) -> Io<'a> {
        Io { inputs: &self.inputs[..n_inputs], into: Into::Add, ..*self }
    }

    /// Whether partial outputs are written or added to what is there. Only an op that [adds](OpDef::adds) is asked to add.
    pub fn into(&self) -> Into {
        self.into
    }

    /// The threads.
    pub fn pool(&self) -> &'a Pool {
        self.pool
    }

    /// All inputs.
    pub fn inputs(&self) -> &'a [Operand] {
        self.inputs
    }

    /// All outputs.
    pub fn outputs(&self) -> &'a [Operand] {
        self.outputs
    }

    /// Copies the first inputs to the outputs, for ops that [pass them on](OpDef::passes_on).
    pub fn pass_on(&self) {
        for (from, to) in self.inputs.iter().zip(self.outputs) {
            // SAFETY: both are valid and of one type.
            unsafe { std::ptr::copy(from.ptr, to.ptr, to.ty.bytes()) };
        }
    }

    /// Type of input `i`.
    pub fn in_ty(&self, i: usize) -> &'a TensorType {
        &self.inputs[i].ty
    }

    /// Type of output `i`.
    pub fn out_ty(&self, i: usize) -> &'a TensorType {
        &self.outputs[i].ty
    }

    /// The elements of input `i`. Not for an input that is overwritten in place: use [`Io::output`] for that.
    ///
    /// # Panics
    /// When `T` is not its type.
    pub fn input<T: Element>(&self, i: usize) -> &'a [T] {
        let operand = &self.inputs[i];
        assert_eq!(operand.ty.dtype, T::DTYPE);
        // SAFETY: valid by the promise of `new`; nobody writes it meanwhile.
        unsafe { std::slice::from_raw_parts(operand.ptr.cast(), operand.ty.elements()) }
    }

    /// The elements of input `i` for a kernel that can also find them in output `o`, in place.
    ///
    /// # Panics
    /// When `T` is not its type.
    pub fn source<T: Element>(&self, i: usize, o: usize) -> Source<'a, T> {
        if self.inputs[i].ptr == self.outputs[o].ptr { Source::InPlace } else { Source::Slice(self.input(i)) }
    }

    /// The elements of output `i`; what they hold before is undefined, except for mutated states.
    ///
    /// # Panics
    /// When `T` is not its type.
    #[allow(clippy::mut_from_ref)]
    pub fn output<T: Element>(&self, i: usize) -> &'a mut [T] {
        let operand = &self.outputs[i];
        assert_eq!(operand.ty.dtype, T::DTYPE);
        // SAFETY: valid and exclusive by the promise of `new`.
        unsafe { std::slice::from_raw_parts_mut(operand.ptr.cast(), operand.ty.elements()) }
    }

    /// The workspace as elements of `T`: as many as fit.
    #[allow(clippy::mut_from_ref)]
    pub fn workspace<T: Element>(&self) -> &'a mut [T] {
        if self.workspace_bytes == 0 {
            return &mut [];
        }
        // SAFETY: valid and exclusive by the promise of `new`; aligned to 64.
        unsafe { std::slice::from_raw_parts_mut(self.workspace.cast(), self.workspace_bytes / size_of::<T>()) }
    }
}

/// A value of the reference interpreter: f64 whatever the type.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// The type it stands for.
    pub ty: TensorType,
    /// Row-major elements.
    pub data: Vec<f64>,
}

impl Reference {
    /// From a host tensor.
    pub fn from_tensor(tensor: &Tensor) -> Reference {
        Reference { ty: *tensor.ty(), data: tensor.to_f64() }
    }

    /// A value of zeros.
    pub fn zeros(ty: TensorType) -> Reference {
        Reference { ty, data: vec![0.0; ty.elements()] }
    }

    /// To a host tensor, rounded to the type.
    pub fn to_tensor(&self) -> Tensor {
        Tensor::from_f64(self.ty.dtype, self.ty.shape, &self.data).expect("the data has the shape's size")
    }

    /// The sizes.
    pub fn dims(&self) -> &[usize] {
        self.ty.dims()
    }
}

/// Slices of whole chunks of a sum, when an entry of the batch has so many terms.
pub(crate) fn whole_chunks(chunk: usize, terms: usize) -> Exact {
    fn gcd(a: usize, b: usize) -> usize {
        if b == 0 { a } else { gcd(b, a % b) }
    }
    Exact::multiples(chunk / gcd(chunk, terms))
}

/// Slices none of which is a single row, when an entry of the batch has so many: kernels may have another way for that.
pub(crate) fn two_or_more(rows: usize) -> Exact {
    Exact { least: if rows >= 2 { 1 } else { 2 }, ..Exact::ANY }
}

/// Whether the entries along an axis stand one after another: all axes before it have size 1.
pub(crate) fn is_outermost(shape: &Shape, axis: usize) -> bool {
    shape.dims()[..axis].iter().all(|&size| size == 1)
}

/// A message for [`OpDef::infer`] unless there are `n` inputs.
pub(crate) fn expect_inputs(inputs: &[TensorType], n: usize) -> Result<(), String> {
    if inputs.len() == n { Ok(()) } else { Err(format!("takes {n} inputs, got {}", inputs.len())) }
}

/// A message for [`OpDef::infer`] unless the values are all f32 or all f64.
pub(crate) fn expect_floats(inputs: &[TensorType]) -> Result<(), String> {
    let dtype = inputs[0].dtype;
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Err(format!("takes f32 or f64 values, got {dtype}"));
    }
    match inputs.iter().find(|ty| ty.dtype != dtype) {
        Some(other) => Err(format!("takes values of one type, got {dtype} and {}", other.dtype)),
        None => Ok(()),
    }
}

/// A message for [`OpDef::infer`] unless `axis` is an axis of `ty`.
pub(crate) fn expect_axis(ty: &TensorType, axis: usize) -> Result<(), String> {
    let rank = ty.shape.rank();
    if axis < rank { Ok(()) } else { Err(format!("axis {axis} of a value with {rank} axes")) }
}

/// Calls a generic function with the Rust type of a data type, one of those listed; without `else` they are all there are.
#[macro_export]
macro_rules! match_dtype {
    ($dtype:expr, $T:ident in [$($variant:ident: $type:ty),*] => $body:expr $(, else $other:expr)?) => {
        match $dtype {
            $(plimsoll_tensor::DType::$variant => {
                type $T = $type;
                $body
            })*
            $(_ => $other,)?
        }
    };
}

/// The same for floating-point data types: half precision is not among them.
#[macro_export]
macro_rules! match_float {
    ($dtype:expr, $T:ident => $body:expr, else $other:expr) => {
        $crate::match_dtype!($dtype, $T in [F32: f32, F64: f64] => $body, else $other)
    };
}

macro_rules! ops {
    ($($family:ident :: { $($op:ident),* $(,)? }),* $(,)?) => {
        /// The op with this name and these constants.
        ///
        /// # Errors
        /// When no op has the name or the constants do not fit it.
        pub fn parse(name: &str, attrs: &[(String, Attr)]) -> Result<Arc<dyn OpDef>, String> {
            $($(
                if let Some(op) = <$family::$op as OpAttrs>::parse(name, attrs) {
                    return op.map(|op| Arc::new(op) as Arc<dyn OpDef>);
                }
            )*)*
            Err(format!("unknown op '{name}'"))
        }
    };
}

ops! {
    elementwise::{Unary, Binary, Select, Cast, Constant, Index, Random, StopGradient, Fused},
    contraction::{MatMul},
    conv::{Conv, ConvGradInput, ConvGradFilter},
    pooling::{MaxPool, MaxPoolGrad, AvgPool, AvgPoolGrad},
    reduce::{Reduce, Arg},
    gather::{Gather, ScatterAdd, TakeAlong, AddAlong},
    scan::{CumSum, CumProd, CumProdGrad},
    sort::{Sort, TopK},
    rnn::{Recurrence, RecurrenceGrad},
    shape::{Reshape, Transpose, Broadcast, Slice, Unslice, Concat, Flip},
    state::{Assign},
    softmax::{Softmax, SoftmaxGrad},
    cross_entropy::{SparseCrossEntropy, SparseCrossEntropyGrad, CrossEntropy, CrossEntropyGrad},
    norm::{LayerNorm, LayerNormGrad, GroupNorm, GroupNormGrad, BatchNorm, BatchNormGrad, BatchStats},
    attention::{Attention, AttentionGrad},
    optimizer::{Optimize},
    pieces::{Piece, Blank, Paste},
    spill::{BeginWrite, EndWrite, BeginRead, EndRead},
    adding::{Adding},
    given::{WithGradient},
}
