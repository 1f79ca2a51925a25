//! One frame of the terminal view. Everything is told by characters and words; colour only helps.

use super::View;
use super::map::{letter, map};
use super::model::Model;
use crate::{size, time};
use plimsoll_run::{BufferKind, PlanPicture};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Paragraph, Sparkline, Wrap};
use std::collections::VecDeque;

/// Fills of the hull, by account.
const FILLS: [char; 6] = ['█', '▓', '▒', '░', '#', '='];

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, plan: Option<&PlanPicture>, view: View) {
    let [title, main, strip, events, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(8),
        Constraint::Length(3),
        Constraint::Length(5),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(heading(model), title);
    if view.map {
        draw_map(frame, main, plan);
    } else {
        let [left, right] = Layout::horizontal([Constraint::Percentage(55), Constraint::Min(34)]).areas(main);
        draw_curves(frame, left, model);
        draw_hull(frame, right, model);
    }
    draw_strip(frame, strip, model);
    draw_events(frame, events, model);
    let paused = if view.paused { "PAUSED  " } else { "" };
    let text = format!(" {paused}q quit  p pause  m {}  ? help", if view.map { "curves" } else { "memory map" });
    frame.render_widget(Paragraph::new(text).add_modifier(Modifier::DIM), keys);
    if view.help {
        draw_help(frame);
    }
}

fn heading(model: &Model) -> Line<'static> {
    let job = model.header.as_ref().map_or(model.name.clone(), |h| h.job.clone());
    let mut words = vec![Span::from(format!(" ⊖ {job} ")).bold(), Span::from(format!(" {}", model.state()))];
    if let (Some(header), Some(step)) = (&model.header, &model.step) {
        words.push(Span::from(format!(
            "  epoch {}/{}  step {}/{}  {}/step",
            step.epoch,
            header.epochs,
            step.step,
            header.steps_per_epoch,
            time(step.seconds)
        )));
    }
    words.push(Span::from(format!("  {}", time(model.times()[0]))));
    Line::from(words)
}

fn block(title: impl Into<String>) -> Block<'static> {
    Block::bordered().border_type(BorderType::Rounded).title(title.into())
}

fn draw_curves(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let mut curves: Vec<(String, &VecDeque<f64>)> = vec![("loss of steps".into(), &model.losses)];
    // The loss and what it says on new data first, then metrics.
    let rank = |name: &str| (!name.ends_with("loss"), name.trim_start_matches("val_").to_owned(), name.len());
    let mut figures: Vec<(&String, &VecDeque<f64>)> = model.figures.iter().collect();
    figures.sort_by_key(|(name, _)| rank(name));
    curves.extend(figures.into_iter().map(|(name, values)| (name.clone(), values)));
    let n_shown = ((area.height / 4).max(1) as usize).min(curves.len());
    let areas = Layout::vertical(vec![Constraint::Ratio(1, n_shown as u32); n_shown]).split(area);
    for ((name, values), &area) in curves.into_iter().zip(areas.iter()) {
        let last = values.back().map_or("-".into(), |v| format!("{v:.4}"));
        let outline = block(format!(" {name} {last} "));
        let inside = outline.inner(area);
        frame.render_widget(outline, area);
        let first = values.len().saturating_sub(inside.width as usize);
        let shown: Vec<f64> = values.iter().skip(first).copied().collect();
        frame.render_widget(Sparkline::default().data(levels(&shown)).max(1000), inside);
    }
}

