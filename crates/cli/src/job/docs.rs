//! `docs/jobs.md` and the JSON schema of jobs, made from the tables' own descriptions.

use super::JobTable;
use super::layers::LayerKind;
use super::read::{FieldDoc, Read, TableDoc, table_schema};
use std::fmt::Write;

/// The page on jobs.
pub fn page() -> String {
    let mut out = include_str!("intro.md").to_owned();
    let job = JobTable::table().expect("a table");
    section(&mut out, 2, "The file", &job, "");
    for field in &job.fields {
        if let Some(doc) = (field.table)() {
            out.push('\n');
            section(&mut out, 2, &format!("`[{}]`", field.name), &doc, field.name);
        }
    }
    let layers = LayerKind::table().expect("a table");
    let _ = writeln!(
        out,
        "\n## Layers\n\nNames, defaults and layouts are Keras's: images are `[height, width, channels]`."
    );
    section(&mut out, 2, "", &layers, "layer");
    out
}

fn section(out: &mut String, level: usize, title: &str, doc: &TableDoc, path: &str) {
    if !title.is_empty() {
        let _ = writeln!(out, "{} {title}\n\n{}", "#".repeat(level), doc.about);
    }
    fields(out, &doc.fields);
    if let Some((tag, choices)) = &doc.choices {
        for (word, choice) in choices {
            let _ = writeln!(out, "\n{} `{tag} = \"{word}\"`\n\n{}", "#".repeat(level + 1), choice.about);
            fields(out, &choice.fields);
            inner(out, level + 1, &choice.fields, path);
        }
    }
    inner(out, level, &doc.fields, path);
}

/// The tables inside a table, below the top level.
fn inner(out: &mut String, level: usize, fields: &[FieldDoc], path: &str) {
    if path.is_empty() {
        return;
    }
    for field in fields {
        if let Some(doc) = (field.table)() {
            out.push('\n');
            section(out, level + 1, &format!("`{path}.{}`", field.name), &doc, &format!("{path}.{}", field.name));
        }
    }
}

fn fields(out: &mut String, fields: &[FieldDoc]) {
    if fields.is_empty() {
        return;
    }
    out.push_str("\n| key | takes | default | |\n|---|---|---|---|\n");
    for field in fields {
        let default = match field.default {
            None => "must be there".to_owned(),
            Some("none") => String::new(),
            Some(default) => format!("`{default}`"),
        };
        let _ = writeln!(out, "| `{}` | {} | {default} | {} |", field.name, field.takes, field.about);
    }
}

/// The JSON schema of a job, for editors.
pub fn schema() -> serde_json::Value {
    let mut schema = table_schema(&JobTable::table().expect("a table"));
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Plimsoll job".into();
    schema["$defs"] = serde_json::json!({ "layer": LayerKind::schema() });
    schema
}
