//! From rows in files to inputs and labels.

use super::fit::{Fitted, fit, numbers};
use super::sources::{Source, open, wants_cache};
use super::{Amount, Cache, Categories, DataTable, Normalize, Task};
use crate::diagnostic::{Diagnostic, nearest};
use crate::errors::{Code, diagnose_data};
use crate::job::model::{DataInfo, InputInfo, TargetInfo};
use crate::job::read::wrong_value;
use plimsoll::{Budget, DType};
use plimsoll_data::{AUTOTUNE, Calls, Component, Dataset, Error, Kind, Row, Spec, Writer};
use std::path::Path;
use std::sync::Arc;

/// Data that is ready for a model: elements have the inputs and, behind them, the labels.
pub struct Prepared {
    pub training: Dataset,
    pub validation: Option<Dataset>,
    pub fitted: Fitted,
}

/// Opens the data of a job and looks through the training part, within a budget.
///
/// # Errors
/// When files, columns or values are not what they should be.
pub fn prepare(
    table: &DataTable,
    folder: &Path,
    seed: u64,
    cache: &Path,
    budget: &Budget,
) -> Result<Prepared, Diagnostic> {
    let source = open(table, folder, None, None)?;
    let (training, mut validation) = split(table, &source, seed)?;
    let roles = Roles::of(table, &source)?;
    let (features, labels) = (roles.all_features(), roles.all_labels());
    let mut columns = fit(table, &training, &features, &labels, source.classes.as_deref(), budget)?;
    if let (Some(classes), Some((_, label))) = (&source.classes, roles.labels.first()) {
        columns.push(super::ColumnFit { name: label.clone(), categories: Some(classes.clone()), ..Default::default() });
    }
    let mut fitted =
        Fitted { columns, roles: roles.clone(), alphabet: source.alphabet.clone(), info: DataInfo::default() };
    let layout = Layout::new(table, &source, &roles, &fitted)?;
    fitted.info = layout.info();
    if let Some(files) = &table.common.validation_files {
        let other = open(table, folder, Some(&files.0), fitted.alphabet.as_deref())?;
        validation = Some(other.rows);
    }
    let layout = Arc::new(layout);
    let side_by_side = |rows: Dataset| match table.common.parallel {
        Amount::Fixed(0 | 1) => rows,
        Amount::Fixed(n) => rows.parallel(Calls::Fixed(n)),
        Amount::Auto => rows.parallel(AUTOTUNE),
    };
    let keep = |rows: Dataset, name: &str| kept(table, rows, &cache.join(name));
    let training = keep(side_by_side(layout.apply(&training)), "training");
    let validation = validation.map(|rows| keep(side_by_side(layout.apply(&rows)), "validation"));
    for data in std::iter::once(&training).chain(&validation) {
        data.spec().map_err(|e| diagnose_data(&e, Some(&source.origin)))?;
    }
    Ok(Prepared { training: shuffled(table, training, seed), validation, fitted })
}

/// Opens other files with what was learned from the training data: `labels` are left out when they are not there.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_with(
    table: &DataTable,
    folder: &Path,
    fitted: &Fitted,
    instead: Option<&[String]>,
    labels: bool,
) -> Result<Dataset, Diagnostic> {
    let source = open(table, folder, instead, fitted.alphabet.as_deref())?;
    let mut roles = fitted.roles.clone();
    if !labels {
        roles.labels.clear();
    }
    roles.check(&source)?;
    let mut layout = Layout::new(table, &source, &roles, fitted)?;
    if let (Some(window), false) = (&mut layout.window, labels) {
        // Nothing has to follow the last window.
        window.1 = 0;
    }
    Ok(Arc::new(layout).apply(&source.rows))
}

