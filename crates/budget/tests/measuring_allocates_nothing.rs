//! Reading the process's memory, reserving and giving back are done while a step runs, so they must not allocate.

use plimsoll_budget::{Budget, Bytes, measure};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[track_caller]
fn check_allocates_nothing(body: impl FnOnce()) {
    let before = ALLOCATIONS.with(Cell::get);
    body();
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
}

#[test]
#[cfg(target_os = "linux")]
fn usage() {
    check_allocates_nothing(|| {
        measure::usage().unwrap();
        measure::footprint().unwrap();
        let _ = measure::reset_peak();
    });
}

#[test]
fn reservations() {
    let account = Budget::new(Bytes::mib(1)).account("pipeline/shuffle");
    check_allocates_nothing(|| {
        let mut held = account.reserve(Bytes::kib(64)).unwrap();
        held.grow(Bytes::kib(64)).unwrap();
        let part = held.split(Bytes::kib(1));
        held.resize(Bytes::kib(5)).unwrap();
        drop((part, held));
    });
}
