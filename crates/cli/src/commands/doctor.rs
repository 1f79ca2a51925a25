//! `plimsoll doctor`: what limits apply on this host, and which one binds.

use crate::Outcome;
use crate::diagnostic::Diagnostic;
use crate::errors::Code;
use crate::out::Out;
use clap::Args;
use plimsoll::limits::{Host, Source};
use plimsoll::{Budget, Bytes};
use plimsoll_exec::SpillFile;
use schemars::JsonSchema;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// What limits apply on this host, which one binds, and what disk and processor can do.
#[derive(Args)]
#[command(after_help = "\
Examples:
  plimsoll doctor
  plimsoll doctor --spill-dir /scratch
  plimsoll doctor --json | jq .largest_limit")]
pub struct Options {
    /// The directory whose disk is tried; the one for temporary files if not given.
    #[arg(long, value_name = "DIRECTORY")]
    spill_dir: Option<PathBuf>,
    /// How much is written to the disk and read back, to measure it; 0 leaves it out.
    #[arg(long, value_name = "MIB", default_value_t = 64)]
    disk_mib: u64,
}

/// `plimsoll doctor --json`. All amounts of memory are in bytes.
#[derive(Serialize, JsonSchema)]
pub struct Doctor {
    host: HostFacts,
    memory: MemoryFacts,
    /// Every bound that was found.
    limits: Vec<LimitFacts>,
    /// The largest limit that can be promised here; null where nothing sets one.
    largest_limit: Option<u64>,
    disk: DiskFacts,
}

/// The processor and the kernel.
#[derive(Serialize, JsonSchema)]
struct HostFacts {
    /// Its name.
    processor: String,
    /// Cores that this process may use.
    cores: usize,
    /// Instruction sets that kernels use.
    features: Vec<String>,
    /// The kernel's version.
    kernel: String,
}

/// Memory of the machine.
#[derive(Serialize, JsonSchema)]
struct MemoryFacts {
    /// All of it.
    physical: u64,
    /// What can be had without swapping.
    available: u64,
    /// Swap space; zero for none.
    swap: u64,
    /// `/proc/sys/vm/overcommit_memory`: 0 heuristic, 1 always, 2 strict.
    overcommit: Option<u32>,
    /// Transparent huge pages: `always`, `madvise` or `never`.
    huge_pages: Option<String>,
    /// How much of the last ten seconds some task waited for memory, in percent.
    pressure_some: Option<f64>,
    /// How much of the last ten seconds all tasks waited.
    pressure_full: Option<f64>,
    /// Room in `/dev/shm`.
    shared: Option<u64>,
}

/// A bound to the memory of this process.
#[derive(Serialize, JsonSchema)]
struct LimitFacts {
    /// What sets it.
    source: String,
    /// The file or variable where it stands.
    place: String,
    /// The value there.
    value: u64,
    /// What this process can have under it.
    usable: u64,
    /// Whether the largest limit follows from it.
    binds: bool,
}

/// The disk for what memory has no room for.
#[derive(Serialize, JsonSchema)]
struct DiskFacts {
    /// The directory.
    directory: String,
    /// Its file system.
    file_system: Option<String>,
    /// Room on it.
    free: Option<u64>,
    /// `direct` (past the page cache), `buffered`, or `in memory` (a file there takes memory).
    transfers: Option<String>,
    /// Bytes a second.
    write: Option<f64>,
    /// Bytes a second.
    read: Option<f64>,
    /// Why it could not be tried.
    problem: Option<String>,
}

pub fn run(options: &Options, out: &Out) -> Outcome {
    let found = examine(options)?;
    match out.json {
        true => out.json_page(&found),
        false => out.data(words(&found, out).trim_end()),
    }
    Ok(0)
}

