//! Losses and metrics that a job can name.

use super::read::{table, union};
use plimsoll::losses::{self as l, Loss};
use plimsoll::metrics::{self as m, Metric};
use std::sync::Arc;

table! {
    /// No settings.
    pub struct Plain {}
}

table! {
    /// Cross entropy.
    pub struct CrossEntropy {
        /// Whether predictions are logits, without softmax or sigmoid; if not given, the model's last activation tells.
        from_logits: Option<bool> = none,
        /// How much of a label is spread over all classes.
        label_smoothing: f64 = 0.0,
    }
}

table! {
    /// Cross entropy with class numbers as labels.
    pub struct SparseCrossEntropy {
        /// Whether predictions are logits, without softmax; if not given, the model's last activation tells.
        from_logits: Option<bool> = none,
        /// Labels that do not count.
        ignore_class: Option<i64> = none,
    }
}

table! {
    /// Squared near 0, straight beyond `delta`.
    pub struct Huber {
        /// Where it becomes straight.
        delta: f64 = 1.0,
    }
}

union! {
    /// What is made smaller by training.
    pub enum LossTable by "loss", a "loss", with Vec::new();
    {
        "mean_squared_error" => MeanSquaredError(Plain),
        "mean_absolute_error" => MeanAbsoluteError(Plain),
        "mean_absolute_percentage_error" => MeanAbsolutePercentageError(Plain),
        "mean_squared_logarithmic_error" => MeanSquaredLogarithmicError(Plain),
        "huber" => Huber(Huber),
        "log_cosh" => LogCosh(Plain),
        "binary_crossentropy" => Binary(CrossEntropy),
        "categorical_crossentropy" => Categorical(CrossEntropy),
        "sparse_categorical_crossentropy" => Sparse(SparseCrossEntropy),
        "hinge" => Hinge(Plain),
        "squared_hinge" => SquaredHinge(Plain),
        "categorical_hinge" => CategoricalHinge(Plain),
        "kl_divergence" => KlDivergence(Plain),
        "poisson" => Poisson(Plain),
        "cosine_similarity" => CosineSimilarity(Plain),
    }
}

impl LossTable {
    /// The loss, for a model whose outputs are logits or not.
    pub fn build(&self, logits: bool) -> Arc<dyn Loss> {
        match self {
            LossTable::MeanSquaredError(_) => Arc::new(l::MeanSquaredError),
            LossTable::MeanAbsoluteError(_) => Arc::new(l::MeanAbsoluteError),
            LossTable::MeanAbsolutePercentageError(_) => Arc::new(l::MeanAbsolutePercentageError),
            LossTable::MeanSquaredLogarithmicError(_) => Arc::new(l::MeanSquaredLogarithmicError),
            LossTable::Huber(s) => Arc::new(l::Huber::new(s.delta)),
            LossTable::LogCosh(_) => Arc::new(l::LogCosh),
            LossTable::Binary(s) => {
                let logits = s.from_logits.unwrap_or(logits);
                let loss = if logits { l::BinaryCrossEntropy::from_logits() } else { l::BinaryCrossEntropy::new() };
                Arc::new(loss.label_smoothing(s.label_smoothing))
            }
            LossTable::Categorical(s) => {
                let logits = s.from_logits.unwrap_or(logits);
                let loss =
                    if logits { l::CategoricalCrossEntropy::from_logits() } else { l::CategoricalCrossEntropy::new() };
                Arc::new(loss.label_smoothing(s.label_smoothing))
            }
            LossTable::Sparse(s) => {
                let logits = s.from_logits.unwrap_or(logits);
                let loss = if logits {
                    l::SparseCategoricalCrossEntropy::from_logits()
                } else {
                    l::SparseCategoricalCrossEntropy::new()
                };
                Arc::new(match s.ignore_class {
                    Some(class) => loss.ignore_class(class),
                    None => loss,
                })
            }
            LossTable::Hinge(_) => Arc::new(l::Hinge),
            LossTable::SquaredHinge(_) => Arc::new(l::SquaredHinge),
            LossTable::CategoricalHinge(_) => Arc::new(l::CategoricalHinge),
            LossTable::KlDivergence(_) => Arc::new(l::KlDivergence),
            LossTable::Poisson(_) => Arc::new(l::Poisson),
            LossTable::CosineSimilarity(_) => Arc::new(l::CosineSimilarity),
        }
    }

