//! What training shows: a bar and a memory gauge on a terminal, a line per epoch elsewhere, JSON lines on request.

use crate::out::Out;
use crate::text;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll::callbacks::{Callback, Logs, Training};
use plimsoll::{Bytes, Error, measure};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// A line of `plimsoll train --json`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum TrainLine {
    /// Training begins.
    Begin {
        /// The job.
        job: String,
        /// The run directory.
        run: String,
        /// Passes over the data.
        epochs: usize,
        /// Steps of an epoch; 0 where only the end tells.
        steps_per_epoch: usize,
        /// Steps that an earlier run did.
        steps_before: u64,
        /// The memory limit in bytes.
        memory_limit: Option<u64>,
        /// What is reserved before the first step; the input pipeline comes on top.
        planned: u64,
        /// What is done to keep the limit.
        kept: Option<String>,
    },
    /// Steps were done; only with `--log-every`.
    Step {
        /// Counted from 1.
        epoch: usize,
        /// Counted from 1 in the epoch.
        step: usize,
        /// The mean loss of the epoch so far.
        loss: f64,
        /// Seconds since the epoch began.
        seconds: f64,
    },
    /// An epoch is done.
    Epoch {
        /// Counted from 1.
        epoch: usize,
        /// Of how many.
        epochs: usize,
        /// Steps of the epoch.
        steps: usize,
        /// Loss and metrics; `val_` before those on validation data. Null where a figure is no number.
        figures: BTreeMap<String, Option<f64>>,
        /// Seconds of the epoch, validation included.
        seconds: f64,
        /// Resident memory now, as the kernel counts it.
        resident: u64,
        /// Resident memory at its highest.
        peak: u64,
    },
    /// Training is over.
    End {
        /// `done`, `stopped` (by a callback) or `interrupted` (by a signal).
        reason: String,
        /// Training steps done in all.
        steps: u64,
        /// The last epoch's figures.
        figures: BTreeMap<String, Option<f64>>,
        /// The run directory.
        run: String,
        /// The weights.
        weights: String,
        /// Resident memory at its highest.
        peak: u64,
    },
}

/// Finite figures by name.
pub fn figures<'a>(logs: impl IntoIterator<Item = (&'a str, f64)>) -> BTreeMap<String, Option<f64>> {
    logs.into_iter().map(|(name, value)| (name.to_owned(), value.is_finite().then_some(value))).collect()
}

/// How long a picture of the bar stays. A redraw takes some 300 microseconds with the kernel's figures and the terminal's work, so more
/// often would cost small steps more than it shows.
const REDRAW: Duration = Duration::from_millis(250);

/// A callback that shows progress.
pub struct Progress {
    out: Out,
    log_every: Option<Duration>,
    limit: Option<Bytes>,
    planned: Bytes,
    bars: Option<Bars>,
    epochs: usize,
    epoch: usize,
    steps: usize,
    done: usize,
    began: Instant,
    drawn: Instant,
    logged: Instant,
    mean_loss: f64,
}

struct Bars {
    _quiet: QuietKeys,
    all: MultiProgress,
    steps: ProgressBar,
    gauge: ProgressBar,
}

/// While it lives, the terminal does not write `^C` into the lines that are drawn.
struct QuietKeys(Option<libc::termios>);

impl QuietKeys {
    fn new() -> QuietKeys {
        // SAFETY: the structure is plain data and valid for the calls.
        unsafe {
            let mut settings: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(libc::STDERR_FILENO, &mut settings) != 0 {
                return QuietKeys(None);
            }
            let before = settings;
            settings.c_lflag &= !libc::ECHOCTL;
            libc::tcsetattr(libc::STDERR_FILENO, libc::TCSANOW, &settings);
            QuietKeys(Some(before))
        }
    }
}

impl Drop for QuietKeys {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: gives back the settings that were found.
            unsafe { libc::tcsetattr(libc::STDERR_FILENO, libc::TCSANOW, before) };
        }
    }
}

