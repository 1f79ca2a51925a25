//! How far a stage had read when it had given so many elements: what a resume needs where no arithmetic tells.
//!
//! A stage that leaves out or adds elements notes now and then what it has given and what it has used. A position saved at the end
//! of the chain is brought back stage by stage: by arithmetic where elements go in and out evenly, by the last note that is not
//! ahead of it where they do not. So the source is entered near the place, and not at its beginning.

use crate::Error;
use crate::dataset::Node;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many elements had been given when so many had been used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) given: u64,
    pub(crate) used: u64,
}

/// The trails of a running pipeline.
#[derive(Clone, Default)]
pub(crate) struct Trails {
    all: Arc<Mutex<Vec<(Key, Notes)>>>,
}

/// Which node a trail belongs to: its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(usize);

impl Key {
    pub(crate) fn of<N>(node: &N) -> Key {
        Key(std::ptr::from_ref(node) as usize)
    }
}

#[derive(Default)]
struct Notes {
    /// Where the stage is to begin.
    start: Mark,
    /// In order, with the number of each note.
    marks: Vec<(u64, Mark)>,
    n: u64,
}

/// The most notes of a stage. The elements made ahead of their use are more than that at times, so older notes become fewer: the
/// distance between two is a small part of their age.
const MOST: usize = 1024;

/// Of the notes that are twice as old half as many are kept.
const DENSE: u64 = 32;

impl Notes {
    fn note(&mut self, mark: Mark) {
        match self.marks.last_mut() {
            Some((_, last)) if last.given == mark.given => {
                *last = mark;
                return;
            }
            // Another pass over the same elements.
            Some((_, last)) if last.given > mark.given => self.marks.clear(),
            _ => {}
        }
        self.n += 1;
        if self.marks.len() == MOST {
            let n = self.n;
            self.marks.retain(|(i, _)| (n - i) >> i.trailing_zeros() <= DENSE);
        }
        self.marks.push((self.n, mark));
    }

    /// The last mark with no more elements given.
    fn before(&self, given: u64) -> Mark {
        let n = self.marks.partition_point(|(_, mark)| mark.given <= given);
        n.checked_sub(1).map_or(self.start, |at| self.marks[at].1)
    }
}

impl Trails {
    fn lock(&self) -> MutexGuard<'_, Vec<(Key, Notes)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, key: Key, work: impl FnOnce(&mut Notes) -> T) -> T {
        let mut all = self.lock();
        let at = all.iter().position(|(k, _)| *k == key).unwrap_or_else(|| {
            all.push((key, Notes::default()));
            all.len() - 1
        });
        work(&mut all[at].1)
    }

    /// The trail of a node's stage.
    pub(crate) fn of(&self, key: Key) -> Trail {
        Trail { trails: self.clone(), key, given: 0 }
    }

    /// The marks from which a pipeline can go on that has given so many elements, the last stage's first.
    pub(crate) fn marks(&self, node: &Arc<dyn Node>, given: u64) -> Vec<Mark> {
        let mut marks = Vec::new();
        walk(node, given, |key, given| {
            let mark = self.with(key, |notes| notes.before(given));
            marks.push(mark);
            Some(mark.used)
        });
        marks
    }

    /// Lets the stages of a pipeline begin at these marks.
    pub(crate) fn begin(&self, node: &Arc<dyn Node>, given: u64, marks: &[Mark]) {
        let mut marks = marks.iter();
        walk(node, given, |key, _| {
            let mark = *marks.next()?;
            self.with(key, |notes| notes.start = mark);
            Some(mark.used)
        });
    }
}

/// Goes from a node towards the source, with the number of elements that it and those before it have given; `mark` tells what a
/// stage with a trail has used.
fn walk(node: &Arc<dyn Node>, mut given: u64, mut mark: impl FnMut(Key, u64) -> Option<u64>) {
    let mut node = node;
    while !node.is_lookup() {
        let used = match node.trail() {
            Some(key) => mark(key, given),
            None => node.used(given),
        };
        let (Some(used), [input]) = (used, &node.inputs()[..]) else { return };
        (node, given) = (*input, used);
    }
}

/// What a stage notes.
pub(crate) struct Trail {
    trails: Trails,
    key: Key,
    /// How many elements have been given, errors included.
    given: u64,
}

impl Trail {
    /// Enters the input of a stage that has not begun near the place behind `n` of its elements, by `skip`; says where.
    pub(crate) fn enter(
        &mut self,
        n: u64,
        skip: impl FnOnce(u64) -> Result<Option<u64>, Error>,
    ) -> Result<Mark, Error> {
        let start = self.trails.with(self.key, |notes| notes.start);
        if start.given > n {
            return Ok(Mark::default());
        }
        match skip(start.used)? {
            Some(used) if used == start.used => {
                self.given = start.given;
                Ok(start)
            }
            None => Ok(Mark::default()),
            Some(found) => {
                let message =
                    format!("the position is behind {} elements of the input, but there are {found}", start.used);
                Err(Error::pipeline("resume", message))
            }
        }
    }

    /// Counts what has been given.
    pub(crate) fn give(&mut self, rows: usize, result: &Result<bool, Error>) {
        self.given += rows as u64 + result.is_err() as u64;
    }

    /// Notes that what has been given took so many elements of the input.
    pub(crate) fn note(&self, used: u64) {
        self.trails.with(self.key, |notes| notes.note(Mark { given: self.given, used }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_note_that_is_not_ahead_is_near() {
        let mut notes = Notes::default();
        let mut given = 0;
        for used in 1..100_000u64 {
            given += used % 3 / 2;
            notes.note(Mark { given, used });
        }
        assert!(notes.marks.len() <= MOST);
        for lag in [0, 1, 10, 100, 500, 1000, 5000, 20_000] {
            let mark = notes.before(given - lag);
            assert!(mark.given <= given - lag, "{mark:?}");
            assert!(given - lag - mark.given <= lag / 8, "{lag} behind {given}: {mark:?}");
            // Of equal marks the furthest.
            assert!(mark.used >= 3 * mark.given, "{mark:?}");
        }
        assert_eq!(notes.before(0).given, 0);
    }
}
