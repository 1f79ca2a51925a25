//! One training step as a trace that Perfetto and Chrome open: ops as slices, transfers in a lane of their own, the arena and
//! the limit as counters.

use crate::plan::{Phase, PlanPicture, Times};
use serde_json::json;
use std::io::{self, Write};

const COMPUTE: u32 = 1;
const DISK: u32 = 2;

/// Writes the trace of a step in Chrome's JSON format.
///
/// The times are those measured, else those estimated, else a microsecond for each op. A transfer lasts from the op that begins it
/// to the one that waits for its end.
///
/// # Errors
/// When `out` refuses.
pub fn write(plan: &PlanPicture, times: Option<&Times>, out: impl Write) -> io::Result<()> {
    let mut trace = Trace { out, n_events: 0 };
    trace.out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    trace.event(&json!({"ph": "M", "pid": 1, "name": "process_name", "args": {"name": plan.title}}))?;
    for (thread, name) in [(COMPUTE, "ops"), (DISK, "spill file")] {
        trace.event(&json!({"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": {"name": name}}))?;
    }
    let duration = |step: usize| {
        let measured = times.and_then(|t| t.seconds.get(step).copied().flatten());
        1e6 * measured.or(plan.instructions[step].seconds).unwrap_or(1e-6)
    };
    let outside =
        plan.ledger.iter().filter(|a| !a.name.contains('/') && a.name != "arena").map(|a| a.held).sum::<u64>();
    let mut open: Vec<(u64, f64, &'static str, u64)> = Vec::new();
    let mut at = 0.0;
    for (step, instruction) in plan.instructions.iter().enumerate() {
        let length = duration(step);
        trace.event(&json!({
            "ph": "C", "pid": 1, "ts": at, "name": "arena in use", "args": {"bytes": instruction.live},
        }))?;
        if let Some(limit) = plan.limit {
            let room = limit.saturating_sub(outside);
            trace.event(&json!({"ph": "C", "pid": 1, "ts": at, "name": "room for the arena under the limit", "args": {"bytes": room}}))?;
        }
        let phase = match instruction.phase {
            _ if instruction.again => "recompute",
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Update => "update",
            Phase::Transfer => "transfer",
        };
        trace.event(&json!({
            "ph": "X", "pid": 1, "tid": COMPUTE, "ts": at, "dur": length, "name": instruction.op, "cat": phase,
            "args": {"layer": instruction.layer, "step": step, "phase": phase, "live_bytes": instruction.live},
        }))?;
        match (instruction.op.as_str(), instruction.slot) {
            ("begin_write", Some(slot)) => open.push((slot, at, "write", instruction.written)),
            ("begin_read", Some(slot)) => open.push((slot, at, "read", instruction.read)),
            (_, Some(slot)) => {
                if let Some(i) = open.iter().position(|o| o.0 == slot) {
                    let (slot, from, name, bytes) = open.swap_remove(i);
                    // Transfers overlap, so each is an asynchronous pair of its own.
                    let id = trace.n_events;
                    for (ph, ts) in [("b", from), ("e", at + length)] {
                        trace.event(&json!({
                            "ph": ph, "pid": 1, "tid": DISK, "ts": ts, "id": id, "cat": "spill", "name": name,
                            "args": {"bytes": bytes, "slot": slot},
                        }))?;
                    }
                }
            }
            _ => (),
        }
        at += length;
    }
    trace.event(&json!({"ph": "C", "pid": 1, "ts": at, "name": "arena in use", "args": {"bytes": 0}}))?;
    trace.out.write_all(b"\n]}\n")
}

struct Trace<W> {
    out: W,
    n_events: u64,
}

impl<W: Write> Trace<W> {
    fn event(&mut self, event: &serde_json::Value) -> io::Result<()> {
        self.out.write_all(if self.n_events == 0 { b"\n" } else { b",\n" })?;
        self.n_events += 1;
        Ok(serde_json::to_writer(&mut self.out, event)?)
    }
}