impl Progress {
    /// As the user wants it; the gauge is drawn against the limit.
    pub fn new(out: &Out, log_every: Option<Duration>) -> Progress {
        let now = Instant::now();
        Progress {
            out: *out,
            log_every,
            limit: None,
            planned: Bytes::ZERO,
            bars: None,
            epochs: 0,
            epoch: 0,
            steps: 0,
            done: 0,
            began: now,
            drawn: now,
            logged: now,
            mean_loss: 0.0,
        }
    }

    fn live(&self) -> bool {
        self.out.terminal && !self.out.json && !self.out.quiet
    }

    fn open_bars(&mut self) {
        // Drawn when steps end, at most so often; no thread of its own.
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(5));
        let steps = all.add(ProgressBar::new(self.steps as u64));
        let known = "{prefix}  {bar:20.cyan/dim} {pos}/{len}  {msg}";
        let template = if self.steps > 0 { known } else { "{prefix}  {pos} steps  {msg}" };
        let style = ProgressStyle::with_template(template).expect("a fixed template").progress_chars("━╸━");
        steps.set_style(style);
        let gauge = all.add(ProgressBar::new(0));
        gauge.set_style(ProgressStyle::with_template("{msg}").expect("a fixed template"));
        self.bars = Some(Bars { _quiet: QuietKeys::new(), all, steps, gauge });
    }

    fn draw(&mut self) {
        let Some(bars) = &self.bars else { return };
        let spent = self.began.elapsed().as_secs_f64();
        let each = spent / self.done.max(1) as f64;
        let mut message = format!("{}/step", text::seconds(each));
        if self.steps > self.done {
            message += &format!("  ETA {}", text::clock(each * (self.steps - self.done) as f64));
        }
        bars.steps.set_prefix(format!("epoch {}/{}", self.epoch + 1, self.epochs));
        bars.steps.set_position(self.done as u64);
        bars.steps.set_message(format!("{message}  loss {:.4}", self.mean_loss));
        bars.gauge.set_message(self.gauge());
        self.drawn = Instant::now();
    }

    /// Memory in use against the limit: `memory ▕███████▉  ┃▏ 498.1 / 512.0 MiB`.
    fn gauge(&self) -> String {
        let usage = measure::usage().unwrap_or_default();
        let whole = self.limit.unwrap_or(self.planned).max(Bytes(1));
        gauge(usage.resident, usage.peak, self.planned, whole, self.limit.is_some())
    }

    fn line(&self, logs: &Logs) -> String {
        let usage = measure::usage().unwrap_or_default();
        let seconds = self.began.elapsed().as_secs_f64() / self.done.max(1) as f64;
        let mut line = format!("epoch={}/{} step={}", self.epoch + 1, self.epochs, self.done);
        for (name, value) in logs.iter() {
            line += &format!(" {name}={}", short(value));
        }
        line += &format!(" s_per_step={} peak_mib={:.1}", short(seconds), usage.peak.0 as f64 / 1048576.0);
        if let Some(limit) = self.limit {
            line += &format!(" limit_mib={:.1}", limit.0 as f64 / 1048576.0);
        }
        line
    }
}

/// A figure with four digits that count.
pub fn short(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        a if !(1e-4..1e6).contains(&a) => format!("{value:.3e}"),
        a => format!("{value:.*}", (3 - a.log10().floor() as i32).clamp(0, 6) as usize),
    }
}

/// The gauge, with eighths of a cell.
fn gauge(now: Bytes, peak: Bytes, planned: Bytes, whole: Bytes, limited: bool) -> String {
    const CELLS: usize = 24;
    let part = (now.0 as f64 / whole.0 as f64).clamp(0.0, 1.0);
    let eighths = (part * (8 * CELLS) as f64).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push([' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'][eighths % 8]);
    }
    let width = bar.chars().count();
    bar += &" ".repeat(CELLS - width.min(CELLS));
    let of = if limited { format!(" / {}", text::mib(whole.0)) } else { String::new() };
    format!("memory ▕{bar}┃ {}{of} MiB  peak {}  planned {}", text::mib(now.0), text::mib(peak.0), text::mib(planned.0))
}

