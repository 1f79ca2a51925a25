//! Transfers where memory is short: reads begin later and writes end earlier than the simulation wished.
//!
//! What a run keeps in memory while it is written or read ahead of time fills the arena to the brim, and then lifetimes do not
//! pack. But these times may be shorter: a value must be there from the end of its read, and until its last use or the begin of its write.
//! So where the times that were wished for do not fit, those that are needed are packed alone, and each is then made as long again as its
//! place allows, in the best place that there is for it. When all is in its place, writes may take as long as nobody else needs theirs.

use crate::Plan;
use crate::lifetime::{self, Home, Lifetimes};
use crate::place::{self, ALIGNMENT, Buffer, Placement};
use plimsoll_graph::op::spill::Transfer;
use plimsoll_graph::{Graph, NodeId, Value};

/// An order in which transfers are moved, the lifetimes in it, and where the buffers are.
pub(crate) struct Fitted {
    pub order: Vec<NodeId>,
    pub lives: Lifetimes,
    pub placement: Placement,
}

/// From when to when a buffer is there, both steps included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    first: u32,
    last: u32,
}

/// How long transfers are tried to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfers {
    /// As long as was wished for; shorter where that does not fit.
    Long,
    /// As short as can be, then as long again as their places allow: for those whom only the memory matters, and soonest found.
    Short,
}

/// How to pack a run.
#[derive(Clone, Copy)]
pub(crate) struct Packing {
    /// The height at which the search ends.
    pub limit: u64,
    pub effort: place::Effort,
    pub transfers: Transfers,
}

impl Packing {
    /// As transfers were wished for, if that fits.
    pub fn new(limit: u64, effort: place::Effort) -> Packing {
        Packing { limit, effort, transfers: Transfers::Long }
    }
}

/// By which part of what can be spared windows are made shorter: first half of it, then all.
const HALF: (u32, u32) = (1, 2);
const ALL: (u32, u32) = (1, 1);

/// Lifetimes that can be shorter.
pub(crate) struct Shorter {
    wished: Vec<Window>,
    needed: Vec<Window>,
}

impl Shorter {
    /// The lifetimes of buffers, and how much of them cannot be spared; `None` where that is all.
    pub fn of(graph: &Graph, order: &[NodeId], lives: &Lifetimes) -> Option<Shorter> {
        let wished: Vec<Window> = lives.buffers.iter().map(|b| Window { first: b.first, last: b.last }).collect();
        let needed = needed(graph, order, lives);
        (needed != wished).then_some(Shorter { wished, needed })
    }

    /// Packs lifetimes by making transfers shorter: within a limit if that does, or as low as with the shortest.
    pub fn fit(self, order: &[NodeId], mut lives: Lifetimes, Packing { limit, effort, transfers }: Packing) -> Fitted {
        let Shorter { wished, needed } = self;
        let sized = |windows: &[Window]| -> Vec<Buffer> {
            let buffers = lives.buffers.iter().zip(windows);
            buffers.map(|(b, w)| Buffer { bytes: b.bytes, first: w.first, last: w.last }).collect()
        };
        let packed = |(parts, of): (u32, u32)| {
            let between = |(w, n): (&Window, &Window)| Window {
                first: w.first + ((n.first - w.first) * parts).div_ceil(of),
                last: w.last - ((w.last - n.last) * parts).div_ceil(of),
            };
            let windows: Vec<Window> = wished.iter().zip(&needed).map(between).collect();
            let placement = place::place_within(&sized(&windows), limit, effort);
            (windows, placement)
        };
        // The longest that can be packed.
        let half = (transfers == Transfers::Long).then(|| packed(HALF)).filter(|(_, p)| p.height <= limit);
        let (shorter, mut placement) = half.unwrap_or_else(|| packed(ALL));
        // What does not fit is looked for anew with less alive.
        let windows = match placement.height <= limit {
            true => widen(&sized(&shorter), &wished, &mut placement.offsets, limit),
            false => shorter,
        };
        let buffers = sized(&windows);
        placement.lower_bound = most_alive(buffers.iter().copied());
        placement.height =
            buffers.iter().zip(&placement.offsets).map(|(b, at)| at + aligned(b.bytes)).max().unwrap_or(0);
        let order = shift(order, &mut lives, &wished, &windows);
        Fitted { order, lives, placement }
    }
}

