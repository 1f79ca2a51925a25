//! `plimsoll demo`: a data set several times larger than the limit, a model that would not fit, trained inside it.
//!
//! The demo is an ordinary job: it writes pictures and a job file to a directory and trains that.

use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::Code;
use crate::job::{Job, Session};
use crate::out::Out;
use clap::Args;
use plimsoll::{Bytes, Limit};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Train inside 256 MiB, on data made for it that is larger than that, a model that would not fit.
///
/// Draws pictures to a file (1 GiB unless told otherwise), writes a job that trains on them, plans it, and trains with a progress bar
/// and a memory gauge. The job, the run with its log and the weights stay in the directory; the pictures go at the end.
#[derive(Args)]
#[command(after_help = "\
Examples:
  plimsoll demo
  plimsoll demo --memory-limit 192MiB
  plimsoll demo --data-size 64MiB --epochs 1      a quick look")]
pub struct Options {
    /// Resident memory of the whole process, at most.
    #[arg(long, value_name = "BYTES", default_value = "256MiB")]
    memory_limit: Limit,
    /// How much data is made.
    #[arg(long, value_name = "BYTES", default_value = "1GiB")]
    data_size: Bytes,
    /// Epochs of 12 steps each.
    #[arg(long, default_value_t = 4)]
    epochs: usize,
    /// Pictures per step.
    #[arg(long, default_value_t = 1024)]
    batch_size: usize,
    /// The size of the two hidden layers.
    #[arg(long, default_value_t = 2304)]
    units: usize,
    /// Threads; results do not depend on their number.
    #[arg(long)]
    threads: Option<usize>,
    /// Seed of pictures, weights and order.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Where everything is written.
    #[arg(long, value_name = "DIRECTORY", default_value = "plimsoll-demo")]
    directory: PathBuf,
    /// Keep the pictures.
    #[arg(long)]
    keep: bool,
    /// Any key of the job: --set limit.spill=false.
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
}

/// Height and width of a picture.
const SIDE: usize = 64;
const PIXELS: usize = SIDE * SIDE;
const CLASSES: usize = 10;
/// Steps of an epoch.
const STEPS: usize = 12;

pub fn run(options: &Options, out: &Out) -> Outcome {
    let directory = &options.directory;
    let disk = |path: &Path, e: std::io::Error| Diagnostic::new(Code::Disk, format!("{}: {e}", path.display()));
    std::fs::create_dir_all(directory).map_err(|e| disk(directory, e))?;
    let pictures = (options.data_size.0 / PIXELS as u64).max(options.batch_size as u64 * 2);
    let needed = Bytes(pictures * PIXELS as u64);
    if let Some(free) = super::doctor::free_space(directory)
        && free < needed.0 + (1 << 30)
    {
        let title =
            format!("{} has {} left; the demo wants {needed} for data and some more", directory.display(), Bytes(free));
        return Err(Diagnostic::new(Code::Disk, title).note("do", "--data-size 128MiB, or --directory DIRECTORY"));
    }
    let start = Instant::now();
    let files = [directory.join("pictures.npy"), directory.join("labels.npy")];
    out.talk(format!("drawing {pictures} pictures of {SIDE} x {SIDE}: {needed}"));
    draw(&files, pictures, options.seed).map_err(|e| disk(directory, e))?;
    out.talk(format!("drawn in {}", crate::text::seconds(start.elapsed().as_secs_f64())));

    let path = directory.join("demo.toml");
    let overrides = options.set.iter().map(|set| super::assignment(set)).collect::<Result<Vec<_>, _>>()?;
    let text = job(options);
    std::fs::write(&path, &text).map_err(|e| disk(&path, e))?;
    let outcome = Job::load(&path, &overrides).and_then(Session::open).and_then(|mut session| {
        let forecast = session.forecast()?;
        out.talk(format!(
            "the data has {needed}; without a limit the model would take {}, the limit is {}, the plan {}",
            forecast.unlimited,
            options.memory_limit,
            forecast.planned()
        ));
        super::train::train(session, true, None, out)
    });
    if !options.keep {
        for file in &files {
            std::fs::remove_file(file).map_err(|e| disk(file, e))?;
        }
    }
    let code = outcome?;
    out.talk(format!("the job: {}   the run: {}", path.display(), directory.join("runs/demo").display()));
    Ok(code)
}

