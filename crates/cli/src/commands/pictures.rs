//! `plimsoll report`, `watch` and `serve`: readers of run directories.

use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::Code;
use crate::out::Out;
use clap::Args;
use plimsoll_report::ReportError;
use plimsoll_report::serve::Server;
use plimsoll_run::{Line, RunReader};
use std::path::{Path, PathBuf};

/// One self-contained page about a run: the memory picture, the peak, the curves, plan against measured.
///
/// The page needs no network and no server: open it in any browser.
#[derive(Args)]
#[command(after_help = "Examples:\n  plimsoll report runs/tabular\n  plimsoll report runs/tabular -o page.html")]
pub struct Report {
    /// The run directory, or a plan.json.
    run: PathBuf,
    /// The file to write; report.html in the run directory if not given.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// `plimsoll report --json`.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct ReportWritten {
    /// The page.
    file: String,
    /// Its size.
    bytes: u64,
}

/// Follow a run in the terminal. Keys: q quits, p pauses, m shows the memory map.
///
/// With --json, the lines of its log as they come, until training is over.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  plimsoll watch runs/tabular\n  plimsoll watch runs           the run that changed last"
)]
pub struct Watch {
    /// The run directory, or a directory of runs.
    run: PathBuf,
}

/// Follow runs in a browser, on this machine only; the address has a token.
#[derive(Args)]
#[command(after_help = "Examples:\n  plimsoll serve runs\n  plimsoll serve runs/a runs/b --port 8000")]
pub struct Serve {
    /// Run directories, or directories of runs.
    #[arg(required = true)]
    runs: Vec<PathBuf>,
    /// The port; any that is free if not given.
    #[arg(long, default_value_t = 0)]
    port: u16,
}

fn bad(error: ReportError) -> Diagnostic {
    match error {
        ReportError::Run(e) => Diagnostic::new(Code::RunUnusable, e.to_string())
            .note("do", "give the directory of a run: plimsoll train JOB makes it beside the job file"),
        other => Diagnostic::new(Code::Other, other.to_string()),
    }
}

/// Writes the page of a run beside it.
///
/// # Errors
/// When the run cannot be read or the page not written.
pub fn write_page(run: &Path, output: &Path) -> Result<u64, Diagnostic> {
    let page = plimsoll_report::html(run).map_err(bad)?;
    std::fs::write(output, &page).map_err(|e| Diagnostic::new(Code::Disk, format!("{}: {e}", output.display())))?;
    Ok(page.len() as u64)
}

pub fn report(options: &Report, out: &Out) -> Outcome {
    let beside =
        if options.run.is_dir() { options.run.join("report.html") } else { options.run.with_extension("html") };
    let output = options.output.clone().unwrap_or(beside);
    let bytes = write_page(&options.run, &output)?;
    match out.json {
        true => out.json_line(&ReportWritten { file: output.display().to_string(), bytes }),
        false => out.data(output.display()),
    }
    Ok(0)
}

pub fn watch(options: &Watch, out: &Out) -> Outcome {
    match out.json {
        true => follow(&options.run, out)?,
        false => plimsoll_report::watch::run(&options.run).map_err(bad)?,
    }
    Ok(0)
}

/// Gives the lines of a log as they come, until training is over.
fn follow(path: &Path, out: &Out) -> Result<(), Diagnostic> {
    let mut reader = RunReader::open(plimsoll_report::watch::newest(path).map_err(bad)?);
    let mut ended = false;
    while !ended {
        let read = reader.each(|line| {
            ended = matches!(line, Line::End(_));
            out.json_line(&line);
        });
        read.map_err(|e| bad(e.into()))?;
        if !ended {
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    }
    Ok(())
}

/// `plimsoll serve --json`, as soon as the page can be asked for.
#[derive(serde::Serialize, schemars::JsonSchema)]
pub struct Address {
    /// Where the page is, with its token.
    url: String,
}

pub fn serve(options: &Serve, out: &Out) -> Outcome {
    let server = Server::bind(&options.runs, options.port).map_err(bad)?;
    match out.json {
        true => out.json_line(&Address { url: server.url() }),
        false => out.data(server.url()),
    }
    server.run().map_err(bad)?;
    Ok(0)
}
