//! What the tests share: real runs, and a plan as large as they come.
#![allow(dead_code)] // Each test uses a part of it.

pub mod chromium;

use plimsoll::data::Arrays;
use plimsoll::layers::{Activation, Dense};
use plimsoll::losses::MeanSquaredError;
use plimsoll::model::Model;
use plimsoll::optimizers::Adam;
use plimsoll::trainer::{Fit, Techniques, Trainer};
use plimsoll::{Bytes, Tensor};
use plimsoll_run::{
    AccountLine, BufferKind, BufferLine, EventKind, InstructionLine, Phase, PlanPicture, RunLog, StateLine, Strategy,
    Sweep, Times,
};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A directory of its own that goes when it is dropped.
pub struct Directory(pub PathBuf);

impl Directory {
    pub fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn data(n: usize) -> Arrays {
    let x: Vec<f32> = (0..n * 64).map(|i| ((i * 7919) % 1009) as f32 / 500.0 - 1.0).collect();
    let y: Vec<f32> = (0..n * 4).map(|i| (3.0 * x[i / 4 * 64 + i % 4]).sin()).collect();
    Arrays::new(Tensor::from_slice([n, 64], &x).unwrap(), Tensor::from_slice([n, 4], &y).unwrap()).unwrap()
}

fn trainer() -> Trainer {
    let mut model = Model::sequential([64]);
    for i in 0..8 {
        model = model.layer(Dense::new(192).activation(Activation::Tanh).named(&format!("dense{i}")));
    }
    let techniques = Techniques { split: false, ..Techniques::ALL };
    let trainer = Trainer::new(model.layer(Dense::new(4).named("head")), MeanSquaredError, Adam::new(1e-3)).unwrap();
    trainer.threads(2).techniques(techniques)
}

/// Trains a few epochs under a limit a little above the smallest, so that values are computed again or moved, and writes all that
/// a run directory can hold.
pub fn real_run(directory: &Path) {
    let rows = data(1024);
    let points = trainer().sweep(&rows, &Fit::epochs(1).batch_size(512), 6).unwrap();
    let smallest = points[0].limit;
    let mut trainer = trainer().memory_limit(smallest + Bytes::mib(2));
    let log = RunLog::create(directory, "a small run").unwrap().step_interval(Duration::ZERO);
    let validation = data(128);
    let fit = Fit::epochs(4).batch_size(512).validation(&validation).callback(log.clone());
    trainer.fit(&rows, fit).unwrap();
    log.event(EventKind::Checkpoint, "weights.safetensors").unwrap();
    plimsoll_run::write_sweep(directory, &Sweep::of("a small run", &points)).unwrap();
    let profile = trainer.profile(&rows, 512, 2).unwrap();
    let times = Times::of(trainer.planned()[0], &profile).unwrap();
    plimsoll_run::write_times(directory, &times).unwrap();
}

/// A plan with this many buffers, laid out as a deep network's step: saved values pile up, gradients take them down again.
pub fn large_plan(n: usize) -> PlanPicture {
    let steps = n;
    let slots = 512u64;
    let mut dice = 1u64;
    let mut roll = |most: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % most
    };
    let grain = 64 * 1024;
    let instructions: Vec<InstructionLine> = (0..steps)
        .map(|s| InstructionLine {
            op: ["matmul", "fused", "norm", "conv2d"][roll(4) as usize].into(),
            layer: format!("block{}/part{}", s * 97 / steps, s % 7),
            phase: if s < steps / 2 { Phase::Forward } else { Phase::Backward },
            again: s > steps / 2 && roll(9) == 0,
            seconds: Some(1e-5 * (1 + roll(500)) as f64),
            live: 0,
            written: 0,
            read: 0,
            slot: None,
        })
        .collect();
    let mut free_at = vec![0u32; slots as usize];
    let mut buffers = Vec::with_capacity(n);
    for birth in 0..steps as u32 {
        // The first slot that is free; where none is, a buffer without bytes.
        let slot = (0..slots).map(|i| (i + birth as u64 * 7) % slots).find(|&s| free_at[s as usize] <= birth);
        let length = roll(300) as u32;
        let death = (birth + length).min(steps as u32 - 1);
        if let Some(slot) = slot {
            free_at[slot as usize] = death + 1;
        }
        buffers.push(BufferLine {
            offset: slot.unwrap_or(0) * grain,
            bytes: slot.map_or(0, |_| 64 * (1 + roll(grain / 64))),
            birth,
            death,
            kind: [BufferKind::Saved, BufferKind::Activation, BufferKind::Gradient, BufferKind::Workspace]
                [roll(4) as usize],
            strategy: [Strategy::Kept, Strategy::Kept, Strategy::Recomputed, Strategy::Spilled][roll(4) as usize],
            what: instructions[birth as usize].op.clone(),
            ty: format!("f32[{}, {}]", 64 << roll(4), 32 << roll(6)),
            layer: instructions[birth as usize].layer.clone(),
            values: 1,
            partner: None,
        });
    }
    let mut change = vec![0i64; steps + 1];
    for b in &buffers {
        change[b.birth as usize] += b.bytes as i64;
        change[b.death as usize + 1] -= b.bytes as i64;
    }
    let mut live = 0;
    let lives: Vec<i64> = change[..steps]
        .iter()
        .map(|c| {
            live += c;
            live
        })
        .collect();
    let peak = (0..steps).max_by_key(|&s| lives[s]).unwrap();
    let arena = slots * grain;
    let account = |name: &str, held: u64| AccountLine { name: name.into(), held, peak: held };
    let state = |name: &str, role: &str, bytes: u64| StateLine {
        name: name.into(),
        role: role.into(),
        ty: "f32".into(),
        offset: 0,
        bytes,
        in_file: false,
    };
    PlanPicture {
        schema: plimsoll_run::SCHEMA_VERSION,
        title: "a hundred thousand tensors".into(),
        limit: Some(arena + (52 << 20)),
        arena,
        live: lives[peak] as u64,
        peak_step: peak as u64,
        state_bytes: 40 << 20,
        threads: 2,
        ledger: vec![account("process", 9 << 20), account("state", 40 << 20), account("arena", arena)],
        states: vec![state("w", "weight", 16 << 20), state("adam/w/m", "moment", 24 << 20)],
        instructions,
        buffers,
        ..PlanPicture::default()
    }
}
