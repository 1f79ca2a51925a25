//! `plimsoll version`.

use crate::Outcome;
use crate::out::Out;
use clap::Args;

/// The version, and what this build and this processor can do.
#[derive(Args)]
pub struct Options {}

/// `plimsoll version --json`.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Version {
    /// The version.
    version: String,
    /// What it was built for.
    target: String,
    /// Instruction sets of this processor that kernels use.
    features: Vec<String>,
}

/// The instruction sets of this processor that kernels use.
pub fn features() -> Vec<String> {
    let mut found = Vec::new();
    #[cfg(target_arch = "x86_64")]
    {
        let all = [
            ("avx2", std::arch::is_x86_feature_detected!("avx2")),
            ("fma", std::arch::is_x86_feature_detected!("fma")),
            ("f16c", std::arch::is_x86_feature_detected!("f16c")),
            ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
        ];
        found.extend(all.iter().filter(|(_, has)| *has).map(|(name, _)| name.to_string()));
    }
    found
}

pub fn run(_: &Options, out: &Out) -> Outcome {
    let version = Version {
        version: env!("CARGO_PKG_VERSION").into(),
        target: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
        features: features(),
    };
    match out.json {
        true => out.json_line(&version),
        false => {
            out.data(format!("plimsoll {} ({}; {})", version.version, version.target, version.features.join(", ")))
        }
    }
    Ok(0)
}
