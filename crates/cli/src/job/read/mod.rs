//! Reading values out of a job's tree, with the tables described once: `table!` and `union!` make the structure, its reader, its
//! documentation and its JSON schema from one description. `values.rs` has the plain values.

mod values;

pub use values::{Map, OneOrMore};

use super::tree::{Node, Table, Value};
use crate::diagnostic::{Diagnostic, Origin, nearest};
use crate::errors::Code;
use serde_json::json;
use std::ops::Deref;

/// Something that can stand in a job.
pub trait Read: Sized {
    /// Reads it.
    fn read(node: &Node) -> Result<Self, Diagnostic>;

    /// What a key of this type takes, in a few words.
    fn takes() -> String;

    /// Its JSON schema.
    fn schema() -> serde_json::Value;

    /// The table that stands there, if one does.
    fn table() -> Option<TableDoc> {
        None
    }
}

/// A table's documentation.
#[derive(Clone)]
pub struct TableDoc {
    /// What it is.
    pub about: String,
    pub fields: Vec<FieldDoc>,
    /// Where the value of a key decides which further keys there are: that key, and the tables by its value.
    pub choices: Option<(&'static str, Vec<(&'static str, TableDoc)>)>,
}

/// A key's documentation.
#[derive(Clone)]
pub struct FieldDoc {
    pub name: &'static str,
    pub takes: String,
    /// The default as TOML; `None` where the key must be there.
    pub default: Option<&'static str>,
    pub about: String,
    pub schema: fn() -> serde_json::Value,
    pub table: fn() -> Option<TableDoc>,
}

/// A table with fixed keys.
pub trait Fields: Sized {
    fn about() -> String;
    fn fields() -> Vec<FieldDoc>;
    /// Reads the keys and leaves others alone; messages call the table `what`.
    fn from_entries(table: &Table, origin: &Origin, what: &str) -> Result<Self, Diagnostic>;

    /// Reads the keys; `others` are keys that somebody else reads, and further ones are errors.
    fn from_table(table: &Table, origin: &Origin, others: &[FieldDoc]) -> Result<Self, Diagnostic> {
        let known: Vec<FieldDoc> = Self::fields().into_iter().chain(others.iter().cloned()).collect();
        let what = title::<Self>();
        check_keys(table, &what, &known)?;
        Self::from_entries(table, origin, &what)
    }
}

/// A union with keys that all its members have.
#[derive(Clone, Debug)]
pub struct With<C, U> {
    pub common: C,
    pub kind: U,
    pub origin: Origin,
}

impl<C: Fields, U: Read> Read for With<C, U> {
    fn read(node: &Node) -> Result<With<C, U>, Diagnostic> {
        let kind = U::read(node)?;
        let empty = Table::default();
        let table = if let Value::Table(table) = &node.value { table } else { &empty };
        let common = C::from_entries(table, &node.origin, &title::<C>())?;
        Ok(With { common, kind, origin: node.origin.clone() })
    }
    fn takes() -> String {
        U::takes()
    }
    fn schema() -> serde_json::Value {
        U::schema()
    }
    fn table() -> Option<TableDoc> {
        U::table()
    }
}

/// A value that knows where it comes from.
#[derive(Clone, Debug)]
pub struct At<T> {
    pub value: T,
    pub origin: Origin,
}

impl<T> Deref for At<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

/// A value of another type than a key takes.
pub fn wrong_type(node: &Node, takes: &str) -> Diagnostic {
    let title = format!("expected {takes}, found {}", node.kind());
    Diagnostic::new(Code::WrongType, title).at(&node.origin, format!("this is {}", node.kind()))
}

/// A value that a key does not take.
pub fn wrong_value(origin: &Origin, title: impl Into<String>, label: impl Into<String>) -> Diagnostic {
    Diagnostic::new(Code::WrongValue, title).at(origin, label)
}

