//! Readers of a log of any length hold as much memory as of a short one. Alone in its file: it measures the process.

mod common;

use common::Directory;
use plimsoll::{Bytes, measure};
use plimsoll_run::{EndReason, Epoch, Header, Line, RunWriter, Step};

/// A log of this many steps, one line each, in epochs of a hundred.
fn write_log(directory: &std::path::Path, steps: u64) -> u64 {
    let mut log = RunWriter::create(directory).unwrap();
    log.line(&Line::Run(Box::new(Header { job: "long".into(), epochs: steps / 100, ..Header::default() }))).unwrap();
    for i in 0..steps {
        let (epoch, step) = (i / 100 + 1, i % 100 + 1);
        let (at, loss) = (i as f64, Some(1.0 / (i + 1) as f64));
        log.line(&Line::Step(Step { at, epoch, step, steps: 1, loss, seconds: 0.25, ..Step::default() })).unwrap();
        if step == 100 {
            let figures = [("loss".to_owned(), loss), ("val_loss".to_owned(), loss)].into();
            let epoch = Epoch { at, epoch, steps: 100, seconds: 25.0, figures, input_wait: 1.0, ..Epoch::default() };
            log.line(&Line::Epoch(Box::new(epoch))).unwrap();
        }
    }
    log.end(EndReason::Done, "", steps, None).unwrap();
    std::fs::metadata(directory.join(plimsoll_run::LOG)).unwrap().len()
}

#[test]
fn a_report_takes_no_more_memory_for_a_longer_log() {
    let directory = Directory::new("large-log");
    let mut grown = Vec::new();
    let mut sizes = Vec::new();
    for steps in [10_000, 200_000] {
        let run = directory.0.join(steps.to_string());
        let written = write_log(&run, steps);
        // Where that is forbidden the peak is that of the process so far, which is no less.
        let _ = measure::reset_peak();
        let before = measure::usage().unwrap().resident;
        let page = plimsoll_report::html(&run).unwrap();
        let peak = measure::usage().unwrap().peak;
        eprintln!(
            "{steps} steps: {written} bytes of log, {before} before, {peak} at most, {} bytes of page",
            page.len()
        );
        grown.push(peak.saturating_sub(before));
        sizes.push(page.len());
        // A page that could be looked at: the last epoch is told, and all of them add up.
        assert!(page.contains(&format!("epoch {}: ", steps / 100)), "the last epoch");
    }
    assert!(grown[1] < Bytes::mib(16), "{grown:?}");
    assert!(sizes[1] < 2 * sizes[0] + (64 << 10), "{sizes:?}");
}
