//! Reference cases: reads the JSON files in `tests/reference`, makes the arrays that they describe and compares results.
//!
//! The files' form is told in `scripts/reference/README.md`. Each test file uses a part of what is here.
#![allow(dead_code)]

use plimsoll::{DType, Tensor};
use serde_json::Value as Json;

/// One experiment: its settings, its arrays, and what came out.
pub struct Case {
    pub name: String,
    pub config: Config,
    pub inputs: Vec<Array>,
    pub weights: Vec<Array>,
    pub expected: Vec<Expected>,
}

/// An input or an initial weight.
pub struct Array {
    pub name: String,
    pub tensor: Tensor,
    /// False for state, such as running statistics.
    pub trainable: bool,
}

/// A result.
pub struct Expected {
    pub name: String,
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

/// The cases of `tests/reference/<file>.json`.
pub fn cases(file: &str) -> Vec<Case> {
    let path = format!("{}/tests/reference/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let json: Json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"));
    list(&json["cases"]).iter().map(Case::read).collect()
}

impl Case {
    fn read(json: &Json) -> Case {
        Case {
            name: text(&json["name"]).to_owned(),
            config: Config(json["config"].clone()),
            inputs: list(&json["inputs"]).iter().map(Array::read).collect(),
            weights: list(&json["weights"]).iter().map(Array::read).collect(),
            expected: list(&json["expected"]).iter().map(Expected::read).collect(),
        }
    }

    /// The input of this name, if there is one.
    pub fn find_input(&self, name: &str) -> Option<&Tensor> {
        self.inputs.iter().find(|a| a.name == name).map(|a| &a.tensor)
    }

    /// The input of this name.
    pub fn input(&self, name: &str) -> &Tensor {
        self.find_input(name).unwrap_or_else(|| panic!("{}: no input '{name}'", self.name))
    }

    /// The expected result of this name.
    pub fn expected(&self, name: &str) -> &Expected {
        self.expected.iter().find(|e| e.name == name).unwrap_or_else(|| panic!("{}: no result '{name}'", self.name))
    }
}

impl Array {
    fn read(json: &Json) -> Array {
        let trainable = json.get("trainable").is_none_or(|t| t.as_bool().expect("true or false"));
        Array { name: text(&json["name"]).to_owned(), tensor: array(json), trainable }
    }
}

impl Expected {
    fn read(json: &Json) -> Expected {
        Expected {
            name: text(&json["name"]).to_owned(),
            shape: sizes(&json["shape"]),
            values: numbers(&json["values"]),
        }
    }

    /// Says where `found` differs from what is expected by more than `tolerance` times the largest expected magnitude (at
    /// least 0.01: smaller results are differences of larger numbers, which float32 does not give to more digits).
    pub fn compare(&self, found: &Tensor, tolerance: f64) -> Result<(), String> {
        if found.shape().dims() != self.shape {
            return Err(format!("{}: shape {}, expected {:?}", self.name, found.shape(), self.shape));
        }
        let scale = self.values.iter().fold(1e-2, |m: f64, v| m.max(v.abs()));
        let worst = self.values.iter().zip(found.to_f64()).enumerate();
        // Not a number is worse than anything.
        let error = |e: f64, f: f64| if f.is_nan() { f64::INFINITY } else { (e - f).abs() };
        let worst = worst.map(|(i, (&e, f))| (error(e, f), i, e, f)).max_by(|a, b| a.0.total_cmp(&b.0));
        match worst {
            Some((error, i, expected, found)) if error > tolerance * scale => Err(format!(
                "{}[{i}]: {found}, expected {expected}; off by {error:.1e} where {:.1e} is allowed",
                self.name,
                tolerance * scale
            )),
            _ => Ok(()),
        }
    }
}

/// The settings of a case.
#[derive(Clone)]
pub struct Config(pub Json);

