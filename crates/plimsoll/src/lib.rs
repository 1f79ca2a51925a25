#![doc = include_str!("../../../README.md")]

pub mod by_definition;
pub mod callbacks;
pub mod data;
pub mod error;
pub mod init;
pub mod layers;
pub mod losses;
pub mod metrics;
pub mod model;
pub mod optimizers;
pub mod progress;
pub mod schedules;
pub mod session;
pub mod trace;
pub mod trainer;
pub mod weights;

pub use error::Error;
pub use plimsoll_budget::{Budget, Bytes, Ledger, Limit, limits, measure};
pub use plimsoll_graph::{Graph, Value};
pub use plimsoll_tensor::{DType, Shape, Tensor, TensorType};
pub use trace::{Mode, Trace};
