//! What the kernel says of this process is what it holds. One test, so that no other takes memory beside it.
#![cfg(target_os = "linux")]

use plimsoll_budget::Bytes;
use plimsoll_budget::measure::{footprint, reset_peak, usage};

/// The kernel counts pages in batches on every core, and the test harness takes a little.
const SLACK: Bytes = Bytes::mib(1);

#[test]
fn figures_follow_what_the_process_holds() {
    memory_is_seen_when_touched_and_when_given_back();
    the_footprint_covers_what_is_resident();
    let block = std::hint::black_box(vec![1u8; 48 << 20]);
    the_footprint_covers_what_is_resident();
    drop(block);
    the_footprint_covers_what_is_resident();
}

fn memory_is_seen_when_touched_and_when_given_back() {
    let n_bytes = 48 << 20;
    let before = usage().unwrap();
    let block = std::hint::black_box(vec![1u8; n_bytes]);
    let during = usage().unwrap();
    drop(block);
    let after = usage().unwrap();
    assert!(during.resident + SLACK >= before.resident + Bytes::from(n_bytes), "{before:?} {during:?}");
    assert!(after.resident < before.resident + SLACK, "{before:?} {after:?}");
    assert!(after.peak + SLACK >= before.resident + Bytes::from(n_bytes), "{after:?}");
    if reset_peak().is_ok() {
        assert!(usage().unwrap().peak < before.resident + SLACK);
    }
}

fn the_footprint_covers_what_is_resident() {
    let (footprint, usage) = (footprint().unwrap(), usage().unwrap());
    assert!(footprint.total() + SLACK >= usage.resident, "{footprint:?} {usage:?}");
    assert!(footprint.anonymous < usage.anonymous + SLACK, "{footprint:?} {usage:?}");
    assert!(usage.anonymous < footprint.anonymous + SLACK, "{footprint:?} {usage:?}");
}
