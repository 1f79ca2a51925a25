//! `tf.train.Example`: the message that TFRecord files usually hold.
//!
//! Decoded straight from the bytes into columns: a general protobuf decoder would make a heap object for every feature and every string of
//! every record, of which a hostile record can hold a great many. The tests compare with such a decoder.

use super::measure;
use crate::column::Row;
use crate::dataset::Total;
use crate::stages::{Sizes, Writer};
use crate::{Component, Dataset, Error, Kind, Spec};
use plimsoll_tensor::DType;
use std::sync::{Arc, OnceLock};

impl Dataset {
    /// The features of serialized `tf.train.Example`s in component `name`, as `tf.io.parse_example` gives them.
    ///
    /// Components are `f32`, `i64` or bytes, of a fixed shape or ragged along one axis (`[None]`). A feature of a fixed shape must be
    /// there with as many values; a ragged one that is missing is empty. Put `.parallel(..)` behind it to decode on several
    /// threads.
    ///
    /// ```no_run
    /// use plimsoll_data::{AUTOTUNE, Component, Compression, Dataset, Kind};
    /// use plimsoll_tensor::DType;
    /// let data = Dataset::from_tfrecords("train.tfrecord", Compression::None)
    ///     .parse_example("record", [Component::new("label", DType::I64, &[]), Component::new("image", Kind::Bytes, &[])])
    ///     .parallel(AUTOTUNE);
    /// ```
    pub fn parse_example(&self, name: &str, components: impl IntoIterator<Item = Component>) -> Dataset {
        let components: Vec<Component> = components.into_iter().collect();
        for c in &components {
            let ragged = c.dims.as_ref().is_none_or(|dims| dims.iter().filter(|d| d.is_none()).count() > 1);
            let known = matches!(c.kind, Kind::Bytes | Kind::Number(DType::F32 | DType::I64));
            if ragged || !known {
                let message = format!("component {c}: features are f32, i64 or bytes, with at most one size open");
                return Dataset::from_result(Err(Error::pipeline("parse_example", message)));
            }
        }
        let (name, wanted) = (name.to_string(), components.clone());
        let sizes = sizes(self.clone(), name.clone(), &components);
        self.map_of_sizes(components, sizes, move |row, out| decode(row.string(&name)?, &wanted, out))
    }
}

/// How large the elements are that these components of records become: those of a look through the records, where all are seen;
/// else as large as the largest record can make them.
fn sizes(records: Dataset, name: String, components: &[Component]) -> Sizes {
    let (of_record, wanted) = (largest(components), components.to_vec());
    let found = OnceLock::new();
    let look = Arc::new(move || {
        let look = || {
            let spec = Spec::new(wanted.clone()).ok()?;
            measure::look_at_made(&records, &spec, |row, out| decode(row.string(&name)?, &wanted, out))
        };
        *found.get_or_init(|| look().filter(|found| found.is_all))
    });
    let again = look.clone();
    Sizes {
        largest: Box::new(move |record| look().map(|found| found.largest).or_else(|| of_record(record))),
        scratch: Box::new(|_| Some(0)),
        total: Box::new(move || again().map(|found| Total { elements: found.elements, bytes: found.bytes })),
    }
}

/// The bytes of the largest element that these components can have, from those of the record.
fn largest(components: &[Component]) -> impl Fn(u64) -> Option<u64> + Send + Sync + use<> {
    let (mut fixed, mut times) = (0u64, 0);
    for c in components {
        let values = c.dims.iter().flatten().map(|dim| dim.unwrap_or(1)).product::<usize>() as u64;
        let is_open = c.shape().is_none();
        fixed = fixed.saturating_add(8);
        match c.kind {
            // A byte of the record is a number, half a string, a byte of a string, or a quarter of a float at the most. What one
            // component has of the record no other has.
            Kind::Bytes if is_open => times = times.max(4),
            Kind::Bytes => (fixed, times) = (fixed.saturating_add(values.saturating_mul(8)), times.max(1)),
            Kind::Number(DType::I64) if is_open => times = times.max(8),
            Kind::Number(_) if is_open => times = times.max(1),
            Kind::Number(dtype) => fixed = fixed.saturating_add(values.saturating_mul(dtype.size() as u64)),
        }
    }
    move |record| record.checked_mul(times)?.checked_add(fixed)
}

/// The fields of a protobuf message.
#[derive(Clone, Copy)]
struct Message<'a>(&'a [u8]);

#[derive(Clone, Copy)]
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    Fixed32([u8; 4]),
    Fixed64,
}

fn broken(what: &str) -> Error {
    Error::element(format!("not a tf.train.Example: {what}"))
}

