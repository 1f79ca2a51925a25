//! Progress on the terminal: a bar with figures and memory while an epoch runs, one plain line per epoch otherwise.

use crate::callbacks::{Callback, Logs, Training};
use crate::error::Error;
use plimsoll_budget::{Bytes, measure};
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// Shows progress on standard error.
///
/// On a terminal one line is redrawn about ten times a second; elsewhere (a file, a pipe) every epoch is one line without
/// control characters.
pub struct Progress {
    live: bool,
    epochs: usize,
    steps: usize,
    epoch: usize,
    started: Instant,
    drawn: Instant,
    mean_loss: f64,
}

impl Default for Progress {
    fn default() -> Progress {
        Progress::new()
    }
}

impl Progress {
    /// Live on a terminal, plain elsewhere.
    pub fn new() -> Progress {
        let now = Instant::now();
        let live = std::io::stderr().is_terminal();
        Progress { live, epochs: 0, steps: 0, epoch: 0, started: now, drawn: now, mean_loss: 0.0 }
    }

    fn draw(&mut self, done: usize) {
        const WIDTH: usize = 24;
        // How many steps there are may not be known before the end of the first epoch.
        let filled = (WIDTH * done).checked_div(self.steps).map_or(0, |filled| WIDTH.min(filled));
        let bar: String = (0..WIDTH).map(|i| if i < filled { '━' } else { '─' }).collect();
        let spent = self.started.elapsed();
        let left = spent.mul_f64(self.steps.saturating_sub(done) as f64 / done.max(1) as f64);
        eprint!(
            "\r\x1b[Kepoch {}/{}  {bar} {done}/{}  {}/step  {} left  loss {:.4}  memory {}",
            self.epoch + 1,
            self.epochs,
            self.steps,
            short(spent / done.max(1) as u32),
            clock(left),
            self.mean_loss,
            memory().0
        );
        let _ = std::io::stderr().flush();
        self.drawn = Instant::now();
    }
}

impl Callback for Progress {
    fn on_train_begin(&mut self, _: &mut dyn Training, epochs: usize, steps: usize) -> Result<(), Error> {
        (self.epochs, self.steps) = (epochs, steps);
        Ok(())
    }

    fn on_epoch_begin(&mut self, _: &mut dyn Training, epoch: usize) -> Result<(), Error> {
        self.epoch = epoch;
        self.started = Instant::now();
        self.mean_loss = 0.0;
        Ok(())
    }

    fn on_step_end(&mut self, _: &mut dyn Training, step: usize, loss: f64) -> Result<ControlFlow<()>, Error> {
        self.mean_loss += (loss - self.mean_loss) / (step + 1) as f64;
        self.steps = if self.epoch > 0 { self.steps.max(step + 1) } else { self.steps };
        if self.live && self.drawn.elapsed() > Duration::from_millis(100) {
            self.draw(step + 1);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn on_epoch_end(
        &mut self,
        training: &mut dyn Training,
        epoch: usize,
        logs: &Logs,
    ) -> Result<ControlFlow<()>, Error> {
        let start = if self.live { "\r\x1b[K" } else { "" };
        let mut line = format!("{start}epoch {}/{}", epoch + 1, self.epochs);
        line += &format!("  {}/step", short(self.started.elapsed() / self.steps.max(1) as u32));
        for (name, value) in logs.iter() {
            line += &format!("  {name} {value:.4}");
        }
        let (now, peak) = memory();
        line += &format!("  memory {now} (peak {peak}, engine {})", Bytes(training.engine_bytes()));
        eprintln!("{line}");
        Ok(ControlFlow::Continue(()))
    }
}

/// Resident memory of this process now and at its highest, as the kernel counts it.
fn memory() -> (Bytes, Bytes) {
    measure::usage().map_or((Bytes(0), Bytes(0)), |u| (u.resident, u.peak))
}

/// A short time with three digits or so: `412 ms`, `8.31 s`.
fn short(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    match us {
        us if us < 1e3 => format!("{us:.0} us"),
        us if us < 1e5 => format!("{:.2} ms", us / 1e3),
        us if us < 1e6 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

/// Minutes and seconds: `2:07`.
fn clock(time: Duration) -> String {
    let s = time.as_secs();
    format!("{}:{:02}", s / 60, s % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_short() {
        assert_eq!(short(Duration::from_micros(412)), "412 us");
        assert_eq!(short(Duration::from_micros(8_310)), "8.31 ms");
        assert_eq!(short(Duration::from_millis(412)), "412 ms");
        assert_eq!(short(Duration::from_millis(8_310)), "8.31 s");
        assert_eq!(clock(Duration::from_secs(127)), "2:07");
    }
}
