//! Where elements come from: one file per format.

mod arrays;
mod blocks;
mod bytes;
#[cfg(feature = "parquet")]
mod columnar;
mod csv;
pub(crate) mod example;
pub(crate) mod files;
mod idx;
#[cfg(feature = "images")]
mod image_header;
#[cfg(feature = "images")]
mod images;
#[cfg(feature = "parquet")]
mod ipc;
mod iterator;
mod lines;
mod measure;
mod npy;
mod npy_header;
mod numbers;
#[cfg(feature = "parquet")]
mod parquet;
#[cfg(feature = "parquet")]
mod parquet_pages;
mod rows;
#[cfg(feature = "parquet")]
mod table;
mod tfrecord;
#[cfg(feature = "parquet")]
mod thrift;
mod write;

pub use arrays::Shared;
pub use bytes::Compression;
pub use csv::Csv;
pub use files::Files;
#[cfg(feature = "images")]
pub use images::{Images, Picture};
pub use tfrecord::TfRecordWriter;
pub use write::{NewFile, NpyWriter};
