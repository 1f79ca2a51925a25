//! A run in the terminal while it goes on: curves, memory against the line, where time goes, what happened.
//!
//! It is a process of its own that follows the run directory's log. The terminal is given back as it was, however this ends.

mod draw;
mod map;
mod model;

use crate::ReportError;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use model::Model;
use plimsoll_run::{PLAN, PlanPicture, RunReader, find_runs, read_plan};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How often the log is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// What is on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct View {
    paused: bool,
    map: bool,
    help: bool,
}

/// Shows a run until `q` is pressed or a signal asks to end. Of a directory of runs, the one that changed last.
///
/// # Errors
/// When there is no run, its log cannot be read, or standard output is not a terminal.
pub fn run(path: impl AsRef<Path>) -> Result<(), ReportError> {
    let directory = newest(path)?;
    if !io::stdout().is_terminal() {
        let source = io::Error::other("standard output is not a terminal; `plimsoll report` writes a page instead");
        return Err(ReportError::Io { what: "watching", source });
    }
    let asked_to_end = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, asked_to_end.clone()).map_err(ReportError::io("watching for signals"))?;
    }
    let screen = Screen::take().map_err(ReportError::io("taking the terminal"))?;
    let result = follow(&directory, &asked_to_end);
    drop(screen);
    result
}

/// Of a directory of runs, the one that changed last; of a run directory, itself.
///
/// # Errors
/// When there is no run.
pub fn newest(path: impl AsRef<Path>) -> Result<PathBuf, ReportError> {
    let runs = find_runs(path)?;
    let changed = |run: &PathBuf| std::fs::metadata(run.join(plimsoll_run::LOG)).and_then(|m| m.modified()).ok();
    Ok(runs.into_iter().max_by_key(changed).expect("there is a run"))
}

fn follow(directory: &Path, asked_to_end: &AtomicBool) -> Result<(), ReportError> {
    let mut terminal = Terminal::new(CrosstermBackend::new(io::stdout())).map_err(ReportError::io("the terminal"))?;
    let mut reader = RunReader::open(directory);
    let mut model = Model::new(directory);
    let mut plan: Option<PlanPicture> = None;
    let mut view = View::default();
    let mut looked: Option<Instant> = None;
    while !asked_to_end.load(Relaxed) {
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            let mut begun = plan.is_none();
            reader.each(|line| {
                begun |= matches!(line, plimsoll_run::Line::Run(_));
                model.take(line);
            })?;
            if begun {
                // It may not be there yet; then the map says so.
                plan = read_plan(directory.join(PLAN)).ok();
            }
            looked = Some(Instant::now());
        }
        if !view.paused {
            terminal
                .draw(|frame| draw::draw(frame, &model, plan.as_ref(), view))
                .map_err(ReportError::io("the terminal"))?;
        }
        if event::poll(LOOK / 2).map_err(ReportError::io("the keyboard"))? {
            match event::read().map_err(ReportError::io("the keyboard"))? {
                Event::Key(key) if key.kind != KeyEventKind::Release => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                    KeyCode::Char('p') => {
                        view.paused = !view.paused;
                        let frame = |frame: &mut ratatui::Frame<'_>| draw::draw(frame, &model, plan.as_ref(), view);
                        terminal.draw(frame).map_err(ReportError::io("the terminal"))?;
                    }
                    KeyCode::Char('m') => view.map = !view.map,
                    KeyCode::Char('?' | 'h') => view.help = !view.help,
                    _ => (),
                },
                _ => (),
            }
        }
    }
    Ok(())
}

type PanicHook = dyn Fn(&std::panic::PanicHookInfo<'_>) + Send + Sync;

/// The terminal, taken; given back when this is dropped, and before a panic says what happened.
struct Screen {
    hook: Option<Arc<PanicHook>>,
}

impl Screen {
    fn take() -> io::Result<Screen> {
        let before: Arc<PanicHook> = Arc::from(std::panic::take_hook());
        let then = before.clone();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            then(info);
        }));
        let screen = Screen { hook: Some(before) };
        terminal::enable_raw_mode()?;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
        if let Some(hook) = self.hook.take().filter(|_| !std::thread::panicking()) {
            std::panic::set_hook(Box::new(move |info| hook(info)));
        }
    }
}

fn give_back() {
    // There is nobody to tell when this fails.
    let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
    let _ = terminal::disable_raw_mode();
}
