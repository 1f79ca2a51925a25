//! Where elements come from: one file per format.

mod arrays;
pub(crate) mod files;
mod iterator;

pub use files::Files;
