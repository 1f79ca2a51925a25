//! The thread pool: a fixed number of threads with fixed stacks, one parallel loop at a time.
//!
//! [`Pool::run`] hands out task numbers from one counter, so which thread runs a task is left to chance;
//! kernels must not let the result depend on it. Starting a loop costs about a microsecond while the
//! workers are still spinning from the last one, and allocates nothing.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};

/// Stack size of each worker thread in bytes.
pub const STACK_BYTES: usize = 1 << 20;

/// How often an idle worker looks for work before it goes to sleep.
const SPINS: usize = 2000;

/// A fixed set of threads that run loops in parallel.
///
/// ```
/// use plimsoll_kernels::Pool;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// let pool = Pool::new(2);
/// let sum = AtomicUsize::new(0);
/// pool.run(100, &|task, _worker| { sum.fetch_add(task, Ordering::Relaxed); });
/// assert_eq!(sum.into_inner(), 4950);
/// ```
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    handles: Vec<Thread>,
    /// Held while a loop runs: loops from several callers take turns.
    turn: Mutex<()>,
}

/// A task: its number and the number of the thread that runs it.
type Body<'a> = &'a (dyn Fn(usize, usize) + Sync);

struct Shared {
    /// Loop number in the upper bits, then [`OPEN`], then how many workers are inside the loop.
    gate: AtomicU64,
    job: UnsafeCell<Job>,
    next: AtomicUsize,
    asleep: Vec<AtomicBool>,
    started: AtomicUsize,
    stop: AtomicBool,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

#[derive(Clone, Copy)]
struct Job {
    body: Body<'static>,
    tasks: usize,
}

const OPEN: u64 = 1 << 16;
const INSIDE: u64 = OPEN - 1;
const NEXT_LOOP: u64 = 1 << 17;

// SAFETY: `job` is written only by the caller that holds `turn`, while the gate is shut and nobody is inside.
unsafe impl Sync for Shared {}
// SAFETY: as above; the body it points to is `Sync`.
unsafe impl Send for Shared {}

impl Pool {
    /// A pool that runs loops on `threads` threads, the caller's included.
    pub fn new(threads: usize) -> Pool {
        let n_workers = threads.max(1) - 1;
        crate::gemm::prepare_thread();
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            job: UnsafeCell::new(Job { body: &|_, _| (), tasks: 0 }),
            next: AtomicUsize::new(0),
            asleep: (0..n_workers).map(|_| AtomicBool::new(false)).collect(),
            started: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let workers: Vec<_> = (0..n_workers)
            .map(|index| {
                let shared = shared.clone();
                std::thread::Builder::new()
                    .name(format!("plimsoll-{}", index + 1))
                    .stack_size(STACK_BYTES)
                    .spawn(move || shared.work(index))
                    .expect("the system starts a thread")
            })
            .collect();
        // A thread allocates while it starts: that is over before anything runs.
        while shared.started.load(Ordering::Acquire) < n_workers {
            std::thread::yield_now();
        }
        let handles = workers.iter().map(|w| w.thread().clone()).collect();
        Pool { shared, workers, handles, turn: Mutex::new(()) }
    }

    /// The number of threads, the caller's included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `body(task, worker)` for every task below `tasks` and returns when all are done.
    ///
    /// `worker` is below [`Pool::threads`], and no two tasks with the same worker run at once, so it can
    /// index scratch memory. A body must not call `run` on the same pool.
    ///
    /// # Panics
    /// When a task panics, after the others have ended.
    pub fn run(&self, tasks: usize, body: Body<'_>) {
        if tasks <= 1 || self.workers.is_empty() {
            return (0..tasks).for_each(|task| body(task, 0));
        }
        let _turn = self.turn.lock().unwrap_or_else(|e| e.into_inner());
        let shared = &*self.shared;
        // SAFETY: the gate is shut, so no worker reads the job; and the borrow outlives every use, because
        // this function does not return before the gate is shut again with nobody inside.
        unsafe {
            *shared.job.get() = Job { body: std::mem::transmute::<Body<'_>, Body<'static>>(body), tasks };
        }
        shared.next.store(0, Ordering::Relaxed);
        let shut = shared.gate.load(Ordering::Relaxed);
        shared.gate.store((shut & !(OPEN | INSIDE)) + NEXT_LOOP + OPEN, Ordering::SeqCst);
        for (asleep, worker) in shared.asleep.iter().zip(&self.handles) {
            if asleep.load(Ordering::SeqCst) {
                worker.unpark();
            }
        }
        shared.drain(0);
        let mut gate = shared.gate.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0;
        while gate & INSIDE != 0 {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
            gate = shared.gate.load(Ordering::Acquire);
        }
        if let Some(payload) = shared.panic.lock().unwrap_or_else(|e| e.into_inner()).take() {
            resume_unwind(payload);
        }
    }

