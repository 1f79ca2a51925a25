//! How tightly plans under a limit are packed: the arena against the most bytes that are alive at once.
//!
//! The steps in `data/steps` are those of `benches/`: a small CNN with batch norm, a GPT, a U-Net and an LSTM with their optimizers, in
//! the graph's own text form (the number in a name is the batch).

use plimsoll_graph::Graph;
use plimsoll_graph::op::spill::Transfer;
use plimsoll_plan::lifetime::Buffer;
use plimsoll_plan::{Options, Plan, StateLayout, evict, place, plan};

fn step(text: &str) -> (Graph, StateLayout) {
    let g = Graph::parse(text).unwrap();
    let state = StateLayout::new(g.states().map(|(v, n)| (n, *g.ty(v))));
    (g, state)
}

const STEPS: [(&str, &str); 4] = [
    ("w4", include_str!("data/steps/w4-64.txt")),
    ("w5", include_str!("data/steps/w5-8.txt")),
    ("unet", include_str!("data/steps/unet-2.txt")),
    ("lstm", include_str!("data/steps/lstm-32.txt")),
];

/// By how much the arena is larger than what is alive.
fn gap(plan: &Plan) -> f64 {
    plan.arena_bytes as f64 / plan.live_bytes as f64 - 1.0
}

#[test]
fn plans_under_a_limit_are_packed_tightly() {
    let mut gaps = Vec::new();
    for (name, text) in STEPS {
        let (g, state) = step(text);
        let whole = plan(&g, &state, &Options::default()).unwrap();
        gaps.push((gap(&whole), name, 1.0, false));
        for spill in [false, true] {
            for part in [0.8, 0.6, 0.45, 0.35] {
                let options = Options {
                    limit: Some((whole.arena_bytes as f64 * part) as u64),
                    spill,
                    threads: 2,
                    search: evict::Effort { base: 500_000, per_task: 500, ..evict::Effort::NORMAL },
                    effort: place::Effort { work: 15_000_000 },
                    ..Options::default()
                };
                // What does not fit is refused: nothing to pack.
                if let Ok(plan) = plan(&g, &state, &options) {
                    assert!(plan.arena_bytes <= options.limit.unwrap(), "{name} at {part}");
                    gaps.push((gap(&plan), name, part, spill));
                }
            }
        }
    }
    gaps.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (median, worst) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
    println!("{} plans: median {:.3} %, worst {:.3} % {worst:?}", gaps.len(), 100.0 * median.0, 100.0 * worst.0);
    gaps.iter().filter(|g| g.0 > 0.005).for_each(|g| println!("{g:?}"));
    assert!(gaps.len() >= 20, "only {} plans", gaps.len());
    assert!(median.0 <= 0.005, "{median:?}");
    assert!(worst.0 <= WORST, "{worst:?}");
}

/// What every plan keeps.
const WORST: f64 = 0.02;

#[test]
fn writes_are_waited_for_when_their_memory_is_needed_and_not_before() {
    let (g, state) = step(STEPS[1].1);
    let whole = plan(&g, &state, &Options::default()).unwrap();
    let limit = Some(whole.arena_bytes * 2 / 5);
    let options = Options { limit, spill: true, recompute: false, threads: 2, ..Options::default() };
    let plan = plan(&g, &state, &options).unwrap();
    assert_eq!(plan.live_bytes, plan.live_at_each_step().into_iter().max().unwrap());
    let with_bytes = || plan.buffers.iter().filter(|(b, _)| b.bytes > 0);
    let meets = |a: &Buffer, at: u64, b: &Buffer, to: u64| at < to + b.bytes && to < at + a.bytes;
    for (i, (a, at)) in with_bytes().enumerate() {
        for (b, to) in with_bytes().skip(i + 1) {
            let together = a.first <= b.last && b.first <= a.last;
            assert!(!together || !meets(a, *at, b, *to), "{a:?} at {at} and {b:?} at {to}");
        }
    }
    let ends_write = |step: usize| {
        let node = plan.graph.node(plan.instructions[step].node);
        matches!(node.op.transfer(), Some(Transfer::EndWrite(_)))
    };
    let mut writes = 0;
    for step in (0..plan.instructions.len()).filter(|&step| ends_write(step)) {
        let node = plan.graph.node(plan.instructions[step].node);
        let written =
            with_bytes().find(|(b, _)| b.last as usize == step && node.inputs.iter().any(|v| b.values.contains(v)));
        let Some((buffer, at)) = written else { continue };
        // The next step that is not such an end itself.
        let next = (step + 1..plan.instructions.len()).find(|&next| !ends_write(next)).unwrap();
        let reads = plan.graph.node(plan.instructions[next].node).inputs.iter().any(|v| node.outputs.contains(v));
        let takes = with_bytes().any(|(b, to)| b.first as usize == next && meets(buffer, *at, b, *to));
        assert!(reads || takes || next + 1 == plan.instructions.len(), "step {step} could wait longer than to {next}");
        writes += 1;
    }
    assert!(writes > 3, "only {writes} writes");
}
