//! The least memory of a pipeline: what it holds when every stage has one element at a time and no thread works ahead.
//!
//! Every link says what it holds while it appends elements to memory of somebody else ([`Node::working_bytes`]), how large its
//! elements are ([`Node::largest`]), and what stays for good ([`Node::kept_bytes`]). Everything else is summed up here. What a
//! pipeline takes beyond that is extra, and comes out of what the budget has beyond it: see `Extra` in `flow.rs`.

use crate::dataset::Node;
use crate::pages::{LARGE, PAGE};
use crate::{Component, Kind, Spec};
use plimsoll_tensor::Shape;

/// What a counted list of so many bytes takes: large ones are whole pages.
pub(crate) fn list_bytes(bytes: u64) -> u64 {
    if bytes < LARGE as u64 { bytes } else { bytes.checked_next_multiple_of(PAGE as u64).unwrap_or(u64::MAX) }
}

/// What a string of so many bytes takes in a column: itself in whole words, and where it ends.
pub(crate) fn string_bytes(len: usize) -> usize {
    len.next_multiple_of(8) + 8
}

/// The bytes of an element whose components all have one size, each in whole words as columns hold them.
pub(crate) fn fixed_bytes(spec: &Spec) -> Option<u64> {
    spec.components().iter().map(|c| Some((c.bytes()? as u64).next_multiple_of(8))).sum()
}

/// What a builder takes that has so many elements, each as large as the largest and appended in one go.
pub(crate) fn held_bytes(node: &dyn Node, rows: u64) -> Option<u64> {
    let components = node.spec().components();
    if node.spec().bytes().is_some() {
        let column =
            |c: &Component| Some(list_bytes(rows.checked_mul(c.bytes()? as u64)?.checked_next_multiple_of(8)?));
        return components.iter().map(column).sum();
    }
    // The shapes of rows that differ are in two lists of their own.
    let n_open = components.iter().filter(|c| c.shape().is_none()).count() as u64;
    let shapes = if rows > 1 { n_open * (size_of::<Shape>() + size_of::<u64>()) as u64 } else { 0 };
    // No more than all of them have.
    let all = if rows > 1 { node.total().map_or(u64::MAX, |total| total.bytes) } else { u64::MAX };
    let bytes = node.largest()?.checked_mul(rows)?.min(all).checked_add(shapes.checked_mul(rows)?)?;
    // Every list is rounded up to whole pages, if it is not small: a quarter of it at the most.
    let n_lists = 2 * n_open + components.iter().map(|c| if c.kind == Kind::Bytes { 2 } else { 1 }).sum::<u64>();
    let rounding = if bytes < LARGE as u64 { 0 } else { (bytes / 4).min(n_lists * (PAGE as u64 - 1)) };
    bytes.checked_add(rounding)
}

/// What the elements of a link take on their way, one after another: see `open_flow`.
pub(crate) fn flow_bytes(node: &dyn Node) -> Option<u64> {
    let working = node.working_bytes(1)?;
    if !node.is_lookup() {
        return Some(working);
    }
    // The list of one number; and the element, where it is made ahead of its use.
    let ahead = if node.lead().is_some() { held_bytes(node, 1)? } else { 0 };
    working.checked_add(ahead)?.checked_add(8)
}

/// What a pass over the elements of a link takes, with one element at hand while the next is made.
pub(crate) fn least_bytes(node: &dyn Node) -> Option<u64> {
    flow_bytes(node)?.checked_add(held_bytes(node, 1)?.checked_mul(2)?)?.checked_add(node.kept_bytes()?)
}

/// The same where elements are put together in memory of the caller, but for the components that have none there.
pub(crate) fn least_bytes_into(node: &dyn Node, is_given: impl Fn(&Component) -> bool) -> Option<u64> {
    let (given, dropped): (Vec<_>, Vec<_>) = node.spec().components().iter().partition(|c| is_given(c));
    let dropped = match dropped.iter().map(|c| c.bytes()).collect::<Option<Vec<_>>>() {
        Some(bytes) => bytes.into_iter().map(|n| list_bytes(n as u64 + 8)).sum(),
        // All of them have so many bytes together, less those that have a place.
        None => held_bytes(node, 1)?.saturating_sub(given.iter().map(|c| c.bytes().unwrap_or(0) as u64).sum()),
    };
    // What is appended row by row grows by moving.
    flow_bytes(node)?.checked_add(dropped.checked_mul(2)?)?.checked_add(node.kept_bytes()?)
}
