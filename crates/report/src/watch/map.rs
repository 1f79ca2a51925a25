//! The arena over one step, in characters.

use plimsoll_run::{BufferKind, PlanPicture};

/// What stands for a kind of buffer.
pub(super) fn letter(kind: BufferKind) -> char {
    match kind {
        BufferKind::Input => 'i',
        BufferKind::Activation => 'a',
        BufferKind::Saved => 'S',
        BufferKind::Gradient => 'G',
        BufferKind::Update => 'u',
        BufferKind::State => 'W',
        BufferKind::Workspace => 'w',
    }
}

/// The plan as lines of text, the highest addresses first: who is where at the middle of each cell. Free memory is a dot.
pub(super) fn map(plan: &PlanPicture, columns: usize, rows: usize) -> Vec<String> {
    let mut cells = vec![vec!['·'; columns]; rows];
    let (steps, arena) = (plan.instructions.len(), plan.arena);
    if steps == 0 || arena == 0 || columns == 0 || rows == 0 {
        return Vec::new();
    }
    let step_of = |column: usize| ((2 * column + 1) * steps / (2 * columns)) as u32;
    for buffer in &plan.buffers {
        // The cells whose middle it covers.
        let first = (0..columns).position(|c| step_of(c) >= buffer.birth).unwrap_or(columns);
        let below = |row: usize| arena as u128 * (2 * row as u128 + 1) / (2 * rows as u128);
        for row in 0..rows {
            let middle = below(row) as u64;
            if middle < buffer.offset || middle >= buffer.offset + buffer.bytes {
                continue;
            }
            for column in (first..columns).take_while(|&c| step_of(c) <= buffer.death) {
                cells[rows - 1 - row][column] = letter(buffer.kind);
            }
        }
    }
    cells.into_iter().map(|row| row.into_iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_run::{BufferLine, InstructionLine, Phase, Strategy};

    #[test]
    fn a_buffer_is_where_it_is() {
        let instruction = InstructionLine {
            op: "add".into(),
            layer: String::new(),
            phase: Phase::Forward,
            again: false,
            seconds: None,
            live: 0,
            written: 0,
            read: 0,
            slot: None,
        };
        let buffer = |offset: u64, birth: u32, death: u32, kind: BufferKind| BufferLine {
            offset,
            bytes: 128,
            birth,
            death,
            kind,
            strategy: Strategy::Kept,
            what: String::new(),
            ty: String::new(),
            layer: String::new(),
            values: 1,
            partner: None,
        };
        let plan = PlanPicture {
            arena: 256,
            instructions: vec![instruction; 4],
            buffers: vec![buffer(0, 0, 3, BufferKind::Saved), buffer(128, 1, 2, BufferKind::Workspace)],
            ..PlanPicture::default()
        };
        assert_eq!(map(&plan, 4, 2), ["·ww·", "SSSS"]);
        assert_eq!(map(&plan, 8, 4), ["··wwww··", "··wwww··", "SSSSSSSS", "SSSSSSSS"]);
        assert!(map(&PlanPicture::default(), 8, 4).is_empty());
    }
}
