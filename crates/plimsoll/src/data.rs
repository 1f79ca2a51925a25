//! Where samples come from: [`Dataset`]s, and arrays in memory.
//!
//! Training, evaluation and prediction read a [`Dataset`] of batches, which is put together straight in the engine's memory.
//! [`Feed`] is what can be read so: a `Dataset` itself, and [`Arrays`], which become one.
//!
//! What a component of the elements is for follows from its name, as in Keras:
//!
//! - Tuples: `(x, y)` or `(x, y, sample weights)`, each a tensor or a map by name: components `0`, `1`, `2`, or `0/left`,
//!   `0/right`, `1/answer` for models with several inputs or outputs.
//! - Maps: components that are called as an input or an output of the model are that; `sample_weight` is the weights. For models
//!   with one input and one output `x` and `y` will do. What the model does not know is left out.
//! - A single component is the input.

use crate::error::Error;
use crate::model::Model;
#[cfg(feature = "images")]
pub use plimsoll_data::Images;
pub use plimsoll_data::{
    AUTOTUNE, BatchSizes, Calls, Cardinality, Component, Compression, Csv, Dataset, Element, Error as DataError, Files,
    Iter, Kind, Nest, Options, Padding, Place, Report, Row, Spec, StageReport, TfRecordWriter, Writer,
};
use plimsoll_tensor::{DType, Tensor, TensorType};
use std::sync::Arc;

/// One field of the samples: a model's input, its labels (named after the output they belong to) or the sample weights.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// What it is matched by.
    pub name: String,
    /// What it is for.
    pub kind: FieldKind,
    /// The type of one row, without the batch axis.
    pub ty: TensorType,
}

/// What a field is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// An input of the model.
    Input,
    /// What an output is compared with.
    Label,
    /// How much each sample counts.
    Weight,
}

impl FieldKind {
    /// By the place in `(x, y, sample weights)`.
    fn at(place: usize) -> Option<FieldKind> {
        [FieldKind::Input, FieldKind::Label, FieldKind::Weight].get(place).copied()
    }
}

/// What the weights of samples are called.
const WEIGHTS: &str = "sample weights";

/// What training, evaluation and prediction can read.
pub trait Feed {
    /// The data as batches.
    ///
    /// What has batches of its own takes no `batch_size`; what has none takes 32 where nothing is said. `shuffle` is the seed of
    /// the order of samples, where the order is not the data's own.
    ///
    /// # Errors
    /// When it cannot be batched so.
    fn batches(&self, batch_size: Option<usize>, shuffle: Option<u64>) -> Result<Dataset, Error>;
}

impl Feed for Dataset {
    fn batches(&self, batch_size: Option<usize>, _shuffle: Option<u64>) -> Result<Dataset, Error> {
        match batch_size {
            None => Ok(self.clone()),
            Some(size) => {
                let message = format!("{size} was given, but a data set has batches of its own: leave it out");
                Err(Error::config("batch size", message))
            }
        }
    }
}

impl Feed for Arrays {
    fn batches(&self, batch_size: Option<usize>, shuffle: Option<u64>) -> Result<Dataset, Error> {
        let size = batch_size.unwrap_or(32);
        if size == 0 {
            return Err(Error::config("batch size", "is 0; it must be at least 1"));
        }
        let rows = self.dataset();
        Ok(shuffle.map_or(rows.clone(), |seed| rows.shuffle(None, seed)).batch(size))
    }
}

