//! What memory limits cost: for the steps of several models at parts of their plain arena, the predicted time with recomputing
//! alone, with the spill file alone and with both, how long planning takes, and how tightly the arena is packed.
//!
//!     cargo run -p plimsoll --example evictions -- [--model mlp|cnn|gpt|deep] [--scale]
//!
//! Nothing is trained. Expect some ten seconds a model; `--scale` adds a language model of 48 blocks.

mod workloads;

use plimsoll::Tensor;
use plimsoll::data::Arrays;
use plimsoll_graph::Graph;
use plimsoll_plan::{Options, Plan, PlanError, StateLayout, plan};
use std::time::Instant;
use workloads::data::noise;
use workloads::measure::Args;
use workloads::models::{Cnn, Gpt, Wall};

fn main() -> Result<(), plimsoll::Error> {
    let mut args = Args::new("What memory limits cost");
    let only = args.text("--model");
    let scale = args.flag("--scale");
    args.finish();
    let wanted = |name: &str| only.as_deref().is_none_or(|only| only == name);
    if wanted("mlp") {
        let wall = Wall { width: 256, layers: 32 };
        report("mlp", wall.trainer()?.plan(&noise(2048, &[256], &[256]).batch(2048), None)?);
    }
    if wanted("cnn") {
        let rows = Arrays::new(
            Tensor::from_slice([64, 32, 32, 3], &vec![0.0f32; 64 * 32 * 32 * 3])?,
            Tensor::from_slice([64], &[0i32; 64])?,
        )?;
        report("cnn", Cnn::full().trainer()?.plan(&rows, 64)?);
    }
    let tokens = |gpt: &Gpt, rows: usize| -> Result<Arrays, plimsoll::Error> {
        let zeros = vec![0i32; rows * gpt.context];
        Arrays::new(Tensor::from_slice([rows, gpt.context], &zeros)?, Tensor::from_slice([rows, gpt.context], &zeros)?)
    };
    for (name, blocks, asked) in [("gpt", 4, true), ("deep", 12, true), ("scale", 48, scale)] {
        if wanted(name) && (asked || only.is_some()) {
            let gpt = Gpt { blocks, ..Gpt::FULL };
            report(name, gpt.trainer()?.plan(&tokens(&gpt, 8)?, 8)?);
        }
    }
    Ok(())
}

fn report(name: &str, whole: Plan) {
    let (graph, state): (&Graph, &StateLayout) = (&whole.graph, &whole.state);
    println!(
        "{name}: {} nodes, arena {:.1} MiB, {:.2} % above the live set",
        graph.nodes().len(),
        whole.arena_bytes as f64 / 1048576.0,
        100.0 * (whole.arena_bytes as f64 / whole.live_bytes as f64 - 1.0)
    );
    for (way, recompute, spill) in [("recompute", true, false), ("file", false, true), ("both", true, true)] {
        for part in [0.8, 0.6, 0.5, 0.4, 0.33, 0.01] {
            let limit = (whole.arena_bytes as f64 * part) as u64;
            let options =
                Options { limit: Some(limit), recompute, spill, threads: whole.threads, ..Options::default() };
            let start = Instant::now();
            let result = plan(graph, state, &options);
            let took = start.elapsed().as_secs_f64();
            match result {
                Ok(plan) => {
                    let r = plan.recomputed;
                    let plain = r.seconds - r.extra_seconds;
                    println!(
                        "  {way:>9} {part:.2}: +{:6.2} % (bound +{:5.2} %), {:4} again, {:7.1} MiB written, {:7.1} read; planned in {took:.2} s, {:.3} % above the live set, {:.2} % free",
                        100.0 * r.extra_seconds / plain,
                        100.0 * (r.bound / plain - 1.0),
                        r.nodes,
                        r.written as f64 / 1048576.0,
                        r.read as f64 / 1048576.0,
                        100.0 * (plan.arena_bytes as f64 / plan.live_bytes as f64 - 1.0),
                        100.0 * (1.0 - plan.arena_bytes as f64 / limit as f64),
                    );
                }
                Err(PlanError::DoesNotFit { smallest, floor, unlimited, floor_op, .. }) => println!(
                    "  {way:>9} {part:.2}: refused in {took:.2} s; smallest {:.4}, floor {:.4} ({floor_op})",
                    smallest as f64 / unlimited as f64,
                    floor as f64 / unlimited as f64
                ),
                Err(other) => println!("  {way:>9} {part:.2}: {other}"),
            }
        }
    }
}
