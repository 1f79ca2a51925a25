//! The graph: what is to be computed, in single-assignment form with static shapes, before anyone decides how.
//!
//! A [`Graph`] is built by calling its methods (`graph.matmul(a, b)`, `graph.relu(x)`), each of which checks shapes and
//! types at once. [`gradients`] appends the derivative of a value with respect to others as ordinary nodes. The text
//! form prints with `Display` and reads back with [`Graph::parse`]; [`Graph::verify`] checks a graph from anywhere;
//! [`interpret`] evaluates it in the plainest way, over f64, as the truth that faster ways are compared with.
//!
//! Everything the system knows about an op (shape rule, gradient, split rule, cost, workspace, kernel, plain
//! definition) stands in its family's file below `op/`; no other file lists ops.
//!
//! ```
//! use plimsoll_graph::{Graph, gradients};
//! use plimsoll_tensor::{DType, Tensor, TensorType};
//! # fn main() -> Result<(), plimsoll_graph::GraphError> {
//! let mut g = Graph::new();
//! let x = g.input("x", TensorType::new(DType::F32, [3]));
//! let y = g.square(x)?;
//! let loss = g.sum(y, &[0], false)?;
//! let dx = gradients(&mut g, loss, &[x])?[0].expect("the loss depends on x");
//! g.output("dx", dx);
//! let out = plimsoll_graph::interpret(&g, &[("x", Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]).unwrap())])?;
//! assert_eq!(out["dx"].to_f64(), [2.0, 4.0, 6.0]);
//! # Ok(())
//! # }
//! ```

mod attr;
mod autodiff;
mod error;
mod graph;
mod interpret;
pub mod op;
mod split;
mod text;
mod verify;

pub use attr::{Attr, AttrValue, Attrs};
pub use autodiff::{gradients, gradients_from};
pub use error::{GraphError, RunError};
pub use graph::{Graph, Node, NodeId, Output, Source, Value, ValueInfo};
pub use interpret::interpret;
pub use op::{Backward, Cost, Exact, Io, OpDef, Operand, Part, Sliced, Types};
pub use split::{Split, propagate};