    /// The metric that people want to see beside this loss.
    pub fn usual_metric(&self) -> Option<MetricTable> {
        match self {
            LossTable::Sparse(_) => Some(MetricTable::SparseAccuracy(Plain {})),
            LossTable::Categorical(_) | LossTable::CategoricalHinge(_) => {
                Some(MetricTable::CategoricalAccuracy(Plain {}))
            }
            LossTable::MeanSquaredError(_) | LossTable::Huber(_) | LossTable::LogCosh(_) => {
                Some(MetricTable::MeanAbsoluteError(Plain {}))
            }
            _ => None,
        }
    }
}

table! {
    /// A class is predicted where the number is above a threshold.
    pub struct Threshold {
        /// The threshold.
        threshold: f64 = 0.5,
    }
}

table! {
    /// How often the label is among the best.
    pub struct TopK {
        /// How many count as best.
        k: usize = 5,
    }
}

table! {
    /// The area under a curve over thresholds.
    pub struct Area {
        /// How many thresholds.
        thresholds: usize = 200,
        /// Whether predictions are logits.
        of_logits: bool = false,
    }
}

union! {
    /// A figure that is told beside the loss.
    pub enum MetricTable by "metric", a "metric", with Vec::new();
    {
        "accuracy" => Accuracy(Plain),
        "binary_accuracy" => BinaryAccuracy(Threshold),
        "categorical_accuracy" => CategoricalAccuracy(Plain),
        "sparse_categorical_accuracy" => SparseAccuracy(Plain),
        "top_k_categorical_accuracy" => TopK(TopK),
        "sparse_top_k_categorical_accuracy" => SparseTopK(TopK),
        "precision" => Precision(Threshold),
        "recall" => Recall(Threshold),
        "auc" => Auc(Area),
        "auc_precision_recall" => AucPrecisionRecall(Area),
        "mean_absolute_error" => MeanAbsoluteError(Plain),
        "mean_squared_error" => MeanSquaredError(Plain),
        "root_mean_squared_error" => RootMeanSquaredError(Plain),
        "cosine_similarity" => CosineSimilarity(Plain),
    }
}

impl MetricTable {
    /// The metric.
    pub fn build(&self) -> Arc<dyn Metric> {
        let auc = |auc: m::Auc, s: &Area| {
            let auc = auc.thresholds(s.thresholds);
            if s.of_logits { auc.of_logits() } else { auc }
        };
        match self {
            MetricTable::Accuracy(_) => Arc::new(m::Accuracy::new()),
            MetricTable::BinaryAccuracy(s) => Arc::new(m::BinaryAccuracy::new().threshold(s.threshold)),
            MetricTable::CategoricalAccuracy(_) => Arc::new(m::CategoricalAccuracy::new()),
            MetricTable::SparseAccuracy(_) => Arc::new(m::SparseCategoricalAccuracy::new()),
            MetricTable::TopK(s) => Arc::new(m::TopKCategoricalAccuracy::new(s.k)),
            MetricTable::SparseTopK(s) => Arc::new(m::SparseTopKCategoricalAccuracy::new(s.k)),
            MetricTable::Precision(s) => Arc::new(m::Precision::new().threshold(s.threshold)),
            MetricTable::Recall(s) => Arc::new(m::Recall::new().threshold(s.threshold)),
            MetricTable::Auc(s) => Arc::new(auc(m::Auc::roc(), s)),
            MetricTable::AucPrecisionRecall(s) => Arc::new(auc(m::Auc::precision_recall(), s)),
            MetricTable::MeanAbsoluteError(_) => Arc::new(m::Mean::of(l::MeanAbsoluteError)),
            MetricTable::MeanSquaredError(_) => Arc::new(m::Mean::of(l::MeanSquaredError)),
            MetricTable::RootMeanSquaredError(_) => Arc::new(m::RootMeanSquaredError::new()),
            MetricTable::CosineSimilarity(_) => Arc::new(m::Mean::of(l::CosineSimilarity)),
        }
    }
}
