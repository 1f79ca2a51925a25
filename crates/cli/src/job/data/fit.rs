//! One pass over the training data: means, ranges, categories, classes.

use super::{DataTable, Normalize, Task};
use crate::diagnostic::Diagnostic;
use crate::errors::{Code, diagnose_data};
use plimsoll::{Budget, DType};
use plimsoll_data::{Dataset, Kind, Row};
use std::collections::BTreeSet;

/// What was learned from the training data; it goes with the weights.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct Fitted {
    /// Which columns are inputs and which are labels.
    pub roles: super::Roles,
    pub columns: Vec<ColumnFit>,
    /// For text: the bytes that occur.
    pub alphabet: Option<Vec<u8>>,
    pub info: crate::job::model::DataInfo,
}

impl Fitted {
    pub fn column(&self, name: &str) -> Option<&ColumnFit> {
        self.columns.iter().find(|c| c.name == name)
    }
}

/// What was learned about a column.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ColumnFit {
    pub name: String,
    /// Taken from a number before it is multiplied by `scale`.
    pub shift: f64,
    pub scale: f64,
    /// The texts or whole numbers that occur, in order; their places are the numbers that stand for them.
    pub categories: Option<Vec<String>>,
}

/// How many different labels can still be classes when nobody says so.
const MOST_CLASSES: usize = 100;

/// How many different texts a column may have.
const MOST_CATEGORIES: usize = 10_000;

/// What is known of a column while reading.
struct Column {
    name: String,
    kind: Kind,
    role: Role,
    n: f64,
    mean: f64,
    /// The sum of squared distances from the mean.
    spread: f64,
    low: f64,
    high: f64,
    texts: BTreeSet<Vec<u8>>,
    whole: BTreeSet<i64>,
    many: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Feature,
    Label,
}

/// Looks through the training rows, reading only the columns about which something is to be learned, within a budget.
///
/// # Errors
/// When the rows cannot be read, or a column has too many categories.
pub fn fit(
    table: &DataTable,
    rows: &Dataset,
    features: &[String],
    labels: &[String],
    classes: Option<&[String]>,
    budget: &Budget,
) -> Result<Vec<ColumnFit>, Diagnostic> {
    let spec = rows.spec().map_err(|e| diagnose_data(&e, Some(&table.origin)))?;
    let common = &table.common;
    let mut columns = Vec::new();
    for (name, role) in features.iter().map(|n| (n, Role::Feature)).chain(labels.iter().map(|n| (n, Role::Label))) {
        let component = &spec.components()[spec.find(name).expect("looked up before")];
        let numbers = matches!(component.kind, Kind::Number(_));
        let wanted = match role {
            Role::Feature => !numbers || matches!(common.normalize, Normalize::Standard | Normalize::MinMax),
            // Labels of several numbers, and those in time, are never classes.
            Role::Label => {
                let single = component.shape().is_some_and(|s| s.elements() == 1);
                classes.is_none()
                    && common.classes.is_none()
                    && common.task != Task::Regression
                    && common.window.is_none()
                    && single
            }
        };
        if wanted && !columns.iter().any(|c: &Column| c.name == *name && c.role == role) {
            columns.push(Column::new(name, component.kind, role));
        }
    }
    if columns.is_empty() {
        return Ok(Vec::new());
    }
    let mut names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    names.sort();
    names.dedup();
    let bad = |e: plimsoll_data::Error| diagnose_data(&e, Some(&table.origin));
    for element in rows.select(&names).iter(budget).map_err(bad)? {
        let element = element.map_err(bad)?;
        for column in &mut columns {
            column.see(&element.row()).map_err(bad)?;
        }
    }
    columns.into_iter().map(|column| column.finish(table)).collect()
}

impl Column {
    fn new(name: &str, kind: Kind, role: Role) -> Column {
        Column {
            name: name.into(),
            kind,
            role,
            n: 0.0,
            mean: 0.0,
            spread: 0.0,
            low: f64::INFINITY,
            high: f64::NEG_INFINITY,
            texts: BTreeSet::new(),
            whole: BTreeSet::new(),
            many: false,
        }
    }

