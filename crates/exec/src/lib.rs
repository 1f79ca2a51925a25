//! Runs plans in one arena: it follows instructions, allocates nothing and decides nothing.
//!
//! An [`Engine`] is opened with the layout of the states and all plans that will ever run (training step, evaluation step,
//! ...). It reserves their bytes from the [`Budget`](plimsoll_budget::Budget), maps them and touches every page, so that nothing is left
//! to fail later. From then on [`Engine::run`] walks a plan's instructions.
//!
//! ```
//! use plimsoll_budget::Budget;
//! use plimsoll_exec::Engine;
//! use plimsoll_graph::Graph;
//! use plimsoll_plan::{Options, StateLayout, plan};
//! use plimsoll_tensor::{DType, Tensor, TensorType};
//! let mut g = Graph::new();
//! let x = g.input("x", TensorType::new(DType::F32, [2]));
//! let y = g.square(x).unwrap();
//! g.output("y", y);
//! let state = StateLayout::default();
//! let plan = plan(&g, &state, &Options { threads: 2, ..Options::default() }).unwrap();
//! let mut engine = Engine::open(&Budget::unlimited(), &state, vec![plan], 2).unwrap();
//! engine.set_input(0, "x", &Tensor::from_slice(&[2], &[3.0f32, 4.0]).unwrap()).unwrap();
//! engine.run(0).unwrap();
//! assert_eq!(engine.output(0, "y").unwrap().to_f64(), [9.0, 16.0]);
//! ```

mod arena;
pub mod calibrate;
mod engine;
mod homes;
mod sounding;
mod spill;
mod states;
mod store;

pub use arena::{Arena, ArenaError};
pub use engine::{Engine, ExecError, NonFinite, ProgramId, Settings, Timing, spill_memory};
pub use sounding::{Sounding, sound};
pub use spill::{PIECE, SpillError, SpillFile, SpillStats, Way};
