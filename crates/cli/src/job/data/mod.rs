//! `[data]`: where samples come from and what happens to them on their way to the model.
//!
//! `sources.rs` opens files (or draws what is generated), `fit.rs` looks through the training data once for means, categories and
//! classes, and `prepare.rs` puts inputs and labels together.

mod fit;
mod generated;
mod prepare;
mod sources;

pub use fit::{ColumnFit, Fitted, numbers};
pub use prepare::{Prepared, Roles, ahead, prepare, prepare_with};

use super::read::{At, Fields, Map, OneOrMore, With, names, table, union};
use crate::job::tree::{Node, Value};
use crate::{diagnostic::Diagnostic, job::read};
use plimsoll::DType;

names! {
    /// What is done to numbers before the model sees them.
    pub enum Normalize, a "normalization" {
        "standard" => Standard,
        "minmax" => MinMax,
        "unit" => Unit,
        "none" => None,
    }
}

names! {
    /// What becomes of text in features.
    pub enum Categories, a "treatment of categories" { "one_hot" => OneHot, "index" => Index, }
}

names! {
    /// What is predicted.
    pub enum Task, a "task" { "auto" => Auto, "classification" => Classification, "regression" => Regression, }
}

names! {
    /// Where read data is kept for the next epoch.
    pub enum Cache, a "place for a cache" { "auto" => Auto, "none" => None, "memory" => Memory, "disk" => Disk, }
}

names! {
    /// The type of a column.
    pub enum ColumnType, a "type" {
        "f32" => F32, "f64" => F64, "i32" => I32, "i64" => I64, "u8" => U8, "bool" => Bool, "text" => Text,
    }
}

impl ColumnType {
    /// The type of its elements; `None` for text.
    pub fn dtype(self) -> Option<DType> {
        Some(match self {
            ColumnType::F32 => DType::F32,
            ColumnType::F64 => DType::F64,
            ColumnType::I32 => DType::I32,
            ColumnType::I64 => DType::I64,
            ColumnType::U8 => DType::U8,
            ColumnType::Bool => DType::Bool,
            ColumnType::Text => return None,
        })
    }
}

/// A number, or "auto".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    Auto,
    Fixed(usize),
}

impl read::Read for Amount {
    fn read(node: &Node) -> Result<Amount, Diagnostic> {
        match &node.value {
            Value::Text(text) if text == "auto" => Ok(Amount::Auto),
            _ => usize::read(node).map(Amount::Fixed),
        }
    }
    fn takes() -> String {
        "whole number, or `\"auto\"`".into()
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({ "anyOf": [{ "const": "auto" }, { "type": "integer", "minimum": 0 }] })
    }
}

table! {
    /// Windows over rows in time: `size` rows are the input, the `horizon` rows behind them the labels.
    pub struct Window {
        /// Rows of the input.
        size: usize,
        /// Rows to predict.
        horizon: usize = 1,
        /// Rows from one window to the next.
        stride: usize = 1,
    }
}

table! {
    /// What every format has.
    pub struct DataCommon {
        /// The columns or arrays that the model sees; all but the label if not given.
        features: Option<At<Vec<String>>> = none,
        /// The column or array to predict; the last if not given.
        label: Option<At<String>> = none,
        /// For models with several inputs: their names, each with its columns.
        inputs: Option<At<Map<OneOrMore<String>>>> = none,
        /// For models with several outputs: their names, each with its column.
        labels: Option<At<Map<String>>> = none,
        /// Whether labels are classes or numbers; by looking at them if not given: text and few small whole numbers are classes.
        task: Task = "auto",
        /// How many classes there are, so that labels need not be counted first.
        classes: Option<usize> = none,
        /// What is done to features: `standard` (mean 0, variance 1 over the training data), `minmax` (0 to 1), `unit` (bytes divided by
        /// 255), `none`.
        normalize: Normalize = "none",
        /// What becomes of text among features.
        categories: Categories = "one_hot",
        /// Windows over rows in time.
        window: Option<Window> = none,
        /// The part of the data that is kept for validation.
        validation_split: f64 = 0.0,
        /// Files of validation data, instead of a part.
        validation_files: Option<At<OneOrMore<String>>> = none,
        /// Whether training data comes in a new order every epoch.
        shuffle: bool = true,
        /// Rows of a buffer through which a stream is shuffled; if not given, the order is complete, which takes no memory.
        shuffle_buffer: Option<u64> = none,
        /// Where read data is kept for the next epoch; `auto` keeps what has to be parsed (CSV, compressed files) on disk.
        cache: Cache = "auto",
        /// Batches to make ahead.
        prefetch: Amount = "auto",
        /// Threads that read and decode.
        parallel: Amount = "auto",
    }
}

