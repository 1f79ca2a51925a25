//! `plimsoll plan`: what training takes, byte by byte, before anything runs.

use super::JobOptions;
use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::Code;
use crate::job::Session;
use crate::out::Out;
use crate::text::{count, grouped, kib_up, mib, seconds};
use clap::Args;
use plimsoll::Bytes;
use plimsoll::trace::Role;
use plimsoll::trainer::{Forecast, SweepPoint};
use plimsoll_run::{AccountLine, BufferKind, PlanPicture, PlanSource, Sweep};
use schemars::JsonSchema;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// What a job takes, byte by byte, before anything runs.
///
/// Says what is needed without a limit and within the limit, how the limit is kept and what that costs, where the bytes go at the
/// peak (the lines add up exactly), and the smallest limit that works. Reads no more of the data than it takes to know its shapes,
/// categories and classes.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  plimsoll plan examples/images.toml --memory-limit 64MiB
  plimsoll plan job.toml --sweep              limit against time, as table and curve
  plimsoll plan job.toml --sweep --svg curve.svg --html plan.html
  plimsoll plan job.toml --json | jq .smallest_limit")]
pub struct Options {
    #[command(flatten)]
    pub job: JobOptions,
    /// What other limits would cost, from the smallest that works to none.
    #[arg(long)]
    pub sweep: bool,
    /// How many limits.
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub points: usize,
    /// The curve as a picture.
    #[arg(long, value_name = "FILE", requires = "sweep")]
    pub svg: Option<PathBuf>,
    /// The plan as a page to look at: the arena over a step, the limit across the top.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl Options {
    /// The plan alone.
    pub fn of(job: JobOptions) -> Options {
        Options { job, sweep: false, points: 12, svg: None, html: None }
    }
}

/// `plimsoll plan --json`. All amounts of memory are in bytes.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PlanReport {
    /// The job.
    job: String,
    /// Learned numbers.
    parameters: u64,
    /// Samples per step.
    batch_size: usize,
    /// The memory limit; null for none.
    memory_limit: Option<u64>,
    /// Where the limit comes from.
    limit_source: String,
    /// What would be needed without a limit.
    unlimited: u64,
    /// What the process will hold at most: the sum of `parts`.
    planned: u64,
    /// What is left of the limit.
    room_left: Option<u64>,
    /// The smallest limit that works.
    smallest_limit: u64,
    /// What is done to keep the limit.
    kept: Kept,
    /// The op at which the step needs most.
    peak_op: String,
    /// Its place among the ops, counted from 1.
    peak_step: usize,
    /// How many ops a step has.
    n_steps: usize,
    /// Where the bytes go at the peak.
    parts: Vec<Part>,
    /// The largest pieces of the arena at the peak.
    largest: Vec<Piece>,
    /// What other limits would cost; only with `--sweep`.
    #[serde(skip_serializing_if = "Option::is_none")]
    sweep: Option<Vec<Point>>,
}

/// What is done to keep a limit.
#[derive(Debug, Serialize, JsonSchema)]
struct Kept {
    /// Slices in which a batch runs.
    slices: usize,
    /// Stretches of the step that run on all slices one after another; 1 where each slice runs through all of it.
    stretches: usize,
    /// Ops that run again in a step.
    ops_again: usize,
    /// Bytes written to the spill file in a step.
    written: u64,
    /// Bytes read from it.
    read: u64,
    /// Weights and optimizer state that live in the file.
    states_in_file: u64,
    /// Seconds of a step as estimated; null where nothing had to be chosen, so that nothing was measured.
    seconds: Option<f64>,
    /// Of which for keeping the limit.
    extra_seconds: Option<f64>,
    /// In words.
    text: String,
}

/// A part of what is held at the peak.
#[derive(Debug, Serialize, JsonSchema)]
struct Part {
    /// What for.
    what: String,
    /// How much.
    bytes: u64,
}

/// A piece of the arena.
#[derive(Debug, Serialize, JsonSchema)]
struct Piece {
    /// The layer that made it.
    layer: String,
    /// The op and the type.
    what: String,
    /// How much.
    bytes: u64,
}

