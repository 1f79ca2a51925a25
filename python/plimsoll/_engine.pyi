"""The engine. What is written here is what the Python packages may rely on.

Operations are recorded: they check shapes and types at once and compute nothing. Looking at a value (`numpy()`, `item()`,
`float()`, `bool()`, `print`) runs everything that is still referenced, as one planned graph. Inside a trace a value cannot be looked at:
`UntraceableError`.

Operands (`Operand`) are tensors, variables, Python numbers, or anything that NumPy makes an array of. A number takes the type of the operand beside it;
other operands of one operation have equal types (nothing is promoted here). Shapes broadcast as NumPy's do. Axes may be negative.

Methods and operators of `Tensor` and `Variable` can be replaced from Python (`Tensor.__add__ = ...`), and attributes can be set on tensors.
"""

from typing import Any, Callable, Iterable, Literal, Sequence, Union

import numpy as np

DType = Literal[
    "float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int32", "int64", "uint8", "int8", "int16", "uint16", "uint32", "bool"
]
Operand = Union["Tensor", "Variable", float, int, bool, np.ndarray, Any]
Padding = Union[Literal["same", "valid"], Sequence[tuple[int, int]]]
Axes = Union[int, Sequence[int], None]

class UntraceableError(RuntimeError):
    """A value was looked at that is only known when the traced function runs."""

class ResourceExhaustedError(Exception):
    """There is not enough of something, most often of memory."""

class WouldNotFitError(MemoryError, ResourceExhaustedError):
    """The memory limit cannot be kept. Nothing was run: variables are as before."""

    limit: int | None
    """The limit, in bytes like the others."""
    needed: int | None
    """What it would take without a limit."""
    smallest: int | None
    """The smallest limit that would do."""
    remedies: list[str]
    """What else would do."""

class Tensor:
    """A value: known, or still to be computed."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def is_known(self) -> bool:
        """Computed already."""
    @property
    def is_symbolic(self) -> bool:
        """A value of a function that is being (or was) traced: it cannot be looked at."""
    @property
    def is_recorded(self) -> bool:
        """Computed by what is being recorded: no constant, and not from before the record began."""
    def numpy(self) -> np.ndarray:
        """The tensor's own memory, read-only; copy it to write."""
    def item(self) -> float | int | bool: ...
    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray: ...
    def __dlpack__(
        self, *, stream: None = None, max_version: tuple[int, int] | None = None, dl_device: Any = None, copy: bool | None = None
    ) -> Any:
        """The tensor's own memory, marked read-only, for libraries that know DLPack 1; others get a copy. PyTorch does not heed the mark: clone
        before writing there."""
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...
    def __int__(self) -> int: ...
    def __float__(self) -> float: ...
    def __index__(self) -> int: ...
    # Operators want equal types; == and != are element by element; the hash is the object's identity.
    def __add__(self, other: Operand) -> Tensor: ...
    def __radd__(self, other: Operand) -> Tensor: ...
    def __sub__(self, other: Operand) -> Tensor: ...
    def __rsub__(self, other: Operand) -> Tensor: ...
    def __mul__(self, other: Operand) -> Tensor: ...
    def __rmul__(self, other: Operand) -> Tensor: ...
    def __truediv__(self, other: Operand) -> Tensor: ...
    def __rtruediv__(self, other: Operand) -> Tensor: ...
    def __pow__(self, other: Operand) -> Tensor: ...
    def __matmul__(self, other: Operand) -> Tensor: ...
    def __neg__(self) -> Tensor: ...
    def __abs__(self) -> Tensor: ...

class Variable:
    """A value that operations change. An operand like a tensor: its newest value."""

    def __init__(self, value: Operand, name: str = "", trainable: bool = True) -> None: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def name(self) -> str: ...
    @property
    def trainable(self) -> bool: ...
    def value(self) -> Tensor:
        """What it holds now; later changes leave that tensor alone."""
    def assign(self, value: Operand) -> Tensor:
        """Takes effect in order with all other operations; shapes broadcast to the variable's."""
    def assign_add(self, value: Operand) -> Tensor: ...
    def assign_sub(self, value: Operand) -> Tensor: ...
    def numpy(self) -> np.ndarray: ...

# Making tensors.
def tensor(value: Any, dtype: DType | None = None) -> Tensor:
    """From a NumPy array (copied), a number, nested lists. Python floats are float32, ints int32 (int64 where they do not fit)."""