/// One of several names.
pub fn one_of(node: &Node, what: &str, names: &[&'static str]) -> Result<&'static str, Diagnostic> {
    let Value::Text(text) = &node.value else {
        return Err(wrong_type(node, &format!("the name of {what}")));
    };
    if let Some(name) = names.iter().find(|name| *name == text) {
        return Ok(name);
    }
    let label = match nearest(text, names.iter().copied()) {
        Some(name) => format!("did you mean '{name}'?"),
        None => format!("no {what} has this name"),
    };
    let title = format!("unknown {what} '{text}'");
    Err(wrong_value(&node.origin, title, label).note("names", names.join(", ")))
}

/// Says so when a table has keys that nobody reads.
pub fn check_keys(table: &Table, what: &str, known: &[FieldDoc]) -> Result<(), Diagnostic> {
    let Some(entry) = table.entries.iter().find(|e| known.iter().all(|f| f.name != e.key)) else {
        return Ok(());
    };
    let label = match nearest(&entry.key, known.iter().map(|f| f.name)) {
        Some(name) => format!("did you mean '{name}'?"),
        None => "no such key".to_owned(),
    };
    let keys: Vec<&str> = known.iter().map(|f| f.name).collect();
    let title = format!("unknown key '{}' in {what}", entry.key);
    Err(Diagnostic::new(Code::UnknownKey, title).at(&entry.key_origin, label).note("keys", keys.join(", ")))
}

/// Reads a key, or its default.
pub fn read_field<T: Read>(table: &Table, origin: &Origin, field: &FieldDoc, what: &str) -> Result<T, Diagnostic> {
    match (table.get(field.name), field.default) {
        (Some(entry), _) => T::read(&entry.node).map_err(|error| in_key(error, &entry.key)),
        (None, Some(default)) => T::read(&Node::parse_value(default, &Origin::Default)),
        (None, None) => {
            let title = format!("{what} has no '{}'", field.name);
            let label = format!("'{}' is missing: {}", field.name, field.takes);
            Err(Diagnostic::new(Code::MissingKey, title).at(origin, label).note("what", field.about.clone()))
        }
    }
}

/// An error about a value of a wrong type names its key.
fn in_key(error: Diagnostic, key: &str) -> Diagnostic {
    match error.code {
        Code::WrongType if !error.title.starts_with('\'') => {
            Diagnostic { title: format!("'{key}': {}", error.title), ..error }
        }
        _ => error,
    }
}

/// Describes a table: keys with their types, defaults (as TOML; none means that the key must be there) and documentation. Keys that
/// several tables have are a table of their own, which each of them names behind `with`.
macro_rules! table {
    (
        $(#[doc = $about:literal])*
        pub struct $name:ident $(with $shared:ident: $shared_ty:ty)? {
            $( $(#[doc = $doc:literal])* $field:ident: $ty:ty $(= $default:expr)?, )*
        }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug)]
        pub struct $name { $( pub $shared: $shared_ty, )? $( $(#[doc = $doc])* pub $field: $ty, )* }

        impl $crate::job::read::Fields for $name {
            fn about() -> String {
                [$($about),*].map(str::trim).join(" ")
            }

            fn fields() -> Vec<$crate::job::read::FieldDoc> {
                let own = vec![$( $crate::job::read::FieldDoc {
                    name: $crate::job::read::key_name(stringify!($field)),
                    takes: <$ty as $crate::job::read::Read>::takes(),
                    default: { #[allow(unused_mut, unused_assignments)] let mut default = None; $( default = Some(stringify!($default)); )? default },
                    about: { let lines: &[&str] = &[$($doc),*]; lines.iter().map(|l| l.trim()).collect::<Vec<_>>().join(" ") },
                    schema: <$ty as $crate::job::read::Read>::schema,
                    table: <$ty as $crate::job::read::Read>::table,
                } ),*];
                $crate::job::read::with_shared(own, [$( <$shared_ty as $crate::job::read::Fields>::fields() )?])
            }

            #[allow(unused_variables, unused_mut, unused_imports)]
            fn from_entries(
                table: &$crate::job::tree::Table,
                origin: &$crate::diagnostic::Origin,
                what: &str,
            ) -> Result<Self, $crate::diagnostic::Diagnostic> {
                use $crate::job::read::{Fields, read_field};
                let fields = Self::fields();
                let mut next = fields.iter();
                Ok($name {
                    $( $field: read_field(table, origin, next.next().expect("a key"), what)?, )*
                    $( $shared: <$shared_ty>::from_entries(table, origin, what)?, )?
                })
            }
        }

        impl $crate::job::read::Read for $name {
            fn read(node: &$crate::job::tree::Node) -> Result<Self, $crate::diagnostic::Diagnostic> {
                match &node.value {
                    $crate::job::tree::Value::Table(table) => {
                        <$name as $crate::job::read::Fields>::from_table(table, &node.origin, &[])
                    }
                    _ => Err($crate::job::read::wrong_type(node, "a table")),
                }
            }

            fn takes() -> String {
                "a table".into()
            }

            fn schema() -> serde_json::Value {
                $crate::job::read::table_schema(&<Self as $crate::job::read::Read>::table().expect("a table"))
            }

            fn table() -> Option<$crate::job::read::TableDoc> {
                use $crate::job::read::Fields;
                Some($crate::job::read::TableDoc { about: Self::about(), fields: Self::fields(), choices: None })
            }
        }
    };
}
pub(crate) use table;

/// Describes tables among which the value of one key decides; the name alone stands for a table with that key only.
macro_rules! union {
    (
        $(#[doc = $about:literal])*
        pub enum $name:ident by $tag:literal $(or $absent:literal)?, a $what:literal, with $common:expr;
        { $( $word:literal => $variant:ident($ty:ty), )* }
    ) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug)]
        pub enum $name { $( $variant($ty), )* }

        impl $name {
            /// All names.
            pub const NAMES: &'static [&'static str] = &[$($word),*];

            /// The name.
            #[allow(dead_code)]
            pub fn word(&self) -> &'static str {
                match self { $( $name::$variant(_) => $word, )* }
            }

            /// The keys that all have.
            fn common() -> Vec<$crate::job::read::FieldDoc> {
                let mut fields = vec![$crate::job::read::FieldDoc {
                    name: $tag,
                    takes: format!("the name of a {}", $what),
                    default: { #[allow(unused_mut, unused_assignments)] let mut default = None; $( default = Some(concat!("\"", $absent, "\"")); )? default },
                    about: concat!("Which ", $what, ": decides about the further keys.").into(),
                    schema: || serde_json::json!({ "enum": Self::NAMES }),
                    table: || None,
                }];
                fields.extend($common);
                fields
            }
        }

        impl $crate::job::read::Read for $name {
            #[allow(unused_mut, unused_assignments, unreachable_code)]
            fn read(node: &$crate::job::tree::Node) -> Result<Self, $crate::diagnostic::Diagnostic> {
                use $crate::job::read::Fields;
                let empty = $crate::job::tree::Table::default();
                let (table, word_node) = match &node.value {
                    $crate::job::tree::Value::Table(table) => (table, table.get($tag).map(|e| e.node.clone())),
                    $crate::job::tree::Value::Text(_) => (&empty, Some(node.clone())),
                    _ => return Err($crate::job::read::wrong_type(node, concat!("a ", $what, ": a name or a table"))),
                };
                let word = match word_node {
                    Some(word) => $crate::job::read::one_of(&word, $what, Self::NAMES)?,
                    None => {
                        let mut absent: Option<&'static str> = None;
                        $( absent = Some($absent); )?
                        match absent {
                            Some(word) => word,
                            None => {
                                let title = format!("a {} has no '{}'", $what, $tag);
                                let label = format!("'{}' says which {} it is", $tag, $what);
                                return Err($crate::diagnostic::Diagnostic::new($crate::errors::Code::MissingKey, title)
                                    .at(&node.origin, label)
                                    .note("names", Self::NAMES.join(", ")));
                            }
                        }
                    }
                };
                match word {
                    $( $word => Ok($name::$variant(<$ty>::from_table(table, &node.origin, &Self::common())?)), )*
                    _ => unreachable!("one of the names"),
                }
            }

            fn takes() -> String {
                concat!("a ", $what, ": its name, or a table").into()
            }

            fn schema() -> serde_json::Value {
                let doc = <Self as $crate::job::read::Read>::table().expect("tables");
                serde_json::json!({
                    "anyOf": [{ "enum": Self::NAMES }, $crate::job::read::table_schema(&doc)]
                })
            }

            fn table() -> Option<$crate::job::read::TableDoc> {
                use $crate::job::read::Fields;
                let about: &[&str] = &[$($about),*];
                Some($crate::job::read::TableDoc {
                    about: about.iter().map(|l| l.trim()).collect::<Vec<_>>().join(" "),
                    fields: Self::common(),
                    choices: Some(($tag, vec![$( ($word, $crate::job::read::TableDoc {
                        about: <$ty>::about(),
                        fields: <$ty>::fields(),
                        choices: None,
                    }) ),*])),
                })
            }
        }
    };
}
pub(crate) use union;

/// One of a few names as an enum.
macro_rules! names {
    ($(#[doc = $about:literal])* pub enum $name:ident, a $what:literal { $( $word:literal => $variant:ident, )* }) => {
        $(#[doc = $about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $( $variant, )* }

        impl $crate::job::read::Read for $name {
            fn read(node: &$crate::job::tree::Node) -> Result<Self, $crate::diagnostic::Diagnostic> {
                match $crate::job::read::one_of(node, $what, &[$($word),*])? {
                    $( $word => Ok($name::$variant), )*
                    _ => unreachable!("one of the names"),
                }
            }

            fn takes() -> String {
                [$(concat!("`\"", $word, "\"`")),*].join(", ")
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({ "enum": [$($word),*] })
            }
        }
    };
}
pub(crate) use names;

/// The keys of a table, and behind them those that it shares with others.
pub fn with_shared(mut own: Vec<FieldDoc>, shared: impl IntoIterator<Item = Vec<FieldDoc>>) -> Vec<FieldDoc> {
    own.extend(shared.into_iter().flatten());
    own
}

/// The name of a key: Rust keeps some words for itself.
pub fn key_name(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// How messages call a table.
pub fn title<T>() -> String {
    let name = std::any::type_name::<T>().rsplit("::").next().unwrap_or_default();
    let mut words = String::new();
    for (i, letter) in name.chars().enumerate() {
        if letter.is_uppercase() && i > 0 {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

/// The JSON schema of a table.
pub fn table_schema(doc: &TableDoc) -> serde_json::Value {
    let properties = |fields: &[FieldDoc]| -> serde_json::Map<String, serde_json::Value> {
        let one = |f: &FieldDoc| {
            let mut schema = (f.schema)();
            if let Some(object) = schema.as_object_mut() {
                object.insert("description".into(), json!(f.about));
            }
            (f.name.to_owned(), schema)
        };
        fields.iter().map(one).collect()
    };
    let required = |fields: &[FieldDoc]| -> Vec<&'static str> {
        fields.iter().filter(|f| f.default.is_none()).map(|f| f.name).collect()
    };
    let object = |fields: &[FieldDoc], about: &str| {
        json!({
            "type": "object", "description": about, "properties": properties(fields),
            "required": required(fields), "additionalProperties": false,
        })
    };
    let Some((tag, choices)) = &doc.choices else { return object(&doc.fields, &doc.about) };
    let one = |(word, choice): &(&'static str, TableDoc)| {
        let fields: Vec<FieldDoc> = doc.fields.iter().chain(&choice.fields).cloned().collect();
        let mut schema = object(&fields, &choice.about);
        schema["properties"][*tag] = json!({ "const": word });
        schema
    };
    json!({ "description": doc.about, "anyOf": choices.iter().map(one).collect::<Vec<_>>() })
}