impl Config {
    /// A setting, `None` when it is missing or null.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.0.get(name).filter(|v| !v.is_null())
    }

    /// A setting that is a word.
    pub fn text(&self, name: &str) -> &str {
        text(self.get(name).unwrap_or_else(|| panic!("no setting '{name}' in {}", self.0)))
    }

    /// A setting that is a number.
    pub fn number(&self, name: &str) -> f64 {
        self.get(name).and_then(Json::as_f64).unwrap_or_else(|| panic!("no number '{name}' in {}", self.0))
    }

    /// A setting that is a size.
    pub fn size(&self, name: &str) -> usize {
        self.get(name).and_then(Json::as_u64).unwrap_or_else(|| panic!("no size '{name}' in {}", self.0)) as usize
    }

    /// A setting that is a list of sizes.
    pub fn sizes(&self, name: &str) -> Vec<usize> {
        sizes(self.get(name).unwrap_or_else(|| panic!("no setting '{name}' in {}", self.0)))
    }

    /// A setting that is true or false.
    pub fn flag(&self, name: &str) -> bool {
        self.get(name).and_then(Json::as_bool).unwrap_or_else(|| panic!("no flag '{name}' in {}", self.0))
    }

    /// A setting that has settings of its own.
    pub fn inner(&self, name: &str) -> Config {
        Config(self.get(name).unwrap_or_else(|| panic!("no setting '{name}' in {}", self.0)).clone())
    }
}

/// The array that a description such as `{"kind": "uniform", "stream": 3, ...}` stands for, as `streams.py` makes it.
fn array(json: &Json) -> Tensor {
    let shape = sizes(&json["shape"]);
    let dtype = match text(&json["dtype"]) {
        "float32" => DType::F32,
        "float64" => DType::F64,
        "int32" => DType::I32,
        "int64" => DType::I64,
        "bool" => DType::Bool,
        other => panic!("unknown type {other}"),
    };
    let offset = json.get("offset").map_or(0.0, |v| v.as_f64().expect("a number"));
    let count = shape.iter().product::<usize>() as u64;
    let hashes = || {
        let stream = json["stream"].as_u64().expect("a stream's number");
        (0..count).map(move |i| hash(stream, i))
    };
    let values: Vec<f64> = match text(&json["kind"]) {
        "values" => numbers(&json["values"]),
        "int" => {
            let below = json["below"].as_u64().expect("a number");
            hashes().map(|z| ((z >> 32) % below) as f64 + offset).collect()
        }
        "uniform" => {
            let scale = json["scale"].as_f64().expect("a number") as f32;
            hashes().map(|z| uniform(z, scale, offset as f32) as f64).collect()
        }
        other => panic!("unknown kind of array: {other}"),
    };
    Tensor::from_f64(dtype, &shape[..], &values).expect("as many values as the shape says")
}

/// Raw value `i` of a stream: splitmix64.
fn hash(stream: u64, i: u64) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let z = stream.wrapping_mul(GOLDEN).wrapping_add(i).wrapping_add(GOLDEN);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Every operation in f32, as NumPy does it.
fn uniform(z: u64, scale: f32, offset: f32) -> f32 {
    let u = (z >> 40) as f32 / (1 << 24) as f32;
    (2.0 * u - 1.0) * scale + offset
}

fn text(json: &Json) -> &str {
    json.as_str().unwrap_or_else(|| panic!("a word expected, found {json}"))
}

fn list(json: &Json) -> &[Json] {
    json.as_array().unwrap_or_else(|| panic!("a list expected, found {json}"))
}

fn numbers(json: &Json) -> Vec<f64> {
    let number = |v: &Json| v.as_bool().map(|b| b as u8 as f64).or(v.as_f64());
    list(json).iter().map(|v| number(v).unwrap_or_else(|| panic!("a number expected, found {v}"))).collect()
}

fn sizes(json: &Json) -> Vec<usize> {
    list(json).iter().map(|v| v.as_u64().unwrap_or_else(|| panic!("a size expected, found {v}")) as usize).collect()
}

#[test]
fn streams_begin_as_documented() {
    assert_eq!(hash(0, 0), 0xe220_a839_7b1d_cdaf);
    assert_eq!(hash(1, 0), 0x6e78_9e6a_a1b9_65f4);
}