/// The job that is trained.
fn job(options: &Options) -> String {
    let Options { memory_limit, epochs, batch_size, units, seed, .. } = options;
    let threads = options.threads.map_or(String::new(), |n| format!("threads = {n}\n"));
    format!(
        "# Written by plimsoll demo; plimsoll plan and plimsoll train read it too while the pictures are there (--keep).\n\
         memory_limit = \"{memory_limit}\"\n\n\
         [model]\n\
         layers = [\n    \"flatten\",\n    {{ layer = \"rescaling\", scale = 0.004 }},\n    \
         {{ layer = \"dense\", units = {units}, activation = \"relu\" }},\n    \
         {{ layer = \"dense\", units = {units}, activation = \"relu\" }},\n    \
         {{ layer = \"dense\", units = {CLASSES} }},\n]\n\n\
         [data]\nformat = \"npy\"\narrays = {{ picture = \"pictures.npy\", label = \"labels.npy\" }}\nlabel = \"label\"\n\
         classes = {CLASSES}\n\n\
         [optimizer]\nname = \"adam\"\nlearning_rate = 0.0003\n\n\
         [training]\nepochs = {epochs}\nsteps_per_epoch = {STEPS}\nbatch_size = {batch_size}\nseed = {seed}\n{threads}"
    )
}

/// Writes pictures and labels: waves of ten directions and lengths, shifted at random, in noise.
fn draw(files: &[PathBuf; 2], n: u64, seed: u64) -> std::io::Result<()> {
    const SHIFTS: usize = 8;
    let mut templates = vec![0u8; CLASSES * SHIFTS * PIXELS];
    for (i, template) in templates.chunks_mut(PIXELS).enumerate() {
        let (class, shift) = ((i / SHIFTS) as f64, (i % SHIFTS) as f64 / SHIFTS as f64);
        let (sin, cos) = (class * std::f64::consts::PI / CLASSES as f64).sin_cos();
        for (at, pixel) in template.iter_mut().enumerate() {
            let (x, y) = ((at % SIDE) as f64, (at / SIDE) as f64);
            let wave = ((x * cos + y * sin) / (5.0 + class / 2.0) + shift * std::f64::consts::TAU).sin();
            *pixel = (64.0 + 56.0 * wave) as u8;
        }
    }
    let mut pictures = BufWriter::with_capacity(1 << 20, File::create(&files[0])?);
    let mut labels = BufWriter::new(File::create(&files[1])?);
    pictures.write_all(&header("|u1", &format!("{n}, {SIDE}, {SIDE}, 1")))?;
    labels.write_all(&header("<i8", &format!("{n},")))?;
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut picture = [0u8; PIXELS];
    for i in 0..n {
        let class = (i % CLASSES as u64) as usize;
        let which = class * SHIFTS + (next() % SHIFTS as u64) as usize;
        let template = &templates[which * PIXELS..(which + 1) * PIXELS];
        for (out, clean) in picture.chunks_exact_mut(8).zip(template.chunks_exact(8)) {
            let noise = next().to_le_bytes();
            out.iter_mut().zip(clean).zip(noise).for_each(|((out, clean), noise)| *out = clean + noise / 4);
        }
        pictures.write_all(&picture)?;
        labels.write_all(&(class as i64).to_le_bytes())?;
    }
    pictures.flush()?;
    labels.flush()
}

/// The header of a `.npy` file.
fn header(descr: &str, shape: &str) -> Vec<u8> {
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    while !(text.len() + 11).is_multiple_of(64) {
        text.push(' ');
    }
    text.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
    bytes
}