/// The training part and what is kept for validation. Where rows have numbers the parts are drawn by a permutation; in a stream
/// a row belongs to a part by its number alone. Rows in time are cut, not drawn.
fn split(table: &DataTable, source: &Source, seed: u64) -> Result<(Dataset, Option<Dataset>), Diagnostic> {
    let part = table.common.validation_split;
    if !(0.0..1.0).contains(&part) {
        let title = format!("validation_split is {part}; it is a part between 0 and 1");
        return Err(wrong_value(&table.origin, title, "in this table"));
    }
    let rows = &source.rows;
    if part == 0.0 {
        return Ok((rows.clone(), None));
    }
    let known = rows.cardinality().map_err(|e| diagnose_data(&e, Some(&source.origin)))?.known();
    let in_time = table.common.window.is_some();
    Ok(match known {
        Some(n) if in_time || rows.is_indexable().unwrap_or(false) => {
            let kept = (n as f64 * part).round() as u64;
            let order = if in_time { rows.clone() } else { rows.shuffle_once(None, seed ^ 0x7661_6c69) };
            (order.take(n - kept), Some(order.skip(n - kept)))
        }
        _ => {
            let belongs = move |row: &Row<'_>| {
                let mixed = (row.index() ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11) as f64 / (1u64 << 53) as f64
            };
            (rows.filter(move |row| Ok(belongs(row) >= part)), Some(rows.filter(move |row| Ok(belongs(row) < part))))
        }
    })
}

fn kept(table: &DataTable, rows: Dataset, path: &Path) -> Dataset {
    match table.common.cache {
        Cache::Memory => rows.cache(),
        Cache::Disk => rows.cache_on_disk(path),
        cache if wants_cache(cache, &rows) && table.common.shuffle_buffer.is_none() => rows.cache_on_disk(path),
        _ => rows,
    }
}

fn shuffled(table: &DataTable, rows: Dataset, seed: u64) -> Dataset {
    match (table.common.shuffle, table.common.shuffle_buffer) {
        (false, _) => rows,
        (true, buffer) => rows.shuffle(buffer, seed),
    }
}

/// The settings of the pipeline behind the batches.
pub fn ahead(table: &DataTable, batches: Dataset) -> Dataset {
    match table.common.prefetch {
        Amount::Fixed(0) => batches,
        Amount::Fixed(n) => batches.prefetch(Calls::Fixed(n)),
        Amount::Auto => batches.prefetch(AUTOTUNE),
    }
}

/// Which columns are inputs and which are labels: name and columns of each.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Roles {
    pub inputs: Vec<(String, Vec<String>)>,
    pub labels: Vec<(String, String)>,
}

impl Roles {
    fn of(table: &DataTable, source: &Source) -> Result<Roles, Diagnostic> {
        let spec = source.rows.spec().map_err(|e| diagnose_data(&e, Some(&source.origin)))?;
        let common = &table.common;
        let names: Vec<&str> = spec.components().iter().map(|c| c.name.as_str()).collect();
        let check = |name: &String, origin| match names.contains(&name.as_str()) {
            true => Ok(()),
            false => Err(no_column(name, &names, origin)),
        };
        let labels: Vec<(String, String)> = match (&common.labels, &common.label) {
            (Some(labels), _) => {
                labels.0.iter().try_for_each(|(_, column)| check(column, &labels.origin))?;
                labels.0.clone()
            }
            (None, Some(label)) => {
                check(label, &label.origin)?;
                vec![("output".into(), label.value.clone())]
            }
            (None, None) => vec![("output".into(), names.last().copied().unwrap_or_default().to_owned())],
        };
        let inputs = match (&common.inputs, &common.features) {
            (Some(inputs), _) => {
                let all = inputs.0.iter().flat_map(|(_, columns)| &columns.0);
                all.clone().try_for_each(|column| check(column, &inputs.origin))?;
                inputs.0.iter().map(|(name, columns)| (name.clone(), columns.0.clone())).collect()
            }
            (None, Some(features)) => {
                features.iter().try_for_each(|name| check(name, &features.origin))?;
                vec![("input".into(), features.value.clone())]
            }
            (None, None) => {
                let is_label = |name: &str| labels.iter().any(|(_, label)| label == name);
                // What is predicted from its own past is an input too.
                let in_time = common.window.is_some();
                let all = names.iter().filter(|name| in_time || !is_label(name)).map(|n| n.to_string());
                vec![("input".into(), all.collect())]
            }
        };
        if inputs.iter().any(|(_, columns): &(String, Vec<String>)| columns.is_empty()) {
            let title = "there are no features: the data has only the label".to_owned();
            return Err(Diagnostic::new(Code::BadData, title).at(&source.origin, "this data"));
        }
        Ok(Roles { inputs, labels })
    }

