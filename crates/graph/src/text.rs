//! Text form: what a graph prints as, and back.
//!
//! ```text
//! %0 = input "x" : f32[2,3]
//! %1 = state "w" : f32[3,4]
//! %2 = matmul(%0, %1) {transpose_a=false, transpose_b=false} : f32[2,4] @ "dense"
//! output "y" %2
//! ```

use crate::attr::Attr;
use crate::error::GraphError;
use crate::graph::{Graph, Source, Value};
use crate::op;
use plimsoll_tensor::{DType, Shape, TensorType};
use std::fmt::{self, Write};

impl fmt::Display for Attr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Attr::Bool(b) => write!(f, "{b}"),
            Attr::Int(n) => write!(f, "{n}"),
            Attr::Float(x) => write!(f, "{x:?}"),
            Attr::Ints(list) => {
                f.write_char('[')?;
                for (i, n) in list.iter().enumerate() {
                    write!(f, "{}{n}", if i > 0 { "," } else { "" })?;
                }
                f.write_char(']')
            }
            Attr::Text(t) => write!(f, "{t:?}"),
        }
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut next_node = 0;
        for (value, info) in self.values() {
            match &info.source {
                Source::Input { name } => writeln!(f, "%{} = input {name:?} : {}", value.0, info.ty)?,
                Source::State { name } => writeln!(f, "%{} = state {name:?} : {}", value.0, info.ty)?,
                Source::Node { node, index } => {
                    // Printed once, with its first output; nodes without outputs do not exist.
                    if *index == 0 && node.0 as usize == next_node {
                        self.print_node(f, next_node)?;
                        next_node += 1;
                    }
                }
            }
        }
        self.outputs.iter().try_for_each(|o| writeln!(f, "output {:?} %{}", o.name, o.value.0))
    }
}

impl Graph {
    fn print_node(&self, f: &mut fmt::Formatter<'_>, id: usize) -> fmt::Result {
        let node = &self.nodes[id];
        let list = |values: &[Value]| values.iter().map(|v| format!("%{}", v.0)).collect::<Vec<_>>().join(", ");
        let types: Vec<String> = node.outputs.iter().map(|&v| self.ty(v).to_string()).collect();
        write!(f, "{} = {}({})", list(&node.outputs), node.op.name(), list(&node.inputs))?;
        let attrs: Vec<String> = node.op.attrs().iter().map(|(name, attr)| format!("{name}={attr}")).collect();
        if !attrs.is_empty() {
            write!(f, " {{{}}}", attrs.join(", "))?;
        }
        write!(f, " : {}", types.join(", "))?;
        if !node.layer.is_empty() {
            write!(f, " @ {:?}", node.layer)?;
        }
        writeln!(f)
    }

    /// Reads a graph from its text form. Values must be numbered in order from 0, as they print.
    ///
    /// # Errors
    /// With the line, when the text is not a graph.
    pub fn parse(text: &str) -> Result<Graph, GraphError> {
        let mut graph = Graph::new();
        for (i, line) in text.lines().enumerate() {
            let line_number = i + 1;
            let mut reader = Reader { rest: line.trim() };
            if reader.rest.is_empty() || reader.rest.starts_with('#') {
                continue;
            }
            graph.parse_line(&mut reader).map_err(|message| GraphError::Text { line: line_number, message })?;
        }
        graph.set_layer("");
        graph.verify()?;
        Ok(graph)
    }

    fn parse_line(&mut self, r: &mut Reader<'_>) -> Result<(), String> {
        if r.take("output ") {
            let name = r.quoted()?;
            let value = self.parse_value(r)?;
            self.output(&name, value);
            return r.end();
        }
        let mut outputs = vec![r.value_number()?];
        while r.take(",") {
            outputs.push(r.value_number()?);
        }
        r.expect("=")?;
        let first = self.values().len() as u32;
        if !outputs.iter().copied().eq(first..first + outputs.len() as u32) {
            return Err(format!("expected %{first} to be defined here, found {outputs:?}"));
        }
        let kind = r.word()?.to_owned();
        if kind == "input" || kind == "state" {
            let name = r.quoted()?;
            r.expect(":")?;
            let ty = r.ty()?;
            if kind == "input" {
                self.input(&name, ty)
            } else {
                self.state(&name, ty)
            };
            return r.end();
        }
        r.expect("(")?;
        let mut inputs = Vec::new();
        while !r.take(")") {
            inputs.push(self.parse_value(r)?);
            r.take(",");
        }
        let attrs = r.attrs()?;
        r.expect(":")?;
        let mut types = vec![r.ty()?];
        while r.take(",") {
            types.push(r.ty()?);
        }
        let layer = if r.take("@") { r.quoted()? } else { String::new() };
        self.set_layer(&layer);
        let made = self.push_shared(op::parse(&kind, &attrs)?, &inputs).map_err(|e| e.to_string())?;
        let found: Vec<TensorType> = made.iter().map(|&v| *self.ty(v)).collect();
        if found != types || made.len() != outputs.len() {
            return Err(format!("{kind} gives {found:?}, but the line says {types:?}"));
        }
        r.end()
    }

    fn parse_value(&self, r: &mut Reader<'_>) -> Result<Value, String> {
        let n = r.value_number()?;
        if (n as usize) < self.values.len() { Ok(Value(n)) } else { Err(format!("%{n} is not defined before")) }
    }
}