fn aligned(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT)
}

/// The steps at which each buffer cannot be spared.
fn needed(graph: &Graph, order: &[NodeId], lives: &Lifetimes) -> Vec<Window> {
    let buffer_of = |value: Value| match lives.homes[value.0 as usize] {
        Some(Home::Buffer(b)) if lives.buffers[b].bytes > 0 => Some(b),
        _ => None,
    };
    let mut windows: Vec<Window> = lives.buffers.iter().map(|b| Window { first: b.first, last: b.last }).collect();
    // By buffer: the read it begins with, the end of the write it ends with, and the last step besides that needs it.
    let mut begins: Vec<Option<u32>> = vec![None; windows.len()];
    let mut ends = begins.clone();
    let mut last: Vec<u32> = windows.iter().map(|w| w.first).collect();
    for (step, &id) in order.iter().enumerate() {
        let (step, node) = (step as u32, graph.node(id));
        let transfer = node.op.transfer();
        for b in node.inputs.iter().chain(&node.outputs).filter_map(|&v| buffer_of(v)) {
            match transfer {
                Some(Transfer::EndWrite(_)) => ends[b] = Some(step),
                Some(Transfer::BeginRead(_)) => (begins[b], last[b]) = (Some(step), step),
                Some(Transfer::EndRead(_)) if begins[b] == Some(windows[b].first) => {
                    (begins[b], last[b]) = (None, step);
                    windows[b].first = step;
                }
                _ => last[b] = step,
            }
        }
    }
    for b in graph.outputs().iter().filter_map(|o| buffer_of(o.value)) {
        ends[b] = None;
    }
    for (b, window) in windows.iter_mut().enumerate() {
        if ends[b] == Some(window.last) {
            window.last = last[b];
        }
    }
    windows
}

/// Makes windows as long as their places allow, up to what is wished for; buffers whose windows stay short move to where they can be
/// longer, the largest first.
fn widen(needed: &[Buffer], wished: &[Window], offsets: &mut [u64], limit: u64) -> Vec<Window> {
    let mut windows: Vec<Window> = needed.iter().map(|b| Window { first: b.first, last: b.last }).collect();
    let mut flexible: Vec<usize> =
        (0..needed.len()).filter(|&b| windows[b] != wished[b] && needed[b].bytes > 0).collect();
    flexible.sort_by_key(|&b| (std::cmp::Reverse(needed[b].bytes), b));
    for b in flexible {
        let size = aligned(needed[b].bytes);
        // All that is there at some time of the longest window.
        let around: Vec<(Window, u64, u64)> = (0..needed.len())
            .filter(|&o| o != b && needed[o].bytes > 0)
            .filter(|&o| windows[o].first <= wished[b].last && wished[b].first <= windows[o].last)
            .map(|o| (windows[o], offsets[o], offsets[o] + aligned(needed[o].bytes)))
            .collect();
        // What is there at a time that cannot be spared shuts out a place; the others only shorten the window.
        let shuts_out = |o: &(Window, u64, u64)| o.0.first <= needed[b].last && needed[b].first <= o.0.last;
        let (hard, soft): (Vec<_>, Vec<_>) = around.iter().copied().partition(shuts_out);
        let reach = |at: u64| {
            let is_in_the_way = |o: &&(Window, u64, u64)| at < o.2 && o.1 < at + size;
            if hard.iter().any(|o| is_in_the_way(&o)) {
                return None;
            }
            let mut window = wished[b];
            for (other, ..) in soft.iter().filter(is_in_the_way) {
                if other.last < needed[b].first {
                    window.first = window.first.max(other.last + 1);
                } else {
                    window.last = window.last.min(other.first - 1);
                }
            }
            Some(window)
        };
        let mut best = (reach(offsets[b]).expect("its place is its own"), offsets[b]);
        let length = |w: Window| w.last - w.first;
        let places = around.iter().map(|&(.., to)| to).chain([0]).filter(|at| at + size <= limit);
        for at in places {
            if best.0 == wished[b] {
                break;
            }
            if let Some(window) = reach(at)
                && length(window) > length(best.0)
            {
                best = (window, at);
            }
        }
        (windows[b], offsets[b]) = best;
    }
    windows
}

