//! The graph's methods for element-wise ops.

use super::{Binary, Cast, Constant, Index, Random, Select, StopGradient, Unary};
use crate::error::GraphError;
use crate::graph::{Graph, Value};
use plimsoll_kernels::pointwise::{Binary as Fn2, Unary as Fn1};
use plimsoll_tensor::{DType, Shape, TensorType};

macro_rules! unary_builders {
    ($($(#[$meta:meta])* $method:ident = $f:ident,)*) => {
        impl Graph {$(
            $(#[$meta])*
            ///
            /// # Errors
            /// When the function does not exist for the value's type.
            pub fn $method(&mut self, x: Value) -> Result<Value, GraphError> {
                self.unary(Fn1::$f, x)
            }
        )*}
    };
}

macro_rules! binary_builders {
    ($($(#[$meta:meta])* $method:ident = $f:ident,)*) => {
        impl Graph {$(
            $(#[$meta])*
            ///
            /// # Errors
            /// When types differ or shapes do not broadcast.
            pub fn $method(&mut self, a: Value, b: Value) -> Result<Value, GraphError> {
                self.binary(Fn2::$f, a, b)
            }
        )*}
    };
}

unary_builders! {
    /// `-x`.
    neg = Neg,
    /// `|x|`.
    abs = Abs,
    /// -1, 0 or 1.
    sign = Sign,
    /// `x * x`.
    square = Square,
    /// Square root.
    sqrt = Sqrt,
    /// `1 / sqrt(x)`.
    rsqrt = Rsqrt,
    /// `1 / x`.
    reciprocal = Reciprocal,
    /// `e^x`.
    exp = Exp,
    /// `e^x - 1`.
    expm1 = ExpM1,
    /// Natural logarithm.
    log = Log,
    /// `ln(1 + x)`.
    log1p = Log1p,
    /// Sine.
    sin = Sin,
    /// Cosine.
    cos = Cos,
    /// Hyperbolic tangent.
    tanh = Tanh,
    /// `1 / (1 + e^-x)`.
    sigmoid = Sigmoid,
    /// `ln(1 + e^x)`.
    softplus = Softplus,
    /// The error function.
    erf = Erf,
    /// `max(x, 0)`.
    relu = Relu,
    /// Largest integer not above.
    floor = Floor,
    /// Logical negation.
    not = Not,
}

binary_builders! {
    /// `a + b`.
    add = Add,
    /// `a - b`.
    sub = Sub,
    /// `a * b`.
    mul = Mul,
    /// `a / b`.
    div = Div,
    /// `a` to the power of `b`.
    pow = Pow,
    /// The larger one.
    maximum = Max,
    /// The smaller one.
    minimum = Min,
    /// `a == b`.
    eq = Eq,
    /// `a != b`.
    ne = Ne,
    /// `a < b`.
    lt = Lt,
    /// `a <= b`.
    le = Le,
    /// `a > b`.
    gt = Gt,
    /// `a >= b`.
    ge = Ge,
    /// Both.
    and = And,
    /// Either.
    or = Or,
}

impl Graph {
    /// A function of one argument.
    ///
    /// # Errors
    /// When the function does not exist for the value's type.
    pub fn unary(&mut self, f: Fn1, x: Value) -> Result<Value, GraphError> {
        self.push1(Unary(f), &[x])
    }

    /// A function of two arguments.
    ///
    /// # Errors
    /// When types differ or shapes do not broadcast.
    pub fn binary(&mut self, f: Fn2, a: Value, b: Value) -> Result<Value, GraphError> {
        self.push1(Binary(f), &[a, b])
    }

    /// `condition ? a : b`, element by element.
    ///
    /// # Errors
    /// When the condition is not bool, types differ or shapes do not broadcast.
    pub fn select(&mut self, condition: Value, a: Value, b: Value) -> Result<Value, GraphError> {
        self.push1(Select, &[condition, a, b])
    }

    /// Conversion to another type; the value itself when it has that type already.
    ///
    /// # Errors
    /// None today.
    pub fn cast(&mut self, x: Value, dtype: DType) -> Result<Value, GraphError> {
        if self.dtype(x) == dtype { Ok(x) } else { self.push1(Cast { dtype }, &[x]) }
    }

    /// A scalar constant.
    ///
    /// # Errors
    /// None today.
    pub fn constant(&mut self, value: f64, dtype: DType) -> Result<Value, GraphError> {
        self.push1(Constant { value, dtype }, &[])
    }

    /// `factor * x`.
    ///
    /// # Errors
    /// As [`Graph::mul`].
    pub fn scale(&mut self, x: Value, factor: f64) -> Result<Value, GraphError> {
        let factor = self.constant(factor, self.dtype(x))?;
        self.mul(x, factor)
    }

    /// `x + term`.
    ///
    /// # Errors
    /// As [`Graph::add`].
    pub fn shift(&mut self, x: Value, term: f64) -> Result<Value, GraphError> {
        let term = self.constant(term, self.dtype(x))?;
        self.add(x, term)
    }

    /// The index along `axis`, as a value of this shape.
    ///
    /// # Errors
    /// When the shape has no such axis.
    pub fn index(&mut self, shape: impl Into<Shape>, axis: usize, dtype: DType) -> Result<Value, GraphError> {
        self.push1(Index { shape: shape.into(), axis, dtype }, &[])
    }

    /// Random numbers from a key (`i64[2]`: seed and step); `distribution` is `uniform`, `normal` or `truncated_normal`.
    ///
    /// # Errors
    /// When the key is of another type or the distribution unknown.
    pub fn random(&mut self, key: Value, distribution: &str, ty: TensorType) -> Result<Value, GraphError> {
        let stream = self.new_stream();
        self.push1(Random { distribution: distribution.into(), stream, shape: ty.shape, dtype: ty.dtype }, &[key])
    }

    /// The value itself, as a constant for gradients.
    ///
    /// # Errors
    /// None today.
    pub fn stop_gradient(&mut self, x: Value) -> Result<Value, GraphError> {
        self.push1(StopGradient, &[x])
    }

    /// `x` summed over the axes along which it was broadcast from `shape`.
    ///
    /// # Errors
    /// When `shape` does not broadcast to the value's.
    pub fn sum_to(&mut self, x: Value, shape: Shape) -> Result<Value, GraphError> {
        let from = self.shape(x);
        if from == shape {
            return Ok(x);
        }
        let missing = from.rank() - shape.rank();
        let axes: Vec<usize> =
            (0..from.rank()).filter(|&a| a < missing || shape[a - missing] == 1 && from[a] != 1).collect();
        let sum = if axes.is_empty() { x } else { self.sum(x, &axes, true)? };
        self.reshape(sum, shape)
    }
}