/// What a limit costs.
#[derive(Debug, Serialize, JsonSchema)]
struct Point {
    /// The limit.
    memory_limit: u64,
    /// Seconds of a step.
    seconds: f64,
    /// More than without a limit, as a part.
    slower: f64,
    /// Whether the time falls steeply here and hardly behind it.
    knee: bool,
    /// What is done.
    text: String,
}

pub fn run(options: &Options, out: &Out) -> Outcome {
    show(Session::open(options.job.load()?)?, options, out)
}

/// Shows the plan of a job that is open.
pub fn show(mut session: Session, options: &Options, out: &Out) -> Outcome {
    let forecast = session.forecast()?;
    let points = match options.sweep {
        true => {
            let mut points = session.sweep(options.points.max(2))?;
            // The same steps under the same limits, but this process holds a forecast by now, which training will not.
            let grown = points.first().map_or(Bytes::ZERO, |p| p.limit.saturating_sub(forecast.smallest));
            points.iter_mut().for_each(|p| p.limit = p.limit.saturating_sub(grown));
            Some(points)
        }
        false => None,
    };
    let report = report(&session, &forecast, points.as_deref());
    let sweep = points.as_deref().map(|points| Sweep::of(&report.job, points));
    if let (Some(path), Some(sweep)) = (&options.svg, &sweep) {
        write(path, &plimsoll_report::sweep_svg(sweep))?;
        out.talk(format!("curve: {}", path.display()));
    }
    if let Some(path) = &options.html {
        write(path, &page(&session, &forecast, &report, sweep.as_ref())?)?;
        out.talk(format!("page: {}", path.display()));
    }
    match out.json {
        true => out.json_page(&report),
        false => out.data(words(&report, &session, &forecast, out).trim_end()),
    }
    Ok(0)
}

fn write(path: &Path, text: &str) -> Result<(), Diagnostic> {
    std::fs::write(path, text).map_err(|e| Diagnostic::new(Code::Disk, format!("{}: {e}", path.display())))
}

/// The picture of the plan as a page.
fn page(
    session: &Session,
    forecast: &Forecast,
    report: &PlanReport,
    sweep: Option<&Sweep>,
) -> Result<String, Diagnostic> {
    let mut picture = PlanSource::new(&session.job.name, &forecast.plan).picture();
    picture.limit = report.memory_limit;
    picture.kept = Some((&forecast.kept).into());
    let account = |(name, bytes): (&str, Bytes)| AccountLine { name: name.into(), held: bytes.0, peak: bytes.0 };
    let fixed = &forecast.fixed;
    picture.ledger = [
        ("state", forecast.states),
        ("arena", forecast.arena),
        ("gemm", fixed.library),
        ("runtime", fixed.runtime + forecast.plans),
        ("results", fixed.results),
        ("spill", forecast.spill),
        ("input", fixed.input),
        ("process", fixed.process + fixed.others),
    ]
    .map(account)
    .into();
    for state in &mut picture.states {
        state.role = match session.trainer.role_of(&state.name) {
            Some(Role::Weight) => "weight",
            Some(Role::Statistic) => "statistic",
            Some(Role::Moment) => "moment",
            Some(Role::Metric) => "metric",
            None => "",
        }
        .into();
    }
    plimsoll_report::html_of_plan(&picture, sweep).map_err(|e| Diagnostic::new(Code::Other, e.to_string()))
}

