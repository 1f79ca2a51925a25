//! Compute kernels: slices in, slices out. They know shapes as plain numbers and nothing of graphs.
//!
//! Three rules hold everywhere:
//!
//! - **No allocation.** A kernel that needs scratch memory takes it as an argument, and the function
//!   beside it says how much (`..._scratch`). The one exception is the packing buffer inside the GEMM
//!   library, bounded by [`gemm::Packing`].
//! - **The same bits for any number of threads.** Work is cut into tasks by shape alone, never by the
//!   number of threads; sums run over fixed blocks in a fixed order.
//! - **SIMD is chosen at run time.** Inner loops are plain Rust, compiled once per instruction set by
//!   [`simd!`] and vectorised by the compiler.

pub mod attention;
pub mod axis;
mod blocks;
pub mod channel_norm;
pub mod conv;
pub mod copy;
pub mod cross_entropy;
pub mod gather;
pub mod gemm;
pub mod math;
pub mod norm;
pub mod optimizer;
pub mod pointwise;
pub mod pool;
pub mod pooling;
pub mod random;
pub mod reduce;
pub mod rnn;
pub mod scan;
pub mod simd;
pub mod softmax;
pub mod sort;

#[cfg(test)]
mod testing;

pub use blocks::Source;
pub use pool::Pool;
