//! Writing elements to Parquet and Arrow IPC files: the reverse of `columnar.rs`.

use super::write::NewFile;
use crate::builder::Builder;
use crate::column::{Chunk, Column};
use crate::{Component, Dataset, Error, Kind, Spec};
use arrow_array::types as ty;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, FixedSizeListArray, ListArray, PrimitiveArray,
    RecordBatch, StringArray,
};
use arrow_buffer::{BooleanBuffer, OffsetBuffer};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use plimsoll_budget::{Budget, Bytes};
use plimsoll_tensor::DType;
use std::path::Path;
use std::sync::Arc;

impl Dataset {
    /// Writes every element to a Parquet file, a column for each component, and says how many there were.
    ///
    /// Components are scalars or have one axis, which becomes a list (of fixed size where it is one). Strings are text where the
    /// first of them are, else binary. Row groups are as large as an eighth of the memory that is left allows, 16 MiB at most;
    /// the file appears under its name when it is complete.
    ///
    /// ```
    /// use plimsoll_budget::{Budget, Bytes};
    /// use plimsoll_data::Dataset;
    /// let path = std::env::temp_dir().join(format!("plimsoll-doc-{}.parquet", std::process::id()));
    /// let budget = Budget::new(Bytes::mib(8));
    /// assert_eq!(Dataset::range(0, 10, 1).write_parquet(&path, &budget)?, 10);
    /// let back = Dataset::from_parquet(&path, None).skip(9).iter(&budget)?.next().unwrap()?;
    /// assert_eq!(back.get::<i64>("value")?, [9]);
    /// # std::fs::remove_file(path)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When a component has more axes or a type that Arrow lacks (`bf16`), the elements cannot be made, a string is not text though
    /// the first ones were, or the file cannot be written.
    pub fn write_parquet(&self, path: impl AsRef<Path>, budget: &Budget) -> Result<u64, Error> {
        let path = path.as_ref();
        let rows = self.write_table("write_parquet", path, budget, |schema, room| {
            let properties = WriterProperties::builder()
                .set_compression(Compression::SNAPPY)
                .set_data_page_size_limit(room.clamp(8 << 10, 1 << 20))
                .set_dictionary_page_size_limit(room.clamp(8 << 10, 1 << 20))
                .build();
            let file = NewFile::create(path)?;
            let writer = ArrowWriter::try_new(file, schema, Some(properties)).map_err(|e| failed(path, e))?;
            Ok(Parquet { writer, room })
        })?;
        Ok(rows)
    }

    /// Writes every element to an Arrow IPC file (Feather, version 2), a column for each component, and says how many there were.
    ///
    /// As [`Dataset::write_parquet`], with record batches instead of row groups, not compressed.
    ///
    /// # Errors
    /// As [`Dataset::write_parquet`].
    pub fn write_arrow(&self, path: impl AsRef<Path>, budget: &Budget) -> Result<u64, Error> {
        let path = path.as_ref();
        self.write_table("write_arrow", path, budget, |schema, _| {
            let file = NewFile::create(path)?;
            FileWriter::try_new(file, &schema).map_err(|e| failed(path, e))
        })
    }