fn report(session: &Session, forecast: &Forecast, points: Option<&[SweepPoint]>) -> PlanReport {
    let picture = PlanSource::new(&session.job.name, &forecast.plan).picture();
    let explanation = plimsoll_plan::explain(&forecast.plan);
    let weight = |name: &str| session.trainer.role_of(name) == Some(Role::Weight);
    let states = || forecast.plan.state.iter().chain(forecast.plan.state.iter_file());
    let kept = &forecast.kept;
    let measured = kept.seconds > 0.0;
    let planned = forecast.planned();
    PlanReport {
        job: session.job.name.clone(),
        parameters: states().filter(|(n, ..)| weight(n)).map(|(_, _, ty)| ty.elements() as u64).sum(),
        batch_size: session.job.table.training.batch_size.value,
        memory_limit: forecast.limits.limit.map(|b| b.0),
        limit_source: forecast.limits.binding().map_or("no limit".into(), ToString::to_string),
        unlimited: forecast.unlimited.0,
        planned: planned.0,
        room_left: forecast.limits.limit.map(|limit| limit.saturating_sub(planned).0),
        smallest_limit: forecast.smallest.0,
        kept: Kept {
            slices: kept.slices,
            stretches: kept.stretches,
            ops_again: kept.ops_again,
            written: kept.written.0,
            read: kept.read.0,
            states_in_file: kept.states_in_file.0,
            seconds: measured.then_some(kept.seconds),
            extra_seconds: measured.then_some(kept.extra_seconds),
            text: kept.to_string(),
        },
        peak_op: explanation.op.clone(),
        peak_step: explanation.step + 1,
        n_steps: explanation.n_steps,
        parts: parts(session, forecast, &picture),
        largest: explanation
            .tenants
            .iter()
            .take(12)
            .map(|t| Piece { layer: t.layer.clone(), what: t.what.clone(), bytes: t.bytes })
            .collect(),
        sweep: points.map(curve),
    }
}

/// Where the bytes go at the peak: exactly the planned sum.
fn parts(session: &Session, forecast: &Forecast, picture: &PlanPicture) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut add = |what: &str, bytes: u64| {
        if bytes > 0 {
            parts.push(Part { what: what.into(), bytes });
        }
    };
    let of_role = |role: Role| -> u64 {
        let states = forecast.plan.state.iter().filter(|(name, ..)| session.trainer.role_of(name) == Some(role));
        states.map(|(_, _, ty)| ty.bytes() as u64).sum()
    };
    let roles = [
        (Role::Weight, "weights"),
        (Role::Moment, "optimizer state"),
        (Role::Statistic, "statistics"),
        (Role::Metric, "metrics"),
    ];
    let mut states = 0;
    for (role, what) in roles {
        states += of_role(role);
        add(what, of_role(role));
    }
    add("alignment of weights and state", forecast.states.0.saturating_sub(states));
    let kinds = [
        (BufferKind::Saved, "saved activations"),
        (BufferKind::Activation, "other activations"),
        (BufferKind::Gradient, "gradients"),
        (BufferKind::Update, "updates of weights"),
        (BufferKind::State, "state read from the file"),
        (BufferKind::Workspace, "workspace of ops"),
        (BufferKind::Input, "the batch"),
    ];
    let peak = picture.peak_step as u32;
    let mut live = 0;
    for (kind, what) in kinds {
        let alive = picture.buffers.iter().filter(|b| b.kind == kind && b.birth <= peak && peak <= b.death);
        let bytes: u64 = alive.map(|b| b.bytes).sum();
        live += bytes;
        add(what, bytes);
    }
    add("arena not in use at this op", forecast.arena.0.saturating_sub(live));
    add("input pipeline", forecast.fixed.input.0);
    add("matrix products (packing)", forecast.fixed.library.0);
    add("results and copies", forecast.fixed.results.0);
    add("spill file's buffers", forecast.spill.0);
    add("plans and page tables", forecast.plans.0);
    add("runtime: stacks, heap, kernel", forecast.fixed.runtime.0);
    add("the process: program and heap", forecast.fixed.process.0);
    add("others in this budget", forecast.fixed.others.0);
    parts
}

