use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A directory on a disk: the target directory of the build.
fn directory() -> PathBuf {
    let directory = std::env::current_exe().unwrap();
    directory.parent().unwrap().to_owned()
}

fn numbers(n: usize, salt: u64) -> Vec<u8> {
    let mut x = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 24) as u8
    };
    std::iter::repeat_with(next).take(n).collect()
}

fn write(file: &SpillFile, slot: u64, bytes: &[u8]) -> Result<(), String> {
    // SAFETY: the bytes stay: every test finishes the slot or settles the file before it drops them.
    unsafe { file.write(slot, bytes.as_ptr(), bytes.len()) }
}

fn read(file: &SpillFile, slot: u64, bytes: &mut [u8]) -> Result<(), String> {
    // SAFETY: as above.
    unsafe { file.read(slot, bytes.as_mut_ptr(), bytes.len()) }
}

fn read_back(file: &SpillFile, slot: u64, n: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![7; n];
    let begun = read(file, slot, &mut bytes);
    let over = file.finish(slot);
    file.settle();
    begun.and(over).map(|()| bytes)
}

/// Sizes around all borders.
const SIZES: [usize; 12] =
    [0, 1, 63, 4095, 4096, 4097, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 3 * PIECE + 12_345, 5 * PIECE];

/// One slot after another for values of these sizes, and the size of the file.
fn slots(sizes: &[usize]) -> (Vec<(u64, u64)>, u64) {
    let mut end = 0;
    let place = |&n: &usize| {
        let slot = (end, n as u64);
        end += (n as u64).next_multiple_of(FILE_ALIGNMENT);
        slot
    };
    (sizes.iter().map(place).collect(), end)
}

fn check_round_trips(file: &SpillFile, slots: &[(u64, u64)]) {
    let values: Vec<Vec<u8>> = slots.iter().map(|&(slot, n)| numbers(n as usize, slot)).collect();
    // All at once, written and read back without a wait in between.
    let mut back: Vec<Vec<u8>> = values.iter().map(|v| vec![0; v.len()]).collect();
    for ((&(slot, _), value), back) in slots.iter().zip(&values).zip(&mut back) {
        write(file, slot, value).unwrap();
        read(file, slot, back).unwrap();
    }
    slots.iter().for_each(|&(slot, _)| file.finish(slot).unwrap());
    assert!(back == values, "what is read is what was written");
    // And again, the other way round.
    for (&(slot, n), value) in slots.iter().zip(&values).rev() {
        assert!(read_back(file, slot, n as usize).unwrap() == *value, "slot {slot}");
    }
}

#[test]
fn what_is_written_is_read_back() {
    let (slots, bytes) = slots(&SIZES);
    let budget = Budget::unlimited();
    let file = SpillFile::create(&budget, &directory(), bytes, &slots).unwrap();
    println!("transfers are {:?}", file.way());
    check_round_trips(&file, &slots);
    let all: u64 = slots.iter().map(|(_, n)| n).sum();
    let stats = file.stats();
    assert_eq!((stats.written, stats.read), (all, 2 * all));
    assert_eq!(budget.ledger().get("spill").unwrap().held, file.memory_held());
    let n_pieces: usize = SIZES.iter().map(|n| n.div_ceil(PIECE)).sum();
    assert_eq!(file.memory_held(), SpillFile::FIXED_MEMORY + Bytes(16 * n_pieces as u64));
    assert_eq!(file.memory_held(), SpillFile::memory(&slots));
    drop(file);
    assert_eq!(budget.held(), Bytes::ZERO);
}

#[test]
fn a_file_grows_and_shrinks_where_the_budget_has_room_for_the_difference_alone() {
    let (few, bytes) = slots(&[PIECE]);
    let (many, more) = slots(&[PIECE, 3 * PIECE]);
    let budget = Budget::new(SpillFile::memory(&many));
    let mut file = SpillFile::create(&budget, &directory(), bytes, &few).unwrap();
    let value = numbers(PIECE, 1);
    write(&file, few[0].0, &value).unwrap();
    for (slots, bytes) in [(&many, more), (&few, bytes), (&many, more)] {
        file.resize(bytes, slots).unwrap();
        assert_eq!(budget.held(), SpillFile::memory(slots));
        assert!(read_back(&file, few[0].0, PIECE).unwrap() == value);
    }
    let (too_many, even_more) = self::slots(&[PIECE, 3 * PIECE, 1]);
    let error = file.resize(even_more, &too_many).unwrap_err();
    assert!(matches!(error, SpillError::Memory(ArenaError::Budget(_))), "{error}");
    assert_eq!((budget.held(), file.bytes()), (SpillFile::memory(&many), more.next_multiple_of(4096)));
}