    fn write_table<S: Sink>(
        &self,
        what: &str,
        path: &Path,
        budget: &Budget,
        create: impl FnOnce(SchemaRef, usize) -> Result<S, Error>,
    ) -> Result<u64, Error> {
        let spec = self.spec()?;
        if let Some(c) = spec.components().iter().find(|c| !can_hold(c)) {
            let message = format!("component {c} is neither a scalar nor of one axis of a type that Arrow has");
            return Err(Error::pipeline(what, message));
        }
        let account = budget.account(what);
        // What the encoders hold, and the rows at hand in two forms.
        let room = (budget.available().unwrap_or(Bytes::MAX).0 / 8).clamp(16 << 10, 16 << 20);
        let _held = account.reserve(Bytes(room))?;
        let block = room as usize / 4;
        let mut iter = self.iter(budget)?;
        let (mut schema, mut sink, mut create) = (None, None, Some(create));
        let (mut rows, mut at_hand, mut ended) = (0u64, Builder::new(&account, &spec)?, false);
        let mut weight = 0;
        while !ended {
            match iter.next().transpose()? {
                Some(element) => {
                    weight += element.chunk.weight();
                    at_hand.append(&element.chunk, 0..1)?;
                }
                None => ended = true,
            }
            if weight < block && at_hand.rows() < 8192 && !ended {
                continue;
            }
            let chunk = std::mem::replace(&mut at_hand, Builder::new(&account, &spec)?).finish();
            let schema = schema.get_or_insert_with(|| schema_of(&spec, &chunk)).clone();
            if let Some(create) = create.take() {
                sink = Some(create(schema.clone(), room as usize)?);
            }
            let _converted = account.reserve(Bytes::from(weight))?;
            let batch = batch(&schema, &chunk, rows, path)?;
            let sink = sink.as_mut().expect("made with the first rows");
            sink.take(&batch).map_err(|e| Error::in_file(path, e))?;
            (rows, weight) = (rows + chunk.rows as u64, 0);
        }
        let file = sink.expect("made before the end").close().map_err(|e| Error::in_file(path, e))?;
        file.finish(b"")?;
        Ok(rows)
    }
}

/// What takes the batches of a file.
trait Sink {
    fn take(&mut self, batch: &RecordBatch) -> Result<(), String>;
    fn close(self) -> Result<NewFile, String>;
}

struct Parquet {
    writer: ArrowWriter<NewFile>,
    /// The bytes that a row group may hold before it is written.
    room: usize,
}