/// Numbers as heights from 100 to 1000 of a curve; nothing where there is no number.
fn levels(values: &[f64]) -> Vec<Option<u64>> {
    let finite = || values.iter().copied().filter(|v| v.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let level = |v: f64| 100 + (900.0 * (v - low) / (high - low).max(1e-300)) as u64;
    values.iter().map(|&v| v.is_finite().then(|| if high > low { level(v) } else { 500 })).collect()
}

/// The hull: who holds memory, stacked below the line.
fn draw_hull(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let outline = block(" memory ");
    let inside = outline.inner(area);
    frame.render_widget(outline, area);
    let ledger: Vec<(&str, u64)> = model
        .ledger()
        .iter()
        .filter(|a| !a.name.contains('/') && a.held > 0)
        .map(|a| (a.name.as_str(), a.held))
        .collect();
    let planned: u64 = ledger.iter().map(|(_, held)| held).sum();
    let limit = model.header.as_ref().and_then(|h| h.limit);
    let mut lines: Vec<Line<'_>> = Vec::new();
    match limit {
        Some(limit) => lines.push(Line::styled(format!("━━⊖━━ limit {}", size(limit)), line_style())),
        None => lines.push(Line::from("      no limit")),
    }
    if let Some(limit) = limit {
        lines.push(Line::from(format!("      room  {}", size(limit.saturating_sub(planned)))));
    }
    lines.push(Line::from(format!("╌╌╌╌╌ planned {}", size(planned))));
    let rows = (inside.height as usize).saturating_sub(lines.len() + 2);
    let mut stack: Vec<(&str, u64, char)> =
        ledger.iter().enumerate().map(|(i, &(name, held))| (name, held, FILLS[i % FILLS.len()])).collect();
    stack.sort_by_key(|&(_, held, _)| std::cmp::Reverse(held));
    for ((name, held, fill), n) in stack.iter().zip(shares(&stack, rows)) {
        for row in 0..n {
            let label = if row == 0 { format!(" {name} {}", size(*held)) } else { String::new() };
            lines.push(Line::from(format!("{}{label}", fill.to_string().repeat(5))));
        }
    }
    let (resident, peak) = model.measured();
    let text = |bytes: Option<u64>| bytes.map_or("-".into(), size);
    lines.push(Line::from(format!("measured {}", text(resident))));
    lines.push(Line::from(format!("peak     {}", text(peak))));
    // What is told last stays when there is little room.
    let too_many = lines.len().saturating_sub(inside.height as usize);
    if too_many > 0 && lines.len() > too_many + 2 {
        let from = lines.len() - 2 - too_many;
        lines.drain(from..from + too_many);
    }
    frame.render_widget(Paragraph::new(lines), inside);
}

/// How many of `rows` each gets: at least one each while there are enough, the rest by size.
fn shares(stack: &[(&str, u64, char)], rows: usize) -> Vec<usize> {
    let total: u64 = stack.iter().map(|s| s.1).sum();
    let mut shares = vec![0; stack.len()];
    for share in shares.iter_mut().take(rows) {
        *share = 1;
    }
    for _ in stack.len()..rows {
        // To whoever has least for its size.
        let lacks = |i: usize| stack[i].1 as f64 / total.max(1) as f64 * rows as f64 - shares[i] as f64;
        if let Some(i) = (0..stack.len()).max_by(|&a, &b| lacks(a).total_cmp(&lacks(b))) {
            shares[i] += 1;
        }
    }
    shares
}

fn line_style() -> Style {
    let style = Style::new().add_modifier(Modifier::BOLD);
    if std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty()) { style } else { style.fg(Color::Red) }
}

fn draw_strip(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let [all, input, disk] = model.times();
    let part = |seconds: f64| if all > 0.0 { (seconds / all).clamp(0.0, 1.0) } else { 0.0 };
    let title = format!(
        " time: █ compute {:.1} %  ▒ input {:.1} %  ░ disk {:.1} % ",
        100.0 * (1.0 - part(input) - part(disk)).max(0.0) * f64::from(u8::from(all > 0.0)),
        100.0 * part(input),
        100.0 * part(disk)
    );
    let outline = block(title);
    let inside = outline.inner(area);
    frame.render_widget(outline, area);
    if all > 0.0 {
        let width = inside.width as usize;
        let cells = |p: f64| ((p * width as f64).round() as usize).max(usize::from(p > 0.001));
        let (n_input, n_disk) = (cells(part(input)), cells(part(disk)));
        let n_compute = width.saturating_sub(n_input + n_disk);
        let bar = format!("{}{}{}", "█".repeat(n_compute), "▒".repeat(n_input), "░".repeat(n_disk));
        frame.render_widget(Paragraph::new(bar), inside);
    }
}

fn draw_events(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let outline = block(" events ");
    let inside = outline.inner(area);
    frame.render_widget(outline, area);
    let mut lines: Vec<Line<'_>> = model
        .events
        .iter()
        .map(|e| Line::from(format!("{} {}: {}", clock(e.at), format!("{:?}", e.kind).to_lowercase(), e.message)))
        .collect();
    if let Some(end) = &model.end {
        lines.push(Line::from(format!("{} {}: {} steps {}", clock(end.at), model.state(), end.steps, end.message)));
    }
    let first = lines.len().saturating_sub(inside.height as usize);
    frame.render_widget(Paragraph::new(lines.split_off(first)), inside);
}

/// The time of day, UTC.
fn clock(at: f64) -> String {
    let second = at.max(0.0) as u64 % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}