/// The most bytes that are alive at one step.
pub(crate) fn most_alive(buffers: impl Iterator<Item = Buffer> + Clone) -> u64 {
    let end = buffers.clone().map(|b| b.last as usize + 2).max().unwrap_or(0);
    let mut change = vec![0i64; end];
    for b in buffers {
        change[b.first as usize] += aligned(b.bytes) as i64;
        change[b.last as usize + 1] -= aligned(b.bytes) as i64;
    }
    let (mut live, mut most) = (0, 0);
    for c in change {
        live += c;
        most = most.max(live);
    }
    most as u64
}

/// The most bytes that are alive at once when transfers are as short as can be: no arena in which the nodes run in this order is smaller.
pub(crate) fn least_alive(graph: &Graph, order: &[NodeId], threads: usize) -> u64 {
    let lives = lifetime::lifetimes(graph, order, threads);
    let windows = needed(graph, order, &lives);
    let buffers = lives.buffers.iter().zip(&windows);
    most_alive(buffers.map(|(b, w)| Buffer { bytes: b.bytes, first: w.first, last: w.last }))
}

/// Moves the transfers whose windows have changed; lifetimes are then those of the new order.
fn shift(order: &[NodeId], lives: &mut Lifetimes, wished: &[Window], windows: &[Window]) -> Vec<NodeId> {
    let moved = positions(order.len(), wished, windows);
    for (buffer, window) in lives.buffers.iter_mut().zip(windows) {
        (buffer.first, buffer.last) = moved_window(buffer, *window, &moved);
    }
    let (mut workspaces, mut shifted) = (lives.workspaces.clone(), order.to_vec());
    for (step, &to) in moved.iter().enumerate() {
        workspaces[to as usize] = lives.workspaces[step];
        shifted[to as usize] = order[step];
    }
    lives.workspaces = workspaces;
    shifted
}

/// By step: where it is once the transfers are moved whose windows have changed. A read goes just before the step with which its window begins, the
/// end of a write just after that with which it ends.
fn positions(steps: usize, were: &[Window], are: &[Window]) -> Vec<u32> {
    let mut keys: Vec<(u32, u32)> = (0..steps as u32).map(|step| (step, 1)).collect();
    for (was, is) in were.iter().zip(are) {
        if was.first != is.first {
            keys[was.first as usize] = (is.first, 0);
        }
        if was.last != is.last {
            keys[was.last as usize] = (is.last, 2);
        }
    }
    let mut order: Vec<u32> = (0..steps as u32).collect();
    order.sort_by_key(|&step| (keys[step as usize], step));
    let mut moved = vec![0; steps];
    for (at, &step) in order.iter().enumerate() {
        moved[step as usize] = at as u32;
    }
    moved
}

/// From when to when a buffer is there then: the transfers that it begins and ends with go along. What is there from the begin (inputs) or until the end
/// (results) stays so, whichever node then comes first or last.
fn moved_window(buffer: &lifetime::Buffer, window: Window, moved: &[u32]) -> (u32, u32) {
    let end = moved.len().saturating_sub(1) as u32;
    let begins = if window.first == 0 { 0 } else { moved[buffer.first as usize] };
    let ends = if window.last == end { end } else { moved[buffer.last as usize] };
    (begins, ends)
}