    /// Says so when a file lacks a column of the training data.
    fn check(&self, source: &Source) -> Result<(), Diagnostic> {
        let spec = source.rows.spec().map_err(|e| diagnose_data(&e, Some(&source.origin)))?;
        let names: Vec<&str> = spec.components().iter().map(|c| c.name.as_str()).collect();
        let all = self.all_features().into_iter().chain(self.all_labels());
        match all.into_iter().find(|name| !names.contains(&name.as_str())) {
            Some(name) => Err(no_column(&name, &names, &source.origin)),
            None => Ok(()),
        }
    }

    fn all_features(&self) -> Vec<String> {
        self.inputs.iter().flat_map(|(_, columns)| columns.clone()).collect()
    }

    fn all_labels(&self) -> Vec<String> {
        self.labels.iter().map(|(_, column)| column.clone()).collect()
    }
}

fn no_column(name: &str, names: &[&str], origin: &crate::diagnostic::Origin) -> Diagnostic {
    let label = match nearest(name, names.iter().copied()) {
        Some(near) => format!("did you mean '{near}'?"),
        None => "no column has this name".into(),
    };
    let title = format!("the data has no column '{name}'");
    wrong_value(origin, title, label).note("names", names.join(", "))
}

/// How a column's values are written.
#[derive(Clone, Debug)]
enum Way {
    /// Tokens as they are.
    Tokens,
    /// Bytes as they are: the step turns them into numbers, so that on their way they take a quarter of the memory.
    Bytes,
    /// Numbers, shifted and scaled.
    Numbers { shift: f64, scale: f64 },
    /// Texts as one number of as many as there are.
    OneHot(Vec<String>),
    /// Texts or whole numbers as the places where they stand in a list.
    Index(Vec<String>),
}

/// A column of the rows as it goes into an input or a label.
#[derive(Clone, Debug)]
struct Piece {
    column: String,
    way: Way,
    /// Its sizes, and how many numbers that are.
    shape: Vec<usize>,
    units: usize,
}

/// An input or a label of the elements.
#[derive(Clone, Debug)]
struct Part {
    name: String,
    pieces: Vec<Piece>,
    shape: Vec<usize>,
    tokens: bool,
    classes: Option<usize>,
}

/// What the elements are made of.
struct Layout {
    inputs: Vec<Part>,
    labels: Vec<Part>,
    window: Option<(usize, usize, usize)>,
    vocabulary: Option<usize>,
}

impl Layout {
    fn new(table: &DataTable, source: &Source, roles: &Roles, fitted: &Fitted) -> Result<Layout, Diagnostic> {
        let spec = source.rows.spec().map_err(|e| diagnose_data(&e, Some(&source.origin)))?;
        let is_text = fitted.alphabet.is_some();
        let mut inputs = Vec::new();
        for (name, columns) in &roles.inputs {
            let pieces: Vec<Piece> =
                columns.iter().map(|c| piece(table, &spec, c, fitted, false, is_text)).collect::<Result<_, _>>()?;
            let shape = match &pieces[..] {
                [one] => one.shape.clone(),
                many => vec![many.iter().map(|p| p.units).sum()],
            };
            let shape = if shape.is_empty() { vec![1] } else { shape };
            inputs.push(Part { name: name.clone(), pieces, shape, tokens: is_text, classes: None });
        }
        let mut labels = Vec::new();
        for (name, column) in &roles.labels {
            let piece = piece(table, &spec, column, fitted, true, is_text)?;
            let classes = match (&piece.way, table.common.task) {
                (Way::Index(categories), _) => Some(categories.len()),
                (Way::Tokens, _) => fitted.alphabet.as_ref().map(Vec::len),
                (_, Task::Regression) => None,
                _ => table.common.classes,
            };
            labels.push(Part {
                name: name.clone(),
                shape: piece.shape.clone(),
                pieces: vec![piece],
                tokens: is_text,
                classes,
            });
        }
        let window = table.common.window.as_ref().map(|w| (w.size, w.horizon, w.stride));
        if window.is_some_and(|(size, horizon, stride)| size == 0 || horizon == 0 || stride == 0) {
            return Err(wrong_value(&table.origin, "a window's size, horizon and stride are at least 1", "this data"));
        }
        Ok(Layout { inputs, labels, window, vocabulary: fitted.alphabet.as_ref().map(Vec::len) })
    }

