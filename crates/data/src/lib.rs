//! Input pipelines: data of any size, inside the memory limit.
//!
//! A [`Dataset`] says where elements come from and what happens to them; [`Dataset::iter`] runs it with memory from a
//! [`Budget`](plimsoll_budget::Budget), every buffer a reservation. Names and meanings are those of `tf.data`:
//!
//! ```
//! use plimsoll_budget::{Budget, Bytes};
//! use plimsoll_data::{AUTOTUNE, Dataset};
//! let squares = Dataset::range(0, 1_000_000, 1)
//!     .map_in_place("value", |v: &mut [i64]| v[0] *= v[0])
//!     .shuffle(None, 42)
//!     .batch(32)
//!     .prefetch(AUTOTUNE);
//! let mut iter = squares.iter(&Budget::new(Bytes::mib(8)))?;
//! let batch = iter.next().unwrap()?;
//! assert_eq!(batch.shape("value")?.dims(), [32]);
//! # Ok::<(), plimsoll_data::Error>(())
//! ```
//!
//! # How it works
//!
//! Elements are tuples and maps of tensors (numbers or strings), flattened to named components ([`Spec`]). They move in columns,
//! many at a time, and never as one heap object each; a stage appends to memory that the stage behind it owns, so that a batch is
//! assembled where it is wanted ([`Iter::next_into`]).
//!
//! A chain of stages whose elements can be found by number is a *lookup*: a function of (epoch, number) alone. Shuffling it
//! permutes the numbers ([`Permutation`]: complete, re-keyed every epoch, without a buffer); several threads compute different
//! parts of it without a say in the order; its position is one number. Filters, streams and other chains that lack this go
//! element by element, with the same results for any number of threads.
//!
//! What is read from files is checked before it is believed: an error names the file, the row or the offset, and what was
//! expected; no length found in a file is allocated before the budget granted it.
#![warn(missing_docs)]

mod ahead;
mod builder;
mod column;
mod dataset;
mod error;
mod flow;
#[cfg(any(feature = "images", feature = "parquet", test))]
mod guard;
mod inspect;
mod iter;
mod least;
mod memory;
mod pages;
mod permutation;
mod profile;
mod sources;
mod spec;
mod stages;
mod trail;

pub use column::{Element, Nest, Row};
pub use dataset::{AUTOTUNE, BatchSizes, Calls, Dataset};
pub use error::{Error, Place};
pub use inspect::{Field, FileFormat, Inspection, convert, inspect, write};
pub use iter::{Iter, Options};
pub use permutation::Permutation;
pub use profile::{Report, StageReport};
pub use sources::{Compression, Csv, Files, NewFile, NpyWriter, Shared, TfRecordWriter};
#[cfg(feature = "images")]
pub use sources::{Images, Picture};
pub use spec::{Cardinality, Component, Kind, Spec};
pub use stages::{Padding, Writer};