/// What the components of batches are for; `None` for those that a model does not know.
pub(crate) fn fields(spec: &Spec, model: &Model) -> Result<Vec<Option<Field>>, Error> {
    let components = spec.components();
    let places = match Nest::of(components.iter().map(|c| c.name.as_str())) {
        Nest::Tuple(parts) if parts.len() > 3 => {
            let message = format!("elements are (x, y) or (x, y, sample weights), these have {} parts", parts.len());
            return Err(Error::config("data", message));
        }
        Nest::Tuple(_) => true,
        _ => false,
    };
    let what = |name: &str| -> Option<(FieldKind, String)> {
        if places {
            let (place, name) = name.split_once('/').unwrap_or((name, ""));
            return Some((FieldKind::at(place.parse().ok()?)?, name.to_owned()));
        }
        let named = |names: &[&str]| names.contains(&name).then(|| name.to_owned());
        let inputs: Vec<&str> = model.inputs().iter().map(|i| i.name.as_str()).collect();
        if components.len() == 1 {
            return Some((FieldKind::Input, name.to_owned()));
        }
        if let Some(name) = named(&inputs) {
            return Some((FieldKind::Input, name));
        }
        if let Some(name) = named(&model.outputs()) {
            return Some((FieldKind::Label, name));
        }
        match name {
            "x" => Some((FieldKind::Input, name.to_owned())),
            "y" => Some((FieldKind::Label, name.to_owned())),
            "sample_weight" => Some((FieldKind::Weight, name.to_owned())),
            _ => None,
        }
    };
    components.iter().map(|c| what(&c.name).map(|(kind, name)| field(c, kind, name)).transpose()).collect()
}

fn field(component: &Component, kind: FieldKind, name: String) -> Result<Field, Error> {
    let fail = |message: &str| Err(Error::config(format!("data component {component}"), message));
    let Kind::Number(dtype) = component.kind else { return fail("a model takes numbers, not strings") };
    let sample: Option<Vec<usize>> = component.dims.iter().flat_map(|d| d.iter().skip(1).copied()).collect();
    let Some(sample) = sample.filter(|_| component.dims.is_some()) else {
        return fail("steps are planned for samples of one size: pad them to a given size, or resize them");
    };
    let ty = TensorType::new(dtype, sample.as_slice());
    let name = match (kind, name.as_str()) {
        (FieldKind::Weight, _) => WEIGHTS.to_owned(),
        (FieldKind::Input, "") => "input".into(),
        (FieldKind::Label, "") => "output".into(),
        _ => name,
    };
    if kind == FieldKind::Weight && ty != TensorType::new(DType::F32, plimsoll_tensor::Shape::scalar()) {
        return fail("sample weights are f32, one for a sample");
    }
    Ok(Field { name, kind, ty })
}

/// Tensors in memory whose first axis counts the samples.
///
/// ```
/// use plimsoll::data::Arrays;
/// use plimsoll::Tensor;
/// let x = Tensor::from_slice(&[4, 2], &[0.0f32, 0.0, 0.0, 1.0, 1.0, 0.0, 1.0, 1.0])?;
/// let y = Tensor::from_slice(&[4, 1], &[0.0f32, 1.0, 1.0, 0.0])?;
/// let data = Arrays::new(x, y)?;
/// assert_eq!(data.len(), 4);
/// # Ok::<(), plimsoll::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Arrays {
    fields: Vec<Field>,
    tensors: Vec<Arc<Tensor>>,
    len: usize,
}

impl Arrays {
    /// Inputs and labels of a model with one input and one output.
    ///
    /// # Errors
    /// When the two do not have equally many rows.
    pub fn new(inputs: Tensor, labels: Tensor) -> Result<Arrays, Error> {
        Arrays::inputs_only(inputs)?.with("output", FieldKind::Label, labels)
    }