#[test]
fn a_file_system_that_refuses_direct_transfers_will_do() {
    let (slots, bytes) = slots(&SIZES);
    let disk = NamelessFile::open(&directory()).unwrap().buffered();
    let other = disk.again();
    let file = SpillFile::on(Box::new(disk), Way::Buffered, &Budget::unlimited(), bytes, &slots).unwrap();
    check_round_trips(&file, &slots);
    let cached = cached(&other, bytes as usize);
    println!("{cached} of {bytes} bytes are in the page cache");
    assert!(cached <= PIECE, "the page cache is emptied: it holds {cached} of {bytes} bytes");
}

/// How many bytes of a file the page cache holds.
fn cached(file: &std::fs::File, bytes: usize) -> usize {
    use std::os::fd::AsRawFd;
    let mut pages = vec![0u8; bytes.div_ceil(4096)];
    // SAFETY: a mapping of our own, asked about and given back.
    unsafe {
        let ptr = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(ptr, libc::MAP_FAILED);
        assert_eq!(libc::mincore(ptr, bytes, pages.as_mut_ptr()), 0);
        libc::munmap(ptr, bytes);
    }
    pages.iter().filter(|&&p| p & 1 == 1).count() * 4096
}

#[test]
fn space_is_reserved_by_writing_where_it_cannot_be_promised() {
    let disk = NamelessFile::open(&directory()).unwrap();
    disk.resize(0, 4096).unwrap();
    disk.reserve_by_writing(4096, 300 << 10);
    assert_eq!(disk.allocated(), 300 << 10, "every block is there");
}

#[test]
fn the_last_value_of_a_slot_is_read() {
    // More requests than the queue holds, all for one slot; each read must see the write before it.
    let n = PIECE + 4097;
    let file = SpillFile::create(&Budget::unlimited(), &directory(), 2 << 20, &[(0, n as u64)]).unwrap();
    let values: Vec<Vec<u8>> = (0..50).map(|i| numbers(n, i)).collect();
    let mut back: Vec<Vec<u8>> = vec![vec![0; n]; values.len()];
    for (value, back) in values.iter().zip(&mut back) {
        write(&file, 0, value).unwrap();
        read(&file, 0, back).unwrap();
    }
    file.finish(0).unwrap();
    assert!(back == values);
}

#[test]
fn a_slot_that_was_cleared_is_zero_and_one_never_written_is_an_error() {
    let mut file =
        SpillFile::create(&Budget::unlimited(), &directory(), 3 << 20, &[(0, 2 << 20), (2 << 20, 5)]).unwrap();
    let value = numbers(2 << 20, 1);
    write(&file, 0, &value).unwrap();
    file.clear(0, 2 << 20).unwrap();
    assert!(read_back(&file, 0, 2 << 20).unwrap().iter().all(|&b| b == 0));
    assert!(file.clear(4096, 1).is_err());
    let message = read_back(&file, 2 << 20, 5).unwrap_err();
    assert!(message.contains("nothing was written to slot 2097152"), "{message}");
    assert_eq!(write(&file, 0, &[1]).unwrap_err(), message, "a failure stays");
}

#[test]
fn slots_that_nobody_declared_are_refused() {
    let file = SpillFile::create(&Budget::unlimited(), &directory(), 1 << 20, &[(4096, 10)]).unwrap();
    for (slot, n, why) in
        [(0, 1, "no slot"), (4095, 1, "misplaced"), (1 << 20, 1, "misplaced"), (u64::MAX, 9, "misplaced")]
    {
        let message = write(&file, slot, &vec![0; n]).unwrap_err();
        assert!(message.contains(why), "{message}");
    }
    // A refusal is no failure of the file.
    write(&file, 4096, &[1, 2]).unwrap();
    assert_eq!(read_back(&file, 4096, 2).unwrap(), [1, 2]);
}

#[test]
fn a_file_that_grows_and_shrinks_keeps_what_stays() {
    let (states, temporary) = ((0, PIECE as u64 + 5), (2 << 20, 4 << 20));
    let mut file = SpillFile::create(&Budget::unlimited(), &directory(), 2 << 20, &[states]).unwrap();
    let value = numbers(PIECE + 5, 3);
    write(&file, 0, &value).unwrap();
    for bytes in [6 << 20, 2 << 20, 8 << 20] {
        let all = [states, temporary];
        file.resize(bytes, if bytes > 2 << 20 { &all } else { &all[..1] }).unwrap();
        assert!(read_back(&file, 0, value.len()).unwrap() == value, "{bytes} bytes");
        assert_eq!(file.bytes(), bytes);
        if bytes > 2 << 20 {
            let other = numbers(4 << 20, bytes);
            write(&file, 2 << 20, &other).unwrap();
            assert!(read_back(&file, 2 << 20, 4 << 20).unwrap() == other);
        }
    }
}