impl Callback for Progress {
    fn on_train_begin(&mut self, training: &mut dyn Training, epochs: usize, steps: usize) -> Result<(), Error> {
        (self.epochs, self.steps) = (epochs, steps);
        if let Some(trainer) = training.trainer() {
            let ledger = trainer.ledger();
            (self.limit, self.planned) = (ledger.limit, ledger.held);
        }
        Ok(())
    }

    fn on_epoch_begin(&mut self, _: &mut dyn Training, epoch: usize) -> Result<(), Error> {
        self.epoch = epoch;
        (self.done, self.mean_loss) = (0, 0.0);
        (self.began, self.logged) = (Instant::now(), Instant::now());
        if self.live() {
            if self.bars.is_none() {
                self.open_bars();
            }
            self.draw();
        }
        Ok(())
    }

    fn on_step_end(&mut self, _: &mut dyn Training, step: usize, loss: f64) -> Result<ControlFlow<()>, Error> {
        self.done = step + 1;
        self.mean_loss += (loss - self.mean_loss) / (step + 1) as f64;
        if self.bars.is_some() {
            if self.drawn.elapsed() > REDRAW {
                self.draw();
            }
        } else if self.log_every.is_some_and(|every| self.logged.elapsed() >= every) {
            self.logged = Instant::now();
            let (epoch, seconds) = (self.epoch + 1, self.began.elapsed().as_secs_f64());
            if self.out.json {
                self.out.json_line(&TrainLine::Step { epoch, step: self.done, loss: self.mean_loss, seconds });
            } else {
                let of = if self.steps > 0 { format!("/{}", self.steps) } else { String::new() };
                let (epochs, loss) = (self.epochs, short(self.mean_loss));
                self.out.talk(format!("epoch={epoch}/{epochs} step={}{of} loss={loss}", self.done));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn on_epoch_end(&mut self, _: &mut dyn Training, epoch: usize, logs: &Logs) -> Result<ControlFlow<()>, Error> {
        if self.steps == 0 {
            self.steps = self.done;
            if let Some(bars) = self.bars.take() {
                let _ = bars.all.clear();
            }
            if self.live() {
                self.open_bars();
            }
        }
        if self.out.json {
            let usage = measure::usage().unwrap_or_default();
            self.out.json_line(&TrainLine::Epoch {
                epoch: epoch + 1,
                epochs: self.epochs,
                steps: self.done,
                figures: figures(logs.iter()),
                seconds: self.began.elapsed().as_secs_f64(),
                resident: usage.resident.0,
                peak: usage.peak.0,
            });
        } else if let Some(bars) = &self.bars {
            let mut line = format!("epoch {}/{}", epoch + 1, self.epochs);
            for (name, value) in logs.iter() {
                line += &format!("  {name} {}", short(value));
            }
            line += &format!("  {}", text::seconds(self.began.elapsed().as_secs_f64()));
            let _ = bars.all.println(line);
        } else {
            self.out.talk(self.line(logs));
        }
        Ok(ControlFlow::Continue(()))
    }

    fn on_train_end(&mut self, _: &mut dyn Training) -> Result<(), Error> {
        self.close();
        Ok(())
    }
}

impl Progress {
    fn close(&mut self) {
        if let Some(bars) = self.bars.take() {
            bars.steps.finish_and_clear();
            bars.gauge.finish_and_clear();
            let _ = bars.all.clear();
        }
    }
}

/// An error leaves the screen clean too.
impl Drop for Progress {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(short(0.27134), "0.2713");
        assert_eq!(short(12.3456), "12.35");
        assert_eq!(short(1234567.0), "1.235e6");
        assert_eq!(short(0.0), "0");
        assert_eq!(short(f64::NAN), "NaN");
    }

    #[test]
    fn the_gauge_is_as_wide_as_its_scale() {
        for part in [0, 1, 255, 256, 300, 511, 512, 600] {
            let text = gauge(Bytes::mib(part), Bytes::mib(part), Bytes::mib(500), Bytes::mib(512), true);
            let bar = text.split('▕').nth(1).unwrap().split('┃').next().unwrap();
            assert_eq!(bar.chars().count(), 24, "{text}");
        }
    }
}
