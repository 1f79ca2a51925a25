//! Whole training steps of real layers allocate nothing from the second one on.
//!
//! The first model has no matrix product, so nothing at all may be allocated; the others may use the GEMM library's packing
//! buffers, which are bounded and given back.

use plimsoll::data::Arrays;
use plimsoll::layers::*;
use plimsoll::losses::SparseCategoricalCrossEntropy;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::Trainer;
use plimsoll::{DType, Tensor};
use plimsoll_budget::Budget;
use plimsoll_exec::Engine;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, SeqCst);
        PEAK.fetch_max(LIVE.fetch_add(layout.size(), SeqCst) + layout.size(), SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), SeqCst);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations, bytes kept and peak bytes of the second and third training step, and the bound that was reserved for it.
fn measure(model: Model, x: Tensor, threads: usize) -> (usize, isize, usize, usize) {
    let rows = x.shape()[0];
    let labels = Tensor::zeros(DType::I32, [rows]);
    let data = Arrays::new(x, labels).unwrap();
    let loss = SparseCategoricalCrossEntropy::from_logits();
    let mut trainer = Trainer::new(model, loss, Adam::new(1e-3)).unwrap().threads(threads);
    let plan = trainer.plan(&data, rows).unwrap();
    let inputs: Vec<String> = plan.graph.inputs().map(|(_, name)| name.to_owned()).collect();
    let mut engine = Engine::open(&Budget::unlimited(), &plan.state.clone(), vec![plan], threads).unwrap();
    let mut step = || {
        inputs.iter().for_each(|name| engine.input_bytes_mut(0, name).unwrap().fill(0));
        engine.run(0).unwrap();
    };
    step();
    let (calls, live) = (CALLS.load(SeqCst), LIVE.load(SeqCst));
    PEAK.store(live, SeqCst);
    step();
    step();
    let (calls, peak) = (CALLS.load(SeqCst) - calls, PEAK.load(SeqCst) - live);
    (calls, LIVE.load(SeqCst) as isize - live as isize, peak, engine.library_bytes().to_usize())
}

fn convolutions() -> (Model, Tensor) {
    let model = Model::sequential([16, 16, 3])
        .layer(Conv2D::new(16, 3).same())
        .layer(BatchNorm::new())
        .layer(Activation::Relu)
        .layer(MaxPool2D::new(2))
        .layer(DepthwiseConv2D::new(3).same())
        .layer(GroupNorm::new(4))
        .layer(Dropout::new(0.2))
        .layer(AvgPool2D::new(2))
        .layer(Conv2D::new(10, 3).same())
        .layer(GlobalAvgPool2D::new());
    (model, Tensor::zeros(DType::F32, [8, 16, 16, 3]))
}

fn words() -> (Model, Tensor) {
    let model = Model::sequential_of(DType::I32, [12])
        .layer(Embedding::new(50, 16))
        .layer(LayerNorm::new())
        .layer(MultiHeadAttention::new(2, 8).causal())
        .layer(LSTM::new(16).return_sequences())
        .layer(GRU::new(16))
        .layer(RmsNorm::new())
        .layer(Dense::new(10));
    (model, Tensor::zeros(DType::I32, [8, 12]))
}

#[test]
fn second_and_third_step() {
    // One test, so that nothing else allocates meanwhile.
    for threads in [1, 2] {
        let (model, x) = convolutions();
        let (calls, kept, _, _) = measure(model, x, threads);
        assert_eq!((calls, kept), (0, 0), "convolutions on {threads} threads");
        let (model, x) = words();
        let (calls, kept, peak, bound) = measure(model, x, threads);
        println!("words on {threads} threads: {calls} allocations of the GEMM library, at most {peak} bytes");
        assert_eq!(kept, 0, "words on {threads} threads keep bytes");
        assert!(peak <= bound, "words on {threads} threads: {peak} bytes");
    }
}
