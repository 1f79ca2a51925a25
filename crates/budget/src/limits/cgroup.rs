//! Memory limits of control groups, versions 1 and 2, from the process's own group up to the highest visible one.
//!
//! Every group above the process binds, so each is looked at. A container often sees the middle of the tree only:
//! the mount table says which group stands at the mount point, and version 1 tells the lowest limit of
//! the whole chain, hidden groups included, in `memory.stat`.

use super::{Bound, Host, Source};
use crate::Bytes;
use crate::measure::Usage;
use std::path::{Path, PathBuf};

/// Version 1 writes "no limit" as the largest page count, about 2^63 whatever the size of a page.
const NO_LIMIT: u64 = 1 << 62;

/// What the kernel charges a group beyond the memory of its processes: stacks of its own and batches that each core takes
/// ahead. A plan has room for it.
const KERNEL_BATCHES: Bytes = Bytes::mib(1);

pub(super) fn bounds(host: &Host, own: &Usage) -> Vec<Bound> {
    let groups = host.read("proc/self/cgroup").unwrap_or_default();
    let mounts = host.read("proc/self/mountinfo").unwrap_or_default();
    let mut bounds = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(group)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if id == "0" && controllers.is_empty() {
            let mount = Mount::find(&mounts, &Version::Two).unwrap_or_else(|| Mount::usual(&Version::Two));
            bounds.extend(chain(host, own, &mount, group, &Version::Two));
        } else if controllers.split(',').any(|name| name == "memory") {
            let mount = Mount::find(&mounts, &Version::One).unwrap_or_else(|| Mount::usual(&Version::One));
            bounds.extend(chain(host, own, &mount, group, &Version::One));
            bounds.extend(hidden(host, own, &mount, group, &bounds));
        }
    }
    bounds
}

enum Version {
    One,
    Two,
}

impl Version {
    fn source(&self) -> Source {
        match self {
            Version::One => Source::CgroupV1,
            Version::Two => Source::CgroupV2,
        }
    }

    fn limit_files(&self) -> &'static [&'static str] {
        match self {
            Version::One => &["memory.limit_in_bytes"],
            Version::Two => &["memory.max", "memory.high"],
        }
    }

    fn usage_file(&self) -> &'static str {
        match self {
            Version::One => "memory.usage_in_bytes",
            Version::Two => "memory.current",
        }
    }

    /// The line of `memory.stat` that counts shared memory, which stays when its maker is gone.
    fn shared_line(&self) -> &'static str {
        match self {
            Version::One => "total_shmem",
            Version::Two => "shmem",
        }
    }

    /// The line of `memory.stat` that counts cached file pages which the kernel drops before it refuses.
    fn cache_line(&self) -> &'static str {
        match self {
            Version::One => "total_inactive_file",
            Version::Two => "inactive_file",
        }
    }
}

/// Where a hierarchy is mounted, and which of its groups stands there.
struct Mount {
    point: String,
    group: String,
}

impl Mount {
    fn usual(version: &Version) -> Mount {
        let point = match version {
            Version::One => "/sys/fs/cgroup/memory",
            Version::Two => "/sys/fs/cgroup",
        };
        Mount { point: point.into(), group: "/".into() }
    }

    /// Looks in `/proc/self/mountinfo`: `id parent device group point options [tags] - type source options`.
    fn find(mountinfo: &str, version: &Version) -> Option<Mount> {
        mountinfo.lines().find_map(|line| {
            let (place, kind) = line.split_once(" - ")?;
            let mut place = place.split(' ').skip(3);
            let (group, point) = (place.next()?, place.next()?);
            let mut kind = kind.split(' ');
            let (file_system, options) = (kind.next()?, kind.nth(1).unwrap_or(""));
            let fits = match version {
                Version::One => file_system == "cgroup" && options.split(',').any(|option| option == "memory"),
                Version::Two => file_system == "cgroup2",
            };
            fits.then(|| Mount { point: unescaped(point), group: unescaped(group) })
        })
    }