fn words(report: &PlanReport, session: &Session, forecast: &Forecast, out: &Out) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    let bold = |s: &str| out.paint("1", s);
    let optimizer = session.job.table.optimizer.kind.word();
    let _ = writeln!(
        text,
        "model     {}, {} parameters, batch {}, {optimizer}, f32",
        report.job,
        count(report.parameters),
        report.batch_size
    );
    let plain = plimsoll_plan::explain(&forecast.plain);
    let _ = writeln!(
        text,
        "without a limit it would need   {:>12} MiB   (peak at op {} of {}, {})",
        mib(report.unlimited),
        plain.step + 1,
        plain.n_steps,
        plain.op
    );
    match report.memory_limit {
        Some(limit) => {
            let with = format!("with {} MiB", mib(limit));
            let _ = writeln!(
                text,
                "{with:<25} {:<6}{:>12} MiB   room left {} MiB",
                out.paint("1;32", "FITS"),
                mib(report.planned),
                mib(report.room_left.unwrap_or(0))
            );
        }
        None => {
            let _ = writeln!(text, "no limit                        {:>12} MiB", mib(report.planned));
        }
    }
    let _ = writeln!(text, "limit     {}", report.limit_source);
    let _ = writeln!(text, "how       {}", how(forecast));
    if let Some(time) = report.kept.seconds {
        let extra = report.kept.extra_seconds.unwrap_or(0.0);
        let _ = writeln!(
            text,
            "predicted {} a step  ({} of it for the limit)   same numbers: {}",
            seconds(time),
            seconds(extra.max(0.0)),
            if forecast.kept.exact { "yes, bit for bit" } else { "up to rounding: the slices asked for are very fine" }
        );
    }
    let _ = writeln!(
        text,
        "\n{}",
        bold(&format!(
            "where the {} MiB go at the peak (op {} of {}, {})",
            mib(report.planned),
            report.peak_step,
            report.n_steps,
            report.peak_op
        ))
    );
    let whole = report.planned.max(1) as f64;
    for part in &report.parts {
        let share = part.bytes as f64 / whole;
        let bar = "#".repeat((share * 40.0).round() as usize);
        let _ = writeln!(text, "  {:<34} {:>16}  {:>5.1}%  {bar}", part.what, grouped(part.bytes), 100.0 * share);
    }
    let _ = writeln!(text, "  {:<34} {:>16}", "sum", grouped(report.planned));
    let _ = writeln!(text, "\nlargest pieces of the step there");
    // Scalars would only be noise.
    for piece in report.largest.iter().filter(|p| p.bytes >= 1024).take(6) {
        let _ = writeln!(text, "  {:<34} {:>16}  {}", piece.layer, grouped(piece.bytes), piece.what);
    }
    let _ = writeln!(
        text,
        "\nsmallest limit that works: {} MiB   (--memory-limit {})",
        mib(report.smallest_limit),
        kib_up(Bytes(report.smallest_limit))
    );
    match &report.sweep {
        Some(points) => text += &sweep_words(points, out),
        None => text += "plimsoll plan --sweep draws the curve of limit against time\n",
    }
    text
}

/// The three techniques, one on a line.
fn how(forecast: &Forecast) -> String {
    let kept = &forecast.kept;
    if kept.is_plain() {
        return "nothing has to be done".into();
    }
    let mut lines = Vec::new();
    if kept.slices > 1 {
        lines.push(match kept.stretches {
            1 => format!("batches run in {} slices, gradients added up", kept.slices),
            n => format!(
                "batches run in {} slices through {n} stretches of the step in turn, gradients added up",
                kept.slices
            ),
        });
    }
    if kept.ops_again > 0 {
        lines.push(format!("{} ops run again instead of keeping their results", kept.ops_again));
    }
    if kept.written.0 + kept.read.0 > 0 {
        lines.push(format!("{} written to a file and {} read in a step", kept.written, kept.read));
    }
    if kept.states_in_file.0 > 0 {
        lines.push(format!("{} of weights and optimizer state live in the file", kept.states_in_file));
    }
    if let Some(barrier) = &kept.barrier {
        lines.push(format!("({barrier} needs whole batches)"));
    }
    lines.join("\n          ")
}

