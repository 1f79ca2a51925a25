//! Data types, shapes and host tensors: the nouns every other crate speaks.
//!
//! [`TensorType`] (a [`DType`] and a [`Shape`]) is what the graph knows about a value before anything
//! runs; [`Tensor`] is a value in ordinary memory, for going into and out of the engine. Nothing here
//! computes.
//!
//! ```
//! use plimsoll_tensor::{DType, Tensor};
//! let t = Tensor::from_slice(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
//! assert_eq!(t.dtype(), DType::F32);
//! assert_eq!(t.shape().dims(), &[2, 3]);
//! assert_eq!(t.as_slice::<f32>().unwrap()[4], 5.0);
//! ```

mod dtype;
mod float8;
mod shape;
mod tensor;

pub use dtype::{DType, Element};
pub use float8::{F8E4M3, F8E5M2};
pub use shape::{MAX_RANK, Shape, TensorType};
pub use tensor::{Tensor, TensorError};

pub use half::{bf16, f16};
