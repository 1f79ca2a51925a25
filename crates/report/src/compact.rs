//! What a page needs of a run, small: columns instead of records, every text once, numbers rounded to what can be seen.
//!
//! A plan of 100,000 tensors is about 20 MB as `plan.json`. In columns, where neighbours are alike, deflate leaves less than a
//! tenth of it.

use plimsoll_run::{AccountLine, BufferLine, KeptLine, Line, PlanPicture, StateLine, Sweep, Times};
use serde::Serialize;
use std::collections::HashMap;

/// A run as the page has it.
#[derive(Serialize, Default)]
pub(crate) struct CompactRun {
    pub name: String,
    pub plan: Option<CompactPlan>,
    /// Seconds by instruction as measured; empty where nothing was.
    pub times: Vec<f64>,
    /// The log, with steps thinned out.
    pub log: Vec<Line>,
    /// The sweep as a picture, and its points for the table.
    pub sweep_svg: Option<String>,
    pub sweep: Option<Sweep>,
}

#[derive(Serialize)]
pub(crate) struct CompactPlan {
    title: String,
    limit: Option<u64>,
    arena: u64,
    live: u64,
    peak: u64,
    state_bytes: u64,
    file_bytes: u64,
    kept: Option<KeptLine>,
    ledger: Vec<AccountLine>,
    states: Vec<StateLine>,
    texts: Vec<String>,
    op: Vec<u32>,
    layer: Vec<u32>,
    phase: Vec<u8>,
    again: Vec<u32>,
    seconds: Vec<f64>,
    /// Step, slot, bytes and 0 for the beginning of a write, 1 for its end, 2 and 3 for a read.
    transfers: Vec<(u32, u64, u64, u8)>,
    buffers: CompactBuffers,
}

/// Buffers in the order in which they begin; offsets and sizes are counted in pieces of 64 bytes.
#[derive(Serialize, Default)]
struct CompactBuffers {
    offset: Vec<u64>,
    size: Vec<u64>,
    /// Since the buffer before.
    birth: Vec<u32>,
    /// Steps after the birth.
    length: Vec<u32>,
    kind: Vec<u8>,
    strategy: Vec<u8>,
    what: Vec<u32>,
    ty: Vec<u32>,
    layer: Vec<u32>,
    /// Pairs of a buffer and its partner.
    partner: Vec<(u32, u32)>,
}

/// Texts by number.
#[derive(Default)]
struct Texts {
    numbers: HashMap<String, u32>,
    list: Vec<String>,
}

impl Texts {
    fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.list.len() as u32;
        self.list.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }
}

const GRAIN: u64 = 64;

impl CompactPlan {
    pub fn new(plan: &PlanPicture) -> CompactPlan {
        let mut texts = Texts::default();
        let op = plan.instructions.iter().map(|i| texts.number(&i.op)).collect();
        let layer = plan.instructions.iter().map(|i| texts.number(&i.layer)).collect();
        let buffers = CompactBuffers::new(&plan.buffers, &mut texts);
        let numbered = || plan.instructions.iter().enumerate();
        let known = plan.instructions.iter().any(|i| i.seconds.is_some_and(|s| s > 0.0));
        CompactPlan {
            title: plan.title.clone(),
            limit: plan.limit,
            arena: plan.arena,
            live: plan.live,
            peak: plan.peak_step,
            state_bytes: plan.state_bytes,
            file_bytes: plan.file_bytes,
            kept: plan.kept.clone(),
            ledger: plan.ledger.clone(),
            states: plan.states.clone(),
            op,
            layer,
            phase: plan.instructions.iter().map(|i| i.phase as u8).collect(),
            again: numbered().filter(|(_, i)| i.again).map(|(step, _)| step as u32).collect(),
            seconds: if known {
                plan.instructions.iter().map(|i| rounded(i.seconds.unwrap_or(0.0))).collect()
            } else {
                Vec::new()
            },
            transfers: numbered()
                .filter_map(|(step, i)| {
                    let what =
                        ["begin_write", "end_write", "begin_read", "end_read"].iter().position(|n| *n == i.op)?;
                    Some((step as u32, i.slot?, i.written + i.read, what as u8))
                })
                .collect(),
            buffers,
            texts: texts.list,
        }
    }
}

impl CompactBuffers {
    fn new(buffers: &[BufferLine], texts: &mut Texts) -> CompactBuffers {
        let mut order: Vec<usize> = (0..buffers.len()).collect();
        order.sort_by_key(|&b| (buffers[b].birth, buffers[b].offset));
        let mut place = vec![0; buffers.len()];
        order.iter().enumerate().for_each(|(at, &b)| place[b] = at as u32);
        let mut columns = CompactBuffers::default();
        let mut birth = 0;
        for (at, &b) in order.iter().enumerate() {
            let buffer = &buffers[b];
            columns.offset.push(buffer.offset / GRAIN);
            columns.size.push(buffer.bytes / GRAIN);
            columns.birth.push(buffer.birth - birth);
            birth = buffer.birth;
            columns.length.push(buffer.death - buffer.birth);
            columns.kind.push(buffer.kind as u8);
            columns.strategy.push(buffer.strategy as u8);
            columns.what.push(texts.number(&buffer.what));
            columns.ty.push(texts.number(&buffer.ty));
            columns.layer.push(texts.number(&buffer.layer));
            columns.partner.extend(buffer.partner.map(|p| (at as u32, place[p as usize])));
        }
        columns
    }
}

/// Three digits, which is more than a picture shows.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(0.0)
}

pub(crate) fn compact_times(times: &Times) -> Vec<f64> {
    times.seconds.iter().map(|s| rounded(s.unwrap_or(0.0))).collect()
}