fn draw_map(frame: &mut Frame<'_>, area: Rect, plan: Option<&PlanPicture>) {
    let Some(plan) = plan else {
        frame.render_widget(
            Paragraph::new("there is no plan in this run directory yet").block(block(" memory map ")),
            area,
        );
        return;
    };
    let title = format!(
        " arena {} over {} ops; at most {} alive, at op {} ",
        size(plan.arena),
        plan.instructions.len(),
        size(plan.live),
        plan.peak_step + 1
    );
    let outline = block(title);
    let inside = outline.inner(area);
    frame.render_widget(outline, area);
    let rows = (inside.height as usize).saturating_sub(1);
    let mut lines: Vec<Line<'_>> = map(plan, inside.width as usize, rows).into_iter().map(Line::from).collect();
    let legend = [
        (BufferKind::Input, "input"),
        (BufferKind::Activation, "activation"),
        (BufferKind::Saved, "saved"),
        (BufferKind::Gradient, "gradient"),
        (BufferKind::Update, "update"),
        (BufferKind::State, "state"),
        (BufferKind::Workspace, "workspace"),
    ];
    let legend: Vec<String> = legend.iter().map(|(kind, name)| format!("{} {name}", letter(*kind))).collect();
    lines.push(Line::from(legend.join("  ")).add_modifier(Modifier::DIM));
    frame.render_widget(Paragraph::new(lines), inside);
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (area.width.min(62), area.height.min(13));
    let at = Rect::new((area.width - width) / 2, (area.height - height) / 2, width, height);
    let text = "q, Esc   leave; the run goes on\np        pause or go on drawing\nm        memory map: the arena over one step\n?        this help\n\n\
                ⊖ is the load line: the limit of the whole process. Planned is what the process will hold at most; it was \
                reserved before the first step. Measured is what the kernel counts.";
    frame.render_widget(Clear, at);
    frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: false }).block(block(" help ")), at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_run::{AccountLine, Epoch, Event, EventKind, Header, Line as LogLine, Memory, Step};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn model() -> Model {
        let mut model = Model::new(std::path::Path::new("run"));
        let account = |name: &str, held: u64| AccountLine { name: name.into(), held, peak: held };
        let ledger = vec![account("process", 8 << 20), account("state", 20 << 20), account("arena", 60 << 20)];
        let header = Header {
            job: "pictures".into(),
            epochs: 4,
            steps_per_epoch: 10,
            limit: Some(96 << 20),
            ledger: ledger.clone(),
            ..Header::default()
        };
        model.take(LogLine::Run(Box::new(header)));
        for i in 0..20u32 {
            let loss = Some(1.0 / f64::from(i + 1));
            model.take(LogLine::Step(Step {
                at: f64::from(i),
                epoch: 1,
                step: 5,
                steps: 1,
                loss,
                seconds: 0.5,
                ..Step::default()
            }));
        }
        let memory = Memory { resident: 80 << 20, peak: 85 << 20, ..Memory::default() };
        let figures = [("loss".to_owned(), Some(0.5)), ("val_loss".to_owned(), None)].into();
        let epoch = Epoch {
            at: 100.0,
            seconds: 10.0,
            input_wait: 1.0,
            disk_wait: 2.0,
            memory,
            figures,
            ledger,
            ..Epoch::default()
        };
        model.take(LogLine::Epoch(Box::new(epoch)));
        model.take(LogLine::Event(Event { at: 3661.0, kind: EventKind::Checkpoint, message: "step 10".into() }));
        model
    }

    fn screen(width: u16, height: u16, view: View) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &model(), None, view)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn everything_is_said_in_80_by_24() {
        let text = screen(80, 24, View::default());
        for part in [
            "pictures",
            "running",
            "epoch 1/4",
            "limit 96.0 MiB",
            "planned 88.0 MiB",
            "room  8.0 MiB",
            "arena 60.0 MiB",
            "state 20.0 MiB",
            "process 8.0 MiB",
            "measured 80.0 MiB",
            "peak     85.0 MiB",
            "compute 70.0 %",
            "input 10.0 %",
            "disk 20.0 %",
            "01:01:01 checkpoint: step 10",
            "q quit",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn any_size_of_terminal_will_do() {
        for (width, height) in [(1, 1), (10, 3), (40, 12), (79, 23), (200, 60)] {
            for view in [View::default(), View { map: true, ..View::default() }, View { help: true, ..View::default() }]
            {
                screen(width, height, view);
            }
        }
    }

    #[test]
    fn curves_use_the_whole_height() {
        assert_eq!(levels(&[1.0, f64::NAN, 3.0, 2.0]), [Some(100), None, Some(1000), Some(550)]);
        assert_eq!(levels(&[2.0, 2.0]), [Some(500), Some(500)]);
    }

    #[test]
    fn rows_of_the_hull_follow_the_bytes() {
        assert_eq!(shares(&[("a", 60, '#'), ("b", 20, '#'), ("c", 20, '#')], 10), [6, 2, 2]);
        assert_eq!(shares(&[("a", 98, '#'), ("b", 1, '#'), ("c", 1, '#')], 5), [3, 1, 1]);
        assert_eq!(shares(&[("a", 1, '#'), ("b", 1, '#')], 1), [1, 0]);
    }
}
