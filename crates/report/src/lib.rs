//! Pictures of a plan and of a run, for people who would rather look than read.
//!
//! - [`html()`] makes one self-contained page from a run directory or a `plan.json`: the arena over one step with the limit as a
//!   load line across the top, what is alive at the peak, what was done to keep the limit and what it costs, curves, and where
//!   time was lost. The same picture comes from a plan, before, and from a run, after.
//! - [`sweep_svg`] draws what other limits would cost.
//! - [`watch::run`] shows a run in the terminal while it goes on, [`serve::run`] the page in a browser, live.
//!
//! All of them are readers of the run directory ([`plimsoll_run`]); nothing here runs inside a trainer.
//!
//! ```
//! use plimsoll_run::{EventKind, RunWriter};
//! # let directory = std::env::temp_dir().join(format!("plimsoll-report-doc-{}", std::process::id()));
//! RunWriter::create(&directory)?.event(EventKind::Warning, "nothing ran yet")?;
//! let page = plimsoll_report::html(&directory)?;
//! assert!(page.starts_with("<!doctype html>") && !page.contains("src=\"http"));
//! # std::fs::remove_dir_all(directory)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod compact;
mod curves;
mod html;
pub mod serve;
mod sweep;
mod thin;
pub mod watch;

pub use html::{html, html_of_plan};
pub use sweep::sweep_svg;

use plimsoll_run::RunError;

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// The run directory cannot be read.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The terminal or the network refuses.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
}

impl ReportError {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> ReportError {
        move |source| ReportError::Io { what, source }
    }
}

/// Bytes as people read them: `187.4 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Seconds as people read them: `0.412 s`, `12.3 ms`, `2 min 14 s`.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => "-".into(),
        s if s >= 3600.0 => format!("{} h {} min", s as u64 / 3600, s as u64 % 3600 / 60),
        s if s >= 120.0 => format!("{} min {} s", s as u64 / 60, s as u64 % 60),
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.1} ms", 1e3 * s),
        s => format!("{:.0} µs", 1e6 * s),
    }
}