#[test]
fn nothing_is_left_in_the_directory() {
    let directory = directory().join(format!("spill-empty-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let file = SpillFile::create(&Budget::unlimited(), &directory, 1 << 20, &[(0, 1 << 20)]).unwrap();
    let value = numbers(1 << 20, 1);
    write(&file, 0, &value).unwrap();
    file.settle();
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0, "the file has no name while it is open");
    drop(file);
    std::fs::remove_dir(&directory).unwrap();
}

#[test]
fn directories_that_will_not_do_are_named() {
    let budget = Budget::unlimited();
    let create =
        |path: &str| SpillFile::create(&budget, Path::new(path), 4096, &[]).map(|_| ()).unwrap_err().to_string();
    for path in ["/nonexistent-folder/spill", "/proc/self/status", "/proc"] {
        let message = create(path);
        assert!(message.contains(path) && message.starts_with("no spill file can be made"), "{message}");
    }
    let budget = Budget::new(Bytes::mib(1));
    let message = SpillFile::create(&budget, &directory(), 4096, &[]).map(|_| ()).unwrap_err().to_string();
    assert!(message.contains("spill asked for 2 MiB"), "{message}");
}

/// A mount that goes when the test is over.
struct Mount(PathBuf);

impl Mount {
    /// `None`, with a message, where this process may not mount.
    fn tmpfs(name: &str, options: &str) -> Option<Mount> {
        let path = std::env::temp_dir().join(format!("plimsoll-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let done =
            std::process::Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(&path).output();
        if done.is_ok_and(|o| o.status.success()) {
            return Some(Mount(path));
        }
        println!("skipped: a tmpfs cannot be mounted here");
        std::fs::remove_dir(&path).unwrap();
        None
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(&self.0).output();
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_full_disk_is_told_before_the_first_step() {
    let Some(mount) = Mount::tmpfs("full", "size=4m") else { return };
    let budget = Budget::unlimited();
    // A small file system that can be made anywhere is one in memory.
    let create = |bytes: u64, slots: &[(u64, u64)]| {
        SpillFile::on(Box::new(NamelessFile::open(&mount.0)?), Way::InMemory, &budget, bytes, slots)
    };
    let error = create(5 << 20, &[]).map(|_| ()).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, SpillError::Full { needed: Bytes(n), free: Bytes(f), .. } if n == 5 << 20 && f <= 4 << 20));
    assert!(message.contains(mount.0.to_str().unwrap()) && message.contains("needs 5 MiB"), "{message}");
    // A file that fits, grown too far, is as before.
    let (slots, bytes) = slots(&[100, PIECE + 1]);
    let mut file = create(bytes, &slots).unwrap();
    check_round_trips(&file, &slots);
    assert!(matches!(file.resize(5 << 20, &slots), Err(SpillError::Full { .. })));
    assert!(read_back(&file, slots[1].0, PIECE + 1).unwrap() == numbers(PIECE + 1, slots[1].0));
    file.resize(3 << 20, &slots).unwrap();
}

#[test]
fn a_directory_in_memory_is_refused() {
    let Some(mount) = Mount::tmpfs("memory", "size=1m") else { return };
    let error = SpillFile::create(&Budget::unlimited(), &mount.0, 4096, &[]).map(|_| ()).unwrap_err();
    assert!(matches!(&error, SpillError::InMemory { directory } if *directory == mount.0), "{error}");
    let message = error.to_string();
    assert!(message.contains(mount.0.to_str().unwrap()) && message.contains("a directory on a disk"), "{message}");
    let found = SpillFile::first_on_disk([mount.0.clone(), directory()]);
    assert_eq!(found, Some(directory()));
}

#[test]
fn a_directory_that_cannot_be_written_is_named() {
    let Some(mount) = Mount::tmpfs("readonly", "size=1m,ro") else { return };
    let error = SpillFile::create(&Budget::unlimited(), &mount.0, 4096, &[]).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains(mount.0.to_str().unwrap()) && error.contains("Read-only"), "{error}");
}

#[test]
fn a_bit_that_changes_on_the_disk_is_noticed() {
    let (slots, bytes) = slots(&[4096, 2 * PIECE + 77]);
    let disk = NamelessFile::open(&directory()).unwrap();
    let other = disk.again();
    let file = SpillFile::on(Box::new(disk), Way::Direct, &Budget::unlimited(), bytes, &slots).unwrap();
    let (slot, n) = (slots[1].0, slots[1].1 as usize);
    let value = numbers(n, 9);
    write(&file, slot, &value).unwrap();
    file.finish(slot).unwrap();
    let at = slot + PIECE as u64 + 1000;
    std::os::unix::fs::FileExt::write_all_at(&other, &[value[PIECE + 1000] ^ 1], at).unwrap();
    other.sync_all().unwrap();
    let message = read_back(&file, slot, n).unwrap_err();
    assert!(message.contains("is not what was written: slot 4096, 1048576 bytes from 1048576"), "{message}");
}

/// A disk in memory whose calls fail as told.
struct Faulty {
    bytes: Mutex<Vec<u8>>,
    calls: AtomicUsize,
    fault: Fault,
    at: usize,
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// A signal came: nothing was moved.
    Interrupted,
    /// Less was moved than asked for.
    Short(usize),
    /// The call fails.
    Code(i32),
    /// Nothing is moved, ever, from then on.
    Stuck,
}

impl Faulty {
    fn moved(&self, n: usize) -> io::Result<usize> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        match self.fault {
            Fault::Stuck if call >= self.at => Ok(0),
            Fault::Interrupted if call == self.at => Err(io::ErrorKind::Interrupted.into()),
            Fault::Short(most) if call == self.at => Ok(n.min(most)),
            Fault::Code(code) if call == self.at => Err(io::Error::from_raw_os_error(code)),
            _ => Ok(n),
        }
    }
}

impl Disk for Faulty {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        let n = self.moved(bytes.len())?;
        bytes[..n].copy_from_slice(&self.bytes.lock().unwrap()[at as usize..][..n]);
        Ok(n)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        let n = self.moved(bytes.len())?;
        self.bytes.lock().unwrap()[at as usize..][..n].copy_from_slice(&bytes[..n]);
        Ok(n)
    }

    fn transferred(&self, _: u64, _: u64, _: bool) -> io::Result<()> {
        Ok(())
    }

    fn resize(&self, _: u64, new: u64) -> Result<(), SpillError> {
        self.bytes.lock().unwrap().resize(new as usize, 0);
        Ok(())
    }
}

