//! Jobs as a whole: documentation, overrides, errors.

use super::read::{FieldDoc, Read, TableDoc};
use super::*;

const BASE: &str = "[model]\narchitecture = \"mlp\"\n\n[data]\nformat = \"generated\"\ngenerate = \"blobs\"\n";

fn load(text: &str) -> Result<Job, Diagnostic> {
    Job::from_text("job.toml", text.into(), Path::new("folder/job.toml"), [], &[])
}

fn pairs(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    variables.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

#[test]
fn the_page_is_that_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/jobs.md");
    let made = docs::page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, &made).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == made,
        "docs/jobs.md is not that of the code: run the tests with UPDATE_DOCS=1 and look at the change"
    );
}

/// A value that a key takes, as TOML.
fn sample(field: &FieldDoc, table: &TableDoc) -> String {
    let inner = (field.table)();
    match (field.default, field.takes.as_str(), field.name) {
        (Some(default), ..) if default != "none" => default.to_owned(),
        (_, _, "inner") => "{ layer = \"lstm\", units = 2 }".into(),
        (_, _, "layers") => "[\"flatten\"]".into(),
        (_, _, "outputs") => "[]".into(),
        (_, _, "schema") => "{ x = { dtype = \"f32\" } }".into(),
        (_, _, "arrays" | "inputs") => "{ x = \"x.npy\" }".into(),
        (_, _, "labels") => "{ y = \"y\" }".into(),
        (_, _, "dtype") => "\"f32\"".into(),
        (_, _, "values") => "[0.5, 0.1]".into(),
        (_, _, "metrics") => "[\"accuracy\"]".into(),
        (_, _, "better") => "\"smaller\"".into(),
        (_, _, "learning_rate") => "0.5".into(),
        (_, _, "shortcut") => "\"flatten\"".into(),
        (_, _, "memory_limit") => "\"512MiB\"".into(),
        (_, takes, _) if takes.starts_with("list of: number") || takes.starts_with("list of: whole") => "[1]".into(),
        (_, takes, _) if takes.starts_with("list of: text") => "[\"a\"]".into(),
        (_, takes, _) if takes.starts_with("number") => "0.5".into(),
        (_, takes, _) if takes.starts_with("whole number") => "2".into(),
        (_, takes, _) if takes.starts_with("`true`") => "true".into(),
        (_, "activation", _) => "\"relu\"".into(),
        (_, takes, _) if takes.starts_with("text") || takes == "path" || takes.starts_with("name") => "\"a\"".into(),
        _ => match (inner, &table.choices) {
            (Some(TableDoc { choices: Some((_, choices)), .. }), _) => format!("\"{}\"", smallest_name(&choices)),
            (Some(inner), _) => braces(&inner),
            other => panic!("no sample for '{}' ({}), {}", field.name, field.takes, other.0.is_some()),
        },
    }
}

