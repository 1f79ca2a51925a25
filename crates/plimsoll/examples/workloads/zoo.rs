//! Models that other people measured under memory limits, at sizes that two cores can train.

use plimsoll::layers::{
    Activation, Add, AvgPool2D, BatchNorm, Concatenate, Conv2D, Dense, Embedding, GlobalAvgPool2D, LSTM, MaxPool2D,
    UpSampling2D,
};
use plimsoll::losses::{BinaryCrossEntropy, SparseCategoricalCrossEntropy};
use plimsoll::model::{Model, Place};
use plimsoll::optimizers::Sgd;
use plimsoll::trainer::Trainer;
use plimsoll::{DType, Error};

fn normed(m: &mut Model, filters: usize, kernel: usize, stride: usize, relu: bool, x: Place) -> Place {
    let x = m.apply(Conv2D::new(filters, kernel).strides(stride).same().no_bias(), &[x]);
    let x = m.apply(BatchNorm::new(), &[x]);
    if relu { m.apply(Activation::Relu, &[x]) } else { x }
}

fn classifier(mut m: Model, x: Place, classes: usize) -> Result<Trainer, Error> {
    let x = m.apply(GlobalAvgPool2D::new(), &[x]);
    let x = m.apply(Dense::new(classes), &[x]);
    m.output("output", x);
    Trainer::new(m, SparseCategoricalCrossEntropy::from_logits(), Sgd::new(0.01))
}

/// ResNet-50: bottlenecks of 1 x 1, 3 x 3 and 1 x 1 convolutions around a shortcut.
pub fn resnet50(image: usize, classes: usize) -> Result<Trainer, Error> {
    let mut m = Model::new();
    let x = m.input("input", [image, image, 3]);
    let x = normed(&mut m, 64, 7, 2, true, x);
    let mut x = m.apply(MaxPool2D::new(3).strides(2).same(), &[x]);
    for (stage, (width, blocks)) in [(64, 3), (128, 4), (256, 6), (512, 3)].into_iter().enumerate() {
        for block in 0..blocks {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let h = normed(&mut m, width, 1, 1, true, x);
            let h = normed(&mut m, width, 3, stride, true, h);
            let h = normed(&mut m, 4 * width, 1, 1, false, h);
            let shortcut = if block == 0 { normed(&mut m, 4 * width, 1, stride, false, x) } else { x };
            let sum = m.apply(Add::new(), &[h, shortcut]);
            x = m.apply(Activation::Relu, &[sum]);
        }
    }
    classifier(m, x, classes)
}

/// DenseNet-121: every layer sees all before it in its block.
pub fn densenet121(image: usize, classes: usize) -> Result<Trainer, Error> {
    let mut m = Model::new();
    let x = m.input("input", [image, image, 3]);
    let x = normed(&mut m, 64, 7, 2, true, x);
    let mut x = m.apply(MaxPool2D::new(3).strides(2).same(), &[x]);
    let mut channels = 64;
    let before = |m: &mut Model, x: Place| {
        let x = m.apply(BatchNorm::new(), &[x]);
        m.apply(Activation::Relu, &[x])
    };
    for (block, layers) in [6, 12, 24, 16].into_iter().enumerate() {
        for _ in 0..layers {
            let h = before(&mut m, x);
            let h = m.apply(Conv2D::new(128, 1).same().no_bias(), &[h]);
            let h = before(&mut m, h);
            let h = m.apply(Conv2D::new(32, 3).same().no_bias(), &[h]);
            x = m.apply(Concatenate::new(), &[x, h]);
            channels += 32;
        }
        if block < 3 {
            channels /= 2;
            let h = before(&mut m, x);
            let h = m.apply(Conv2D::new(channels, 1).same().no_bias(), &[h]);
            x = m.apply(AvgPool2D::new(2), &[h]);
        }
    }
    let x = before(&mut m, x);
    classifier(m, x, classes)
}

/// U-Net: down by max-pools, up again beside what was seen on the way down.
pub fn unet(height: usize, width: usize) -> Result<Trainer, Error> {
    let mut m = Model::new();
    let mut x = m.input("input", [height, width, 3]);
    let mut seen = Vec::new();
    for channels in [64, 128, 256, 512] {
        x = normed(&mut m, channels, 3, 1, true, x);
        x = normed(&mut m, channels, 3, 1, true, x);
        seen.push((channels, x));
        x = m.apply(MaxPool2D::new(2), &[x]);
    }
    x = normed(&mut m, 1024, 3, 1, true, x);
    x = normed(&mut m, 1024, 3, 1, true, x);
    for (channels, beside) in seen.into_iter().rev() {
        let up = m.apply(UpSampling2D::new(2), &[x]);
        let up = normed(&mut m, channels, 3, 1, true, up);
        x = m.apply(Concatenate::new(), &[beside, up]);
        x = normed(&mut m, channels, 3, 1, true, x);
        x = normed(&mut m, channels, 3, 1, true, x);
    }
    let x = m.apply(Conv2D::new(1, 1).activation(Activation::Sigmoid), &[x]);
    m.output("output", x);
    Trainer::new(m, BinaryCrossEntropy::new(), Sgd::new(0.01))
}

/// Two LSTMs over a sequence of tokens and a prediction of the next.
pub fn lstm(vocabulary: usize, units: usize, time: usize) -> Result<Trainer, Error> {
    let model = Model::sequential_of(DType::I32, [time])
        .layer(Embedding::new(vocabulary, units))
        .layer(LSTM::new(units).return_sequences())
        .layer(LSTM::new(units).return_sequences())
        .layer(Dense::new(vocabulary));
    Trainer::new(model, SparseCategoricalCrossEntropy::from_logits(), Sgd::new(0.1))
}
