//! Plain values: numbers, texts, lists, and what stands around other values.

use super::{At, Read, TableDoc, wrong_type, wrong_value};
use crate::diagnostic::{Diagnostic, Origin};
use crate::job::tree::{Entry, Node, Value};
use plimsoll::Limit;
use serde_json::json;
use std::path::PathBuf;

macro_rules! whole_numbers {
    ($($ty:ty),*) => { $(
        impl Read for $ty {
            fn read(node: &Node) -> Result<Self, Diagnostic> {
                let Value::Integer(n) = node.value else { return Err(wrong_type(node, "a whole number")) };
                <$ty>::try_from(n).map_err(|_| {
                    wrong_value(&node.origin, format!("{n} is out of range"), "this number")
                })
            }
            fn takes() -> String {
                "whole number".into()
            }
            fn schema() -> serde_json::Value {
                if <$ty>::MIN == 0 { json!({ "type": "integer", "minimum": 0 }) } else { json!({ "type": "integer" }) }
            }
        }
    )* };
}
whole_numbers!(usize, u64, u32, i64, isize);

impl Read for f64 {
    fn read(node: &Node) -> Result<f64, Diagnostic> {
        match node.value {
            Value::Float(x) => Ok(x),
            Value::Integer(n) => Ok(n as f64),
            _ => Err(wrong_type(node, "a number")),
        }
    }
    fn takes() -> String {
        "number".into()
    }
    fn schema() -> serde_json::Value {
        json!({ "type": "number" })
    }
}

impl Read for bool {
    fn read(node: &Node) -> Result<bool, Diagnostic> {
        match node.value {
            Value::Bool(b) => Ok(b),
            _ => Err(wrong_type(node, "true or false")),
        }
    }
    fn takes() -> String {
        "`true` or `false`".into()
    }
    fn schema() -> serde_json::Value {
        json!({ "type": "boolean" })
    }
}

impl Read for String {
    fn read(node: &Node) -> Result<String, Diagnostic> {
        match &node.value {
            Value::Text(text) => Ok(text.clone()),
            _ => Err(wrong_type(node, "text")),
        }
    }
    fn takes() -> String {
        "text".into()
    }
    fn schema() -> serde_json::Value {
        json!({ "type": "string" })
    }
}

impl Read for PathBuf {
    fn read(node: &Node) -> Result<PathBuf, Diagnostic> {
        String::read(node).map(PathBuf::from)
    }
    fn takes() -> String {
        "path".into()
    }
    fn schema() -> serde_json::Value {
        json!({ "type": "string" })
    }
}

impl Read for Limit {
    fn read(node: &Node) -> Result<Limit, Diagnostic> {
        let text = match &node.value {
            Value::Text(text) => text.clone(),
            Value::Integer(n) => n.to_string(),
            _ => return Err(wrong_type(node, "an amount of memory such as \"512MiB\"")),
        };
        text.parse()
            .map_err(|e| wrong_value(&node.origin, format!("{e}"), "such as \"512MiB\", \"2GB\", \"50%\" or \"none\""))
    }
    fn takes() -> String {
        "amount of memory: `\"512MiB\"`, `\"2GB\"`, `\"50%\"` (of what the host allows), `\"none\"`, or a number of bytes".into()
    }
    fn schema() -> serde_json::Value {
        json!({ "type": ["string", "integer"] })
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(node: &Node) -> Result<Vec<T>, Diagnostic> {
        match &node.value {
            Value::Array(items) => items.iter().map(T::read).collect(),
            _ => Err(wrong_type(node, &format!("a list ({})", T::takes()))),
        }
    }
    fn takes() -> String {
        format!("list of: {}", T::takes())
    }
    fn schema() -> serde_json::Value {
        json!({ "type": "array", "items": T::schema() })
    }
    fn table() -> Option<TableDoc> {
        T::table()
    }
}

/// What is written the same way as what it holds.
macro_rules! as_inside {
    ($inside:ident) => {
        fn takes() -> String {
            $inside::takes()
        }
        fn schema() -> serde_json::Value {
            $inside::schema()
        }
        fn table() -> Option<TableDoc> {
            $inside::table()
        }
    };
}

/// `none` as a default stands for nothing.
impl<T: Read> Read for Option<T> {
    fn read(node: &Node) -> Result<Option<T>, Diagnostic> {
        match (&node.value, &node.origin) {
            (Value::Text(text), Origin::Default) if text == "none" => Ok(None),
            _ => T::read(node).map(Some),
        }
    }
    as_inside!(T);
}

impl<T: Read> Read for Box<T> {
    fn read(node: &Node) -> Result<Box<T>, Diagnostic> {
        T::read(node).map(Box::new)
    }
    as_inside!(T);
}

impl<T: Read> Read for At<T> {
    fn read(node: &Node) -> Result<At<T>, Diagnostic> {
        Ok(At { value: T::read(node)?, origin: node.origin.clone() })
    }
    as_inside!(T);
}

/// Keys of the user's own with values of one kind, in order.
#[derive(Clone, Debug, Default)]
pub struct Map<T>(pub Vec<(String, T)>);

impl<T: Read> Read for Map<T> {
    fn read(node: &Node) -> Result<Map<T>, Diagnostic> {
        let Value::Table(table) = &node.value else { return Err(wrong_type(node, "a table")) };
        let entry = |e: &Entry| Ok((e.key.clone(), T::read(&e.node)?));
        Ok(Map(table.entries.iter().map(entry).collect::<Result<_, Diagnostic>>()?))
    }
    fn takes() -> String {
        format!("table of names with: {}", T::takes())
    }
    fn schema() -> serde_json::Value {
        json!({ "type": "object", "additionalProperties": T::schema() })
    }
}

/// One value, or a list of them.
#[derive(Clone, Debug)]
pub struct OneOrMore<T>(pub Vec<T>);

impl<T: Read> Read for OneOrMore<T> {
    fn read(node: &Node) -> Result<OneOrMore<T>, Diagnostic> {
        match &node.value {
            Value::Array(items) => Ok(OneOrMore(items.iter().map(T::read).collect::<Result<_, _>>()?)),
            _ => Ok(OneOrMore(vec![T::read(node)?])),
        }
    }
    fn takes() -> String {
        format!("{}, or a list of them", T::takes())
    }
    fn schema() -> serde_json::Value {
        json!({ "anyOf": [T::schema(), { "type": "array", "items": T::schema() }] })
    }
    fn table() -> Option<TableDoc> {
        T::table()
    }
}