/// A member of a union that needs no settings.
fn smallest_name(choices: &[(&'static str, TableDoc)]) -> &'static str {
    choices.iter().find(|(_, c)| c.fields.iter().all(|f| f.default.is_some())).expect("one without settings").0
}

/// A table with the keys that must be there.
fn braces(doc: &TableDoc) -> String {
    let required = doc.fields.iter().filter(|f| f.default.is_none());
    let pairs: Vec<String> = required.map(|f| format!("{} = {}", f.name, sample(f, doc))).collect();
    format!("{{ {} }}", pairs.join(", "))
}

/// Tries every key of a table, one at a time; `wrap` makes a job of a table.
fn every_key(doc: &TableDoc, wrap: &dyn Fn(&str) -> String, seen: &mut usize) {
    // The key that decides and its word, the keys of all, and its own.
    type Member<'a> = (Option<(&'a str, &'a str)>, Vec<FieldDoc>, Vec<FieldDoc>);
    let members: Vec<Member<'_>> = match &doc.choices {
        None => vec![(None, Vec::new(), doc.fields.clone())],
        Some((tag, choices)) => {
            choices.iter().map(|(word, c)| (Some((*tag, *word)), doc.fields[1..].to_vec(), c.fields.clone())).collect()
        }
    };
    for (tag, common, own) in members {
        for field in common.iter().chain(&own) {
            let mut pairs: Vec<String> = tag.iter().map(|(tag, word)| format!("{tag} = \"{word}\"")).collect();
            for other in common.iter().chain(&own).filter(|f| f.default.is_none() && f.name != field.name) {
                pairs.push(format!("{} = {}", other.name, sample(other, doc)));
            }
            pairs.push(format!("{} = {}", field.name, sample(field, doc)));
            let text = wrap(&format!("{{ {} }}", pairs.join(", ")));
            if let Err(error) = load(&text) {
                panic!("'{}' of {tag:?} does not parse:\n{text}\n{}", field.name, error.render(false));
            }
            *seen += 1;
        }
    }
}

#[test]
fn every_documented_key_parses() {
    let mut seen = 0;
    let job = JobTable::table().unwrap();
    let model = "model = { architecture = \"mlp\" }\n";
    let data = "data = { format = \"generated\", generate = \"blobs\" }\n";
    for field in &job.fields {
        let Some(doc) = (field.table)() else { continue };
        let wrap = |inner: &str| match field.name {
            "model" => format!("{data}model = {inner}\n"),
            "data" => format!("{model}data = {inner}\n"),
            name => format!("{model}{data}{name} = {inner}\n"),
        };
        every_key(&doc, &wrap, &mut seen);
        for inner in doc.fields.iter().filter_map(|f| (f.table)().map(|t| (f.name, t))) {
            let wrap_inner = |text: &str| {
                let tag =
                    doc.choices.as_ref().map(|(tag, choices)| format!("{tag} = \"{}\", ", smallest_name(choices)));
                wrap(&format!("{{ {}{} = {text} }}", tag.unwrap_or_default(), inner.0))
            };
            // A union of names reads tables too; lists read them as items.
            if !["metrics", "window"].contains(&inner.0) && field.name != "data" {
                every_key(&inner.1, &wrap_inner, &mut seen);
            }
        }
    }
    let layers = super::layers::LayerKind::table().unwrap();
    every_key(&layers, &|inner| format!("{data}model = {{ layers = [{inner}] }}\n"), &mut seen);
    assert!(seen > 300, "only {seen} keys were tried");
}

#[test]
fn examples_in_the_documentation_parse() {
    let page = docs::page();
    let blocks: Vec<&str> = page.split("```toml\n").skip(1).map(|b| b.split("```").next().unwrap()).collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        let text = match (block.contains("[model]"), block.contains("[data]")) {
            (true, true) => block.to_owned(),
            (true, false) => format!("{block}\n[data]\nformat = \"generated\"\ngenerate = \"digits\"\n"),
            _ => panic!("{block}"),
        };
        load(&text).unwrap_or_else(|e| panic!("{}", e.render(false)));
    }
}

#[test]
fn flags_win_over_variables_and_those_over_the_file() {
    let text = format!("{BASE}[training]\nepochs = 3\nbatch_size = 8\nseed = 1\n");
    let variables =
        pairs(&[("PLIMSOLL_TRAINING_EPOCHS", "4"), ("PLIMSOLL_TRAINING_SEED", "5"), ("PLIMSOLL_OTHER", "x")]);
    let flags = [Override { path: "training.epochs".into(), value: "6".into(), flag: "--epochs 6".into() }];
    let job = Job::from_text("job.toml", text, Path::new("job.toml"), variables, &flags).unwrap();
    let training = &job.table.training;
    assert_eq!((training.epochs, *training.batch_size, training.seed), (6, 8, 5));
    let settings = settings(&job);
    let of = |key: &str| settings.iter().find(|s| s.key == key).map(|s| (s.value.as_str(), s.origin.as_str()));
    assert_eq!(of("training.epochs"), Some(("6", "flag --epochs 6")));
    assert_eq!(of("training.seed"), Some(("5", "environment PLIMSOLL_TRAINING_SEED=5")));
    assert_eq!(of("training.batch_size"), Some(("8", "job.toml:9:14")));
    assert_eq!(of("optimizer.beta_1"), Some(("0.9", "default")));
    assert_eq!(of("model.architecture"), Some(("\"mlp\"", "job.toml:2:16")));
}

#[test]
fn mistakes_are_shown_at_their_place() {
    let check = |from: &str, to: &str, code: &str, want: &[&str]| {
        let text = format!("{BASE}[training]\nepochs = 3\n").replace(from, to);
        let error = load(&text).and_then(|job| Session::open(job).map(|_| ())).expect_err(to);
        let shown = error.render(false);
        assert_eq!(error.code.name(), code, "{shown}");
        want.iter().for_each(|w| assert!(shown.contains(w), "'{w}' is not in\n{shown}"));
    };
    check("epochs = 3", "epocs = 3", "E0103", &["job.toml:8:1", "epocs = 3", "did you mean 'epochs'?"]);
    check("epochs = 3", "epochs = \"three\"", "E0105", &["job.toml:8:10", "expected a whole number, found text"]);
    check("epochs = 3", "epochs = -3", "E0106", &["job.toml:8:10", "-3 is out of range"]);
    check("\"mlp\"", "\"mpl\"", "E0106", &["job.toml:2:16", "did you mean 'mlp'?"]);
    check("architecture = \"mlp\"", "layers = []", "E0106", &["the model has no layers"]);
    check("generate = \"blobs\"", "", "E0104", &["generated has no 'generate'"]);
    check("\"blobs\"", "\"blobs", "E0102", &["job.toml:6:"]);
    check(
        "architecture = \"mlp\"",
        "layers = [\n  { layer = \"dense\", units = 4 },\n  { layer = \"conv2d\", filters = 4, kernel_size = 3 },\n]",
        "E0107",
        &["job.toml:4:3", "this layer does not fit here", "conv2d"],
    );
    check(
        "architecture = \"mlp\"",
        "layers = [{ layer = \"dense\", units = 2 }]",
        "E0203",
        &["the model gives 2 numbers, but the labels have 3 classes"],
    );
    check(
        "generate = \"blobs\"",
        "generate = \"blobs\"\nlabel = \"labl\"",
        "E0106",
        &["did you mean 'label'?", "job.toml:7:9"],
    );
    check("epochs = 3", "loss = { loss = \"huber\", delat = 1 }", "E0103", &["did you mean 'delta'?", "job.toml:8:26"]);
    check("\"mlp\"", "\"gpt\"", "E0107", &["a gpt takes tokens"]);
}

#[path = "../../fuzz/src/targets.rs"]
mod targets;

/// The inputs that the fuzz targets found to reach new code: nothing panics, and no file takes long.
#[test]
fn the_corpus_is_read_or_refused() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, read) in targets::TARGETS {
        let (mut understood, mut refused) = (0, 0);
        for file in std::fs::read_dir(corpus.join(name)).unwrap() {
            let file = file.unwrap().path();
            let start = std::time::Instant::now();
            match read(&std::fs::read(&file).unwrap()) {
                true => understood += 1,
                false => refused += 1,
            }
            assert!(start.elapsed().as_secs() < 5, "{} took {:?}", file.display(), start.elapsed());
        }
        println!("{name}: {understood} understood, {refused} refused");
        assert!(understood > 0 && refused > 0, "{name}: {understood} understood, {refused} refused");
    }
}