fn examine(options: &Options) -> Result<Doctor, Diagnostic> {
    let host = Host::this();
    let limits = host.limits(None).map_err(|e| Diagnostic::new(Code::WrongValue, e.to_string()))?;
    let binding = limits.binding().cloned();
    let fact = |b: &plimsoll::limits::Bound| LimitFacts {
        source: b.source.to_string(),
        place: b.place.clone(),
        value: b.value.0,
        usable: b.usable.0,
        binds: Some(b) == binding.as_ref(),
    };
    let meminfo = read("/proc/meminfo").unwrap_or_default();
    let kib = |name: &str| -> u64 {
        let line = meminfo.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    let pressure = read("/proc/pressure/memory").unwrap_or_default();
    let waited = |kind: &str| -> Option<f64> {
        let line = pressure.lines().find(|l| l.starts_with(kind))?;
        line.split_whitespace().find_map(|w| w.strip_prefix("avg10="))?.parse().ok()
    };
    Ok(Doctor {
        host: HostFacts {
            processor: processor(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            features: super::version::features(),
            kernel: read("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        },
        memory: MemoryFacts {
            physical: kib("MemTotal"),
            available: kib("MemAvailable"),
            swap: kib("SwapTotal"),
            overcommit: read("/proc/sys/vm/overcommit_memory").and_then(|t| t.trim().parse().ok()),
            huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|t| Some(t.split_once('[')?.1.split_once(']')?.0.to_owned())),
            pressure_some: waited("some"),
            pressure_full: waited("full"),
            shared: free_space(Path::new("/dev/shm")),
        },
        limits: limits.bounds.iter().map(fact).collect(),
        largest_limit: limits.limit.map(|b| b.0),
        disk: disk(options),
    })
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok()
}

pub fn processor() -> String {
    let info = read("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split_once(':'));
    name.map_or(std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}

/// Bytes that an ordinary user can still write to the file system of a path.
pub fn free_space(path: &Path) -> Option<u64> {
    let path = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
    // SAFETY: the structure is plain data, the path ends with a zero, both live during the call.
    unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut stat) == 0).then(|| stat.f_bavail as u64 * stat.f_frsize as u64)
    }
}

/// The type of the file system of a path, from the longest mount point above it.
fn file_system(path: &Path) -> Option<String> {
    let path = std::fs::canonicalize(path).ok()?;
    let mounts = read("/proc/self/mounts")?;
    let entries = mounts.lines().filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        Some((PathBuf::from(words.next()?), words.next()?.to_owned()))
    });
    entries.filter(|(at, _)| path.starts_with(at)).max_by_key(|(at, _)| at.as_os_str().len()).map(|(_, kind)| kind)
}

fn disk(options: &Options) -> DiskFacts {
    let directory = options.spill_dir.clone().unwrap_or_else(plimsoll::session::usual_spill_dir);
    let mut facts = DiskFacts {
        directory: directory.display().to_string(),
        file_system: file_system(&directory),
        free: free_space(&directory),
        transfers: None,
        write: None,
        read: None,
        problem: None,
    };
    match try_disk(&directory, options.disk_mib << 20) {
        Ok((transfers, rates)) => {
            facts.transfers = Some(transfers);
            (facts.write, facts.read) = rates.map_or((None, None), |(w, r)| (Some(w), Some(r)));
        }
        Err(problem) => facts.problem = Some(problem),
    }
    facts
}

/// Writes and reads a spill file: how transfers go, and bytes a second each way.
pub fn try_disk(directory: &Path, bytes: u64) -> Result<(String, Option<(f64, f64)>), String> {
    const BLOCK: u64 = 8 << 20;
    let blocks = bytes.div_ceil(BLOCK).max(1);
    let slots: Vec<(u64, u64)> = (0..blocks).map(|i| (i * BLOCK, BLOCK)).collect();
    let file = SpillFile::create(&Budget::unlimited(), directory, blocks * BLOCK, &slots).map_err(|e| e.to_string())?;
    let way = match file.way() {
        plimsoll_exec::Way::Direct => "direct",
        plimsoll_exec::Way::Buffered => "buffered",
        plimsoll_exec::Way::InMemory => "in memory",
    };
    if bytes == 0 {
        return Ok((way.into(), None));
    }
    let mut block = vec![0u8; BLOCK as usize];
    block.iter_mut().enumerate().for_each(|(i, b)| *b = ((i * 31) >> 3) as u8);
    let start = Instant::now();
    for (slot, _) in &slots {
        file.store(*slot, &block).map_err(|e| e.to_string())?;
    }
    let write = (blocks * BLOCK) as f64 / start.elapsed().as_secs_f64();
    let start = Instant::now();
    for (slot, _) in &slots {
        file.fetch(*slot, &mut block).map_err(|e| e.to_string())?;
    }
    let read = (blocks * BLOCK) as f64 / start.elapsed().as_secs_f64();
    Ok((way.into(), Some((write, read))))
}

