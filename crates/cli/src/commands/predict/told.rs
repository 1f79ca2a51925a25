//! What the numbers of a model's output say: a class by name, text, or numbers in the units of the data.

use crate::job::data::{ColumnFit, DataTable, Fitted};
use plimsoll::Tensor;

/// A line of `plimsoll predict --json`.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Prediction {
    /// The row, counted from 0.
    pub row: u64,
    /// The output of the model; left out where it has only one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The class by name, or the numbers.
    pub prediction: serde_json::Value,
    /// The score of every class, in order; left out for numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scores: Option<Vec<f64>>,
}

/// How the rows of one output are told.
pub struct Told {
    /// The output.
    pub name: String,
    /// Numbers of one row.
    pub units: usize,
    /// The classes by name.
    pub classes: Option<Vec<String>>,
    /// Tokens are told as text.
    alphabet: Option<Vec<u8>>,
    /// Back into the units of the data.
    back: Option<ColumnFit>,
}

/// What a row says.
pub enum Said<'a> {
    /// A class, and the score of each.
    Class(&'a str, &'a [f64]),
    Text(String),
    Numbers(&'a [f64]),
}

impl Told {
    /// An output whose batches look like this one.
    pub fn new(name: &str, fitted: &Fitted, data: &DataTable, batch: &Tensor) -> Told {
        let units = batch.shape().dims()[1..].iter().product();
        let target = fitted.info.targets.iter().find(|t| t.name == name).or(fitted.info.targets.first());
        let column = target.and_then(|t| {
            let (_, column) = fitted.roles.labels.iter().find(|(name, _)| *name == t.name)?;
            fitted.column(column)
        });
        let classes = target.and_then(|t| t.classes).filter(|&n| fitted.alphabet.is_none() && n == units).map(|n| {
            let names = column.and_then(|c| c.categories.clone());
            names.unwrap_or_else(|| (0..n).map(|i| i.to_string()).collect())
        });
        let in_time = data.common.window.is_some() && classes.is_none();
        let back = column.filter(|_| in_time).cloned();
        Told { name: name.into(), units, classes, alphabet: fitted.alphabet.clone(), back }
    }

    /// Whether a row is one text.
    pub fn is_text(&self) -> bool {
        self.alphabet.is_some()
    }

    /// What a row of numbers says; they are changed to what they mean.
    pub fn said<'a>(&'a self, row: &'a mut [f64]) -> Said<'a> {
        if let Some(classes) = &self.classes {
            to_scores(row);
            return Said::Class(&classes[best(row)], row);
        }
        if let Some(alphabet) = &self.alphabet {
            // The most likely bytes at every place of a window.
            let bytes: Vec<u8> = row.chunks(alphabet.len()).map(|scores| alphabet[best(scores)]).collect();
            return Said::Text(String::from_utf8_lossy(&bytes).into_owned());
        }
        if let Some(c) = &self.back {
            row.iter_mut().for_each(|v| *v = if c.scale == 0.0 { c.shift } else { *v / c.scale + c.shift });
        }
        Said::Numbers(row)
    }
}

/// Turns logits into parts that add up to 1; what adds up already stays.
fn to_scores(row: &mut [f64]) {
    let sum: f64 = row.iter().sum();
    if (sum - 1.0).abs() < 1e-3 && row.iter().all(|v| (0.0..=1.0).contains(v)) {
        return;
    }
    let most = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter_mut().for_each(|v| *v = (*v - most).exp());
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|v| *v /= sum);
}

fn best(row: &[f64]) -> usize {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_become_scores_and_scores_stay() {
        let mut logits = [0.0, 2f64.ln(), 0.0];
        to_scores(&mut logits);
        assert_eq!(logits.map(|v| (v * 1e9).round() / 1e9), [0.25, 0.5, 0.25]);
        let mut scores = [0.1, 0.9];
        to_scores(&mut scores);
        assert_eq!(scores, [0.1, 0.9]);
        assert_eq!(best(&logits), 1);
    }
}