    /// What a model has to know.
    fn info(&self) -> DataInfo {
        let with = |rows: Option<usize>, shape: &[usize]| -> Vec<usize> {
            rows.into_iter().chain(shape.iter().copied()).collect()
        };
        let size = self.window.map(|(size, ..)| size);
        let horizon = self.window.map(|(_, horizon, _)| horizon);
        let input = |p: &Part| InputInfo { name: p.name.clone(), tokens: p.tokens, shape: with(size, &p.shape) };
        let target = |p: &Part| TargetInfo {
            name: p.name.clone(),
            shape: with(horizon, &p.shape),
            classes: if self.window.is_some() { None } else { p.classes },
        };
        DataInfo {
            inputs: self.inputs.iter().map(input).collect(),
            targets: self.labels.iter().map(target).collect(),
            vocabulary: self.vocabulary,
        }
    }

    /// The rows as inputs and labels.
    fn apply(self: &Arc<Layout>, rows: &Dataset) -> Dataset {
        let label_name = |part: &Part| label_component(&part.name);
        let mut components = Vec::new();
        components.extend(self.inputs.iter().map(|p| p.component(input_component(&p.name))));
        components.extend(self.labels.iter().map(|p| p.component(label_name(p))));
        let layout = self.clone();
        let rows = rows.map(components, move |row, out| {
            layout.inputs.iter().try_for_each(|part| part.write(row, out, &input_component(&part.name)))?;
            layout.labels.iter().try_for_each(|part| part.write(row, out, &label_component(&part.name)))
        });
        let Some((size, horizon, stride)) = self.window else { return rows };
        let mut components = Vec::new();
        let long = |n: usize, p: &Part| -> Vec<usize> { std::iter::once(n).chain(p.shape.iter().copied()).collect() };
        components
            .extend(self.inputs.iter().map(|p| Component::new(input_component(&p.name), p.dtype(), &long(size, p))));
        components.extend(self.labels.iter().map(|p| Component::new(label_name(p), p.dtype(), &long(horizon, p))));
        let layout = self.clone();
        rows.window(size + horizon, stride, 1, true).map(components, move |row, out| {
            for part in &layout.inputs {
                let name = input_component(&part.name);
                let all = row.get::<f32>(&name)?;
                let each = all.len() / (size + horizon);
                out.set(&name, &long(size, part), &all[..size * each])?;
            }
            for part in &layout.labels {
                let name = label_component(&part.name);
                let all = row.get::<f32>(&name)?;
                let each = all.len() / (size + horizon);
                out.set(&name, &long(horizon, part), &all[size * each..])?;
            }
            Ok(())
        })
    }
}

/// The component that holds the labels of an output.
pub fn label_component(output: &str) -> String {
    format!("1/{output}")
}

/// The component that holds an input: elements are pairs of inputs and labels, each by name.
pub fn input_component(input: &str) -> String {
    format!("0/{input}")
}

fn piece(
    table: &DataTable,
    spec: &Spec,
    column: &str,
    fitted: &Fitted,
    label: bool,
    is_text: bool,
) -> Result<Piece, Diagnostic> {
    let component = &spec.components()[spec.find(column).expect("looked up before")];
    let Some(shape) = component.shape() else {
        let title = format!("column {component} has rows of different sizes");
        return Err(Diagnostic::new(Code::BadData, title).at(&table.origin, "the data is described here"));
    };
    let (dims, elements) = (shape.dims().to_vec(), shape.elements());
    let fit = fitted.column(column);
    let categories = fit.and_then(|f| f.categories.clone());
    let whole = |way: Way| Piece { column: column.into(), way, shape: dims.clone(), units: elements };
    if is_text {
        return Ok(whole(Way::Tokens));
    }
    if label {
        return Ok(match categories {
            Some(categories) => whole(Way::Index(categories)),
            // In time, what is predicted is in the same units as what is seen.
            None if table.common.window.is_some() => whole(scaled(table, component.kind, fit)),
            None => whole(Way::Numbers { shift: 0.0, scale: 1.0 }),
        });
    }
    Ok(match categories {
        Some(categories) if table.common.categories == Categories::OneHot => {
            let units = categories.len();
            Piece { column: column.into(), way: Way::OneHot(categories), shape: vec![units], units }
        }
        Some(categories) => whole(Way::Index(categories)),
        None => whole(scaled(table, component.kind, fit)),
    })
}

