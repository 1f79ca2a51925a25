//! How a block of an input is read when its shape is broadcast to the output's.

use plimsoll_tensor::{MAX_RANK, Shape};

/// The pattern in which an input's elements are read along the output's row-major order.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// One element for all.
    Scalar,
    /// Element i for output i.
    InOrder,
    /// Element `i % period`: the input has the output's last axes.
    Repeat {
        /// The input's number of elements.
        period: usize,
    },
    /// Element `i / run`: the input has the output's first axes.
    Stretch {
        /// How often each element is read in a row.
        run: usize,
    },
    /// Anything else: sizes and strides of the output's axes, joined where possible.
    Strided {
        /// The number of axes.
        rank: usize,
        /// Their sizes.
        sizes: [usize; MAX_RANK],
        /// The input's stride along each, 0 where it is broadcast.
        strides: [usize; MAX_RANK],
    },
}

impl Access {
    /// The pattern for an input of shape `from` under an output of shape `to`.
    ///
    /// # Panics
    /// When `from` does not broadcast to `to`.
    pub fn new(from: &Shape, to: &Shape) -> Access {
        assert_eq!(from.broadcast(to).as_ref(), Some(to), "shape {from} does not broadcast to {to}");
        let (mut sizes, mut strides, mut rank) = ([0; MAX_RANK], [0; MAX_RANK], 0);
        let natural = from.strides();
        let missing = to.rank() - from.rank();
        for axis in 0..to.rank() {
            let size = to[axis];
            if size == 1 {
                continue;
            }
            let stride = match axis.checked_sub(missing) {
                Some(a) if from[a] != 1 => natural[a],
                _ => 0,
            };
            // Joins with the axis before when stepping over this one whole is one step of that one.
            if rank > 0 && strides[rank - 1] == stride * size {
                sizes[rank - 1] *= size;
                strides[rank - 1] = stride;
            } else {
                (sizes[rank], strides[rank]) = (size, stride);
                rank += 1;
            }
        }
        match (rank, strides) {
            (0, _) => Access::InOrder,
            (1, [0, ..]) => Access::Scalar,
            (1, [1, ..]) => Access::InOrder,
            (2, [0, 1, ..]) => Access::Repeat { period: sizes[1] },
            (2, [1, 0, ..]) => Access::Stretch { run: sizes[1] },
            _ => Access::Strided { rank, sizes, strides },
        }
    }

    /// Where the elements for outputs `start .. start + len` stand in the input, if they stand there one after another.
    pub fn in_place(&self, start: usize, len: usize) -> Option<usize> {
        match *self {
            Access::InOrder => Some(start),
            Access::Repeat { period } => Some(start % period).filter(|place| place + len <= period),
            _ => None,
        }
    }

    /// A number that is the same for all outputs from which on the elements are the same ones; `None` where they never are again.
    pub fn phase(&self, start: usize) -> Option<usize> {
        match *self {
            Access::Scalar => Some(0),
            Access::Repeat { period } => Some(start % period),
            _ => None,
        }
    }

    /// Copies the elements for outputs `start .. start + len` to `out`.
    ///
    /// # Safety
    /// `from` points to all elements of the input, each `size` bytes (1, 2, 4 or 8); `out` has room for `len`.
    pub unsafe fn gather(&self, from: *const u8, size: usize, start: usize, len: usize, out: *mut u8) {
        // SAFETY: the caller's promise; elements are aligned to their size.
        unsafe {
            match size {
                1 => self.gather_as::<u8>(from, start, len, out),
                2 => self.gather_as::<u16>(from.cast(), start, len, out.cast()),
                4 => self.gather_as::<u32>(from.cast(), start, len, out.cast()),
                _ => self.gather_as::<u64>(from.cast(), start, len, out.cast()),
            }
        }
    }

    unsafe fn gather_as<W: Copy>(&self, from: *const W, start: usize, len: usize, out: *mut W) {
        // SAFETY: `out` has room for `len`; the patterns stay inside the input by construction.
        unsafe {
            let out = std::slice::from_raw_parts_mut(out, len);
            match *self {
                Access::Scalar => out.fill(*from),
                Access::InOrder => out.copy_from_slice(std::slice::from_raw_parts(from.add(start), len)),
                Access::Repeat { period } => {
                    let place = start % period;
                    let (head, rest) = out.split_at_mut((period - place).min(len));
                    head.copy_from_slice(std::slice::from_raw_parts(from.add(place), head.len()));
                    // Once more from the beginning, then as much again as is there.
                    let mut done = period.min(rest.len());
                    rest[..done].copy_from_slice(std::slice::from_raw_parts(from, done));
                    while done < rest.len() {
                        let (there, next) = rest.split_at_mut(done);
                        let n = done.min(next.len());
                        next[..n].copy_from_slice(&there[..n]);
                        done += n;
                    }
                }
                Access::Stretch { run } => {
                    let mut done = 0;
                    while done < len {
                        let (element, inside) = ((start + done) / run, (start + done) % run);
                        let n = (run - inside).min(len - done);
                        out[done..done + n].fill(*from.add(element));
                        done += n;
                    }
                }
                Access::Strided { rank, ref sizes, ref strides } => {
                    let (inner, stride) = (sizes[rank - 1], strides[rank - 1]);
                    let mut done = 0;
                    while done < len {
                        let mut rest = (start + done) / inner;
                        let inside = (start + done) % inner;
                        let mut place = inside * stride;
                        for axis in (0..rank - 1).rev() {
                            place += rest % sizes[axis] * strides[axis];
                            rest /= sizes[axis];
                        }
                        let n = (inner - inside).min(len - done);
                        for (i, o) in out[done..done + n].iter_mut().enumerate() {
                            *o = *from.add(place + i * stride);
                        }
                        done += n;
                    }
                }
            }
        }
    }
}