def from_dlpack(x: Any) -> Tensor:
    """Shares memory that is contiguous, aligned to 64 bytes and promised not to be written; copies everything else."""

def full(shape: Sequence[int], value: Operand, dtype: DType) -> Tensor: ...
def iota(shape: Sequence[int], axis: int, dtype: DType) -> Tensor: ...
def random(
    key: Operand,
    distribution: Literal["uniform", "normal", "truncated_normal"],
    shape: Sequence[int],
    dtype: DType,
) -> Tensor:
    """A function of the key (`int64[2]`: any two numbers) and the place alone: the same key gives the same numbers, in a trace, before and after."""

# Element by element.
def unary(name: str, x: Operand) -> Tensor:
    """identity neg abs sign square sqrt rsqrt reciprocal exp expm1 exp2 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh
    asinh acosh atanh sigmoid softplus erf relu floor ceil round trunc is_nan is_finite is_inf logical_not"""

def binary(name: str, a: Operand, b: Operand) -> Tensor:
    """add sub mul div floor_div rem (sign of the dividend) mod (of the divisor) pow max min atan2 eq ne lt le gt ge
    logical_and logical_or logical_xor bit_and bit_or bit_xor"""

def select(condition: Operand, a: Operand, b: Operand) -> Tensor: ...
def cast(x: Operand, dtype: DType) -> Tensor: ...
def stop_gradient(x: Operand) -> Tensor: ...

# Along axes.
def reduce(
    kind: Literal["sum", "mean", "max", "min", "prod", "all", "any"], x: Operand, axes: Axes = None, keep: bool = False
) -> Tensor: ...
def argmax(x: Operand, axis: int) -> Tensor: ...
def argmin(x: Operand, axis: int) -> Tensor: ...
def cumsum(x: Operand, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor: ...
def cumprod(x: Operand, axis: int, exclusive: bool = False, reverse: bool = False) -> Tensor: ...
def sort(x: Operand, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]: ...
def top_k(x: Operand, k: int) -> tuple[Tensor, Tensor]: ...
def softmax(x: Operand, axis: int = -1) -> Tensor: ...
def log_softmax(x: Operand, axis: int = -1) -> Tensor: ...

# Shapes.
def reshape(x: Operand, shape: Sequence[int]) -> Tensor: ...
def transpose(x: Operand, axes: Sequence[int] | None = None) -> Tensor: ...
def broadcast_to(x: Operand, shape: Sequence[int]) -> Tensor: ...
def slice(x: Operand, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int] | None = None) -> Tensor: ...
def pad(x: Operand, before: Sequence[int], after: Sequence[int], value: float = 0.0) -> Tensor: ...
def concat(xs: Sequence[Operand], axis: int) -> Tensor: ...
def flip(x: Operand, axes: Axes = None) -> Tensor: ...
def tile(x: Operand, times: Sequence[int]) -> Tensor: ...

# By index (int32 or int64; outside the axis is a ValueError when it runs).
def gather(x: Operand, indices: Operand, axis: int = 0) -> Tensor: ...
def scatter_add(indices: Operand, updates: Operand, axis: int, size: int) -> Tensor:
    """Zeros of `size` along `axis`, with the slices of `updates` added at the indices (whose axes stand where `axis` will)."""

def take_along(x: Operand, indices: Operand, axis: int) -> Tensor: ...
def add_along(indices: Operand, updates: Operand, axis: int, size: int) -> Tensor: ...
def one_hot(indices: Operand, depth: int, dtype: DType = "float32") -> Tensor: ...

