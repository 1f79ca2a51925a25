//! What Parquet and Arrow files have in common: arrays of Arrow become columns.

use crate::builder::{Builder, ColumnBuilder};
use crate::flow::Stage;
use crate::guard::{brief, caught};
use crate::{Component, Error, Kind, Place, Spec};
use arrow_array::cast::AsArray;
use arrow_array::types as ty;
use arrow_array::{Array, ArrowPrimitiveType, OffsetSizeTrait, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use plimsoll_tensor::{DType, Shape};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// The most bytes of a footer: it is read, and understood, as a whole.
pub(crate) const LONGEST_FOOTER: u64 = 16 << 20;

/// A file read batch by batch.
pub(crate) trait Batches: Send {
    fn path(&self) -> &Path;

    /// The next batch, of about `want` rows where that can be chosen; `None` at the end. `row` is the number of its first row. The batch
    /// before it is gone by now, and its memory can be given back.
    fn next(&mut self, want: usize, row: u64) -> Result<Option<RecordBatch>, Error>;

    /// Passes over `n` rows from `row` on and says over how many; `None` when they must be read.
    fn skip(&mut self, n: u64, row: u64) -> Option<u64> {
        let _ = (n, row);
        None
    }
}

/// The rows of a file.
pub(crate) struct Table<B> {
    batches: B,
    spec: Arc<Spec>,
    /// The number of the next row in the file.
    row: u64,
    /// The batch at hand, and how many of its rows are used.
    batch: Option<(RecordBatch, usize)>,
}

impl<B: Batches> Table<B> {
    pub(crate) fn new(batches: B, spec: Arc<Spec>) -> Table<B> {
        Table { batches, spec, row: 0, batch: None }
    }

    /// Appends some rows of the batch at hand, the columns in the order asked for; or says which one cannot be.
    fn append(&self, batch: &RecordBatch, rows: Range<usize>, out: &mut Builder<'_>) -> Result<(), (usize, Error)> {
        let path = self.batches.path();
        for (to, c) in out.columns.iter_mut().zip(self.spec.components()) {
            let array = batch
                .column_by_name(&c.name)
                .ok_or_else(|| (rows.start, Error::in_file(path, format!("has no column '{}'", c.name))))?;
            append(array, rows.clone(), to).map_err(|(bad, what)| {
                let place = Place::Row(path.into(), self.row + (bad - rows.start) as u64);
                let data = |message| Error::data(place, format!("column '{}': {message}", c.name));
                (bad, what.map_or_else(|error| error, data))
            })?;
        }
        out.commit_rows(rows.len());
        Ok(())
    }
}

impl<B: Batches> Stage for Table<B> {
    fn fill(&mut self, out: &mut Builder<'_>, want: usize) -> Result<bool, Error> {
        let at_hand = self.batch.take().filter(|(batch, used)| *used < batch.num_rows());
        let at_hand = match at_hand {
            Some(at_hand) => Some(at_hand),
            None => {
                let next = self.batches.next(want, self.row);
                // An error stands for a row.
                self.row += next.is_err() as u64;
                next?.map(|batch| (batch, 0))
            }
        };
        let Some((batch, used)) = at_hand else { return Ok(false) };
        let rows = used..batch.num_rows().min(used + want);
        let mut result = self.append(&batch, rows.clone(), out);
        let mut done = rows.len();
        if let Err((bad, _)) = result {
            out.rollback();
            // Those before the bad one are good.
            done = bad - rows.start + 1;
            let good = self.append(&batch, rows.start..bad, out);
            result = good.and(result);
        }
        self.row += done as u64;
        self.batch = Some((batch, used + done));
        result.map(|()| true).map_err(|(_, error)| error)
    }

    fn skip(&mut self, n: u64) -> Result<Option<u64>, Error> {
        let skipped = self.batches.skip(n, self.row);
        self.row += skipped.unwrap_or(0);
        Ok(skipped)
    }
}

/// Runs a library that may panic on broken files, and makes an error of it.
pub(crate) fn guarded<T, E: std::fmt::Display>(
    path: &Path,
    row: u64,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, Error> {
    let place = || Place::Row(path.to_path_buf(), row);
    caught(work)
        .ok_or_else(|| Error::data(place(), "is broken in a way that its decoder does not expect"))?
        .map_err(|error| Error::data(place(), brief(&error)))
}

/// The places of the columns asked for, or of all, and what they become.
pub(crate) fn wanted(
    schema: &Schema,
    columns: Option<&[String]>,
    path: &Path,
) -> Result<(Vec<usize>, Arc<Spec>), Error> {
    let bad = |message: String| Error::in_file(path, message);
    let find = |name: &String| {
        schema.fields().iter().position(|f| f.name() == name).ok_or_else(|| {
            let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
            bad(format!("has no column '{name}'; there are {}", names.join(", ")))
        })
    };
    let wanted: Vec<usize> = match columns {
        None => (0..schema.fields().len()).collect(),
        Some(columns) => columns.iter().map(find).collect::<Result<_, _>>()?,
    };
    let components = wanted.iter().map(|i| component(schema.field(*i)).map_err(bad)).collect::<Result<Vec<_>, _>>()?;
    Ok((wanted, Arc::new(Spec::new(components)?)))
}

/// What a column of Arrow's becomes; `Err` says what it is when we have nothing for it.
pub(crate) fn component(field: &Field) -> Result<Component, String> {
    let name = field.name();
    let leaf = |ty: &DataType| kind(ty).ok_or_else(|| format!("column '{name}' holds {ty}, which is not supported"));
    Ok(match field.data_type() {
        DataType::List(inner) | DataType::LargeList(inner) => {
            Component::ragged(name, leaf(inner.data_type())?, &[None])
        }
        DataType::FixedSizeList(inner, n) => Component::new(name, leaf(inner.data_type())?, &[(*n).max(0) as usize]),
        ty => Component::new(name, leaf(ty)?, &[]),
    })
}

fn kind(data_type: &DataType) -> Option<Kind> {
    Some(Kind::Number(match data_type {
        DataType::Boolean => DType::Bool,
        DataType::UInt8 => DType::U8,
        DataType::Int8 | DataType::Int16 | DataType::UInt16 | DataType::Int32 | DataType::Date32 => DType::I32,
        DataType::UInt32 | DataType::Int64 | DataType::UInt64 | DataType::Date64 | DataType::Timestamp(..) => {
            DType::I64
        }
        DataType::Float16 => DType::F16,
        DataType::Float32 => DType::F32,
        DataType::Float64 => DType::F64,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => return Some(Kind::Bytes),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => return Some(Kind::Bytes),
        DataType::FixedSizeBinary(_) => return Some(Kind::Bytes),
        DataType::Dictionary(_, values) if kind(values) == Some(Kind::Bytes) => return Some(Kind::Bytes),
        _ => return None,
    }))
}

/// Why a row cannot be taken: which, and what is wrong. `None` when memory is.
pub(crate) type Refused = (usize, Result<String, crate::Error>);

/// Appends rows of an array.
pub(crate) fn append(array: &dyn Array, rows: Range<usize>, to: &mut ColumnBuilder<'_>) -> Result<(), Refused> {
    match array.data_type() {
        DataType::List(_) => lists::<i32>(array, rows, to),
        DataType::LargeList(_) => lists::<i64>(array, rows, to),
        DataType::FixedSizeList(..) => {
            let list = array.as_fixed_size_list();
            let n = list.value_length() as usize;
            for row in rows {
                if list.is_null(row) {
                    return Err((row, Ok("is null".into())));
                }
                let start = list.value_offset_at(row);
                part(list.values(), start..start + n, &Shape::new(&[n]), to).map_err(|(_, e)| (row, e))?;
            }
            Ok(())
        }
        DataType::Dictionary(..) => {
            let dictionary = array.as_any_dictionary();
            let keys = dictionary.normalized_keys();
            rows.into_iter().try_for_each(|row| {
                // A missing string is empty; what its key says is then nothing.
                let value = if array.is_null(row) { b"" } else { string(dictionary.values(), keys[row]) };
                to.add_strings(&Shape::scalar(), [value]).map_err(|e| (row, Err(e)))
            })
        }
        _ if kind(array.data_type()) == Some(Kind::Bytes) => {
            rows.into_iter().try_for_each(|row| part(array, row..row + 1, &Shape::scalar(), to))
        }
        _ => {
            let n = rows.len();
            let start = rows.start;
            let bytes = to.add(&Shape::scalar(), n).map_err(|e| (start, Err(e)))?;
            numbers(array, rows, bytes)
        }
    }
}

/// Appends rows that are lists, each of its own length.
fn lists<O: OffsetSizeTrait>(array: &dyn Array, rows: Range<usize>, to: &mut ColumnBuilder<'_>) -> Result<(), Refused> {
    let list = array.as_list::<O>();
    for row in rows {
        let (start, end) = (list.value_offsets()[row].as_usize(), list.value_offsets()[row + 1].as_usize());
        part(list.values(), start..end, &Shape::new(&[end - start]), to).map_err(|(_, e)| (row, e))?;
    }
    Ok(())
}

/// Appends values as one row.
fn part(array: &dyn Array, values: Range<usize>, shape: &Shape, to: &mut ColumnBuilder<'_>) -> Result<(), Refused> {
    let start = values.start;
    let memory = |e| (start, Err(e));
    if kind(array.data_type()) == Some(Kind::Bytes) {
        return to.add_strings(shape, values.map(|v| string(array, v))).map_err(memory);
    }
    let bytes = to.add(shape, 1).map_err(memory)?;
    numbers(array, values, bytes)
}

/// A string; a missing one is empty.
fn string(array: &dyn Array, value: usize) -> &[u8] {
    if array.is_null(value) {
        return b"";
    }
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(value).as_bytes(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(value).as_bytes(),
        DataType::Utf8View => array.as_string_view().value(value).as_bytes(),
        DataType::Binary => array.as_binary::<i32>().value(value),
        DataType::LargeBinary => array.as_binary::<i64>().value(value),
        DataType::BinaryView => array.as_binary_view().value(value),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().value(value),
        // Inside a list; elsewhere the keys are looked up once for all rows.
        _ => {
            let dictionary = array.as_any_dictionary();
            string(dictionary.values(), dictionary.normalized_keys()[value])
        }
    }
}

/// Writes numbers; a missing one is NaN where the type has it, else it is refused.
fn numbers(array: &dyn Array, values: Range<usize>, to: &mut [u8]) -> Result<(), Refused> {
    fn each<T: ArrowPrimitiveType, const N: usize>(
        array: &dyn Array,
        values: Range<usize>,
        to: &mut [u8],
        convert: impl Fn(T::Native) -> [u8; N],
    ) {
        let from = &array.as_primitive::<T>().values()[values];
        for (from, to) in from.iter().zip(to.as_chunks_mut::<N>().0) {
            *to = convert(*from);
        }
    }
    let missing = array.nulls().and_then(|nulls| values.clone().find(|v| nulls.is_null(*v)));
    let r = values.clone();
    match array.data_type() {
        DataType::Int8 => each::<ty::Int8Type, 4>(array, r, to, |v| (v as i32).to_ne_bytes()),
        DataType::Int16 => each::<ty::Int16Type, 4>(array, r, to, |v| (v as i32).to_ne_bytes()),
        DataType::UInt16 => each::<ty::UInt16Type, 4>(array, r, to, |v| (v as i32).to_ne_bytes()),
        DataType::Int32 => each::<ty::Int32Type, 4>(array, r, to, |v| v.to_ne_bytes()),
        DataType::Date32 => each::<ty::Date32Type, 4>(array, r, to, |v| v.to_ne_bytes()),
        DataType::UInt8 => each::<ty::UInt8Type, 1>(array, r, to, |v| [v]),
        DataType::UInt32 => each::<ty::UInt32Type, 8>(array, r, to, |v| (v as i64).to_ne_bytes()),
        DataType::Int64 => each::<ty::Int64Type, 8>(array, r, to, |v| v.to_ne_bytes()),
        DataType::Date64 => each::<ty::Date64Type, 8>(array, r, to, |v| v.to_ne_bytes()),
        DataType::UInt64 => {
            let from = &array.as_primitive::<ty::UInt64Type>().values()[r];
            if let Some(bad) = from.iter().position(|v| *v > i64::MAX as u64) {
                return Err((values.start + bad, Ok(format!("{} is more than i64 holds", from[bad]))));
            }
            each::<ty::UInt64Type, 8>(array, values.clone(), to, |v| v.to_ne_bytes());
        }
        DataType::Timestamp(unit, _) => {
            use arrow_schema::TimeUnit;
            let same = |v: i64| v.to_ne_bytes();
            match unit {
                TimeUnit::Second => each::<ty::TimestampSecondType, 8>(array, r, to, same),
                TimeUnit::Millisecond => each::<ty::TimestampMillisecondType, 8>(array, r, to, same),
                TimeUnit::Microsecond => each::<ty::TimestampMicrosecondType, 8>(array, r, to, same),
                TimeUnit::Nanosecond => each::<ty::TimestampNanosecondType, 8>(array, r, to, same),
            }
        }
        DataType::Float16 => each::<ty::Float16Type, 2>(array, r, to, |v| v.to_ne_bytes()),
        DataType::Float32 => each::<ty::Float32Type, 4>(array, r, to, |v| v.to_ne_bytes()),
        DataType::Float64 => each::<ty::Float64Type, 8>(array, r, to, |v| v.to_ne_bytes()),
        DataType::Boolean => {
            let from = array.as_boolean();
            r.zip(to.iter_mut()).for_each(|(v, to)| *to = from.value(v) as u8);
        }
        other => return Err((values.start, Ok(format!("{other} where numbers were expected")))),
    }
    let Some(missing) = missing else { return Ok(()) };
    let nan: &[u8] = match array.data_type() {
        DataType::Float16 => &half::f16::NAN.to_ne_bytes(),
        DataType::Float32 => &f32::NAN.to_ne_bytes(),
        DataType::Float64 => &f64::NAN.to_ne_bytes(),
        other => return Err((missing, Ok(format!("is null, which {other} cannot hold here")))),
    };
    for v in values.clone().filter(|v| array.is_null(*v)) {
        let at = (v - values.start) * nan.len();
        to[at..at + nan.len()].copy_from_slice(nan);
    }
    Ok(())
}