    /// Inputs of a model with one input, for prediction.
    ///
    /// # Errors
    /// When the tensor is a scalar.
    pub fn inputs_only(inputs: Tensor) -> Result<Arrays, Error> {
        Arrays::default().with("input", FieldKind::Input, inputs)
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The samples one after another, as tuples: to be mapped, shuffled and batched. The tensors are shared, not copied.
    ///
    /// ```
    /// # use plimsoll::{Tensor, data::Arrays};
    /// let data = Arrays::new(Tensor::from_slice([2, 1], &[0.0f32, 1.0])?, Tensor::from_slice([2], &[0i32, 1])?)?;
    /// assert_eq!(data.dataset().spec()?.to_string(), "{0/input: f32[1], 1/output: i32[]}");
    /// # Ok::<(), plimsoll::Error>(())
    /// ```
    pub fn dataset(&self) -> Dataset {
        let name = |field: &Field| match field.kind {
            FieldKind::Input => format!("0/{}", field.name),
            FieldKind::Label => format!("1/{}", field.name),
            FieldKind::Weight => "2".to_owned(),
        };
        Dataset::from_arrays(self.fields.iter().map(name).zip(self.tensors.iter().cloned()))
    }

    /// No fields yet: for models with several inputs or outputs.
    pub fn empty() -> Arrays {
        Arrays::default()
    }

    /// With one more input.
    ///
    /// # Errors
    /// When it does not have as many rows as the fields before.
    pub fn input(self, name: &str, tensor: Tensor) -> Result<Arrays, Error> {
        self.with(name, FieldKind::Input, tensor)
    }

    /// With the labels of an output.
    ///
    /// # Errors
    /// When they do not have as many rows as the fields before.
    pub fn labels(self, output: &str, tensor: Tensor) -> Result<Arrays, Error> {
        self.with(output, FieldKind::Label, tensor)
    }

    /// With a weight for every sample.
    ///
    /// # Errors
    /// When it is not f32 with one number per row.
    pub fn sample_weights(self, tensor: Tensor) -> Result<Arrays, Error> {
        if tensor.dtype() != DType::F32 || tensor.shape().rank() != 1 {
            return Err(Error::config("sample weights", format!("are f32 with one axis, got {}", tensor.ty())));
        }
        self.with(WEIGHTS, FieldKind::Weight, tensor)
    }

    /// With weights made from whole-number labels: `weights[label]` for every sample.
    ///
    /// # Errors
    /// When the labels are not whole numbers, one per sample, below the number of weights.
    pub fn class_weights(self, weights: &[f32]) -> Result<Arrays, Error> {
        let fail = |message: String| Err(Error::config("class weights", message));
        let Some(at) = self.fields.iter().position(|f| f.kind == FieldKind::Label) else {
            return fail("there are no labels".into());
        };
        let labels = &self.tensors[at];
        if labels.elements() != self.len {
            return fail(format!("need one label per sample, got {}", labels.ty()));
        }
        let mut per_sample = Vec::with_capacity(self.len);
        for (row, label) in labels.to_f64().into_iter().enumerate() {
            match weights.get(label as usize) {
                Some(w) if label >= 0.0 && label.fract() == 0.0 => per_sample.push(*w),
                _ => return fail(format!("label {label} in row {row} has no weight among {}", weights.len())),
            }
        }
        let tensor = Tensor::from_slice([self.len], &per_sample)?;
        self.sample_weights(tensor)
    }

    fn with(mut self, name: &str, kind: FieldKind, tensor: Tensor) -> Result<Arrays, Error> {
        let what = || format!("data field '{name}'");
        let Some(&rows) = tensor.shape().dims().first() else {
            return Err(Error::config(what(), "is a scalar; its first axis must count the samples"));
        };
        if let Some(first) = self.fields.first()
            && rows != self.len
        {
            let message = format!("has {rows} rows, but '{}' has {}", first.name, self.len);
            return Err(Error::config(what(), message));
        }
        self.len = rows;
        let ty = TensorType::new(tensor.dtype(), tensor.shape().remove(0));
        self.fields.push(Field { name: name.into(), kind, ty });
        self.tensors.push(Arc::new(tensor));
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_must_agree() {
        let x = Tensor::zeros(DType::F32, [3, 2]);
        let y = Tensor::zeros(DType::F32, [4, 1]);
        let error = Arrays::new(x, y).unwrap_err().to_string();
        assert_eq!(error, "data field 'output': has 4 rows, but 'input' has 3");
    }

    #[test]
    fn class_weights_follow_the_labels() {
        let x = Tensor::zeros(DType::F32, [3, 2]);
        let y = Tensor::from_slice([3], &[1i64, 0, 1]).unwrap();
        let data = Arrays::new(x.clone(), y).unwrap().class_weights(&[1.0, 5.0]).unwrap();
        assert_eq!(data.tensors[2].to_f64(), [5.0, 1.0, 5.0]);
        let y = Tensor::from_slice([3], &[1i64, 0, 2]).unwrap();
        let error = Arrays::new(x, y).unwrap().class_weights(&[1.0, 5.0]).unwrap_err().to_string();
        assert_eq!(error, "class weights: label 2 in row 2 has no weight among 2");
    }
}