fn varint(bytes: &mut &[u8]) -> Result<u64, Error> {
    let mut value = 0u64;
    for shift in (0..70).step_by(7) {
        let byte = *bytes.split_off_first().ok_or_else(|| broken("it ends inside a number"))?;
        if shift == 63 && byte > 1 {
            break;
        }
        value |= ((byte & 0x7f) as u64) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(broken("a number has more than 64 bits"))
}

impl<'a> Message<'a> {
    /// The next field and its number; `None` at the end.
    fn next(&mut self) -> Result<Option<(u64, Field<'a>)>, Error> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = varint(&mut self.0)?;
        let short = || broken("it ends inside a field");
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut self.0)?),
            1 => {
                self.0.split_off(..8).ok_or_else(short)?;
                Field::Fixed64
            }
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).map_err(|_| short())?;
                Field::Bytes(self.0.split_off(..length).ok_or_else(short)?)
            }
            5 => Field::Fixed32(self.0.split_off(..4).ok_or_else(short)?.try_into().expect("4 bytes")),
            kind => return Err(broken(&format!("a field of kind {kind}"))),
        };
        Ok(Some((tag >> 3, field)))
    }

    /// Calls `each` with the bytes of every field of this number.
    fn each(mut self, number: u64, mut each: impl FnMut(&'a [u8]) -> Result<(), Error>) -> Result<(), Error> {
        while let Some((n, field)) = self.next()? {
            if let (true, Field::Bytes(bytes)) = (n == number, field) {
                each(bytes)?;
            }
        }
        Ok(())
    }
}

/// The value of a feature: which list it is, and the list.
type Feature<'a> = Option<(u64, &'a [u8])>;

/// Calls `each` with the name and the value of every feature.
fn features<'a>(record: &'a [u8], mut each: impl FnMut(&'a [u8], Feature<'a>)) -> Result<(), Error> {
    Message(record).each(1, |features| {
        Message(features).each(1, |entry| {
            let (mut key, mut value) = (&b""[..], &b""[..]);
            let mut entry = Message(entry);
            while let Some((number, field)) = entry.next()? {
                match (number, field) {
                    (1, Field::Bytes(bytes)) => key = bytes,
                    (2, Field::Bytes(bytes)) => value = bytes,
                    _ => {}
                }
            }
            let mut list = None;
            let mut feature = Message(value);
            while let Some((number, field)) = feature.next()? {
                if let (1..=3, Field::Bytes(bytes)) = (number, field) {
                    list = Some((number, bytes));
                }
            }
            each(key, list);
            Ok(())
        })
    })
}

/// What the features of some records look like, in the order of their names: of a fixed size where all have as many values.
/// `None` when the records are not `tf.train.Example`s.
pub(crate) fn infer<'a>(records: impl IntoIterator<Item = &'a [u8]>) -> Option<Vec<Component>> {
    let mut found = std::collections::BTreeMap::<String, (u64, usize, bool)>::new();
    let mut n_records = 0;
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for record in records {
        n_records += 1;
        let mut known = true;
        features(record, |name, feature| {
            let (Ok(name), Some((number, list))) = (std::str::from_utf8(name), feature) else {
                known = false;
                return;
            };
            let mut n = 0;
            let counted = match number {
                1 => strings(list, |_| {
                    n += 1;
                    Ok(())
                }),
                2 => floats(list, |_| n += 1),
                _ => numbers(list, |_| n += 1),
            };
            let (first, size, same) = found.entry(name.into()).or_insert((number, n, true));
            *same &= *size == n;
            known &= counted.is_ok() && *first == number;
            *seen.entry(name.into()).or_default() += 1;
        })
        .ok()
        .filter(|()| known)?;
    }
    let component = |(name, (number, size, same)): (String, (u64, usize, bool))| {
        let kind = [Kind::Bytes, Kind::Number(DType::F32), Kind::Number(DType::I64)][number as usize - 1];
        match (same && seen[&name] == n_records, size) {
            (true, 1) => Component::new(name, kind, &[]),
            (true, n) => Component::new(name, kind, &[n]),
            (false, _) => Component::ragged(name, kind, &[None]),
        }
    };
    (!found.is_empty()).then(|| found.into_iter().map(component).collect())
}

fn decode(record: &[u8], wanted: &[Component], out: &mut Writer<'_, '_>) -> Result<(), Error> {
    let mut found: Vec<Feature<'_>> = vec![None; wanted.len()];
    features(record, |name, feature| {
        if let Some(at) = wanted.iter().position(|c| c.name.as_bytes() == name) {
            // Of two features of one name the later one counts, as for every protobuf map.
            found[at] = feature;
        }
    })?;
    wanted.iter().zip(found).try_for_each(|(component, feature)| {
        write(component, feature, out).map_err(|error| match error {
            Error::Data { place, message } => Error::data(place, format!("feature '{}': {message}", component.name)),
            other => other,
        })
    })
}

