//! A job as a tree of values, each with the place it comes from: file, flag, environment or default.

use crate::diagnostic::{Diagnostic, Origin, Source};
use crate::errors::Code;
use std::sync::Arc;
use toml::de::{DeTable, DeValue};

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub value: Value,
    pub origin: Origin,
}

/// What TOML has, but dates.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Text(String),
    Integer(i64),
    Float(f64),
    Bool(bool),
    Array(Vec<Node>),
    Table(Table),
}

/// Keys with their values, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub entries: Vec<Entry>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub key: String,
    pub key_origin: Origin,
    pub node: Node,
}

impl Node {
    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Text(_) => "text",
            Value::Integer(_) => "a whole number",
            Value::Float(_) => "a number",
            Value::Bool(_) => "true or false",
            Value::Array(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// Reads TOML.
    pub fn parse(source: Arc<Source>) -> Result<Node, Diagnostic> {
        let parsed = DeTable::parse(&source.text).map_err(|error| {
            let span = error.span().unwrap_or(0..0);
            let origin = Origin::File(source.clone(), span);
            Diagnostic::new(Code::NotToml, format!("{} is not TOML", source.name)).at(&origin, error.message())
        })?;
        let span = parsed.span();
        convert(&source, &DeValue::Table(parsed.into_inner()), span)
    }

    /// Reads a value written as TOML, or as bare text where it is no TOML value: `10`, `true`, `[1, 2]`, `512MiB`.
    pub fn parse_value(text: &str, origin: &Origin) -> Node {
        let source = Arc::new(Source { name: String::new(), text: format!("value = {text}") });
        let parsed = Node::parse(source).ok().and_then(|node| match node.value {
            Value::Table(Table { mut entries }) if entries.len() == 1 => entries.pop(),
            _ => None,
        });
        let mut node =
            parsed.map_or(Node { value: Value::Text(text.to_owned()), origin: origin.clone() }, |entry| entry.node);
        node.set_origin(origin);
        node
    }

    fn set_origin(&mut self, origin: &Origin) {
        self.origin = origin.clone();
        match &mut self.value {
            Value::Array(items) => items.iter_mut().for_each(|item| item.set_origin(origin)),
            Value::Table(table) => table.entries.iter_mut().for_each(|entry| {
                entry.key_origin = origin.clone();
                entry.node.set_origin(origin);
            }),
            _ => (),
        }
    }

    /// A whole file as TOML, one line for each key at the top.
    pub fn to_document(&self) -> String {
        let Value::Table(table) = &self.value else { return String::new() };
        table.entries.iter().map(|e| format!("{} = {}\n", key_text(&e.key), e.node.to_toml())).collect()
    }

    /// The value as TOML on one line.
    pub fn to_toml(&self) -> String {
        match &self.value {
            Value::Text(text) => toml::Value::String(text.clone()).to_string(),
            Value::Integer(n) => n.to_string(),
            Value::Float(x) => toml::Value::Float(*x).to_string(),
            Value::Bool(b) => b.to_string(),
            Value::Array(items) => {
                format!("[{}]", items.iter().map(Node::to_toml).collect::<Vec<_>>().join(", "))
            }
            Value::Table(table) => {
                let pairs: Vec<String> =
                    table.entries.iter().map(|e| format!("{} = {}", key_text(&e.key), e.node.to_toml())).collect();
                format!("{{ {} }}", pairs.join(", "))
            }
        }
    }
}

/// A key as TOML: bare where that is allowed.
fn key_text(key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if bare { key.to_owned() } else { toml::Value::String(key.to_owned()).to_string() }
}

impl Table {
    /// The entry of this name.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// Sets a value below a dotted path, over what stands there.
    pub fn set(&mut self, path: &str, node: Node) {
        let (key, rest) = path.split_once('.').map_or((path, None), |(key, rest)| (key, Some(rest)));
        let at = self.entries.iter().position(|e| e.key == key).unwrap_or_else(|| {
            let node = Node { value: Value::Table(Table::default()), origin: node.origin.clone() };
            self.entries.push(Entry { key: key.into(), key_origin: node.origin.clone(), node });
            self.entries.len() - 1
        });
        let entry = &mut self.entries[at];
        match (rest, &mut entry.node.value) {
            (Some(rest), Value::Table(table)) => table.set(rest, node),
            (Some(rest), _) => {
                let mut table = Table::default();
                let origin = node.origin.clone();
                table.set(rest, node);
                entry.node = Node { value: Value::Table(table), origin };
            }
            (None, _) => (entry.key_origin, entry.node) = (node.origin.clone(), node),
        }
    }
}

fn convert(source: &Arc<Source>, value: &DeValue<'_>, span: std::ops::Range<usize>) -> Result<Node, Diagnostic> {
    let origin = Origin::File(source.clone(), span);
    let wrong = |message: &str| Err(Diagnostic::new(Code::WrongValue, message).at(&origin, "here"));
    let value = match value {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => Value::Integer(n),
            Err(_) => return wrong("a whole number beyond 64 bits"),
        },
        DeValue::Float(x) => match x.as_str().parse() {
            Ok(x) => Value::Float(x),
            Err(_) => return wrong("not a number"),
        },
        DeValue::Boolean(b) => Value::Bool(*b),
        DeValue::Datetime(_) => return wrong("no key takes a date; put it in quotes"),
        DeValue::Array(items) => Value::Array(
            items.iter().map(|item| convert(source, item.get_ref(), item.span())).collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => {
            let mut entries = Vec::new();
            for (key, value) in table.iter() {
                entries.push(Entry {
                    key: key.get_ref().to_string(),
                    key_origin: Origin::File(source.clone(), key.span()),
                    node: convert(source, value.get_ref(), value.span())?,
                });
            }
            // The parser sorts by name; people read in the order of the file.
            entries.sort_by_key(|entry| match &entry.key_origin {
                Origin::File(_, span) => span.start,
                _ => 0,
            });
            Value::Table(Table { entries })
        }
    };
    Ok(Node { value, origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Node {
        Node::parse(Arc::new(Source { name: "job.toml".into(), text: text.into() })).unwrap()
    }

    #[test]
    fn values_know_their_places() {
        let node = parse("[training]\nepochs = 3\nlr = 1e-3\n");
        let Value::Table(table) = &node.value else { panic!() };
        let Value::Table(training) = &table.get("training").unwrap().node.value else { panic!() };
        let lr = training.get("lr").unwrap();
        assert_eq!(lr.node.value, Value::Float(1e-3));
        assert_eq!(lr.node.origin.to_string(), "job.toml:3:6");
        assert_eq!(lr.key_origin.to_string(), "job.toml:3:1");
    }

    #[test]
    fn values_are_set_over_others() {
        let node = parse("[training]\nepochs = 3\n");
        let Value::Table(mut table) = node.value else { panic!() };
        let origin = Origin::Flag("--epochs 7".into());
        table.set("training.epochs", Node::parse_value("7", &origin));
        table.set("memory_limit", Node::parse_value("512MiB", &origin));
        let text = Node { value: Value::Table(table), origin }.to_toml();
        assert_eq!(text, "{ training = { epochs = 7 }, memory_limit = \"512MiB\" }");
    }
}