    fn see(&mut self, row: &Row<'_>) -> Result<(), plimsoll_data::Error> {
        let Kind::Number(dtype) = self.kind else {
            for text in row.strings(&self.name)? {
                if !self.texts.contains(text) {
                    self.texts.insert(text.to_vec());
                    self.many |= self.texts.len() > MOST_CATEGORIES;
                }
            }
            if self.many {
                self.texts.clear();
            }
            return Ok(());
        };
        if self.role == Role::Label && !dtype.is_float() {
            for value in numbers(row, &self.name)? {
                self.whole.insert(value as i64);
            }
            self.many |= self.whole.len() > MOST_CATEGORIES;
            if self.many {
                self.whole.clear();
            }
            return Ok(());
        }
        for value in numbers(row, &self.name)? {
            if value.is_finite() {
                self.n += 1.0;
                let before = value - self.mean;
                self.mean += before / self.n;
                self.spread += before * (value - self.mean);
                (self.low, self.high) = (self.low.min(value), self.high.max(value));
            }
        }
        Ok(())
    }

    fn finish(self, table: &DataTable) -> Result<ColumnFit, Diagnostic> {
        let mut fitted = ColumnFit { name: self.name.clone(), shift: 0.0, scale: 1.0, categories: None };
        let too_many = |what: &str| {
            let title = format!("column '{}' has more than {MOST_CATEGORIES} different {what}", self.name);
            Diagnostic::new(Code::BadData, title)
                .at(&table.origin, "the data is described here")
                .note("do", "leave it out of `features`, or give its type in `columns`")
        };
        if self.kind == Kind::Bytes {
            if self.many {
                return Err(too_many("texts"));
            }
            fitted.categories = Some(self.texts.iter().map(|t| String::from_utf8_lossy(t).into_owned()).collect());
            return Ok(fitted);
        }
        if self.role == Role::Label {
            let few = !self.many && self.whole.len() <= MOST_CLASSES && self.whole.first().is_some_and(|&n| n >= 0);
            let in_order = self.whole.iter().enumerate().all(|(i, &n)| i as i64 == n);
            let classes = match table.common.task {
                Task::Classification if self.many => return Err(too_many("labels")),
                Task::Classification if self.whole.is_empty() => {
                    let title = format!("the labels in '{}' are numbers with fractions, not classes", self.name);
                    let remedy = format!("columns = {{ {} = \"i64\" }}, or task = \"regression\"", self.name);
                    return Err(Diagnostic::new(Code::BadData, title)
                        .at(&table.origin, "the data is described here")
                        .note("do", remedy));
                }
                Task::Classification => true,
                _ => few && in_order,
            };
            if classes {
                fitted.categories = Some(self.whole.iter().map(i64::to_string).collect());
            }
            return Ok(fitted);
        }
        if self.n > 0.0 {
            (fitted.shift, fitted.scale) = match table.common.normalize {
                Normalize::Standard => (self.mean, 1.0 / (self.spread / self.n).sqrt().max(1e-12)),
                Normalize::MinMax => (self.low, 1.0 / (self.high - self.low).max(1e-12)),
                _ => (0.0, 1.0),
            };
            // A column that is the same in every row says nothing: it becomes 0, not a huge number.
            if self.high <= self.low {
                fitted.scale = 0.0;
            }
        }
        Ok(fitted)
    }
}

/// The numbers of a component as f64, whatever their type.
pub fn numbers(row: &Row<'_>, name: &str) -> Result<Vec<f64>, plimsoll_data::Error> {
    let component = &row.spec().components()[row.spec().find(name).unwrap_or(0)];
    macro_rules! get {
        ($ty:ty) => {
            row.get::<$ty>(name)?.iter().map(|&v| v as f64).collect()
        };
    }
    Ok(match component.kind {
        Kind::Number(DType::F32) => get!(f32),
        Kind::Number(DType::F64) => get!(f64),
        Kind::Number(DType::I32) => get!(i32),
        Kind::Number(DType::I64) => get!(i64),
        Kind::Number(DType::U8) => get!(u8),
        _ => row.tensor(name)?.to_f64(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_and_spread_in_one_pass() {
        let mut column = Column::new("x", Kind::Number(DType::F64), Role::Feature);
        let values = [1.0, 4.0, 9.0, 16.0, f64::NAN];
        let data = Dataset::from_array("x", plimsoll::Tensor::from_slice([5], &values).unwrap());
        for element in data.iter(&Budget::unlimited()).unwrap() {
            column.see(&element.unwrap().row()).unwrap();
        }
        // Missing numbers do not count.
        assert_eq!((column.n, column.mean), (4.0, 7.5));
        let variance = values[..4].iter().map(|v| (v - 7.5) * (v - 7.5)).sum::<f64>();
        assert!((column.spread - variance).abs() < 1e-9);
        assert_eq!((column.low, column.high), (1.0, 16.0));
    }
}