/// The points with their cost; a knee is where the curve turns most.
fn curve(points: &[SweepPoint]) -> Vec<Point> {
    let fastest = points.iter().map(|p| p.kept.seconds).fold(f64::INFINITY, f64::min).max(1e-12);
    let mut out: Vec<Point> = points
        .iter()
        .map(|p| Point {
            memory_limit: p.limit.0,
            seconds: p.kept.seconds,
            slower: p.kept.seconds / fastest - 1.0,
            knee: false,
            text: p.kept.how(),
        })
        .collect();
    // Below the chord from one end to the other, in units of both axes: the farthest point is the knee.
    if let (Some(first), Some(last)) = (points.first(), points.last()) {
        let (x0, x1) = ((first.limit.0 as f64).ln(), (last.limit.0 as f64).ln());
        let (y0, y1) = (first.kept.seconds, last.kept.seconds);
        let depth = |p: &SweepPoint| {
            let x = ((p.limit.0 as f64).ln() - x0) / (x1 - x0).max(1e-12);
            let y = (p.kept.seconds - y1) / (y0 - y1).max(1e-12);
            1.0 - x - y
        };
        let best = (0..points.len()).max_by(|&a, &b| depth(&points[a]).total_cmp(&depth(&points[b])));
        if let Some(best) = best.filter(|&b| depth(&points[b]) > 0.1) {
            out[best].knee = true;
        }
    }
    out
}

fn sweep_words(points: &[Point], out: &Out) -> String {
    use std::fmt::Write as _;
    if points.len() < 2 {
        return "nothing has to be done to keep it, so a larger limit gains nothing: there is no curve to draw\n"
            .into();
    }
    let mut text = String::from("\n     limit MiB    s/step   slower   how\n");
    for point in points {
        let mark = if point.knee { "*" } else { " " };
        let _ = writeln!(
            text,
            "  {mark}{:>11} {:>9} {:>+7.0}%   {}",
            mib(point.memory_limit),
            seconds(point.seconds),
            100.0 * point.slower,
            point.text
        );
    }
    if points.iter().any(|p| p.knee) {
        text += "  * the knee: less memory costs much from here on, more gains little\n";
    }
    text + "\n" + &braille(points, out)
}

/// The curve in braille dots: 2 x 4 in a character.
fn braille(points: &[Point], out: &Out) -> String {
    const WIDTH: usize = 60;
    const HEIGHT: usize = 10;
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return String::new() };
    let most = points.iter().map(|p| p.seconds).fold(0.0, f64::max);
    let least = points.iter().map(|p| p.seconds).fold(f64::INFINITY, f64::min);
    let (x0, x1) = ((first.memory_limit as f64).ln(), (last.memory_limit as f64).ln());
    let across = |p: &Point| ((p.memory_limit as f64).ln() - x0) / (x1 - x0).max(1e-12) * (2 * WIDTH - 1) as f64;
    let up = |s: f64| (1.0 - (s - least) / (most - least).max(1e-12)) * (4 * HEIGHT - 1) as f64;
    let mut cells = vec![[0u8; WIDTH]; HEIGHT];
    let mut dot = |x: usize, y: usize| {
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        cells[(y / 4).min(HEIGHT - 1)][(x / 2).min(WIDTH - 1)] |= BITS[y % 4][x % 2];
    };
    for pair in points.windows(2) {
        let (xa, xb) = (across(&pair[0]), across(&pair[1]));
        for x in xa.round() as usize..=xb.round() as usize {
            let part = if xb > xa { ((x as f64 - xa) / (xb - xa)).clamp(0.0, 1.0) } else { 0.0 };
            dot(x, up(pair[0].seconds + part * (pair[1].seconds - pair[0].seconds)).round() as usize);
        }
    }
    let mut text = String::new();
    for (i, row) in cells.iter().enumerate() {
        let label = match i {
            0 => seconds(most),
            i if i + 1 == HEIGHT => seconds(least),
            _ => String::new(),
        };
        let dots: String = row.iter().map(|&b| char::from_u32(0x2800 + b as u32).unwrap_or(' ')).collect();
        text += &format!("{label:>10} │{}\n", out.paint("36", dots.trim_end_matches('\u{2800}')));
    }
    text += &format!("{:>10} └{}\n", "", "─".repeat(WIDTH));
    let (a, b) = (format!("{} MiB", mib(first.memory_limit)), format!("{} MiB", mib(last.memory_limit)));
    text + &format!("{:>12}{a}{:>width$}\n", "", b, width = WIDTH.saturating_sub(a.len()))
}
