//! What Parquet and Arrow files have in common: arrays of Arrow become columns.

use crate::builder::ColumnBuilder;
use crate::{Component, Kind};
use arrow_array::cast::AsArray;
use arrow_array::types as ty;
use arrow_array::{Array, ArrowPrimitiveType};
use arrow_schema::{DataType, Field};
use plimsoll_tensor::{DType, Shape};
use std::ops::Range;

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
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            for row in rows {
                let (start, end) = (list.value_offsets()[row] as usize, list.value_offsets()[row + 1] as usize);
                part(list.values(), start..end, &Shape::new(&[end - start]), to).map_err(|(_, e)| (row, e))?;
            }
            Ok(())
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            for row in rows {
                let (start, end) = (list.value_offsets()[row] as usize, list.value_offsets()[row + 1] as usize);
                part(list.values(), start..end, &Shape::new(&[end - start]), to).map_err(|(_, e)| (row, e))?;
            }
            Ok(())
        }
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
