//! Measures optimizer updates in bytes read and written: `cargo run --release --example rates_optimizer`.

use plimsoll_kernels::Pool;
use plimsoll_kernels::optimizer::{Adam, Lion, Rule, Sgd, Step, update};
use std::time::Instant;

fn main() {
    let sgd = |momentum| Rule::Sgd(Sgd { momentum, nesterov: false, weight_decay: 0.0 });
    let rules = [
        ("sgd", sgd(0.0)),
        ("momentum", sgd(0.9)),
        ("lion", Rule::Lion(Lion { beta_1: 0.9, beta_2: 0.99, weight_decay: 0.1 })),
        ("adam", Rule::Adam(Adam::default())),
        ("amsgrad", Rule::Adam(Adam { amsgrad: true, ..Adam::default() })),
    ];
    for threads in [1, 2] {
        let pool = Pool::new(threads);
        for n in [1 << 15, 1 << 24] {
            for (name, rule) in &rules {
                let (mut p, g) = (vec![1.0f32; n], vec![0.01f32; n]);
                let mut state = vec![vec![0.0f32; n]; rule.state().len()];
                let bytes = 4 * n * (3 + 2 * state.len());
                let seconds = (0..(1 << 27) / n).map(|i| {
                    let mut state: Vec<&mut [f32]> = state.iter_mut().map(|s| &mut s[..]).collect();
                    let start = Instant::now();
                    update(&pool, rule, Step::new(i as f64 + 1.0, 1e-3), &mut p, &g, &mut state);
                    start.elapsed().as_secs_f64()
                });
                let seconds = seconds.fold(f64::INFINITY, f64::min);
                let (rate, each) = (bytes as f64 / seconds / 1e9, seconds * 1e9 / n as f64);
                println!("{name:9} {threads} threads  n {n:9}  {each:6.3} ns each  {rate:6.1} GB/s");
            }
        }
    }
}
