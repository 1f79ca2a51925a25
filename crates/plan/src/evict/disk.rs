//! The disk beside the computation: one queue, busy or idle, by predicted seconds.

/// When the disk is busy. Transfers are booked into idle times, also ones that are over by the time of booking: a write could
/// have been begun as soon as its value was there.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    /// Idle times before `free`, in rising order.
    idle: Vec<(f64, f64)>,
    /// From here on it is idle.
    free: f64,
}

/// How many idle times are looked at for a booking.
const LOOK: usize = 64;

impl Disk {
    /// Begin of the earliest idle time from `from` on that lasts `seconds`.
    pub fn earliest(&self, from: f64, seconds: f64) -> f64 {
        let first = self.idle.partition_point(|&(_, end)| end <= from);
        let fits = |&(begin, end): &(f64, f64)| {
            let begin = begin.max(from);
            (begin + seconds <= end).then_some(begin)
        };
        self.idle[first..].iter().take(LOOK).find_map(fits).unwrap_or(self.free.max(from))
    }

    /// Begins of transfers of this length that are over at `by`, the latest first.
    pub fn before(&self, by: f64, seconds: f64) -> impl Iterator<Item = f64> {
        let open = (self.free + seconds <= by).then_some(by - seconds);
        let idle = self.idle.iter().rev().take(LOOK);
        let idle = idle.filter_map(move |&(begin, end)| {
            let latest = end.min(by) - seconds;
            (latest >= begin).then_some(latest)
        });
        open.into_iter().chain(idle)
    }

    /// When it is idle for good.
    pub fn free(&self) -> f64 {
        self.free
    }

    /// Makes the disk busy from `begin` on; it is idle then.
    pub fn book(&mut self, begin: f64, seconds: f64) {
        let end = begin + seconds;
        if begin >= self.free {
            if begin > self.free {
                self.idle.push((self.free, begin));
            }
            self.free = end;
            return;
        }
        let at = self.idle.partition_point(|&(_, idle_end)| idle_end <= begin);
        let (idle_begin, idle_end) = self.idle[at];
        debug_assert!(idle_begin <= begin && end <= idle_end + 1e-9, "{begin}..{end} in {idle_begin}..{idle_end}");
        match (begin > idle_begin, end < idle_end) {
            (true, true) => {
                self.idle[at] = (idle_begin, begin);
                self.idle.insert(at + 1, (end, idle_end));
            }
            (true, false) => self.idle[at] = (idle_begin, begin),
            (false, true) => self.idle[at] = (end, idle_end),
            (false, false) => drop(self.idle.remove(at)),
        }
    }
}
