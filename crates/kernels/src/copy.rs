//! Strided copies: transpose, slice, pad, concatenate, flip and broadcast are all one loop.

use crate::pool::Pool;
use plimsoll_tensor::{MAX_RANK, Shape};

/// One side of a copy: where the element with all indices 0 is, and how far a step along each axis goes, in elements.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The place of the first element.
    pub offset: isize,
    /// Stride along each axis; negative walks backwards, 0 repeats.
    pub strides: [isize; MAX_RANK],
}

impl Layout {
    /// Row-major order from the beginning.
    pub fn in_order(shape: &Shape) -> Layout {
        let mut layout = Layout { offset: 0, strides: [0; MAX_RANK] };
        for (to, &from) in layout.strides.iter_mut().zip(shape.strides().dims()) {
            *to = from as isize;
        }
        layout
    }
}

/// Elements per task, about.
const TASK: usize = 16 * 1024;

/// Copies `shape` elements of `size` bytes from one layout to another.
///
/// # Safety
/// Every element of either layout lies inside memory that is valid for reading (`from`) or writing (`to`); no two
/// elements of `to` share a place, and the two sides do not overlap. Elements are aligned to their size.
pub unsafe fn strided(
    pool: &Pool,
    shape: &Shape,
    size: usize,
    from: *const u8,
    from_layout: Layout,
    to: *mut u8,
    to_layout: Layout,
) {
    let plan = Loops::new(shape, from_layout, to_layout);
    let rows_per_task = (TASK / plan.inner().max(1)).max(1);
    let rows = plan.rows();
    let ends = Ends { from, to };
    pool.run_sized(rows.div_ceil(rows_per_task), shape.elements() / 2, &|task, _| {
        let range = task * rows_per_task..rows.min((task + 1) * rows_per_task);
        // SAFETY: the caller's promise; tasks write different rows.
        unsafe {
            match size {
                1 => plan.run::<u8>(range, &ends),
                2 => plan.run::<u16>(range, &ends),
                4 => plan.run::<u32>(range, &ends),
                _ => plan.run::<u64>(range, &ends),
            }
        }
    });
}

struct Ends {
    from: *const u8,
    to: *mut u8,
}

// SAFETY: tasks read shared memory and write disjoint rows.
unsafe impl Sync for Ends {}

/// The loops of a copy, with axes of size 1 dropped and neighbours joined.
struct Loops {
    rank: usize,
    sizes: [usize; MAX_RANK],
    from: Layout,
    to: Layout,
}

impl Loops {
    fn new(shape: &Shape, from: Layout, to: Layout) -> Loops {
        let mut loops = Loops {
            rank: 0,
            sizes: [1; MAX_RANK],
            from: Layout { offset: from.offset, strides: [0; MAX_RANK] },
            to: Layout { offset: to.offset, strides: [0; MAX_RANK] },
        };
        for (axis, &size) in shape.dims().iter().enumerate() {
            if size == 1 {
                continue;
            }
            let (f, t) = (from.strides[axis], to.strides[axis]);
            let r = loops.rank;
            let joins =
                r > 0 && loops.from.strides[r - 1] == f * size as isize && loops.to.strides[r - 1] == t * size as isize;
            let at = if joins { r - 1 } else { r };
            loops.sizes[at] = if joins { loops.sizes[at] * size } else { size };
            loops.from.strides[at] = f;
            loops.to.strides[at] = t;
            loops.rank = at + 1;
        }
        loops
    }

    fn inner(&self) -> usize {
        if self.rank == 0 { 1 } else { self.sizes[self.rank - 1] }
    }

    fn rows(&self) -> usize {
        self.sizes[..self.rank.saturating_sub(1)].iter().product()
    }

    /// Copies some of the rows (all axes but the last).
    ///
    /// # Safety
    /// As [`strided`].
    unsafe fn run<W: Copy>(&self, rows: std::ops::Range<usize>, ends: &Ends) {
        let last = self.rank.saturating_sub(1);
        let (f_step, t_step) = (self.from.strides[last], self.to.strides[last]);
        let (from, to, n) = (ends.from.cast::<W>(), ends.to.cast::<W>(), self.inner());
        for row in rows {
            let (mut f, mut t, mut rest) = (self.from.offset, self.to.offset, row);
            for axis in (0..last).rev() {
                let i = (rest % self.sizes[axis]) as isize;
                rest /= self.sizes[axis];
                f += i * self.from.strides[axis];
                t += i * self.to.strides[axis];
            }
            // SAFETY: the caller's promise covers every element of the loops.
            unsafe {
                let (from, to) = (from.offset(f), to.offset(t));
                if f_step == 1 && t_step == 1 {
                    std::ptr::copy_nonoverlapping(from, to, n);
                } else if f_step == 0 && t_step == 1 {
                    std::slice::from_raw_parts_mut(to, n).fill(*from);
                } else {
                    for i in 0..n as isize {
                        *to.offset(i * t_step) = *from.offset(i * f_step);
                    }
                }
            }
        }
    }
}
