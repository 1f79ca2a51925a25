//! What the four workloads share. `models.rs` says what is trained, `data.rs` on what, `measure.rs` runs and reports.
#![allow(dead_code)] // Each example uses a part of it.

pub mod data;
pub mod measure;
pub mod models;
pub mod zoo;
