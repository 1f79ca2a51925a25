//! Where a memory limit comes from.
//!
//! A user's figure, or else the variable [`VARIABLE`], says what is wanted. The host says what can be had: every
//! cgroup above the process, the limits of the shell, the batch system's grant, the memory that is free. [`Host`]
//! finds them all, each as a [`Bound`] with the name of the file it stands in and what of it is left for us;
//! [`Host::limits`] puts both sides together and says which one binds.
//!
//! ```
//! use plimsoll_budget::limits::Host;
//! use plimsoll_budget::{Bytes, Limit};
//! let limits = Host::this().limits(Some(Limit::Bytes(Bytes::mib(1))))?;
//! assert_eq!(limits.limit, Some(Bytes::mib(1)));
//! assert_eq!(limits.binding().unwrap().to_string(), "1 MiB (memory limit given)");
//! # Ok::<(), plimsoll_budget::limits::BadVariable>(())
//! ```

mod cgroup;

use crate::measure::{self, Usage};
use crate::{Bytes, Limit, ParseBytesError};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// The environment variable that gives the memory limit when the user does not.
pub const VARIABLE: &str = "PLIMSOLL_MEMORY_LIMIT";

/// What sets a bound to the memory of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Source {
    /// The user's own figure.
    User,
    /// The variable [`VARIABLE`].
    Variable,
    /// A control group of version 2: `memory.max`, or `memory.high`, above which the kernel slows the group down.
    CgroupV2,
    /// A control group of version 1: `memory.limit_in_bytes`.
    CgroupV1,
    /// `RLIMIT_AS` (`ulimit -v`): address space.
    AddressSpace,
    /// `RLIMIT_DATA` (`ulimit -d`): private writable memory.
    Data,
    /// What the batch system Slurm granted the job on this machine.
    Slurm,
    /// The memory that the machine can give away without swapping.
    MemAvailable,
}

impl Source {
    /// What to leave unused of so many bytes when the limit is taken from this source and nobody asked for it.
    ///
    /// Free memory is shared with processes that come and go: a tenth of it and at least 64 MiB stay free (but never more
    /// than half). Limits of groups and jobs are ours alone or nearly so: 2 %.
    fn margin(self, usable: Bytes) -> Bytes {
        match self {
            Source::User | Source::Variable => Bytes::ZERO,
            Source::MemAvailable => usable.percent(10.0).max(Bytes::mib(64)).min(usable.percent(50.0)),
            _ => usable.percent(2.0),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Source::User => "memory limit given",
            Source::Variable => "environment",
            Source::CgroupV2 => "cgroup v2",
            Source::CgroupV1 => "cgroup v1",
            Source::AddressSpace => "ulimit -v",
            Source::Data => "ulimit -d",
            Source::Slurm => "slurm",
            Source::MemAvailable => "free memory",
        })
    }
}

/// One bound to the memory of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    /// What sets it.
    pub source: Source,
    /// The file or variable where it stands; empty for the user's own figure.
    pub place: String,
    /// The value that stands there.
    pub value: Bytes,
    /// What this process as a whole can have under it: less than `value` where others already hold a part.
    pub usable: Bytes,
}

impl Bound {
    /// A bound that is ours whole.
    fn whole(source: Source, place: impl Into<String>, value: Bytes) -> Bound {
        Bound { source, place: place.into(), value, usable: value }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bound { source, place, value, usable } = self;
        write!(f, "{value} ({source}")?;
        if !place.is_empty() {
            write!(f, ", {place}")?;
        }
        if usable < value {
            write!(f, ", {usable} of it usable")?;
        }
        f.write_str(")")
    }
}

/// The environment variable [`VARIABLE`] cannot be read as a limit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("environment variable {VARIABLE}: {0}")]
pub struct BadVariable(pub ParseBytesError);

/// Every bound that was found, and the limit that follows.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// The limit to keep; `None` if nobody sets one.
    pub limit: Option<Bytes>,
    /// What was wanted: the user's figure or the variable's, in bytes.
    pub wanted: Option<Bytes>,
    /// All bounds: the wanted one first, then the host's.
    pub bounds: Vec<Bound>,
    /// Where in `bounds` the one stands from which `limit` follows.
    binding: Option<usize>,
}

impl Limits {
    /// The bound from which the limit follows.
    pub fn binding(&self) -> Option<&Bound> {
        self.binding.map(|at| &self.bounds[at])
    }

    /// By how much the host falls short of what was wanted; zero if it does not.
    pub fn shortfall(&self) -> Bytes {
        match (self.wanted, self.limit) {
            (Some(wanted), Some(limit)) => wanted.saturating_sub(limit),
            _ => Bytes::ZERO,
        }
    }
}

/// The machine as this process sees it: its files below a root directory, and the environment.
#[derive(Clone, Debug)]
pub struct Host {
    root: PathBuf,
    variables: BTreeMap<String, String>,
}

impl Host {
    /// The host that this process runs on.
    pub fn this() -> Host {
        // Variables that are not text are none of ours.
        let text = |(key, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((key.into_string().ok()?, value.into_string().ok()?))
        };
        Host { root: "/".into(), variables: std::env::vars_os().filter_map(text).collect() }
    }

    /// A host whose `/proc` and `/sys` are below `root`, with an empty environment.
    pub fn at(root: impl Into<PathBuf>) -> Host {
        Host { root: root.into(), variables: BTreeMap::new() }
    }

