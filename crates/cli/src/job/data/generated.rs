//! Data that is made up: every row is a function of its number and a seed, so that sets of any size take no memory.

use super::{Blobs, Digits, GeneratedText, Sine};
use plimsoll::DType;
use plimsoll_data::{Component, Dataset};

/// A small generator; the same seed and row give the same numbers everywhere.
struct Dice(u64);

impl Dice {
    fn new(seed: u64, row: u64) -> Dice {
        Dice(mix(mix(seed) ^ row))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// Between 0 and 1.
    fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// About normal: the sum of twelve uniforms has variance 1.
    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
    }
}

/// A bijection of 64-bit numbers that scatters well (the finaliser of SplitMix64).
fn mix(x: u64) -> u64 {
    let z = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn rows(n: u64) -> Dataset {
    Dataset::range(0, n.min(i64::MAX as u64) as i64, 1)
}

pub fn blobs(s: &Blobs) -> Dataset {
    let mut dice = Dice::new(s.seed, u64::MAX);
    let centres: Vec<f64> = (0..s.classes.max(1) * s.features).map(|_| dice.between(-1.0, 1.0)).collect();
    let (features, classes, spread, seed) = (s.features, s.classes.max(1), s.spread, s.seed);
    let names: Vec<String> = (0..features).map(|i| format!("x{i}")).collect();
    let mut components: Vec<Component> = names.iter().map(|n| Component::new(n, DType::F32, &[])).collect();
    components.push(Component::new("label", DType::I64, &[]));
    rows(s.rows).map(components, move |row, out| {
        let n = row.get::<i64>("value")?[0] as u64;
        let mut dice = Dice::new(seed, n);
        let class = (n as usize) % classes;
        for (i, name) in names.iter().enumerate() {
            let x = centres[class * features + i] + spread * dice.normal();
            out.set(name, &[], &[x as f32])?;
        }
        out.set("label", &[], &[class as i64])
    })
}

/// The digits as strokes between points of a 3 x 5 grid, as on a calculator.
const SEGMENTS: [&[[f64; 4]]; 10] = [
    &[TOP, LEFT_UP, RIGHT_UP, LEFT_DOWN, RIGHT_DOWN, BOTTOM],
    &[RIGHT_UP, RIGHT_DOWN],
    &[TOP, RIGHT_UP, MIDDLE, LEFT_DOWN, BOTTOM],
    &[TOP, RIGHT_UP, MIDDLE, RIGHT_DOWN, BOTTOM],
    &[LEFT_UP, RIGHT_UP, MIDDLE, RIGHT_DOWN],
    &[TOP, LEFT_UP, MIDDLE, RIGHT_DOWN, BOTTOM],
    &[TOP, LEFT_UP, MIDDLE, LEFT_DOWN, RIGHT_DOWN, BOTTOM],
    &[TOP, RIGHT_UP, RIGHT_DOWN],
    &[TOP, LEFT_UP, RIGHT_UP, MIDDLE, LEFT_DOWN, RIGHT_DOWN, BOTTOM],
    &[TOP, LEFT_UP, RIGHT_UP, MIDDLE, RIGHT_DOWN, BOTTOM],
];
const TOP: [f64; 4] = [-0.5, -1.0, 0.5, -1.0];
const MIDDLE: [f64; 4] = [-0.5, 0.0, 0.5, 0.0];
const BOTTOM: [f64; 4] = [-0.5, 1.0, 0.5, 1.0];
const LEFT_UP: [f64; 4] = [-0.5, -1.0, -0.5, 0.0];
const RIGHT_UP: [f64; 4] = [0.5, -1.0, 0.5, 0.0];
const LEFT_DOWN: [f64; 4] = [-0.5, 0.0, -0.5, 1.0];
const RIGHT_DOWN: [f64; 4] = [0.5, 0.0, 0.5, 1.0];

pub fn digits(s: &Digits) -> Dataset {
    let (size, noise, seed) = (s.size.max(8), s.noise, s.seed);
    let components = [Component::new("image", DType::U8, &[size, size, 1]), Component::new("label", DType::I64, &[])];
    rows(s.rows).map(components, move |row, out| {
        let n = row.get::<i64>("value")?[0] as u64;
        let mut dice = Dice::new(seed, n);
        let digit = (n % 10) as usize;
        let half = size as f64 / 2.0;
        let scale = half * dice.between(0.5, 0.75);
        let (cx, cy) = (half + dice.between(-0.15, 0.15) * half, half + dice.between(-0.15, 0.15) * half);
        let (sin, cos) = dice.between(-0.2, 0.2).sin_cos();
        let pixels = out.slot::<u8>("image", &[size, size, 1])?;
        for (i, pixel) in pixels.iter_mut().enumerate() {
            let (x, y) = ((i % size) as f64 + 0.5 - cx, (i / size) as f64 + 0.5 - cy);
            let (u, v) = ((x * cos + y * sin) / scale, (y * cos - x * sin) / scale);
            let near = SEGMENTS[digit].iter().map(|&stroke| distance(stroke, u, v)).fold(f64::MAX, f64::min);
            let ink = (1.0 - (near - 0.12) * 8.0).clamp(0.0, 1.0);
            *pixel = (255.0 * (0.85 * ink + noise * dice.uniform()).clamp(0.0, 1.0)) as u8;
        }
        out.set("label", &[], &[digit as i64])
    })
}

/// From a point to a stroke.
fn distance([x0, y0, x1, y1]: [f64; 4], x: f64, y: f64) -> f64 {
    let (dx, dy) = (x1 - x0, y1 - y0);
    let along = ((x - x0) * dx + (y - y0) * dy) / (dx * dx + dy * dy);
    let along = along.clamp(0.0, 1.0);
    (x - x0 - along * dx).hypot(y - y0 - along * dy)
}

pub fn sine(s: &Sine) -> Dataset {
    let (period, noise, seed) = (s.period.max(2.0), s.noise, s.seed);
    rows(s.rows).map([Component::new("value", DType::F32, &[])], move |row, out| {
        let n = row.get::<i64>("value")?[0];
        let t = std::f64::consts::TAU * n as f64 / period;
        let value = t.sin() + 0.4 * (t * 2.7).sin() + noise * Dice::new(seed, n as u64).normal();
        out.set("value", &[], &[value as f32])
    })
}

/// Sentences of a small grammar, about as long as asked for.
pub fn text(s: &GeneratedText) -> Vec<u8> {
    const WHO: [&str; 8] =
        ["the captain", "a sailor", "the mate", "an old ship", "the crew", "a gull", "the harbour", "the cook"];
    const DOES: [&str; 8] = ["sees", "loads", "follows", "remembers", "measures", "paints", "watches", "keeps"];
    const WHAT: [&str; 8] =
        ["the line", "a cargo of salt", "the tide", "the anchor", "every rope", "a lantern", "the hull", "the wind"];
    const WHEN: [&str; 6] = ["at dawn", "before the storm", "in the calm", "all night", "again", "without a word"];
    let mut dice = Dice::new(s.seed, 0);
    let mut out = String::with_capacity(s.length + 80);
    while out.len() < s.length {
        let mut pick = |words: &[&'static str]| words[(dice.next() % words.len() as u64) as usize];
        let sentence = format!("{} {} {} {}.\n", pick(&WHO), pick(&DOES), pick(&WHAT), pick(&WHEN));
        out += &sentence;
    }
    out.into_bytes()
}
