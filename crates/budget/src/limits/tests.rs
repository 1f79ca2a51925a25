use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory tree that is removed at the end of the test.
struct Tree(PathBuf);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Tree {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("plimsoll-limits-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(name);
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Tree(root)
    }

    fn host(&self) -> Host {
        Host::at(&self.0)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The bounds found in a tree, one per line: `source value usable place`.
fn bounds_text(host: &Host) -> Vec<String> {
    let line = |b: Bound| format!("{} {} {} {}", b.source, b.value.0, b.usable.0, b.place);
    host.bounds().into_iter().map(line).collect()
}

#[track_caller]
fn check_bounds(files: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(bounds_text(&Tree::new(files).host()), expected);
}

const NONE_V1: &str = "9223372036854771712\n";
const V2_MOUNT: &str = "25 1 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
const V1_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory
";

/// A process that holds 100 KiB, of which 60 KiB anonymous, in 1000 KiB of addresses, 80 KiB of them data.
const STATUS: &str = "\
Name:	x
VmSize:	    1000 kB
VmHWM:	     120 kB
VmRSS:	     100 kB
RssAnon:	      60 kB
VmData:	      80 kB
VmPTE:	      12 kB
";

#[test]
fn v2_takes_every_group_up_to_the_root() {
    check_bounds(
        &[
            ("proc/self/cgroup", "0::/user.slice/job.scope\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/user.slice/memory.max", "4000000\n"),
            ("sys/fs/cgroup/user.slice/memory.high", "3500000\n"),
            ("sys/fs/cgroup/user.slice/memory.current", "1748576\n"),
            ("sys/fs/cgroup/user.slice/memory.stat", "anon 600000\ninactive_file 100000\nactive_file 1\n"),
            ("sys/fs/cgroup/user.slice/job.scope/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/job.scope/memory.high", "max\n"),
        ],
        &[
            "cgroup v2 4000000 3400000 /sys/fs/cgroup/user.slice/memory.max",
            "cgroup v2 3500000 2900000 /sys/fs/cgroup/user.slice/memory.high",
        ],
    );
}

#[test]
fn what_we_hold_ourselves_is_usable() {
    check_bounds(
        &[
            ("proc/self/status", STATUS),
            ("proc/self/cgroup", "0::/a\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/a/memory.max", "4194304\n"),
            // We hold 112 KiB, page tables included; 1 MiB may be the kernel's; the rest is somebody else's.
            ("sys/fs/cgroup/a/memory.current", "2097152\n"),
        ],
        &["cgroup v2 4194304 3260416 /sys/fs/cgroup/a/memory.max"],
    );
}

#[test]
fn a_group_of_our_own_is_ours_but_for_shared_memory() {
    let files = [
        ("proc/self/status", STATUS),
        ("proc/self/cgroup", "0::/a\n"),
        ("sys/fs/cgroup/a/memory.max", "4194304\n"),
        ("sys/fs/cgroup/a/memory.current", "3145728\n"),
        ("sys/fs/cgroup/a/memory.stat", "anon 1\nshmem 4096\n"),
        ("sys/fs/cgroup/a/cgroup.procs", "17\n"),
    ];
    check_bounds(&files, &["cgroup v2 4194304 4190208 /sys/fs/cgroup/a/memory.max"]);
    // With a second member what is held may be its.
    let mut two = files;
    two[5].1 = "17\n18\n";
    check_bounds(&two, &["cgroup v2 4194304 2211840 /sys/fs/cgroup/a/memory.max"]);
}

#[test]
fn v1_takes_every_group_and_knows_no_limit() {
    check_bounds(
        &[
            ("proc/self/cgroup", "5:cpu,memory:/docker/abc\n1:name=systemd:/docker/abc\n"),
            ("proc/self/mountinfo", V1_MOUNTS),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", NONE_V1),
            ("sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "800000\n"),
            ("sys/fs/cgroup/memory/docker/memory.usage_in_bytes", "1548576\n"),
            ("sys/fs/cgroup/memory/docker/memory.stat", "inactive_file 1\ntotal_inactive_file 200000\n"),
            ("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "900000\n"),
            ("sys/fs/cgroup/memory/docker/abc/memory.stat", "hierarchical_memory_limit 800000\n"),
        ],
        &[
            "cgroup v1 900000 900000 /sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes",
            "cgroup v1 800000 500000 /sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
        ],
    );
}

#[test]
fn hybrid_reads_both_versions() {
    let mounts = [V1_MOUNTS, "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"].concat();
    check_bounds(
        &[
            ("proc/self/cgroup", "4:memory:/job\n0::/job\n"),
            ("proc/self/mountinfo", &mounts),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", NONE_V1),
            ("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "700000\n"),
            // The memory controller belongs to version 1 here, so version 2 has no such file.
            ("sys/fs/cgroup/unified/job/cgroup.procs", "1\n"),
        ],
        &["cgroup v1 700000 700000 /sys/fs/cgroup/memory/job/memory.limit_in_bytes"],
    );
}

#[test]
fn a_container_sees_its_own_group_at_the_mount_point() {
    let mounts = "40 30 0:25 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    check_bounds(
        &[
            ("proc/self/cgroup", "9:memory:/docker/abc\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "900000\n"),
            // The group above is hidden, but its limit is told.
            ("sys/fs/cgroup/memory/memory.stat", "cache 5\nhierarchical_memory_limit 600000\n"),
        ],
        &[
            "cgroup v1 900000 900000 /sys/fs/cgroup/memory/memory.limit_in_bytes",
            "cgroup v1 600000 600000 /sys/fs/cgroup/memory/memory.stat hierarchical_memory_limit",
        ],
    );
}

#[test]
fn a_group_outside_the_mount_counts_as_the_mount_point() {
    for group in ["/../../other", "/elsewhere", "/"] {
        check_bounds(
            &[
                ("proc/self/cgroup", &format!("0::{group}\n")),
                ("proc/self/mountinfo", "25 1 0:22 /pod/box /sys/fs/cgroup rw - cgroup2 cgroup rw\n"),
                ("sys/fs/cgroup/memory.max", "5000\n"),
            ],
            &["cgroup v2 5000 5000 /sys/fs/cgroup/memory.max"],
        );
    }
}

#[test]
fn odd_mount_points_and_missing_tables() {
    check_bounds(
        &[
            ("proc/self/cgroup", "0::/my job:1\n"),
            ("proc/self/mountinfo", "25 1 0:22 / /my\\040groups rw - cgroup2 cgroup rw\n"),
            ("my groups/my job:1/memory.max", "5000"),
        ],
        &["cgroup v2 5000 5000 /my groups/my job:1/memory.max"],
    );
    // Without a mount table the usual places are tried.
    check_bounds(
        &[("proc/self/cgroup", "0::/a\n"), ("sys/fs/cgroup/a/memory.max", "5000")],
        &["cgroup v2 5000 5000 /sys/fs/cgroup/a/memory.max"],
    );
    check_bounds(&[("proc/self/cgroup", "nonsense\n::\n0:\n\n0::\n"), ("proc/self/mountinfo", "- - -\n 1 2\n")], &[]);
    check_bounds(&[], &[]);
}

#[test]
fn shell_limits_count_addresses_that_are_not_memory() {
    let limits = "\
Limit                     Soft Limit           Hard Limit           Units
Max data size             500000               unlimited            bytes
Max address space         2000000              2000000              bytes
Max processes             95000                95000                processes
";
    check_bounds(
        &[("proc/self/limits", limits), ("proc/self/status", STATUS)],
        &["ulimit -v 2000000 1078400 RLIMIT_AS", "ulimit -d 500000 479520 RLIMIT_DATA"],
    );
    let unlimited = "Max address space         unlimited            unlimited            bytes\n";
    check_bounds(&[("proc/self/limits", unlimited)], &[]);
}

#[test]
fn slurm_grants_in_mib() {
    let empty = Tree::new(&[]);
    let bounds = |variables: &[(&str, &str)]| {
        bounds_text(&variables.iter().fold(empty.host(), |host, (name, value)| host.with_variable(name, value)))
    };
    assert_eq!(bounds(&[("SLURM_MEM_PER_NODE", "4096")]), ["slurm 4294967296 4294967296 SLURM_MEM_PER_NODE"]);
    assert_eq!(bounds(&[("SLURM_MEM_PER_NODE", "2G")]), ["slurm 2147483648 2147483648 SLURM_MEM_PER_NODE"]);
    assert_eq!(
        bounds(&[("SLURM_MEM_PER_CPU", "100"), ("SLURM_CPUS_ON_NODE", "4")]),
        ["slurm 419430400 419430400 SLURM_MEM_PER_CPU x 4 processors"]
    );
    assert_eq!(bounds(&[("SLURM_MEM_PER_CPU", "100")]), ["slurm 104857600 104857600 SLURM_MEM_PER_CPU x 1 processors"]);
    // Zero asks for all the memory of the machine.
    assert!(bounds(&[("SLURM_MEM_PER_NODE", "0")]).is_empty());
    assert!(bounds(&[("SLURM_MEM_PER_NODE", "much")]).is_empty());
}

/// A host with 2000 KiB free and a group limit of 800 KiB.
fn small_host() -> Tree {
    Tree::new(&[
        ("proc/meminfo", "MemTotal: 5000 kB\nMemAvailable:     2000 kB\n"),
        ("proc/self/cgroup", "0::/a\n"),
        ("proc/self/mountinfo", V2_MOUNT),
        ("sys/fs/cgroup/a/memory.max", "819200\n"),
    ])
}

#[test]
fn nothing_wanted_takes_the_lowest_bound_less_a_margin() {
    let tree = small_host();
    let limits = tree.host().limits(None).unwrap();
    assert_eq!(limits.limit, Some(Bytes(819_200 * 98 / 100)));
    assert_eq!(limits.binding().unwrap().to_string(), "800 KiB (cgroup v2, /sys/fs/cgroup/a/memory.max)");
    assert_eq!((limits.wanted, limits.shortfall()), (None, Bytes::ZERO));

    let only_free = Tree::new(&[("proc/meminfo", "MemAvailable: 1000000 kB\n")]);
    let limits = only_free.host().limits(None).unwrap();
    assert_eq!(limits.limit, Some(Bytes::kib(900_000)));
    // Little memory: 64 MiB stay free, or half.
    let little = |kib: u64| Tree::new(&[("proc/meminfo", &format!("MemAvailable: {kib} kB\n"))]);
    assert_eq!(little(200 << 10).host().limits(None).unwrap().limit, Some(Bytes::mib(136)));
    assert_eq!(little(100).host().limits(None).unwrap().limit, Some(Bytes::kib(50)));
    assert_eq!(limits.binding().unwrap().source, Source::MemAvailable);

    let limits = Tree::new(&[]).host().limits(None).unwrap();
    assert_eq!((limits.limit, limits.binding()), (None, None));
}

#[test]
fn the_margin_can_decide_which_bound_is_lowest() {
    // 980 less 2 % is more than 1000 less 10 %.
    let tree = Tree::new(&[
        ("proc/meminfo", "MemAvailable: 1000000 kB\n"),
        ("proc/self/cgroup", "0::/a\n"),
        ("sys/fs/cgroup/a/memory.max", "1003520000\n"),
    ]);
    let limits = tree.host().limits(None).unwrap();
    assert_eq!(limits.binding().unwrap().source, Source::MemAvailable);
    assert_eq!(limits.limit, Some(Bytes::kib(900_000)));
}

#[test]
fn a_wish_is_kept_to_the_byte() {
    let tree = small_host();
    let limits = tree.host().limits(Some(Bytes(819_200).into())).unwrap();
    assert_eq!(limits.limit, Some(Bytes(819_200)));
    assert_eq!(limits.binding().unwrap().source, Source::User);
    let half = tree.host().limits(Some(Limit::Percent(50.0))).unwrap();
    assert_eq!(half.limit, Some(Bytes(409_600)));
}

#[test]
fn a_wish_above_the_host_is_not_granted() {
    let tree = small_host();
    let limits = tree.host().limits(Some(Bytes::mib(1).into())).unwrap();
    assert_eq!(limits.limit, Some(Bytes::kib(800)));
    assert_eq!(limits.shortfall(), Bytes::kib(224));
    assert_eq!(limits.binding().unwrap().source, Source::CgroupV2);
}

#[test]
fn the_variable_counts_when_the_user_is_silent() {
    let tree = small_host();
    let host = tree.host().with_variable(VARIABLE, "300K");
    let limits = host.limits(None).unwrap();
    assert_eq!(limits.limit, Some(Bytes::kib(300)));
    assert_eq!(limits.binding().unwrap().to_string(), "300 KiB (environment, PLIMSOLL_MEMORY_LIMIT)");
    assert_eq!(host.limits(Some(Bytes::kib(400).into())).unwrap().limit, Some(Bytes::kib(400)));
    let bad = tree.host().with_variable(VARIABLE, "lots").limits(None).unwrap_err().to_string();
    assert!(bad.contains("PLIMSOLL_MEMORY_LIMIT") && bad.contains("lots"), "{bad}");
    let unlimited = tree.host().with_variable(VARIABLE, "none").limits(None).unwrap();
    assert_eq!((unlimited.limit, unlimited.bounds.len()), (None, 2));
}

#[test]
#[cfg(target_os = "linux")]
fn this_host_has_free_memory() {
    let bounds = Host::this().bounds();
    let free = bounds.iter().find(|bound| bound.source == Source::MemAvailable).unwrap();
    assert!(free.usable > free.value && free.value > Bytes::mib(1));
}
