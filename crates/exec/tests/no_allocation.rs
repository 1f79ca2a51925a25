//! From the second step on the engine allocates nothing; the GEMM library's packing buffers are the one exception, and
//! stay below the bound that the budget holds for them.

mod by_hand;

use by_hand::{directory, through_file};
use plimsoll_budget::Budget;
use plimsoll_exec::{Engine, Settings};
use plimsoll_graph::{Graph, gradients};
use plimsoll_plan::{Options, Plan, StateLayout, plan};
use plimsoll_tensor::{DType, TensorType};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

/// Counts what is asked of the system.
struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);
/// Below 0 when what the harness took is given back by the test.
static LIVE: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);

/// Whether this is the process's first thread: the test harness, which keeps its books while the test runs.
fn is_harness() -> bool {
    // SAFETY: calls without arguments that cannot fail.
    unsafe { libc::gettid() == libc::getpid() }
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_harness() {
            CALLS.fetch_add(1, Ordering::SeqCst);
            let live = LIVE.fetch_add(layout.size() as isize, Ordering::SeqCst) + layout.size() as isize;
            PEAK.fetch_max(live, Ordering::SeqCst);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        if !is_harness() {
            LIVE.fetch_sub(layout.size() as isize, Ordering::SeqCst);
        }
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs a graph three times and gives the allocations, bytes kept and peak bytes of the last two runs.
fn measure(g: &Graph, threads: usize) -> (usize, isize, usize) {
    measure_plan(g, plain(g, threads))
}

fn plain(g: &Graph, threads: usize) -> Plan {
    let state = StateLayout::new(g.states().map(|(v, n)| (n, *g.ty(v))));
    plan(g, &state, &Options { threads, ..Options::default() }).unwrap()
}

fn measure_plan(g: &Graph, planned: Plan) -> (usize, isize, usize) {
    let settings = Settings::from(planned.threads).spill_dir(directory());
    let mut engine = Engine::open(&Budget::unlimited(), &planned.state.clone(), vec![planned], settings).unwrap();
    let mut step = || {
        for (v, name) in g.inputs() {
            if g.dtype(v) == DType::F32 {
                engine.input_mut::<f32>(0, name).unwrap().fill(0.5);
            }
        }
        engine.run(0).unwrap();
    };
    step();
    let (calls, live) = (CALLS.load(Ordering::SeqCst), LIVE.load(Ordering::SeqCst));
    PEAK.store(live, Ordering::SeqCst);
    step();
    step();
    let kept = LIVE.load(Ordering::SeqCst) - live;
    (CALLS.load(Ordering::SeqCst) - calls, kept, (PEAK.load(Ordering::SeqCst) - live) as usize)
}

fn f32(shape: &[usize]) -> TensorType {
    TensorType::new(DType::F32, shape)
}

/// Element-wise chains, reductions, moves, random numbers, changes of state.
fn without_products() -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", f32(&[300, 400]));
    let key = g.input("key", TensorType::new(DType::I64, [2]));
    let w = g.state("w", f32(&[400]));
    let noise = g.random(key, "uniform", f32(&[300, 400])).unwrap();
    let y = g.mul(x, w).unwrap();
    let y = g.add(y, noise).unwrap();
    let y = g.tanh(y).unwrap();
    let t = g.transpose(y, &[1, 0]).unwrap();
    let s = g.sum(t, &[0], false).unwrap();
    let m = g.mean_all(y).unwrap();
    let loss = g.mean_all(s).unwrap();
    let loss = g.add(loss, m).unwrap();
    let dw = gradients(&mut g, loss, &[w]).unwrap()[0].unwrap();
    let new = g.sub(w, dw).unwrap();
    g.assign(w, new).unwrap();
    g.output("loss", loss);
    g
}

/// A network of matrix products large enough to be cut into tiles.
fn with_products() -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", f32(&[700, 1100]));
    let (a, b) = (g.state("a", f32(&[1100, 1300])), g.state("b", f32(&[1300, 10])));
    let h = g.matmul(x, a).unwrap();
    let h = g.relu(h).unwrap();
    let y = g.matmul(h, b).unwrap();
    let loss = g.mean_all(y).unwrap();
    for (w, d) in [a, b].into_iter().zip(gradients(&mut g, loss, &[a, b]).unwrap()) {
        let new = g.sub(w, d.unwrap()).unwrap();
        g.assign(w, new).unwrap();
    }
    g.output("loss", loss);
    g
}

#[test]
fn steps_allocate_nothing() {
    // One test, so that nothing else allocates meanwhile.
    for threads in [1, 2] {
        let (calls, kept, _) = measure(&without_products(), threads);
        assert_eq!((calls, kept), (0, 0), "{threads} threads");
        // The same with every value going through a file, and the state living there.
        let moved = through_file(&plain(&without_products(), threads), |_| true);
        let (calls, kept, _) = measure_plan(&without_products(), moved);
        assert_eq!((calls, kept), (0, 0), "{threads} threads, through a file");
        let (calls, kept, peak) = measure(&with_products(), threads);
        assert_eq!(kept, 0, "{threads} threads keep bytes of matrix products");
        let bound = with_products().packing().bytes(threads);
        println!("{threads} threads: the library took {peak} bytes in {calls} calls; the bound is {bound}");
        assert!(peak <= bound, "{threads} threads: {peak} bytes, more than the bound of {bound}");
    }
}
