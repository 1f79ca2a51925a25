//! The page: a template, a style, a program and the data, in one file that needs nothing else.

use crate::compact::{CompactPlan, CompactRun, compact_times};
use crate::thin::Thinner;
use crate::{ReportError, size, sweep_svg, time};
use base64::Engine;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use plimsoll_run::{EndReason, Line, PLAN, PlanPicture, RunReader, SWEEP, Sweep, TIMES, Times, read_plan};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

const TEMPLATE: &str = include_str!("assets/page.html");
const STYLE: &str = include_str!("assets/page.css");
const PROGRAM: [&str; 4] = [
    include_str!("assets/base.js"),
    include_str!("assets/arena.js"),
    include_str!("assets/curves.js"),
    include_str!("assets/page.js"),
];

/// One self-contained page about a run directory, or about a `plan.json` alone.
///
/// # Errors
/// When there is no run, or its files cannot be read.
pub fn html(path: impl AsRef<Path>) -> Result<String, ReportError> {
    let path = path.as_ref();
    let run = if path.is_file() { of_plan(&read_plan(path)?) } else { load(path)?.0 };
    page(&[run], None)
}

/// One self-contained page about a plan that is in memory, with a sweep if there is one.
///
/// # Errors
/// Never for a plan that [`plimsoll_run::PlanSource`] made.
pub fn html_of_plan(plan: &PlanPicture, sweep: Option<&Sweep>) -> Result<String, ReportError> {
    let mut run = of_plan(plan);
    run.sweep_svg = sweep.map(sweep_svg);
    run.sweep = sweep.cloned();
    page(&[run], None)
}

fn of_plan(plan: &PlanPicture) -> CompactRun {
    CompactRun { name: plan.title.clone(), plan: Some(CompactPlan::new(plan)), ..CompactRun::default() }
}

/// Reads a run directory, and says how far its log was read; parts that are not there are left out.
pub(crate) fn load(directory: &Path) -> Result<(CompactRun, u64), ReportError> {
    let there = |name: &str| Some(directory.join(name)).filter(|p| p.is_file());
    let plan = there(PLAN).map(read_plan).transpose()?;
    let mut reader = RunReader::open(directory);
    let mut log = Thinner::new();
    reader.each(|line| log.take(line))?;
    let log = log.finish();
    if plan.is_none() && log.is_empty() {
        return Err(plimsoll_run::RunError::NoRun { path: directory.to_owned() }.into());
    }
    let n_instructions = plan.as_ref().map_or(0, |p| p.instructions.len());
    let times: Option<Times> = there(TIMES).and_then(|p| serde_json::from_slice(&std::fs::read(p).ok()?).ok());
    let sweep: Option<Sweep> = there(SWEEP).and_then(|p| serde_json::from_slice(&std::fs::read(p).ok()?).ok());
    let name = directory.canonicalize().ok().and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
    let run = CompactRun {
        name: name.unwrap_or_else(|| directory.display().to_string()),
        // Times of another plan than this one say nothing.
        times: times.filter(|t| t.seconds.len() == n_instructions).as_ref().map(compact_times).unwrap_or_default(),
        plan: plan.as_ref().map(CompactPlan::new),
        log,
        sweep_svg: sweep.as_ref().map(sweep_svg),
        sweep,
    };
    Ok((run, reader.place()))
}

#[derive(Serialize)]
struct Data<'a> {
    runs: &'a [CompactRun],
    /// Where news come from; null in a file.
    live: Option<&'a str>,
}

/// The page about some runs; `live` is the address from which it gets news.
pub(crate) fn page(runs: &[CompactRun], live: Option<&str>) -> Result<String, ReportError> {
    let failed = ReportError::io("packing the page's data");
    let packed = pack(&Data { runs, live }).map_err(failed)?;
    let title = runs.first().map_or("run", |r| r.name.as_str());
    let more = if runs.len() > 1 { format!(" and {} more", runs.len() - 1) } else { String::new() };
    let parts = [
        ("{{title}}", format!("{}{more}", escaped(title))),
        ("{{summary}}", runs.iter().map(summary).collect::<String>()),
        ("{{connect}}", if live.is_some() { "'self'" } else { "'none'" }.to_owned()),
        ("{{style}}", STYLE.to_owned()),
        ("{{program}}", PROGRAM.concat()),
        ("{{data}}", packed),
    ];
    // In one pass, so that no part is looked at for the names of others.
    let mut page = String::with_capacity(TEMPLATE.len() + parts.iter().map(|(_, text)| text.len()).sum::<usize>());
    let mut rest = TEMPLATE;
    while let Some(at) = rest.find("{{") {
        page += &rest[..at];
        rest = &rest[at..];
        let (name, text) =
            parts.iter().find(|(name, _)| rest.starts_with(name)).expect("the template has no other parts");
        page += text;
        rest = &rest[name.len()..];
    }
    Ok(page + rest)
}

fn pack(data: &Data<'_>) -> std::io::Result<String> {
    let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&serde_json::to_vec(data)?)?;
    Ok(base64::engine::general_purpose::STANDARD.encode(packed.finish()?))
}

/// What a reader without scripts sees.
fn summary(run: &CompactRun) -> String {
    let mut lines = vec![format!("<h2>{}</h2><ul>", escaped(&run.name))];
    for line in &run.log {
        match line {
            Line::Run(header) => {
                let limit = header.limit.map_or("none".to_owned(), size);
                lines.push(format!("<li>memory limit {limit}, planned {}</li>", size(header.planned)));
                if let Some(kept) = &header.kept {
                    lines.push(format!("<li>to keep the limit: {}</li>", escaped(&kept.text)));
                }
            }
            Line::Epoch(epoch) => {
                let figure = |(name, value): (&String, &Option<f64>)| {
                    format!("{} {}", escaped(name), value.map_or("not a number".into(), |v| format!("{v:.4}")))
                };
                let figures: Vec<String> = epoch.figures.iter().map(figure).collect();
                let (n, peak) = (epoch.epoch, size(epoch.memory.peak));
                lines.push(format!("<li>epoch {n}: {}, {}, peak {peak}</li>", figures.join(", "), time(epoch.seconds)));
            }
            Line::End(end) => {
                let reason = match end.reason {
                    EndReason::Done => "done",
                    EndReason::Stopped => "stopped",
                    EndReason::Failed => "failed",
                };
                lines.push(format!("<li>{reason} {}</li>", escaped(&end.message)));
            }
            _ => (),
        }
    }
    lines.push("</ul>".into());
    lines.concat()
}

pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