    /// This host with one more environment variable.
    pub fn with_variable(mut self, name: &str, value: &str) -> Host {
        self.variables.insert(name.to_string(), value.to_string());
        self
    }

    /// The limit to keep, given what the user asks for.
    ///
    /// What is wanted is the user's figure or else the variable [`VARIABLE`]; a percentage is one of the lowest host
    /// bound. It is kept to the byte if the host allows it; if not, the limit is what the host allows and
    /// [`Limits::shortfall`] is not zero. When nothing is wanted the limit is the lowest host bound less a
    /// margin (10 % of free memory and at least 64 MiB, 2 % of other bounds). [`Limit::None`] asks for no limit and gets none.
    ///
    /// # Errors
    /// When the variable cannot be read as a limit; the error names the variable.
    pub fn limits(&self, asked: Option<Limit>) -> Result<Limits, BadVariable> {
        let host = self.bounds();
        let lowest = host.iter().map(|bound| bound.usable).min();
        let (wish, source, place) = match (asked, self.variables.get(VARIABLE)) {
            (None, Some(text)) => (Some(text.parse().map_err(BadVariable)?), Source::Variable, VARIABLE),
            (asked, _) => (asked, Source::User, ""),
        };
        let wanted = wish.and_then(|wish| wish.resolve(lowest));
        let mut bounds: Vec<Bound> = wanted.iter().map(|&value| Bound::whole(source, place, value)).collect();
        bounds.extend(host);
        if wish == Some(Limit::None) {
            return Ok(Limits { limit: None, wanted, bounds, binding: None });
        }
        // Without a wish each bound counts with its margin; free memory always does, it is nobody's grant.
        // The first of equals binds: the wish, if there is one.
        let counts = |bound: &Bound| match wanted {
            Some(_) if bound.source != Source::MemAvailable => bound.usable,
            _ => bound.usable.saturating_sub(bound.source.margin(bound.usable)),
        };
        let binding = (0..bounds.len()).min_by_key(|&at| counts(&bounds[at]));
        let limit = binding.map(|at| counts(&bounds[at]));
        Ok(Limits { limit, wanted, bounds, binding })
    }

    /// The bounds that the host sets, in the order cgroups (from the process's own upwards), shell, Slurm, free memory.
    pub fn bounds(&self) -> Vec<Bound> {
        // Without figures of our own we count as holding nothing, which errs towards a lower limit.
        let own = measure::usage_from(&self.path("proc/self/status")).unwrap_or_default();
        let mut bounds = cgroup::bounds(self, &own);
        bounds.extend(self.shell_bounds(&own));
        bounds.extend(self.slurm_bound());
        bounds.extend(self.free_memory(&own));
        bounds
    }

    /// `ulimit -v` and `ulimit -d`, from `/proc/self/limits`.
    fn shell_bounds(&self, own: &Usage) -> Vec<Bound> {
        let text = self.read("proc/self/limits").unwrap_or_default();
        let bound = |name: &str, source, place: &str, beyond_memory: Bytes| {
            let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
            let value = Bytes(rest.split_whitespace().next()?.parse().ok()?);
            // These limits count addresses, touched or not; what we hold untouched already is lost to us.
            Some(Bound { source, place: place.into(), value, usable: value.saturating_sub(beyond_memory) })
        };
        let untouched = own.address_space.saturating_sub(own.resident);
        let untouched_data = own.data.saturating_sub(own.anonymous);
        [
            bound("Max address space", Source::AddressSpace, "RLIMIT_AS", untouched),
            bound("Max data size", Source::Data, "RLIMIT_DATA", untouched_data),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Slurm's grant: per node, or per processor times the processors that the job has on this node.
    fn slurm_bound(&self) -> Option<Bound> {
        let node = "SLURM_MEM_PER_NODE";
        if let Some(value) = self.variables.get(node).and_then(|text| slurm_size(text)) {
            return Some(Bound::whole(Source::Slurm, node, value));
        }
        let (cpu, count) = ("SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE");
        let per_cpu = self.variables.get(cpu).and_then(|text| slurm_size(text))?;
        let n_cpus: u64 = self.variables.get(count).and_then(|text| text.trim().parse().ok()).unwrap_or(1).max(1);
        let value = Bytes(per_cpu.0.checked_mul(n_cpus)?);
        Some(Bound::whole(Source::Slurm, format!("{cpu} x {n_cpus} processors"), value))
    }

    fn free_memory(&self, own: &Usage) -> Option<Bound> {
        let text = self.read("proc/meminfo")?;
        let rest = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        let value = Bytes(rest.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)?);
        // What we hold ourselves is not free any more, but it is ours.
        let usable = value.saturating_add(own.resident);
        Some(Bound { source: Source::MemAvailable, place: "/proc/meminfo MemAvailable".into(), value, usable })
    }

    fn path(&self, below: impl AsRef<Path>) -> PathBuf {
        self.root.join(below)
    }

    fn read(&self, below: impl AsRef<Path>) -> Option<String> {
        std::fs::read_to_string(self.path(below)).ok()
    }
}

/// A size as Slurm writes it: MiB, or with a unit; zero means the whole machine.
fn slurm_size(text: &str) -> Option<Bytes> {
    let text = text.trim();
    let in_mib = || text.parse::<u64>().ok()?.checked_mul(1 << 20).map(Bytes);
    in_mib().or_else(|| text.parse().ok()).filter(|&bytes| bytes > Bytes::ZERO)
}

#[cfg(test)]
mod tests;
