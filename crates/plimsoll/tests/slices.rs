//! Running a batch in slices: the weights are those of the whole batch, bit for bit where the planner chose the slices, up to
//! rounding where a user asked for finer ones.

use plimsoll::data::Arrays;
use plimsoll::layers::{
    Activation, BatchNorm, Conv2D, Dense, Dropout, Embedding, Flatten, GlobalAvgPool1D, GroupNorm, LSTM, LayerNorm,
    MaxPool2D, MultiHeadAttention, Residual,
};
use plimsoll::losses::{BinaryCrossEntropy, Loss, MeanSquaredError, SparseCategoricalCrossEntropy};
use plimsoll::metrics::SparseCategoricalAccuracy;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::{Fit, Techniques, Trainer};
use plimsoll::{DType, Error, Tensor};

fn draws(salt: u64) -> impl FnMut() -> f32 {
    let mut z = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move || {
        z = z.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (z >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

fn noise(shape: &[usize], salt: u64) -> Tensor {
    let mut draw = draws(salt);
    let data: Vec<f32> = (0..shape.iter().product()).map(|_| draw()).collect();
    Tensor::from_slice(shape, &data).unwrap()
}

fn classes(shape: &[usize], n: i32, salt: u64) -> Tensor {
    let mut draw = draws(salt);
    let data: Vec<i32> = (0..shape.iter().product()).map(|_| ((draw() + 1.0) / 2.0 * n as f32) as i32 % n).collect();
    Tensor::from_slice(shape, &data).unwrap()
}

/// A model with data for it.
struct Case {
    name: &'static str,
    model: Model,
    loss: std::sync::Arc<dyn Loss>,
    data: Arrays,
    batch: usize,
    /// Whether the planner can cut it at all.
    is_cut: bool,
}

fn cases() -> Vec<Case> {
    let token = |x: Tensor, y: Tensor| Arrays::new(x, y).unwrap();
    vec![
        Case {
            name: "dense net with dropout",
            model: Model::sequential([48])
                .layer(Dense::new(512).activation(Activation::Relu))
                .layer(Dropout::new(0.25))
                .layer(Dense::new(256).activation(Activation::Tanh))
                .layer(Residual::new().layer(Dense::new(256)))
                .layer(Dense::new(3)),
            loss: std::sync::Arc::new(MeanSquaredError),
            data: token(noise(&[2100, 48], 1), noise(&[2100, 3], 2)),
            batch: 2100,
            is_cut: true,
        },
        Case {
            name: "convolutions with group norm, weights for samples",
            model: Model::sequential([32, 32, 3])
                .layer(Conv2D::new(16, 3).same().activation(Activation::Relu))
                .layer(GroupNorm::new(4))
                .layer(MaxPool2D::new(2))
                .layer(Conv2D::new(16, 3).same())
                .layer(Flatten::new())
                .layer(Dense::new(5)),
            loss: std::sync::Arc::new(SparseCategoricalCrossEntropy::from_logits()),
            data: token(noise(&[70, 32, 32, 3], 3), classes(&[70], 5, 4)).sample_weights(noise(&[70], 5)).unwrap(),
            batch: 32,
            is_cut: true,
        },
        Case {
            name: "convolutions with batch norm",
            model: Model::sequential([32, 32, 3])
                .layer(Conv2D::new(16, 3).same().no_bias())
                .layer(BatchNorm::new())
                .layer(Activation::Relu)
                .layer(Flatten::new())
                .layer(Dense::new(1).activation(Activation::Sigmoid)),
            loss: std::sync::Arc::new(BinaryCrossEntropy::new()),
            data: token(noise(&[64, 32, 32, 3], 3), classes(&[64, 1], 2, 4)),
            batch: 64,
            is_cut: false,
        },
        Case {
            name: "attention over embeddings",
            model: Model::sequential_of(DType::I32, [64])
                .layer(Embedding::new(40, 128))
                .layer(Residual::new().layer(MultiHeadAttention::new(4, 32).dropout(0.1)))
                .layer(LayerNorm::new())
                .layer(Residual::new().layer(Dense::new(128).activation(Activation::Gelu)))
                .layer(Dropout::new(0.1))
                .layer(Dense::new(40)),
            loss: std::sync::Arc::new(SparseCategoricalCrossEntropy::from_logits()),
            data: token(classes(&[80, 64], 40, 6), classes(&[80, 64], 40, 7)),
            batch: 64,
            is_cut: true,
        },
        Case {
            name: "recurrence",
            model: Model::sequential_of(DType::I32, [20])
                .layer(Embedding::new(40, 64))
                .layer(LSTM::new(96).return_sequences())
                .layer(GlobalAvgPool1D::new())
                .layer(Dense::new(3)),
            loss: std::sync::Arc::new(SparseCategoricalCrossEntropy::from_logits()),
            data: token(classes(&[1024, 20], 40, 8), classes(&[1024], 3, 9)),
            batch: 1024,
            is_cut: true,
        },
    ]
}

/// Weights, loss, and in how many slices.
type Trained = (Vec<(String, Tensor)>, f64, usize);

impl Case {
    fn trainer(&self) -> Trainer {
        let trainer = Trainer::shared(self.model.clone(), self.loss.clone(), std::sync::Arc::new(Adam::new(0.01)));
        let trainer = trainer.unwrap().threads(2);
        if self.loss.name().contains("sparse") { trainer.metric(SparseCategoricalAccuracy::new()) } else { trainer }
    }

    fn train(&self, mut trainer: Trainer) -> Result<Trained, Error> {
        let history = trainer.fit(&self.data, Fit::epochs(2).batch_size(self.batch))?;
        let slices = trainer.planned().iter().filter_map(|p| p.split.as_ref()).map(|s| s.slices).max().unwrap_or(1);
        Ok((trainer.weights()?, history.last("loss").unwrap(), slices))
    }
}

/// The limit asked for in a refusal message is the smallest that would do.
fn smallest(case: &Case, techniques: Techniques) -> plimsoll::Bytes {
    let trainer = case.trainer().techniques(techniques).memory_limit(plimsoll::Bytes::mib(1));
    match case.train(trainer) {
        Err(Error::WouldNotFit(refusal)) => refusal.smallest,
        Err(other) => panic!("{}: {other}", case.name),
        Ok(_) => panic!("{}: nothing fits in 1 MiB", case.name),
    }
}

/// One after the other: the limit is the whole process's.
#[test]
fn slices_leave_the_numbers_as_they_are() {
    slices_that_the_planner_chooses_change_no_bit();
    a_last_slice_of_one_row_changes_no_bit();
    stretches_of_a_step_change_no_bit_and_make_less_do();
    a_sum_larger_than_what_it_is_made_from_is_not_there_while_slices_run();
    slices_that_a_user_asks_for_give_the_same_numbers();
}

fn slices_that_the_planner_chooses_change_no_bit() {
    for case in cases() {
        let (weights, loss, _) = case.train(case.trainer()).unwrap();
        let split_only = Techniques { recompute: false, spill: false, ..Techniques::ALL };
        // What was measured of this process moves a little while it goes on.
        let least = smallest(&case, split_only) + plimsoll::Bytes::mib(1);
        let trainer = case.trainer().techniques(split_only).memory_limit(least);
        let (cut_weights, cut_loss, slices) = case.train(trainer).unwrap();
        println!("{}: {slices} slices within {least}", case.name);
        assert_eq!(slices > 1, case.is_cut, "{}: {slices} slices", case.name);
        assert_eq!(loss.to_bits(), cut_loss.to_bits(), "{}: loss", case.name);
        for ((name, whole), (_, cut)) in weights.iter().zip(&cut_weights) {
            assert!(whole == cut, "{}: {name} differs in {slices} slices", case.name);
        }
    }
}

/// Products of one row are computed in another way than those of several.
fn a_last_slice_of_one_row_changes_no_bit() {
    let rows = 2049;
    let layers =
        (0..4).fold(Model::sequential([48]), |model, _| model.layer(Dense::new(512).activation(Activation::Tanh)));
    let case = Case {
        name: "one row left",
        model: layers.layer(Dense::new(3)),
        loss: std::sync::Arc::new(MeanSquaredError),
        data: Arrays::new(noise(&[rows, 48], 5), noise(&[rows, 3], 6)).unwrap(),
        batch: rows,
        is_cut: true,
    };
    let (weights, loss, _) = case.train(case.trainer()).unwrap();
    let split_only = Techniques { recompute: false, spill: false, ..Techniques::ALL };
    let least = smallest(&case, split_only) + plimsoll::Bytes::mib(1);
    let mut trainer = case.trainer().techniques(split_only).memory_limit(least);
    let history = trainer.fit(&case.data, Fit::epochs(2).batch_size(rows)).unwrap();
    let split = trainer.planned()[0].split.clone().expect("it runs in slices");
    assert_eq!(rows % split.entries, 1, "{split:?}");
    assert_eq!(loss.to_bits(), history.last("loss").unwrap().to_bits());
    assert!(weights == trainer.weights().unwrap(), "weights differ in {} slices", split.slices);
}

/// Where the gradients of all weights need more than whole activations, slices are of use only if they are not all there at once.
fn stretches_of_a_step_change_no_bit_and_make_less_do() {
    let layers = (0..16).fold(Model::sequential([512]), |model, i| {
        let activation = if i % 2 == 0 { Activation::Relu } else { Activation::Tanh };
        model.layer(Dense::new(512).activation(activation))
    });
    let case = Case {
        name: "wide dense net",
        model: layers.layer(Dense::new(3)),
        loss: std::sync::Arc::new(MeanSquaredError),
        data: Arrays::new(noise(&[1536, 512], 3), noise(&[1536, 3], 4)).unwrap(),
        batch: 1536,
        is_cut: true,
    };
    let (weights, loss, _) = case.train(case.trainer()).unwrap();
    let no_file = Techniques { spill: false, ..Techniques::ALL };
    let least = smallest(&case, no_file) + plimsoll::Bytes::mib(1);
    let mut trainer = case.trainer().techniques(no_file).memory_limit(least);
    let history = trainer.fit(&case.data, Fit::epochs(2).batch_size(case.batch)).unwrap();
    let split = trainer.planned()[0].split.clone().expect("it runs in slices");
    assert!(split.stretches > 1 && split.rounds > 1, "{split:?}");
    assert_eq!(loss.to_bits(), history.last("loss").unwrap().to_bits());
    assert_eq!(weights, trainer.weights().unwrap());
    // There is not even room for all gradients, which slices of the whole step would add up.
    let arena = trainer.planned()[0].arena_bytes;
    println!(
        "{}: {} slices, {} rounds, {arena} bytes, {} of sums",
        case.name, split.slices, split.rounds, split.summed
    );
    assert!(arena < split.summed, "{arena} bytes: {split:?}");
}

/// The gradient of a table of which a batch reads few rows.
fn a_sum_larger_than_what_it_is_made_from_is_not_there_while_slices_run() {
    let (words, width) = (30_000, 64);
    let case = Case {
        name: "large table",
        model: Model::sequential_of(DType::I32, [32])
            .layer(Embedding::new(words, width))
            .layer(Dense::new(512).activation(Activation::Gelu))
            .layer(Dense::new(512).activation(Activation::Tanh))
            .layer(GlobalAvgPool1D::new())
            .layer(Dense::new(3)),
        loss: std::sync::Arc::new(SparseCategoricalCrossEntropy::from_logits()),
        data: Arrays::new(classes(&[128, 32], words as i32, 8), classes(&[128], 3, 9)).unwrap(),
        batch: 128,
        is_cut: true,
    };
    let (weights, loss, _) = case.train(case.trainer()).unwrap();
    let split_only = Techniques { recompute: false, spill: false, ..Techniques::ALL };
    let least = smallest(&case, split_only) + plimsoll::Bytes::mib(1);
    let mut trainer = case.trainer().techniques(split_only).memory_limit(least);
    let history = trainer.fit(&case.data, Fit::epochs(2).batch_size(case.batch)).unwrap();
    assert_eq!(loss.to_bits(), history.last("loss").unwrap().to_bits());
    assert!(weights == trainer.weights().unwrap());
    let plan = trainer.planned()[0];
    let split = plan.split.as_ref().expect("it runs in slices");
    let table = (words * width * 4) as u64;
    println!("{}: {} slices, {} of {} bytes of sums", case.name, split.slices, split.summed, table);
    assert!(split.summed < table && split.barrier.as_ref().is_none_or(|op| !op.contains("scatter_add")), "{split:?}");
    let last_slice = plan.instructions.len() - plan.instructions.len() / split.slices;
    let gradients = plan.buffers.iter().filter(|(buffer, _)| buffer.bytes >= table);
    let begins: Vec<u32> = gradients.map(|(buffer, _)| buffer.first).collect();
    assert!(!begins.is_empty() && begins.iter().all(|&first| first as usize >= last_slice), "{begins:?}, {last_slice}");
}

fn slices_that_a_user_asks_for_give_the_same_numbers() {
    for case in cases() {
        let (weights, ..) = case.train(case.trainer()).unwrap();
        for n in [3, 7] {
            let (cut_weights, _, slices) = case.train(case.trainer().accumulate(n)).unwrap();
            println!("{}: asked for {n}, runs in {slices}", case.name);
            for ((name, whole), (_, cut)) in weights.iter().zip(&cut_weights) {
                for (a, b) in whole.to_f64().into_iter().zip(cut.to_f64()) {
                    // Adam's first steps divide a gradient by its own size: what is rounding there grows.
                    assert!((a - b).abs() <= 2e-4 * a.abs().max(1.0), "{}: {name}: {a} and {b}", case.name);
                }
            }
        }
    }
}