#[test]
fn every_call_can_fail_in_every_way() {
    let (slots, bytes) = slots(&[5, 2 * PIECE + 9, 4096]);
    let faults = [
        (Fault::Interrupted, true),
        (Fault::Short(0), true),
        (Fault::Short(1), true),
        (Fault::Short(4096), true),
        (Fault::Short(5000), true),
        (Fault::Code(libc::EIO), false),
        (Fault::Code(libc::ENOSPC), false),
        (Fault::Stuck, false),
    ];
    for (fault, survives) in faults {
        // 5 pieces, each written and read: 10 calls.
        for at in 0..10 {
            let disk = Faulty { bytes: Mutex::default(), calls: AtomicUsize::new(0), fault, at };
            let file = SpillFile::on(Box::new(disk), Way::Direct, &Budget::unlimited(), bytes, &slots).unwrap();
            if survives {
                let values: Vec<Vec<u8>> = slots.iter().map(|&(slot, n)| numbers(n as usize, slot)).collect();
                slots.iter().zip(&values).for_each(|(&(slot, _), v)| write(&file, slot, v).unwrap());
                for (&(slot, n), value) in slots.iter().zip(&values) {
                    assert!(read_back(&file, slot, n as usize).unwrap() == *value, "{fault:?} at call {at}");
                }
                continue;
            }
            let mut errors = Vec::new();
            for &(slot, n) in &slots {
                let value = numbers(n as usize, slot);
                errors.extend(write(&file, slot, &value).err());
                errors.extend(file.finish(slot).err());
                errors.extend(read_back(&file, slot, n as usize).err());
            }
            assert!(!errors.is_empty() && errors.iter().all(|e| *e == errors[0]), "{fault:?} at call {at}: {errors:?}");
            assert!(errors[0].contains("of the spill file"), "{}", errors[0]);
            assert_eq!(file.finish(0).unwrap_err(), errors[0], "a failure stays");
        }
    }
}

#[test]
fn a_file_that_is_dropped_waits_for_what_threads_are_at() {
    for _ in 0..20 {
        let value = numbers(20 * PIECE, 1);
        let (slots, bytes) = slots(&[value.len()]);
        let file = SpillFile::create(&Budget::unlimited(), &directory(), bytes, &slots).unwrap();
        write(&file, 0, &value).unwrap();
        drop(file);
    }
}
