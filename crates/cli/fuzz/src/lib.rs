//! What the fuzz targets do with bytes: jobs, weights and checkpoints. The tests of the command do the same with the corpus.
#![allow(dead_code)] // The command uses the rest.

#[path = "../../src/diagnostic.rs"]
mod diagnostic;
#[path = "../../src/errors.rs"]
mod errors;
#[path = "../../src/job/mod.rs"]
mod job;
#[path = "../../src/text.rs"]
mod text;

pub mod targets;