fn scaled(table: &DataTable, kind: Kind, fit: Option<&super::ColumnFit>) -> Way {
    match (table.common.normalize, fit) {
        (Normalize::None, None) if kind == Kind::Number(DType::U8) && table.common.window.is_none() => Way::Bytes,
        (Normalize::Unit, _) if kind == Kind::Number(DType::U8) => Way::Numbers { shift: 0.0, scale: 1.0 / 255.0 },
        (_, Some(fit)) if fit.categories.is_none() => Way::Numbers { shift: fit.shift, scale: fit.scale },
        _ => Way::Numbers { shift: 0.0, scale: 1.0 },
    }
}

impl Part {
    fn dtype(&self) -> DType {
        match &self.pieces[..] {
            _ if self.tokens || self.classes.is_some() => DType::I32,
            [Piece { way: Way::Bytes, .. }] => DType::U8,
            _ => DType::F32,
        }
    }

    fn component(&self, name: String) -> Component {
        Component::new(name, self.dtype(), &self.shape)
    }

    fn write(&self, row: &Row<'_>, out: &mut Writer<'_, '_>, name: &str) -> Result<(), Error> {
        if self.dtype() == DType::I32 {
            let piece = &self.pieces[0];
            let slot = out.slot::<i32>(name, &self.shape)?;
            return match &piece.way {
                Way::Tokens => {
                    slot.copy_from_slice(row.get::<i32>(&piece.column)?);
                    Ok(())
                }
                Way::Index(categories) => places(row, &piece.column, categories, |i, place| slot[i] = place as i32),
                _ => {
                    slot.iter_mut().zip(numbers(row, &piece.column)?).for_each(|(out, v)| *out = v as i32);
                    Ok(())
                }
            };
        }
        if self.dtype() == DType::U8 {
            return out.set(name, &self.shape, row.get::<u8>(&self.pieces[0].column)?);
        }
        let slot = out.slot::<f32>(name, &self.shape)?;
        let mut at = 0;
        for piece in &self.pieces {
            let part = &mut slot[at..at + piece.units];
            at += piece.units;
            match &piece.way {
                Way::Tokens => unreachable!("tokens are whole numbers"),
                Way::Bytes => scale_into(row, &piece.column, 0.0, 1.0, part)?,
                Way::Numbers { shift, scale } => scale_into(row, &piece.column, *shift, *scale, part)?,
                Way::OneHot(categories) => {
                    part.fill(0.0);
                    places(row, &piece.column, categories, |_, place| part[place] = 1.0)?;
                }
                Way::Index(categories) => places(row, &piece.column, categories, |i, place| part[i] = place as f32)?,
            }
        }
        Ok(())
    }
}

/// The common types without a copy between.
fn scale_into(row: &Row<'_>, column: &str, shift: f64, scale: f64, out: &mut [f32]) -> Result<(), Error> {
    let component = &row.spec().components()[row.spec().find(column).unwrap_or(0)];
    macro_rules! each {
        ($ty:ty) => {
            row.get::<$ty>(column)?.iter().zip(out).for_each(|(&v, out)| *out = ((v as f64 - shift) * scale) as f32)
        };
    }
    match component.kind {
        Kind::Number(DType::F32) => each!(f32),
        Kind::Number(DType::F64) => each!(f64),
        Kind::Number(DType::U8) => each!(u8),
        Kind::Number(DType::I64) => each!(i64),
        _ => numbers(row, column)?.iter().zip(out).for_each(|(&v, out)| *out = ((v - shift) * scale) as f32),
    }
    Ok(())
}

/// Where the values of a column stand among its categories.
fn places(row: &Row<'_>, column: &str, categories: &[String], mut see: impl FnMut(usize, usize)) -> Result<(), Error> {
    let find = |text: &str| {
        // Whole numbers are in the order of numbers, not of texts.
        let place = categories.binary_search_by(|c| c.as_str().cmp(text)).ok();
        place
            .or_else(|| categories.iter().position(|c| c == text))
            .ok_or_else(|| Error::element(format!("column '{column}': '{text}' did not occur in the training data")))
    };
    let component = &row.spec().components()[row.spec().find(column).unwrap_or(0)];
    if component.kind == Kind::Bytes {
        for (i, text) in row.strings(column)?.enumerate() {
            see(i, find(&String::from_utf8_lossy(text))?);
        }
        return Ok(());
    }
    // Folders number their classes themselves.
    let numeric = categories.first().is_some_and(|c| c.parse::<i64>().is_ok());
    for (i, value) in numbers(row, column)?.into_iter().enumerate() {
        see(i, if numeric { find(&(value as i64).to_string())? } else { value as usize });
    }
    Ok(())
}
