//! How fast values move to a spill file and back: `spill_rate DIRECTORY [MiB]`. Compare with
//! `dd if=/dev/zero of=DIRECTORY/file bs=1M count=MiB oflag=direct` and `dd if=DIRECTORY/file of=/dev/null bs=1M iflag=direct`.

use plimsoll_budget::Budget;
use plimsoll_exec::SpillFile;
use plimsoll_graph::op::spill::Spill;
use std::path::Path;
use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let directory = arguments.next().unwrap_or_else(|| ".".into());
    let mib: usize = arguments.next().map_or(1024, |n| n.parse().expect("a number of MiB"));
    let (each, n) = (32 << 20, mib / 32);
    let slots: Vec<(u64, u64)> = (0..n).map(|i| ((i * each) as u64, each as u64)).collect();
    let file = SpillFile::create(&Budget::unlimited(), Path::new(&directory), (n * each) as u64, &slots).unwrap();
    println!("{n} values of 32 MiB, {:?}", file.way());
    // Not zeros, which a disk may leave out.
    let mut value: Vec<u8> = (0..each as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let rate = |start: Instant| (n * each) as f64 / start.elapsed().as_secs_f64() / 1e9;
    for round in ["first", "second"] {
        let start = Instant::now();
        for &(slot, _) in &slots {
            // SAFETY: the value stays as it is until all slots are finished.
            unsafe { file.write(slot, value.as_ptr(), each).unwrap() };
        }
        slots.iter().for_each(|&(slot, _)| file.finish(slot).unwrap());
        println!("{round} time: written {:.2} GB/s", rate(start));
        let start = Instant::now();
        for &(slot, _) in &slots {
            // SAFETY: nobody else uses the value until the slot is finished.
            unsafe { file.read(slot, value.as_mut_ptr(), each).unwrap() };
            file.finish(slot).unwrap();
        }
        println!("{round} time: read    {:.2} GB/s", rate(start));
    }
    println!("{:?}", file.stats());
}
