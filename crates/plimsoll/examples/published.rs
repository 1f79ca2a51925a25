//! Models whose training under a memory limit others have measured, at sizes for two cores.
//!
//!     cargo run --release -p plimsoll --example published -- --model resnet50 [--batch 16] [--memory-limit 1GiB] [--json]
//!
//! `benches/limits.py` runs them without a limit and at fractions of their own peak and prints what the limit cost.

mod workloads;

use plimsoll::data::{Field, FieldKind, Rows};
use plimsoll::trainer::Trainer;
use plimsoll::{DType, Error, TensorType};
use workloads::measure::{Args, Measure};
use workloads::models::Gpt;
use workloads::zoo;

/// One batch of made-up rows: small numbers or tokens in, classes, tokens or masks out.
struct Made {
    rows: usize,
    fields: [Field; 2],
    /// How many different whole numbers each field has; 0 for numbers between 0 and 1.
    kinds: [u64; 2],
}

impl Made {
    fn new(rows: usize, input: (&[usize], u64), label: (&[usize], u64)) -> Made {
        let field = |name: &str, kind, (sizes, kinds): (&[usize], u64)| Field {
            name: name.into(),
            kind,
            ty: TensorType::new(if kinds > 1 { DType::I32 } else { DType::F32 }, sizes),
        };
        let fields = [field("input", FieldKind::Input, input), field("output", FieldKind::Label, label)];
        Made { rows, fields, kinds: [input.1, label.1] }
    }
}

impl Rows for Made {
    fn len(&self) -> usize {
        self.rows
    }

    fn fields(&self) -> &[Field] {
        &self.fields
    }

    fn read(&self, field: usize, rows: &[usize], out: &mut [u8]) -> Result<(), Error> {
        let size = self.fields[field].ty.elements();
        for (row, out) in rows.iter().zip(out.chunks_exact_mut(4 * size)) {
            for (i, out) in out.chunks_exact_mut(4).enumerate() {
                let x = workloads::data::scatter((row * size + i + (field << 40)) as u64);
                match self.kinds[field] {
                    0 => out.copy_from_slice(&((x & 0xffff) as f32 / 65536.0).to_le_bytes()),
                    1 => out.copy_from_slice(&((x & 1) as f32).to_le_bytes()),
                    n => out.copy_from_slice(&((x % n) as i32).to_le_bytes()),
                }
            }
        }
        Ok(())
    }
}

fn main() -> Result<(), Error> {
    let mut args = Args::new("Models whose training under a memory limit others have measured");
    let model = args.text("--model").unwrap_or_else(|| "resnet50".into());
    let batch = args.number("--batch", 0);
    let measure = Measure::new(&mut args, "published", 1, 2);
    args.finish();
    let (trainer, data, size): (Trainer, Made, usize) = match model.as_str() {
        "resnet50" => (zoo::resnet50(112, 100)?, Made::new(0, (&[112, 112, 3], 0), (&[], 100)), 16),
        "densenet121" => (zoo::densenet121(112, 100)?, Made::new(0, (&[112, 112, 3], 0), (&[], 100)), 8),
        "unet" => (zoo::unet(160, 208)?, Made::new(0, (&[160, 208, 3], 0), (&[160, 208, 1], 1)), 2),
        "lstm" => (zoo::lstm(1024, 512, 128)?, Made::new(0, (&[128], 1024), (&[128], 1024)), 32),
        "gpt2" => {
            let gpt = Gpt { vocabulary: 8192, width: 384, blocks: 6, heads: 6, context: 256 };
            (gpt.trainer()?, Made::new(0, (&[256], 8192), (&[256], 8192)), 8)
        }
        other => {
            eprintln!("there is no model '{other}'; there are resnet50, densenet121, unet, lstm, gpt2");
            std::process::exit(2)
        }
    };
    let batch = if batch == 0 { size } else { batch };
    measure.run(trainer, &Made { rows: batch, ..data }, batch)
}
