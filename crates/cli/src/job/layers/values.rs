//! Values that settings of layers take: activations, initial values, paddings, sizes.

use crate::diagnostic::Diagnostic;
use crate::job::read::{At, OneOrMore, Read, one_of, wrong_value};
use crate::job::tree::{Node, Value};
use plimsoll::init::Initializer;
use plimsoll::layers::{Activation, Margins, Padding, Sizes};

impl Read for Activation {
    fn read(node: &Node) -> Result<Activation, Diagnostic> {
        let name = one_of(node, "activation", Activation::NAMES)?;
        Ok(Activation::from_name(name).expect("one of its names"))
    }
    fn takes() -> String {
        "activation".into()
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({ "enum": Activation::NAMES })
    }
}

/// The names of initial values, with those of them that take a number.
const INITIALIZERS: &[&str] = &[
    "zeros",
    "ones",
    "glorot_uniform",
    "glorot_normal",
    "he_uniform",
    "he_normal",
    "lecun_uniform",
    "lecun_normal",
    "orthogonal",
    "normal",
    "truncated_normal",
    "uniform",
];

impl Read for Initializer {
    fn read(node: &Node) -> Result<Initializer, Diagnostic> {
        if let Value::Integer(_) | Value::Float(_) = node.value {
            return f64::read(node).map(Initializer::Constant);
        }
        Ok(match one_of(node, "initializer", INITIALIZERS)? {
            "zeros" => Initializer::Zeros,
            "ones" => Initializer::Ones,
            "glorot_uniform" => Initializer::GlorotUniform,
            "glorot_normal" => Initializer::GlorotNormal,
            "he_uniform" => Initializer::HeUniform,
            "he_normal" => Initializer::HeNormal,
            "lecun_uniform" => Initializer::LecunUniform,
            "lecun_normal" => Initializer::LecunNormal,
            "orthogonal" => Initializer::Orthogonal,
            "normal" => Initializer::Normal { std: 0.05 },
            "truncated_normal" => Initializer::TruncatedNormal { std: 0.05 },
            _ => Initializer::Uniform { low: -0.05, high: 0.05 },
        })
    }
    fn takes() -> String {
        "initial values: a name, or a number for all".into()
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({ "anyOf": [{ "enum": INITIALIZERS }, { "type": "number" }] })
    }
}

impl Read for Padding {
    fn read(node: &Node) -> Result<Padding, Diagnostic> {
        let name = one_of(node, "padding", &["valid", "same", "causal"])?;
        Padding::from_name(name).map_err(|e| wrong_value(&node.origin, e.to_string(), "this padding"))
    }
    fn takes() -> String {
        "`\"valid\"`, `\"same\"` or `\"causal\"`".into()
    }
    fn schema() -> serde_json::Value {
        serde_json::json!({ "enum": ["valid", "same", "causal"] })
    }
}

/// One number, or one for each axis.
pub type Size = At<OneOrMore<usize>>;

/// Sizes for every axis.
pub fn sizes<const N: usize>(size: &Size) -> Result<Sizes<N>, Diagnostic> {
    match size.0[..] {
        [one] => Ok(Sizes([one; N])),
        ref many => Ok(Sizes(many.try_into().map_err(|_| {
            let title = format!("{} sizes for {N} axes", many.len());
            wrong_value(&size.origin, title, format!("one number, or a list of {N}"))
        })?)),
    }
}

/// Cells before and behind every axis.
pub fn margins<const N: usize>(size: &Size) -> Result<Margins<N>, Diagnostic> {
    if size.0.len() == 2 * N && N > 1 || size.0.len() == 2 && N == 1 {
        return Ok(Margins(std::array::from_fn(|i| (size.0[2 * i], size.0[2 * i + 1]))));
    }
    sizes::<N>(size).map(|s| Margins::from(s.0))
}
