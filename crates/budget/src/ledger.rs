//! The ledger: a picture of every account at one moment, and the error that carries it.

use crate::Bytes;
use std::fmt;

/// Who held how much at one moment: the accounts as a tree, and the limit over them.
///
/// It prints as an indented table with one account per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// The limit, if there is one.
    pub limit: Option<Bytes>,
    /// What all accounts hold together.
    pub held: Bytes,
    /// The most that they have held together at any one moment.
    pub peak: Bytes,
    /// The accounts with no `/` in their names, in the order in which they were opened.
    pub entries: Vec<Entry>,
}

/// One account, and the accounts below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The last part of the account's name: `shuffle` for `pipeline/shuffle`.
    pub name: String,
    /// What the account and those below it hold.
    pub held: Bytes,
    /// The most that they have held together at any one moment.
    pub peak: Bytes,
    /// The accounts below, in the order in which they were opened.
    pub entries: Vec<Entry>,
}

impl Ledger {
    /// The entry of an account by its whole name, such as `pipeline/shuffle`.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        let mut parts = parts(name);
        let mut entry = find(&self.entries, parts.next()?)?;
        for part in parts {
            entry = find(&entry.entries, part)?;
        }
        Some(entry)
    }

    /// What is left below the limit; `None` without a limit.
    pub fn left(&self) -> Option<Bytes> {
        self.limit.map(|limit| limit.saturating_sub(self.held))
    }
}

fn find<'a>(entries: &'a [Entry], name: &str) -> Option<&'a Entry> {
    entries.iter().find(|entry| entry.name == name)
}

/// The parts of an account's name; empty ones do not count.
pub(crate) fn parts(name: &str) -> impl Iterator<Item = &str> {
    name.split('/').filter(|part| !part.is_empty())
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<32}{:>12}{:>12}", "account", "held", "peak")?;
        write_entries(f, &self.entries, 0)?;
        write!(f, "{:<32}{:>12}{:>12}", "all", self.held, self.peak)?;
        match self.limit {
            Some(limit) => write!(f, "   limit {limit}"),
            None => write!(f, "   no limit"),
        }
    }
}

fn write_entries(f: &mut fmt::Formatter<'_>, entries: &[Entry], depth: usize) -> fmt::Result {
    for entry in entries {
        let indent = 2 * depth;
        let width = 32usize.saturating_sub(indent);
        writeln!(f, "{:indent$}{:<width$}{:>12}{:>12}", "", entry.name, entry.held, entry.peak)?;
        write_entries(f, &entry.entries, depth + 1)?;
    }
    Ok(())
}

/// An account asked for more than is left below the limit.
///
/// The message names the largest holders; [`OverBudget::ledger`] has them all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct OverBudget {
    /// The whole name of the account that asked.
    pub account: String,
    /// What it asked for, on top of what it held.
    pub asked: Bytes,
    /// The limit.
    pub limit: Bytes,
    /// Who held how much when it asked.
    pub ledger: Ledger,
}

impl OverBudget {
    /// What was left below the limit.
    pub fn left(&self) -> Bytes {
        self.limit.saturating_sub(self.ledger.held)
    }
}

/// How many holders the message names.
const NAMED: usize = 4;

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (account, asked, left, limit) = (&self.account, self.asked, self.left(), self.limit);
        write!(f, "{account} asked for {asked}, but only {left} of {limit} are left")?;
        let mut holders: Vec<&Entry> = self.ledger.entries.iter().filter(|e| e.held > Bytes::ZERO).collect();
        holders.sort_by_key(|entry| std::cmp::Reverse(entry.held));
        for (at, entry) in holders.iter().take(NAMED).enumerate() {
            let lead = if at == 0 { " (" } else { ", " };
            write!(f, "{lead}{} holds {}", entry.name, entry.held)?;
        }
        if holders.len() > NAMED {
            let rest: Bytes = holders[NAMED..].iter().map(|entry| entry.held).sum();
            write!(f, ", {} others hold {rest}", holders.len() - NAMED)?;
        }
        if holders.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}