/// Lets writes take as long as nobody else needs their memory: holes that packing leaves are of use to the disk, and a write whose end is asked for
/// later is waited for less. Nothing else changes places, so that no step is slower for it.
pub(crate) fn linger(plan: &mut Plan) {
    let order: Vec<NodeId> = plan.instructions.iter().map(|i| i.node).collect();
    let mut read_at = vec![u32::MAX; plan.graph.values().len()];
    for (step, &id) in order.iter().enumerate().rev() {
        plan.graph.node(id).inputs.iter().for_each(|v| read_at[v.0 as usize] = step as u32);
    }
    let mut buffer_of = vec![None; plan.graph.values().len()];
    for (b, (buffer, _)) in plan.buffers.iter().enumerate().filter(|(_, (buffer, _))| buffer.bytes > 0) {
        buffer.values.iter().for_each(|v| buffer_of[v.0 as usize] = Some(b));
    }
    let end = order.len().saturating_sub(1) as u32;
    let wished: Vec<Window> = plan.buffers.iter().map(|(b, _)| Window { first: b.first, last: b.last }).collect();
    let mut windows = wished.clone();
    for (step, &id) in order.iter().enumerate() {
        let node = plan.graph.node(id);
        let Some(Transfer::EndWrite(_)) = node.op.transfer() else { continue };
        let Some(b) = node.inputs.iter().find_map(|v| buffer_of[v.0 as usize]) else { continue };
        let (from, to) = (plan.buffers[b].1, plan.buffers[b].1 + aligned(plan.buffers[b].0.bytes));
        // It is over before what is written is read, and before another buffer has the memory.
        let read = node.outputs.iter().map(|v| read_at[v.0 as usize]).min().unwrap_or(u32::MAX);
        let is_after = |o: &(usize, &(lifetime::Buffer, u64))| {
            let (of, at) = o.1;
            wished[o.0].first > windows[b].last && of.bytes > 0 && *at < to && from < at + aligned(of.bytes)
        };
        let taken = plan.buffers.iter().enumerate().filter(is_after).map(|(o, _)| wished[o].first).min();
        let last = read.min(taken.unwrap_or(u32::MAX)).min(end).saturating_sub(1);
        if windows[b].last == step as u32 && last > windows[b].last {
            windows[b].last = last;
        }
    }
    let moved = positions(order.len(), &wished, &windows);
    let mut instructions = plan.instructions.clone();
    for (step, instruction) in plan.instructions.drain(..).enumerate() {
        instructions[moved[step] as usize] = instruction;
    }
    plan.instructions = instructions;
    for ((buffer, _), window) in plan.buffers.iter_mut().zip(&windows) {
        (buffer.first, buffer.last) = moved_window(buffer, *window, &moved);
    }
    let sizes = plan.buffers.iter().map(|(b, _)| Buffer { bytes: b.bytes, first: b.first, last: b.last });
    plan.live_bytes = most_alive(sizes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_there_before_a_read_that_moves() {
        let buffer = |first, last| lifetime::Buffer {
            bytes: 64,
            first,
            last,
            kind: lifetime::Kind::Input,
            values: Vec::new(),
            node: None,
        };
        // An input that the second step uses, and a value whose read is the first step and is needed at the third.
        let mut lives = Lifetimes {
            homes: Vec::new(),
            offsets: Vec::new(),
            buffers: vec![buffer(0, 1), buffer(0, 2)],
            workspaces: vec![None; 3],
        };
        let window = |first, last| Window { first, last };
        let (wished, windows) = ([window(0, 1), window(0, 2)], [window(0, 1), window(2, 2)]);
        let order = shift(&[NodeId(0), NodeId(1), NodeId(2)], &mut lives, &wished, &windows);
        assert_eq!(order, [NodeId(1), NodeId(0), NodeId(2)]);
        let lived: Vec<(u32, u32)> = lives.buffers.iter().map(|b| (b.first, b.last)).collect();
        assert_eq!(lived, [(0, 0), (1, 2)]);
    }
}
