//! Models whose training under a memory limit others have measured, at sizes for two cores.
//!
//!     cargo run --release -p plimsoll --example published -- --model resnet50 [--batch 16] [--memory-limit 1GiB] [--json]
//!
//! `benches/limits.py` runs them without a limit and at fractions of their own peak and prints what the limit cost.

mod workloads;

use plimsoll::data::{Component, Dataset};
use plimsoll::{DType, Error};
use workloads::measure::{Args, Measure};
use workloads::models::Gpt;
use workloads::zoo;

/// One batch of made-up rows: small numbers or tokens in, classes, tokens or masks out. For each the sizes of a row, and how many
/// different whole numbers there are; 0 for numbers between 0 and 1.
fn made(batch: usize, input: (&[usize], u64), label: (&[usize], u64)) -> Dataset {
    let fields = [("x", input.0.to_vec(), input.1), ("y", label.0.to_vec(), label.1)];
    let dtype = |kinds: u64| if kinds > 1 { DType::I32 } else { DType::F32 };
    let components = fields.clone().map(|(name, sizes, kinds)| Component::new(name, dtype(kinds), &sizes));
    let rows = Dataset::range(0, batch as i64, 1).map(components, move |row, out| {
        let row = row.get::<i64>("value")?[0] as usize;
        for (number, (name, sizes, kinds)) in fields.iter().enumerate() {
            let size: usize = sizes.iter().product();
            let x = |i: usize| workloads::data::scatter((row * size + i + (number << 40)) as u64);
            match kinds {
                0 | 1 => {
                    let slot = out.slot::<f32>(name, sizes)?.iter_mut().enumerate();
                    let value = |x: u64| if *kinds == 0 { (x & 0xffff) as f32 / 65536.0 } else { (x & 1) as f32 };
                    slot.for_each(|(i, to)| *to = value(x(i)));
                }
                n => out.slot::<i32>(name, sizes)?.iter_mut().enumerate().for_each(|(i, to)| *to = (x(i) % n) as i32),
            }
        }
        Ok(())
    });
    rows.batch(batch)
}

fn main() -> Result<(), Error> {
    let mut args = Args::new("Models whose training under a memory limit others have measured");
    let model = args.text("--model").unwrap_or_else(|| "resnet50".into());
    let batch = args.number("--batch", 0);
    let measure = Measure::new(&mut args, "published", 1, 2);
    args.finish();
    let of = |usual: usize| if batch == 0 { usual } else { batch };
    let (trainer, data) = match model.as_str() {
        "resnet50" => (zoo::resnet50(112, 100)?, made(of(16), (&[112, 112, 3], 0), (&[], 100))),
        "densenet121" => (zoo::densenet121(112, 100)?, made(of(8), (&[112, 112, 3], 0), (&[], 100))),
        "unet" => (zoo::unet(160, 208)?, made(of(2), (&[160, 208, 3], 0), (&[160, 208, 1], 1))),
        "lstm" => (zoo::lstm(1024, 512, 128)?, made(of(32), (&[128], 1024), (&[128], 1024))),
        "gpt2" => {
            let gpt = Gpt { vocabulary: 8192, width: 384, blocks: 6, heads: 6, context: 256 };
            (gpt.trainer()?, made(of(8), (&[256], 8192), (&[256], 8192)))
        }
        other => {
            eprintln!("there is no model '{other}'; there are resnet50, densenet121, unet, lstm, gpt2");
            std::process::exit(2)
        }
    };
    measure.run(trainer, &data)
}