fn words(found: &Doctor, out: &Out) -> String {
    let mut text = String::new();
    let size = |bytes: u64| Bytes(bytes).to_string();
    let HostFacts { processor, cores, features, kernel } = &found.host;
    let _ = writeln!(text, "host       {cores} cores {processor} ({})   kernel {kernel}", features.join(", "));
    let memory = &found.memory;
    let swap = if memory.swap == 0 { "none".into() } else { size(memory.swap) };
    let _ = writeln!(
        text,
        "memory     physical {}   available {}   swap {swap}",
        size(memory.physical),
        size(memory.available)
    );
    for (i, limit) in found.limits.iter().enumerate() {
        let head = if i == 0 { "limits" } else { "" };
        let usable =
            if limit.usable == limit.value { String::new() } else { format!("   {} usable", size(limit.usable)) };
        let mark = if limit.binds { out.paint("1;32", "   <- binds") } else { String::new() };
        let _ =
            writeln!(text, "{head:<10} {:<12} {:>12}{mark}   {}{usable}", limit.source, size(limit.value), limit.place);
    }
    let named = |source: Source| found.limits.iter().any(|l| l.source == source.to_string());
    let mut absent = Vec::new();
    if !named(Source::CgroupV1) && !named(Source::CgroupV2) {
        absent.push("control groups");
    }
    if !named(Source::AddressSpace) && !named(Source::Data) {
        absent.push("ulimit -v and -d");
    }
    if !named(Source::Slurm) {
        absent.push("Slurm");
    }
    if !absent.is_empty() {
        let _ = writeln!(text, "           no limit from {}", absent.join(", "));
    }
    if let Some(shared) = memory.shared {
        let _ = writeln!(text, "           /dev/shm     {:>12}   free", size(shared));
    }
    let overcommit = match memory.overcommit {
        Some(0) => "0 (heuristic)".to_owned(),
        Some(1) => "1 (always)".to_owned(),
        Some(2) => "2 (strict)".to_owned(),
        _ => "unknown".to_owned(),
    };
    let pages = memory.huge_pages.as_deref().unwrap_or("unknown");
    let pressure = match (memory.pressure_some, memory.pressure_full) {
        (Some(some), Some(full)) => format!("some {some:.2} %, all {full:.2} % of 10 s"),
        _ => "not told by this kernel".into(),
    };
    let _ = writeln!(text, "overcommit {overcommit}   huge pages {pages}   waiting for memory: {pressure}");
    let disk = &found.disk;
    let free = disk.free.map_or("unknown".into(), size);
    let kind = disk.file_system.as_deref().unwrap_or("unknown");
    let _ = write!(text, "disk       {}   {free} free, {kind}", disk.directory);
    match (&disk.transfers, &disk.problem) {
        (_, Some(problem)) => _ = write!(text, ", cannot be used: {problem}"),
        (Some(way), _) if way == "direct" => text += ", O_DIRECT ok",
        (Some(way), _) => _ = write!(text, ", transfers {way}"),
        _ => (),
    }
    if let (Some(write), Some(read)) = (disk.write, disk.read) {
        let _ = write!(text, ", {:.0} MB/s write, {:.0} MB/s read", write / 1e6, read / 1e6);
    }
    text.push('\n');
    match found.largest_limit {
        Some(limit) => {
            let mib = limit >> 20;
            let _ = writeln!(
                text,
                "{}",
                out.paint(
                    "1",
                    &format!("-> largest limit you can promise here: {} (--memory-limit {mib}MiB)", size(limit))
                )
            );
        }
        None => text += "-> nothing limits memory here\n",
    }
    text
}