    /// The directories of a group and of those above it up to the mount point, own first, absolute.
    fn chain(&self, group: &str) -> Vec<PathBuf> {
        let point = Path::new(&self.point);
        // A group outside the part that is mounted here cannot be seen; what can be is the mount point.
        let below = Path::new(group).strip_prefix(&self.group).unwrap_or(Path::new(""));
        let below = if below.components().any(|part| part.as_os_str() == "..") { Path::new("") } else { below };
        below.ancestors().map(|part| if part == Path::new("") { point.into() } else { point.join(part) }).collect()
    }
}

/// The mount table writes blanks and backslashes as `\040` and the like.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut out = parts.next().unwrap_or("").to_string();
    for part in parts {
        match part.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            Some(byte) => {
                out.push(byte as char);
                out.push_str(&part[3..]);
            }
            None => {
                out.push('\\');
                out.push_str(part);
            }
        }
    }
    out
}

fn chain(host: &Host, own: &Usage, mount: &Mount, group: &str, version: &Version) -> Vec<Bound> {
    let mut bounds = Vec::new();
    for directory in mount.chain(group) {
        for name in version.limit_files() {
            let file = directory.join(name);
            let Some(value) = read_limit(host, &file) else { continue };
            let usable = value.saturating_sub(held_by_others(host, own, &directory, version));
            bounds.push(Bound { source: version.source(), place: file.display().to_string(), value, usable });
        }
    }
    bounds
}

/// The limit of a group above the visible ones, if it is lower than all of those.
fn hidden(host: &Host, own: &Usage, mount: &Mount, group: &str, seen: &[Bound]) -> Option<Bound> {
    let directory = mount.chain(group).into_iter().next()?;
    let file = directory.join("memory.stat");
    let value = stat(host, &directory, "hierarchical_memory_limit").filter(|&value| value < NO_LIMIT).map(Bytes)?;
    let known = seen.iter().any(|bound| bound.source == Source::CgroupV1 && bound.value <= value);
    // How much the other members of that group hold cannot be seen either; those of our own can.
    let usable = value.saturating_sub(held_by_others(host, own, &directory, &Version::One));
    let place = format!("{} hierarchical_memory_limit", file.display());
    (!known).then_some(Bound { source: Source::CgroupV1, place, value, usable })
}

fn read_limit(host: &Host, file: &Path) -> Option<Bytes> {
    // "max", the word for no limit, is not a number.
    let value: u64 = read(host, file)?.trim().parse().ok()?;
    (value < NO_LIMIT).then_some(Bytes(value))
}

/// What a group holds besides this process, without the cached files that the kernel would drop first.
fn held_by_others(host: &Host, own: &Usage, directory: &Path, version: &Version) -> Bytes {
    let figure = |name: &str| Bytes(stat(host, directory, name).unwrap_or(0));
    if alone(host, directory) {
        // What earlier members left behind goes when it is needed, but for shared memory.
        return figure(version.shared_line());
    }
    let held: u64 = read(host, &directory.join(version.usage_file())).and_then(|s| s.trim().parse().ok()).unwrap_or(0);
    let ours = own.resident + own.page_tables + KERNEL_BATCHES;
    Bytes(held).saturating_sub(figure(version.cache_line())).saturating_sub(ours)
}

/// Whether this process is the only one in a group, and no group is below it.
fn alone(host: &Host, directory: &Path) -> bool {
    let members = read(host, &directory.join("cgroup.procs")).unwrap_or_default();
    let Ok(mut below) = std::fs::read_dir(host.path(directory.strip_prefix("/").unwrap_or(directory))) else {
        return false;
    };
    members.lines().count() == 1 && !below.any(|entry| entry.is_ok_and(|e| e.file_type().is_ok_and(|t| t.is_dir())))
}

/// The figure on the line of `memory.stat` that begins with `name`.
fn stat(host: &Host, directory: &Path, name: &str) -> Option<u64> {
    let text = read(host, &directory.join("memory.stat"))?;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

fn read(host: &Host, file: &Path) -> Option<String> {
    host.read(file.strip_prefix("/").unwrap_or(file))
}