fn write(component: &Component, feature: Feature<'_>, out: &mut Writer<'_, '_>) -> Result<(), Error> {
    let number = match component.kind {
        Kind::Bytes => 1,
        Kind::Number(DType::F32) => 2,
        Kind::Number(_) => 3,
    };
    let list = match feature {
        None => &[],
        Some((found, list)) if found == number => list,
        Some((found, _)) => {
            let name = ["bytes_list", "float_list", "int64_list"];
            let (found, asked) = (name[found as usize - 1], name[number as usize - 1]);
            return Err(Error::element(format!("is a {found}, but {} needs a {asked}", component.kind)));
        }
    };
    let mut n = 0;
    match number {
        1 => strings(list, |_| {
            n += 1;
            Ok(())
        })?,
        2 => floats(list, |_| n += 1)?,
        _ => numbers(list, |_| n += 1)?,
    }
    let shape = shape(component, n, feature.is_some())?;
    let name = &component.name;
    match number {
        1 => {
            // All of them have been seen when they were counted.
            let all = Strings(Message(list)).take(n);
            out.put_strings(name, &shape, all)
        }
        2 => {
            let mut slot = out.slot::<f32>(name, &shape)?.iter_mut();
            floats(list, |v| *slot.next().expect("counted") = v)
        }
        _ => {
            let mut slot = out.slot::<i64>(name, &shape)?.iter_mut();
            numbers(list, |v| *slot.next().expect("counted") = v as i64)
        }
    }
}

/// The shape that `n` values have as this component.
fn shape(component: &Component, n: usize, present: bool) -> Result<Vec<usize>, Error> {
    let dims = component.dims.as_deref().unwrap_or(&[]);
    let known: usize = dims.iter().flatten().product();
    let fits = match dims.contains(&None) {
        true => known > 0 && n.is_multiple_of(known),
        false => n == known,
    };
    if !fits {
        let found = if present { format!("{n} values") } else { "missing".into() };
        return Err(Error::element(format!("{found}, but {component} needs {known}")));
    }
    Ok(dims.iter().map(|d| d.unwrap_or(n / known)).collect())
}

fn strings<'a>(list: &'a [u8], mut each: impl FnMut(&'a [u8]) -> Result<(), Error>) -> Result<(), Error> {
    Message(list).each(1, &mut each)
}

/// The strings of a list, up to what is no list.
#[derive(Clone)]
struct Strings<'a>(Message<'a>);

impl<'a> Iterator for Strings<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        loop {
            if let (1, Field::Bytes(string)) = self.0.next().ok()?? {
                return Some(string);
            }
        }
    }
}

fn floats(list: &[u8], mut each: impl FnMut(f32)) -> Result<(), Error> {
    let mut list = Message(list);
    while let Some((number, field)) = list.next()? {
        match (number, field) {
            (1, Field::Fixed32(bytes)) => each(f32::from_le_bytes(bytes)),
            (1, Field::Bytes(packed)) => {
                let (values, rest) = packed.as_chunks::<4>();
                if !rest.is_empty() {
                    return Err(broken("packed floats that are not whole"));
                }
                values.iter().for_each(|v| each(f32::from_le_bytes(*v)));
            }
            _ => {}
        }
    }
    Ok(())
}

fn numbers(list: &[u8], mut each: impl FnMut(u64)) -> Result<(), Error> {
    let mut list = Message(list);
    while let Some((number, field)) = list.next()? {
        match (number, field) {
            (1, Field::Number(value)) => each(value),
            (1, Field::Bytes(mut packed)) => {
                while !packed.is_empty() {
                    each(varint(&mut packed)?);
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn put_varint(mut value: u64, to: &mut Vec<u8>) {
    while value >= 0x80 {
        to.push(value as u8 | 0x80);
        value >>= 7;
    }
    to.push(value as u8);
}

fn put_field(number: u64, bytes: &[u8], to: &mut Vec<u8>) {
    put_varint(number << 3 | 2, to);
    put_varint(bytes.len() as u64, to);
    to.extend_from_slice(bytes);
}

/// Appends an element as a serialized `tf.train.Example`.
pub(crate) fn encode(row: &Row<'_>, to: &mut Vec<u8>) -> Result<(), Error> {
    let mut features = Vec::new();
    for component in row.spec().components() {
        let name = &component.name;
        let (mut values, mut list, mut feature, mut entry) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let number = match component.kind {
            Kind::Bytes => {
                row.strings(name)?.for_each(|s| put_field(1, s, &mut list));
                1
            }
            Kind::Number(dtype) if dtype.is_float() => {
                row.tensor(name)?.to_f64().iter().for_each(|v| values.extend_from_slice(&(*v as f32).to_le_bytes()));
                put_field(1, &values, &mut list);
                2
            }
            Kind::Number(DType::I64) => {
                // Not by way of f64, which does not hold all of them.
                row.get::<i64>(name)?.iter().for_each(|v| put_varint(*v as u64, &mut values));
                put_field(1, &values, &mut list);
                3
            }
            Kind::Number(_) => {
                row.tensor(name)?.to_f64().iter().for_each(|v| put_varint(*v as i64 as u64, &mut values));
                put_field(1, &values, &mut list);
                3
            }
        };
        put_field(number, &list, &mut feature);
        put_field(1, name.as_bytes(), &mut entry);
        put_field(2, &feature, &mut entry);
        put_field(1, &entry, &mut features);
    }
    put_field(1, &features, to);
    Ok(())
}