    /// As [`Pool::run`], but in the caller's thread when the loop is too small to share.
    ///
    /// `work` is the loop's cost in units of about a nanosecond.
    pub fn run_sized(&self, tasks: usize, work: usize, body: Body<'_>) {
        const WORTH_SHARING: usize = 8_000;
        if work < WORTH_SHARING {
            return (0..tasks).for_each(|task| body(task, 0));
        }
        self.run(tasks, body);
    }
}

impl Shared {
    fn drain(&self, worker: usize) {
        // SAFETY: the caller is inside the gate (or opened it), so the job is not being written.
        let job = unsafe { *self.job.get() };
        let work = AssertUnwindSafe(|| {
            loop {
                let task = self.next.fetch_add(1, Ordering::Relaxed);
                if task >= job.tasks {
                    break;
                }
                (job.body)(task, worker);
            }
        });
        if let Err(payload) = catch_unwind(work) {
            self.next.store(usize::MAX / 2, Ordering::Relaxed);
            *self.panic.lock().unwrap_or_else(|e| e.into_inner()) = Some(payload);
        }
    }

    fn work(&self, index: usize) {
        crate::gemm::prepare_thread();
        self.started.fetch_add(1, Ordering::Release);
        let mut last_loop = 0;
        loop {
            let gate = self.wait(index, last_loop);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let entered = self.gate.compare_exchange(gate, gate + 1, Ordering::AcqRel, Ordering::Relaxed);
            if entered.is_ok() {
                last_loop = gate / NEXT_LOOP;
                self.drain(index + 1);
                self.gate.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// Waits for an open gate of another loop than the last one joined, or for the end.
    fn wait(&self, index: usize, last_loop: u64) -> u64 {
        let mut spins = 0;
        loop {
            let gate = self.gate.load(Ordering::SeqCst);
            if gate & OPEN != 0 && gate / NEXT_LOOP != last_loop || self.stop.load(Ordering::SeqCst) {
                return gate;
            }
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            self.asleep[index].store(true, Ordering::SeqCst);
            let gate = self.gate.load(Ordering::SeqCst);
            let idle = gate & OPEN == 0 || gate / NEXT_LOOP == last_loop;
            if idle && !self.stop.load(Ordering::SeqCst) {
                std::thread::park();
            }
            self.asleep[index].store(false, Ordering::SeqCst);
            spins = 0;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in &self.handles {
            worker.unpark();
        }
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

/// A pointer that tasks may share because each writes its own part.
///
/// ```
/// use plimsoll_kernels::pool::{Pool, SharedSlice};
/// let mut squares = [0usize; 10];
/// let out = SharedSlice::new(&mut squares);
/// // SAFETY: each task writes its own element.
/// Pool::new(2).run(10, &|i, _| unsafe { out.slice(i, 1)[0] = i * i });
/// assert_eq!(squares[9], 81);
/// ```
pub struct SharedSlice<T> {
    ptr: *mut T,
    len: usize,
}

// SAFETY: access goes through the unsafe `slice`, whose callers promise disjoint parts.
unsafe impl<T: Send> Sync for SharedSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for SharedSlice<T> {}

impl<T> SharedSlice<T> {
    /// Shares a slice among the tasks of one loop.
    pub fn new(slice: &mut [T]) -> SharedSlice<T> {
        SharedSlice { ptr: slice.as_mut_ptr(), len: slice.len() }
    }

    /// `len` elements from `start`.
    ///
    /// # Safety
    /// No two tasks that run at once may hold overlapping parts.
    ///
    /// # Panics
    /// When the part is not inside the slice.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start, "a task reaches beyond its slice");
        // SAFETY: inside the slice by the check above; exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once_on_many_loops() {
        for threads in [1, 2, 3, 5] {
            let pool = Pool::new(threads);
            for tasks in 0..200 {
                let mut hits = vec![0u8; tasks];
                let shared = SharedSlice::new(&mut hits);
                // SAFETY: each task touches its own element.
                pool.run(tasks, &|i, worker| unsafe {
                    assert!(worker < threads);
                    shared.slice(i, 1)[0] += 1;
                });
                assert!(hits.iter().all(|&h| h == 1));
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let pool = Pool::new(2);
        let fails = || pool.run(64, &|i, _| assert!(i != 33, "task 33"));
        assert!(catch_unwind(AssertUnwindSafe(fails)).is_err());
        let count = AtomicUsize::new(0);
        pool.run(64, &|_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 64);
    }

    #[test]
    fn sleeping_workers_wake_up() {
        let pool = Pool::new(2);
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            pool.run(8, &|_, _| ());
        }
    }
}
