//! The sweep as a picture: what a step costs under each limit.

use crate::curves::{nice_ticks, scaled};
use crate::html::escaped;
use crate::{size, time};
use plimsoll_run::{Sweep, SweepLine};
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 64.0;
/// Room for the last label, since labels stand to the right of a falling curve.
const RIGHT: f64 = 104.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = 52.0;

/// The curve of limit against predicted step time, from the smallest limit to no limit, as an SVG of its own. Where the way to
/// keep the limit changes, a mark says how.
///
/// Its colours follow the reader's: dark on light or light on dark.
pub fn sweep_svg(sweep: &Sweep) -> String {
    let mut out = String::new();
    let points = &sweep.points;
    let _ = write!(
        out,
        concat!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="sweep" viewBox="0 0 {} {}" role="img" aria-label="{}" "#,
            r#"font-family="ui-sans-serif,system-ui,sans-serif" font-size="12">"#,
            "<style>.sweep{{--ink:#1c2733;--soft:#5a6b7b;--grid:#d9e0e6;--mark:#0b62a4;--line:#b3261e}}",
            "@media(prefers-color-scheme:dark){{.sweep{{--ink:#e6edf3;--soft:#9fb0bf;--grid:#2b3844;--mark:#6cb8f0;--line:#ff8a80}}}}",
            ":root[data-theme=light] .sweep{{--ink:#1c2733;--soft:#5a6b7b;--grid:#d9e0e6;--mark:#0b62a4;--line:#b3261e}}",
            ":root[data-theme=dark] .sweep{{--ink:#e6edf3;--soft:#9fb0bf;--grid:#2b3844;--mark:#6cb8f0;--line:#ff8a80}}</style>"
        ),
        WIDTH,
        HEIGHT,
        escaped(&summary(sweep)),
    );
    if points.len() < 2 {
        let _ =
            write!(out, r#"<text x="{LEFT}" y="{TOP}" fill="var(--ink)">{}</text></svg>"#, escaped(&summary(sweep)));
        return out;
    }
    let limits: Vec<f64> = points.iter().map(|p| p.limit as f64 / f64::from(1 << 20)).collect();
    let fastest = points.last().map_or(0.0, |p| p.kept.seconds - p.kept.extra_seconds).max(1e-12);
    let ratios: Vec<f64> = points.iter().map(|p| p.kept.seconds / fastest).collect();
    let (low, high) = (limits[0], *limits.last().expect("two points"));
    let top = ratios.iter().copied().fold(1.0f64, f64::max).max(1.05);
    let x = |mib: f64| scaled(mib.ln(), (low.ln(), high.ln().max(low.ln() + 1e-9)), (LEFT, WIDTH - RIGHT));
    let y = |ratio: f64| scaled(ratio, (1.0, top), (HEIGHT - BOTTOM, TOP));

    for tick in nice_ticks(1.0, top, 5) {
        let _ = write!(
            out,
            concat!(
                r#"<line x1="{l}" x2="{r}" y1="{y:.1}" y2="{y:.1}" stroke="var(--grid)"/>"#,
                r#"<text x="{t}" y="{b:.1}" text-anchor="end" fill="var(--soft)">{label}</text>"#
            ),
            l = LEFT,
            r = WIDTH - RIGHT,
            y = y(tick),
            t = LEFT - 8.0,
            b = y(tick) + 4.0,
            label = if tick == 1.0 { "fastest".to_owned() } else { format!("+{:.0} %", 100.0 * (tick - 1.0)) },
        );
    }
    for i in 0..5 {
        let mib = low * (high / low).powf(f64::from(i) / 4.0);
        let _ = write!(
            out,
            r#"<text x="{:.1}" y="{:.1}" text-anchor="{}" fill="var(--soft)">{}</text>"#,
            x(mib),
            HEIGHT - BOTTOM + 20.0,
            match i {
                0 => "start",
                4 => "end",
                _ => "middle",
            },
            size((mib * f64::from(1 << 20)) as u64),
        );
    }
    let _ = write!(
        out,
        concat!(
            r#"<text x="{:.1}" y="{:.1}" text-anchor="middle" fill="var(--soft)">memory limit of the process</text>"#,
            r#"<text x="{}" y="18" fill="var(--ink)" font-weight="600">Time of a step under each limit, predicted</text>"#
        ),
        (LEFT + WIDTH - RIGHT) / 2.0,
        HEIGHT - 10.0,
        LEFT,
    );
    let path: Vec<String> = limits.iter().zip(&ratios).map(|(&l, &r)| format!("{:.1},{:.1}", x(l), y(r))).collect();
    let _ = write!(
        out,
        r#"<polyline points="{}" fill="none" stroke="var(--mark)" stroke-width="2.5" stroke-linejoin="round"/>"#,
        path.join(" ")
    );
    let mut before = "";
    for (i, point) in points.iter().enumerate() {
        let way = way(point);
        // The shape says the same as the label below the pointer: filled where the way changes.
        let fill = if way == before { "var(--mark)" } else { "var(--line)" };
        let _ = write!(
            out,
            r#"<circle cx="{:.1}" cy="{:.1}" r="{}" fill="{fill}"><title>{}: {}, {}</title></circle>"#,
            x(limits[i]),
            y(ratios[i]),
            if way == before { 3.5 } else { 5.0 },
            size(point.limit),
            time(point.kept.seconds),
            escaped(&point.kept.text),
        );
        if way != before {
            let _ = write!(
                out,
                r#"<text x="{:.1}" y="{:.1}" fill="var(--ink)">{way}</text>"#,
                x(limits[i]) + 9.0,
                y(ratios[i]) - 6.0,
            );
        }
        before = way;
    }
    out += "</svg>";
    out
}

/// How a limit is kept, in a word or two.
fn way(point: &SweepLine) -> &'static str {
    let kept = &point.kept;
    match (kept.slices > 1, kept.ops_again > 0, kept.written > 0 || kept.read > 0) {
        (false, false, false) => "nothing to do",
        (true, false, false) => "slices",
        (false, true, false) => "recompute",
        (false, false, true) => "spill",
        (true, true, false) => "slices + recompute",
        (true, false, true) => "slices + spill",
        (false, true, true) => "recompute + spill",
        (true, true, true) => "slices + recompute + spill",
    }
}

fn summary(sweep: &Sweep) -> String {
    match (sweep.points.first(), sweep.points.last()) {
        (Some(first), Some(last)) if sweep.points.len() > 1 => format!(
            "the smallest limit that works is {} with {} a step; from {} on nothing has to be done and a step takes {}",
            size(first.limit),
            time(first.kept.seconds),
            size(last.limit),
            time(last.kept.seconds)
        ),
        _ => "this step needs the same memory under every limit: there is no curve".into(),
    }
}
