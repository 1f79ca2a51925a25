//! A small validator of JSON against JSON schemas: the words that our schemas use, by their definitions in the 2020-12 draft.
//!
//! A word that it does not know is an error, so that nothing passes unseen.

use serde_json::Value;

/// What is wrong with a value; empty when it validates.
pub fn problems(schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(schema, schema, value, "", &mut found);
    found
}

/// Words that say nothing about values.
const SILENT: &[&str] = &["$schema", "$defs", "title", "description", "format", "default"];

fn check(root: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    let Some(words) = schema.as_object() else {
        if schema == &Value::Bool(false) {
            found.push(format!("{at}: nothing is allowed here"));
        }
        return;
    };
    let passes = |schema: &Value| {
        let mut inner = Vec::new();
        check(root, schema, value, at, &mut inner);
        inner.is_empty()
    };
    for (word, rule) in words {
        let fine = match word.as_str() {
            word if SILENT.contains(&word) => true,
            "$ref" => {
                let path = rule.as_str().and_then(|r| r.strip_prefix('#')).expect("a reference into the schema");
                let target = root.pointer(path).unwrap_or_else(|| panic!("no {rule} in the schema"));
                check(root, target, value, at, found);
                true
            }
            "type" => match rule {
                Value::Array(kinds) => kinds.iter().any(|kind| is(value, kind)),
                kind => is(value, kind),
            },
            "enum" => rule.as_array().unwrap().contains(value),
            "const" => rule == value,
            "anyOf" => rule.as_array().unwrap().iter().any(passes),
            "oneOf" => rule.as_array().unwrap().iter().filter(|s| passes(s)).count() == 1,
            "allOf" => rule.as_array().unwrap().iter().all(passes),
            "minimum" => value.as_f64().is_none_or(|v| v >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|v| v <= rule.as_f64().unwrap()),
            "required" => {
                let names = rule.as_array().unwrap().iter().filter_map(Value::as_str);
                value.as_object().is_none_or(|object| names.clone().all(|name| object.contains_key(name)))
            }
            "properties" => {
                for (name, schema) in rule.as_object().unwrap() {
                    if let Some(inner) = value.get(name) {
                        check(root, schema, inner, &format!("{at}/{name}"), found);
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = words.get("properties").and_then(Value::as_object);
                for (name, inner) in value.as_object().into_iter().flatten() {
                    if known.is_none_or(|known| !known.contains_key(name)) {
                        check(root, rule, inner, &format!("{at}/{name}"), found);
                    }
                }
                true
            }
            "items" => {
                for (i, inner) in value.as_array().into_iter().flatten().enumerate() {
                    check(root, rule, inner, &format!("{at}/{i}"), found);
                }
                true
            }
            other => panic!("the validator does not know '{other}'"),
        };
        if !fine {
            found.push(format!("{at}: {value} is not {word} {rule}"));
        }
    }
}

fn is(value: &Value, kind: &Value) -> bool {
    match kind.as_str().expect("the name of a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|v| v.fract() == 0.0),
        other => panic!("no type '{other}'"),
    }
}