# Products.
def matmul(a: Operand, b: Operand, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """As numpy.matmul."""

def einsum(text: str, xs: Sequence[Operand]) -> Tensor:
    """One or two operands, no `...`, no letter twice in one operand."""

# Layers. Images are [batch, spatial.., channels].
def conv(
    x: Operand,
    filter: Operand,
    strides: Sequence[int] | None = None,
    padding: Padding = "valid",
    dilations: Sequence[int] | None = None,
    groups: int = 1,
) -> Tensor:
    """The filter is [spatial.., in / groups, out]."""

def conv_transpose(
    x: Operand,
    filter: Operand,
    strides: Sequence[int] | None = None,
    padding: Padding = "valid",
    dilations: Sequence[int] | None = None,
    groups: int = 1,
    output: Sequence[int] | None = None,
) -> Tensor:
    """The filter is [spatial.., out / groups, in]; `output` are the spatial sizes of the result."""

def max_pool(x: Operand, size: Sequence[int], strides: Sequence[int] | None = None, padding: Padding = "valid") -> Tensor: ...
def avg_pool(x: Operand, size: Sequence[int], strides: Sequence[int] | None = None, padding: Padding = "valid") -> Tensor: ...
def sparse_cross_entropy(logits: Operand, labels: Operand, ignore: int | None = None) -> Tensor: ...
def cross_entropy(logits: Operand, targets: Operand) -> Tensor: ...
def layer_norm(x: Operand, scale: Operand | None = None, offset: Operand | None = None, epsilon: float = 1e-3) -> Tensor: ...
def rms_norm(x: Operand, scale: Operand | None = None, epsilon: float = 1e-6) -> Tensor: ...
def group_norm(
    x: Operand, groups: int, scale: Operand | None = None, offset: Operand | None = None, epsilon: float = 1e-3
) -> Tensor: ...
def batch_norm(
    x: Operand, scale: Operand | None = None, offset: Operand | None = None, epsilon: float = 1e-3
) -> list[Tensor]:
    """[result, mean, variance] with the statistics of the batch, over all axes but the last."""

def batch_stats(x: Operand) -> list[Tensor]:
    """[mean, variance] of each channel, over all axes but the last."""

def batch_norm_with(
    x: Operand,
    mean: Operand,
    variance: Operand,
    scale: Operand | None = None,
    offset: Operand | None = None,
    epsilon: float = 1e-3,
) -> Tensor:
    """Batch norm with what `batch_stats(x)` gave: the gradient of x is by way of mean and variance too."""

def attention(
    q: Operand,
    k: Operand,
    v: Operand,
    scale: float | None = None,
    causal: bool = False,
    mask: Operand | None = None,
    dropout: float = 0.0,
    key: Operand | None = None,
) -> Tensor:
    """q [batch, queries, heads, depth]; k, v [batch, keys, kv_heads, ..]. The mask broadcasts to [batch, heads, queries, keys] (full size along
    the last): bool (False hides) or added to the scores; it gets no gradient."""

def recurrence(
    cell: Literal["lstm", "gru", "simple"],
    projections: Operand,
    kernel: Operand,
    bias: Operand | None = None,
    initial: Sequence[Operand] = (),
    mask: Operand | None = None,
    reverse: bool = False,
    training: bool = True,
) -> tuple[Tensor, list[Tensor]]:
    """`projections` is x W + b: [batch, steps, gates * units]; `kernel` [units, gates * units]; `bias` the GRU's recurrent bias. Gates are in Keras'
    order (lstm i f c o, gru z r h with reset_after). Gives the state after each step, and the last states."""

def optimize(
    rule: Literal["sgd", "adam", "rmsprop", "adagrad", "adadelta", "adamax", "nadam", "lion"],
    variable: Variable,
    slots: Sequence[Variable],
    gradient: Operand,
    learning_rate: Operand,
    step: Operand,
    options: dict[str, float | bool | str] | None = None,
    scale: Operand | None = None,
) -> None:
    """One step in place, on float32 and float64. `step` counts from 1; `scale` multiplies the gradient first. Options: momentum nesterov weight_decay
    beta_1 beta_2 epsilon amsgrad rho centered initial_accumulator momentum_decay epsilon_form ('keras' or 'pytorch'). Slots: sgd [momentum] if
    momentum; adam, nadam [momentum, velocity] (amsgrad: velocity_hat); rmsprop [velocity, momentum?, average_gradient?]; adagrad [accumulator];
    adadelta [accumulated_gradient, accumulated_delta]; adamax [momentum, norm]; lion [momentum]."""

# Gradients.
def tape_begin() -> None:
    """From now on what is recorded is kept for gradients, also when values are looked at. One `tape_end` for each."""

def tape_end() -> None: ...
def gradients(
    targets: Sequence[Operand], sources: Sequence[Operand], seeds: Sequence[Operand | None] | None = None
) -> list[Tensor | None]:
    """Of what is in the current record (or trace), as more operations of it, so that gradients of gradients work. A variable stands for
    every value read from it. What was watched is the caller's business: use stop_gradient."""

def with_gradient(
    results: Sequence[Operand], arguments: Sequence[Operand], arriving: Sequence[Operand], leaving: Sequence[Operand]
) -> list[Tensor]:
    """The results with a gradient of the caller's: with respect to each argument `leaving` as it was computed from `arriving`, with the gradients of
    the results in its place."""

# Programs.
class Program:
    """A traced computation."""

    def __call__(self, inputs: Sequence[Operand]) -> list[Tensor]:
        """Runs it at once: variables change in place, the outputs are known. Inside a trace and under a tape it is inlined."""
    def profile(self, inputs: Sequence[Operand], steps: int = 5) -> str:
        """Runs it some times, variables change as ever, and gives a table of the operations' best times."""
    @property
    def key(self) -> str:
        """Equal for equal computations."""
    @property
    def input_types(self) -> list[tuple[list[int], DType]]: ...
    @property
    def output_types(self) -> list[tuple[list[int], DType]]: ...
    @property
    def nodes(self) -> int: ...

def trace_begin(inputs: Sequence[tuple[Sequence[int], DType]]) -> list[Tensor]:
    """This thread's operations go to a new trace until `trace_end` or `trace_abort`."""

def trace_end(outputs: Sequence[Operand]) -> Program: ...
def trace_abort() -> None: ...
def trace_depth() -> int: ...
def inline(program: Program, inputs: Sequence[Operand]) -> list[Tensor]:
    """Writes the program's operations into the current record (for a tape, say)."""

def flush() -> None:
    """Runs everything that is still referenced, and all changes of variables."""

def run_steps(
    program: Program,
    feeds: Sequence[np.ndarray | Operand],
    batch: int,
    steps: int,
    start: int = 0,
    shuffle: tuple[int, int] | None = None,
    collect: Sequence[int] = (),
    callback: Callable[[int], bool | None] | None = None,
    order: Sequence[int] | None = None,
) -> list[Tensor]:
    """Runs a program `steps` times without the interpreter's lock. Of a NumPy array (contiguous, of the input's type) every step takes the
    next `batch` rows, from step `start` on; with `shuffle` = (seed, epoch) the rows come in the order that the trainer would take them, with `order` they are
    those that it lists, from its beginning. Anything else is fed
    whole in every step. Gives the outputs numbered in `collect`, those of all steps stacked (zeros for steps that were not run). `callback(steps_done)` is called
    about ten times a second and at the end; True stops the loop, and so does Ctrl-C (KeyboardInterrupt)."""

def run_elements(
    program: Program, elements: DatasetIterator, steps: int, seconds: float
) -> tuple[list[Tensor], int, list[Any] | None]:
    """Runs a program on the next elements, at most `steps` and for about `seconds`, without the interpreter's lock: the outputs of the last step,
    how many steps were run, and the element behind them, should the program be for others. Fewer steps and no element: the data is over,
    or the time is."""

# Memory.
def set_memory_limit(limit: int | str | None = None) -> int | None:
    """The limit of the whole process: bytes, "512MiB", "50%" (of what the host allows), "none"; None for the environment variable PLIMSOLL_MEMORY_LIMIT or what
    the host allows. Programs are planned anew. Gives back the limit in bytes. ValueError when it is not understood."""

def set_techniques(split: bool = True, recompute: bool = True, spill: bool = True) -> None: ...
def memory_info() -> dict[str, Any]:
    """Bytes: limit (None without one), current and peak (of the process, as the kernel counts), held (by the accounts), states, arena, states_in_file; source (of
    the limit, in words), programs (how many are ready)."""

def reset_peak() -> None: ...
def ledger() -> dict[str, tuple[int, int]]:
    """Account to (held, peak) in bytes: state arena gemm runtime process tensors plans .."""

def plan_of(program: Program, smallest: bool = False) -> dict[str, Any]:
    """Bytes arena, live, states, states_in_file, file; nodes, slices, stretches, ops_again; bytes written and read a step; seconds, extra_seconds (estimated); kept
    (in words), peak (the largest values alive then); smallest: with `smallest`, the smallest limit of the process that would do, else None."""

def known_or_none(x: Tensor) -> np.ndarray | None: ...
def dtypes() -> list[DType]: ...

# Input pipelines. Elements are flat lists of components: tensors, or (sizes, list of bytes) for strings.
Component = tuple[str, list[int | None] | None]
"""Type (or "string") and sizes; None where a size, or all of them, differ from element to element."""

def decode_image(data: bytes, channels: int) -> Tensor:
    """The picture in the bytes of a JPEG or PNG file, with so many channels; 0 for as many as it has."""

class Dataset:
    """A description of data; `iterate` begins to read. Arrays are read where they are, buffers come out of the process's limit."""

    @staticmethod
    def from_arrays(arrays: Sequence[np.ndarray]) -> Dataset: ...
    @staticmethod
    def from_strings(strings: Sequence[bytes]) -> Dataset: ...
    @staticmethod
    def range(start: int, end: int, step: int) -> Dataset: ...
    @staticmethod
    def from_tfrecords(paths: Sequence[str], kind: str | None = None) -> Dataset: ...
    @staticmethod
    def from_lines(paths: Sequence[str], kind: str | None = None) -> Dataset: ...
    @staticmethod
    def from_csv(
        paths: Sequence[str],
        columns: Sequence[tuple[str, str, str | None]],
        delimiter: str = ",",
        header: bool = True,
        kind: str | None = None,
    ) -> Dataset: ...
    @staticmethod
    def from_generator(start: Callable[[], Iterable[list[Any]]], types: Sequence[Component]) -> Dataset: ...
    @staticmethod
    def zip(parts: Sequence[Dataset]) -> Dataset: ...
    def spec(self) -> list[Component]: ...
    def names(self) -> list[str]: ...
    def cardinality(self) -> int:
        """-1 when it never ends, -2 when only reading tells."""
    def describe(self) -> str: ...
    def least_memory(self) -> int | None: ...
    def map_program(self, program: Program) -> Dataset:
        """Run by the pipeline's threads without the interpreter's lock. UntraceableError for programs with variables."""
    def map_python(self, function: Callable[[list[Any]], list[Any]], types: Sequence[Component]) -> Dataset: ...
    def filter_program(self, program: Program) -> Dataset: ...
    def filter_python(self, function: Callable[[list[Any]], bool]) -> Dataset: ...
    def interleave(
        self, function: Callable[[list[Any]], Dataset], types: Sequence[Component], cycle: int, block: int, parallel: bool
    ) -> Dataset: ...
    def parse_example(self, features: Sequence[tuple[str, str, list[int | None]]]) -> Dataset: ...
    def batch(self, size: int, drop_remainder: bool) -> Dataset: ...
    def padded_batch(
        self, size: int, sizes: Sequence[list[int | None] | None], values: Sequence[float | None], drop_remainder: bool
    ) -> Dataset: ...
    def window(self, size: int, shift: int, stride: int, drop_remainder: bool) -> Dataset: ...
    def unbatch(self) -> Dataset: ...
    def rebatch(self, size: int, drop_remainder: bool) -> Dataset: ...
    def shuffle(self, buffer: int, seed: int, every_epoch: bool) -> Dataset: ...
    def repeat(self, times: int | None = None) -> Dataset: ...
    def take(self, n: int) -> Dataset: ...
    def skip(self, n: int) -> Dataset: ...
    def shard(self, n: int, index: int) -> Dataset: ...
    def enumerate(self, start: int) -> Dataset: ...
    def concatenate(self, other: Dataset) -> Dataset: ...
    def ignore_errors(self) -> Dataset: ...
    def cache(self, path: str | None = None) -> Dataset: ...
    def prefetch(self, n: int) -> Dataset: ...
    def parallel(self, n: int, ordered: bool) -> Dataset: ...
    def iterate(self, epoch: int = 0) -> DatasetIterator: ...

class DatasetIterator:
    """One pass over a data set."""

    def __iter__(self) -> DatasetIterator: ...
    def __next__(self) -> list[Any]: ...

class TFRecordWriter:
    """Writes a TFRecord file."""

    def __init__(self, path: str, kind: str | None = None) -> None: ...
    def write(self, record: bytes) -> None: ...
    def close(self) -> None: ...

class Traces:
    """The traces of a thread, set aside."""

def trace_pause() -> Traces:
    """What follows is recorded outside of this thread's traces until `trace_resume`."""

def trace_resume(traces: Traces) -> None: ...