/// What is left of a line.
struct Reader<'a> {
    rest: &'a str,
}

impl Reader<'_> {
    fn take(&mut self, token: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(token) else { return false };
        self.rest = rest.trim_start();
        true
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.take(token) { Ok(()) } else { Err(format!("expected '{token}', found '{}'", self.rest)) }
    }

    fn end(&self) -> Result<(), String> {
        if self.rest.is_empty() { Ok(()) } else { Err(format!("unexpected '{}'", self.rest)) }
    }

    fn until(&mut self, stop: impl Fn(char) -> bool) -> &str {
        let n = self.rest.find(stop).unwrap_or(self.rest.len());
        let (head, rest) = self.rest.split_at(n);
        self.rest = rest.trim_start();
        head
    }

    fn word(&mut self) -> Result<&str, String> {
        let word = self.until(|c| !(c.is_ascii_alphanumeric() || c == '_'));
        if word.is_empty() { Err("expected a name".into()) } else { Ok(word) }
    }

    fn value_number(&mut self) -> Result<u32, String> {
        self.expect("%")?;
        let digits = self.until(|c| !c.is_ascii_digit()).to_owned();
        digits.parse().map_err(|_| format!("'%{digits}' is not a value"))
    }

    /// A text in quotes, with Rust's escapes for quotes and backslashes.
    fn quoted(&mut self) -> Result<String, String> {
        self.expect("\"")?;
        let mut text = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = self.rest[i + 1..].trim_start();
                    return Ok(text);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => text.push('\n'),
                    Some((_, 't')) => text.push('\t'),
                    Some((_, c)) => text.push(c),
                    None => break,
                },
                c => text.push(c),
            }
        }
        Err("a quote is not closed".into())
    }

    fn ty(&mut self) -> Result<TensorType, String> {
        let dtype: DType = self.word()?.parse()?;
        let Attr::Ints(dims) = self.list()? else { return Err("expected a shape".into()) };
        let dims: Option<Vec<usize>> = dims.iter().map(|&d| usize::try_from(d).ok()).collect();
        let shape = dims.and_then(|d| Shape::try_new(&d)).ok_or("not a shape")?;
        let elements = shape.dims().iter().try_fold(1usize, |n, &d| n.checked_mul(d));
        if elements.is_none_or(|n| n > isize::MAX as usize / 16) {
            return Err(format!("{shape} is too large"));
        }
        Ok(TensorType::new(dtype, shape))
    }

    fn list(&mut self) -> Result<Attr, String> {
        self.expect("[")?;
        let mut list = Vec::new();
        while !self.take("]") {
            let digits = self.until(|c| !(c.is_ascii_digit() || c == '-')).to_owned();
            list.push(digits.parse().map_err(|_| format!("'{digits}' is not a whole number"))?);
            self.take(",");
        }
        Ok(Attr::Ints(list))
    }

    fn attrs(&mut self) -> Result<Vec<(String, Attr)>, String> {
        let mut attrs = Vec::new();
        if !self.take("{") {
            return Ok(attrs);
        }
        while !self.take("}") {
            let name = self.word()?.to_owned();
            self.expect("=")?;
            let attr = match self.rest.chars().next() {
                Some('[') => self.list()?,
                Some('"') => Attr::Text(self.quoted()?),
                _ => {
                    let word = self.until(|c| c == ',' || c == '}').trim().to_owned();
                    match (word.as_str(), word.parse::<i64>(), word.parse::<f64>()) {
                        ("true", ..) => Attr::Bool(true),
                        ("false", ..) => Attr::Bool(false),
                        (_, Ok(n), _) => Attr::Int(n),
                        (_, _, Ok(x)) => Attr::Float(x),
                        _ => return Err(format!("'{word}' is not a value")),
                    }
                }
            };
            attrs.push((name, attr));
            self.take(",");
        }
        Ok(attrs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
%0 = input \"x\" : f32[2,3]
%1 = state \"w\" : f32[3,4]
%2 = matmul(%0, %1) {transpose_a=false, transpose_b=false} : f32[2,4] @ \"dense\"
%3 = constant() {value=0.5, dtype=\"f32\"} : f32[]
%4 = mul(%2, %3) : f32[2,4] @ \"dense\"
%5 = reduce_sum(%4) {axes=[0,1], keep=false} : f32[]
output \"loss\" %5
";

    #[test]
    fn prints_and_reads_back() {
        let graph = Graph::parse(TEXT).unwrap();
        assert_eq!(graph.to_string(), TEXT);
    }

    #[test]
    fn says_what_is_wrong_and_where() {
        let fails = |text: &str, message: &str| assert_eq!(Graph::parse(text).unwrap_err().to_string(), message);
        fails("%0 = input \"x\" : f33[2]", "line 1: unknown data type 'f33'");
        fails("\n%1 = input \"x\" : f32[2]", "line 2: expected %0 to be defined here, found [1]");
        fails("%0 = conquer() : f32[]", "line 1: unknown op 'conquer'");
        fails("%0 = input \"x : f32[2]", "line 1: a quote is not closed");
        fails("%0 = input \"x\" : f32[99999999999,99999999999]", "line 1: [99999999999,99999999999] is too large");
        let twice = "%0 = input \"x\" : f32[2]\n%1 = neg(%0) : f32[3]";
        fails(twice, "line 2: neg gives [f32[2]], but the line says [f32[3]]");
    }
}