table! {
    /// CSV files with a header.
    pub struct CsvFiles {
        /// The files; `*` stands for anything.
        files: At<OneOrMore<String>>,
        /// What separates fields.
        delimiter: String = ",",
        /// Whether the first line has the names of the columns; without, they are `0`, `1`, ...
        header: bool = true,
        /// Types of columns that are not what the first rows look like.
        columns: Map<ColumnType> = {},
        /// What an empty field of a column stands for.
        missing: Map<String> = {},
    }
}

table! {
    /// NumPy arrays in files of their own, rows along the first axis.
    pub struct NpyFiles {
        /// The arrays by name, each with its files.
        arrays: At<Map<OneOrMore<String>>>,
    }
}

table! {
    /// Files with everything in them.
    pub struct PlainFiles {
        /// The files; `*` stands for anything.
        files: At<OneOrMore<String>>,
    }
}

table! {
    /// IDX files, as MNIST has them.
    pub struct IdxFiles {
        /// The arrays by name, each with its files.
        arrays: At<Map<OneOrMore<String>>>,
    }
}

table! {
    /// A feature of a tf.Example.
    pub struct ExampleFeature {
        /// `f32`, `i64` or `text`.
        dtype: ColumnType,
        /// Its sizes; a single value if not given.
        shape: Vec<usize> = [],
    }
}

table! {
    /// TFRecord files of tf.Example messages.
    pub struct TfRecordFiles {
        /// The files; `*` stands for anything.
        files: At<OneOrMore<String>>,
        /// The features by name.
        schema: Map<ExampleFeature>,
    }
}

table! {
    /// A folder with one folder of JPEG or PNG images for each class. Gives `image` and `label`.
    pub struct ImageFolder {
        /// The folder.
        folder: At<String>,
        /// Height and width to which every image is scaled.
        size: OneOrMore<u32>,
        /// 1 for grey, 3 for colour.
        channels: u32 = 3,
    }
}

table! {
    /// Text files, byte by byte: the input is a window of text, the labels the bytes that follow each of its bytes.
    pub struct TextFiles {
        /// The files; `*` stands for anything. They are read one after another.
        files: At<OneOrMore<String>>,
        /// Bytes of a window.
        context: usize = 64,
        /// Bytes from one window to the next; the context if not given.
        stride: Option<usize> = none,
    }
}

union! {
    /// Data that is made up, so that examples need no files.
    pub enum GeneratedSet by "set", a "generated set", with Vec::new();
    {
        "blobs" => Blobs(Blobs),
        "digits" => Digits(Digits),
        "sine" => Sine(Sine),
        "text" => Text(GeneratedText),
    }
}

table! {
    /// Points around centres, one centre for each class. Gives `x0`, `x1`, ... and `label`.
    pub struct Blobs {
        /// How many rows.
        rows: u64 = 2000,
        /// Numbers in a row.
        features: usize = 8,
        /// Centres.
        classes: usize = 3,
        /// How far points are from their centre; centres are about 1 apart.
        spread: f64 = 0.3,
        /// Draws others.
        seed: u64 = 0,
    }
}

table! {
    /// Drawn digits at random places and sizes, in noise. Gives `image` and `label`.
    pub struct Digits {
        /// How many images.
        rows: u64 = 2000,
        /// Height and width.
        size: usize = 24,
        /// How strong the noise is.
        noise: f64 = 0.25,
        /// Draws others.
        seed: u64 = 0,
    }
}

table! {
    /// A wave of two periods with noise, row by row in time. Gives `value`.
    pub struct Sine {
        /// How many rows.
        rows: u64 = 2000,
        /// Rows of the longer period.
        period: f64 = 50.0,
        /// How strong the noise is.
        noise: f64 = 0.05,
        /// Draws others.
        seed: u64 = 0,
    }
}

table! {
    /// Sentences of a small grammar.
    pub struct GeneratedText {
        /// How many bytes, about.
        length: usize = 100000,
        /// Bytes of a window.
        context: usize = 64,
        /// Bytes from one window to the next; the context if not given.
        stride: Option<usize> = none,
        /// Draws others.
        seed: u64 = 0,
    }
}

table! {
    /// Data that is made up.
    pub struct Generated {
        /// What is drawn, with its settings: a name, or a table with `set`.
        generate: GeneratedSet,
    }
}

union! {
    /// The data.
    pub enum DataKind by "format", a "format", with DataCommon::fields();
    {
        "csv" => Csv(CsvFiles),
        "npy" => Npy(NpyFiles),
        "npz" => Npz(PlainFiles),
        "parquet" => Parquet(PlainFiles),
        "arrow" => Arrow(PlainFiles),
        "tfrecord" => TfRecord(TfRecordFiles),
        "images" => Images(ImageFolder),
        "idx" => Idx(IdxFiles),
        "text" => Text(TextFiles),
        "generated" => Generated(Generated),
    }
}

/// `[data]`.
pub type DataTable = With<DataCommon, DataKind>;