impl Sink for Parquet {
    fn take(&mut self, batch: &RecordBatch) -> Result<(), String> {
        self.writer.write(batch).map_err(|e| e.to_string())?;
        if self.writer.memory_size() > self.room / 2 {
            self.writer.flush().map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    fn close(self) -> Result<NewFile, String> {
        self.writer.into_inner().map_err(|e| e.to_string())
    }
}

impl Sink for FileWriter<NewFile> {
    fn take(&mut self, batch: &RecordBatch) -> Result<(), String> {
        self.write(batch).map_err(|e| e.to_string())
    }

    fn close(self) -> Result<NewFile, String> {
        self.into_inner().map_err(|e| e.to_string())
    }
}

fn failed(path: &Path, error: impl std::fmt::Display) -> Error {
    Error::in_file(path, error.to_string())
}

fn can_hold(component: &Component) -> bool {
    !matches!(component.kind, Kind::Number(DType::BF16 | DType::F8E4M3 | DType::F8E5M2))
        && component.dims.as_ref().is_some_and(|dims| dims.len() <= 1)
}

/// The columns of a file whose first rows are these.
fn schema_of(spec: &Spec, first: &Chunk) -> SchemaRef {
    let field = |(c, column): (&Component, &Column)| {
        let leaf = match c.kind {
            Kind::Bytes => {
                let is_text = |v: usize| std::str::from_utf8(column.string(v)).is_ok();
                if column.values(0..column.rows).all(is_text) { DataType::Utf8 } else { DataType::Binary }
            }
            Kind::Number(dtype) => match dtype {
                DType::F16 => DataType::Float16,
                DType::F32 => DataType::Float32,
                DType::F64 => DataType::Float64,
                DType::I32 => DataType::Int32,
                DType::I64 => DataType::Int64,
                DType::U8 => DataType::UInt8,
                DType::I8 => DataType::Int8,
                DType::I16 => DataType::Int16,
                DType::U16 => DataType::UInt16,
                DType::U32 => DataType::UInt32,
                DType::Bool => DataType::Boolean,
                DType::BF16 | DType::F8E4M3 | DType::F8E5M2 => unreachable!("refused before"),
            },
        };
        let item = || Arc::new(Field::new("item", leaf.clone(), false));
        let data_type = match c.dims.as_deref() {
            Some([Some(n)]) => DataType::FixedSizeList(item(), *n as i32),
            Some([None]) => DataType::List(item()),
            _ => leaf.clone(),
        };
        Field::new(&c.name, data_type, false)
    };
    Arc::new(Schema::new(spec.components().iter().zip(&first.columns).map(field).collect::<Vec<_>>()))
}

fn batch(schema: &SchemaRef, chunk: &Chunk, first: u64, path: &Path) -> Result<RecordBatch, Error> {
    let arrays: Vec<ArrayRef> = schema
        .fields()
        .iter()
        .zip(&chunk.columns)
        .map(|(field, column)| {
            array(field.data_type(), column).map_err(|row| {
                let place = crate::Place::Row(path.into(), first + row as u64);
                let message =
                    format!("column '{}': a string that is not UTF-8, though the first ones are", field.name());
                Error::data(place, message)
            })
        })
        .collect::<Result<_, _>>()?;
    RecordBatch::try_new(schema.clone(), arrays).map_err(|e| failed(path, e))
}

/// The rows of a column as an array; fails with the row whose string is not text.
fn array(data_type: &DataType, column: &Column) -> Result<ArrayRef, usize> {
    let rows = 0..column.rows;
    Ok(match data_type {
        DataType::FixedSizeList(item, n) => {
            let values = values(item.data_type(), column)?;
            Arc::new(
                FixedSizeListArray::try_new_with_length(item.clone(), *n, values, None, column.rows)
                    .map_err(|_| 0usize)?,
            )
        }
        DataType::List(item) => {
            let lengths = OffsetBuffer::from_lengths(rows.map(|row| column.shape(row).elements()));
            Arc::new(ListArray::new(item.clone(), lengths, values(item.data_type(), column)?, None))
        }
        leaf => values(leaf, column)?,
    })
}

/// All values of a column, one after another.
fn values(leaf: &DataType, column: &Column) -> Result<ArrayRef, usize> {
    fn numbers<T: ArrowPrimitiveType, const N: usize>(bytes: &[u8], of: impl Fn([u8; N]) -> T::Native) -> ArrayRef {
        Arc::new(PrimitiveArray::<T>::from_iter_values(bytes.as_chunks::<N>().0.iter().map(|v| of(*v))))
    }
    let bytes = column.bytes(0..column.rows);
    let strings = || column.values(0..column.rows).map(|v| column.string(v));
    Ok(match leaf {
        DataType::Float16 => numbers::<ty::Float16Type, 2>(bytes, half::f16::from_ne_bytes),
        DataType::Float32 => numbers::<ty::Float32Type, 4>(bytes, f32::from_ne_bytes),
        DataType::Float64 => numbers::<ty::Float64Type, 8>(bytes, f64::from_ne_bytes),
        DataType::Int32 => numbers::<ty::Int32Type, 4>(bytes, i32::from_ne_bytes),
        DataType::Int64 => numbers::<ty::Int64Type, 8>(bytes, i64::from_ne_bytes),
        DataType::UInt8 => numbers::<ty::UInt8Type, 1>(bytes, |v| v[0]),
        DataType::Int8 => numbers::<ty::Int8Type, 1>(bytes, i8::from_ne_bytes),
        DataType::Int16 => numbers::<ty::Int16Type, 2>(bytes, i16::from_ne_bytes),
        DataType::UInt16 => numbers::<ty::UInt16Type, 2>(bytes, u16::from_ne_bytes),
        DataType::UInt32 => numbers::<ty::UInt32Type, 4>(bytes, u32::from_ne_bytes),
        DataType::Boolean => {
            Arc::new(BooleanArray::new(BooleanBuffer::collect_bool(bytes.len(), |i| bytes[i] != 0), None))
        }
        DataType::Utf8 => {
            let first = column.values(0..column.rows).start;
            let text = strings().map(std::str::from_utf8).collect::<Result<Vec<_>, _>>();
            let text = text.map_err(|_| {
                let bad = strings().position(|s| std::str::from_utf8(s).is_err()).unwrap_or(0) + first;
                (0..column.rows).find(|row| column.values(*row..row + 1).contains(&bad)).unwrap_or(0)
            })?;
            Arc::new(StringArray::from_iter_values(text))
        }
        _ => Arc::new(BinaryArray::from_iter_values(strings())),
    })
}
