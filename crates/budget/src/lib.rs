//! Who holds how much memory, and how much there is.
//!
//! A [`Budget`] owns one memory limit. Whoever is about to hold memory worth counting opens an
//! [`Account`] under a name that says what the memory is for, asks it for a [`Reservation`], and keeps
//! that beside the memory; dropping it is the only way of giving it back. When the answer is no, the
//! error is the whole [`Ledger`]: who holds how much, what was asked, and what the limit is.
//!
//! ```
//! use plimsoll_budget::{Budget, Bytes};
//! let budget = Budget::new(Bytes::mib(512));
//! let shuffle = budget.account("pipeline/shuffle");
//!
//! let held = shuffle.reserve(Bytes::mib(500))?;
//! let refused = budget.account("cache").reserve(Bytes::mib(64)).unwrap_err();
//! assert_eq!(
//!     refused.to_string(),
//!     "cache asked for 64 MiB, but only 12 MiB of 512 MiB are left (pipeline holds 500 MiB)"
//! );
//!
//! drop(held);
//! assert!(budget.account("cache").reserve(Bytes::mib(64)).is_ok());
//! # Ok::<(), plimsoll_budget::OverBudget>(())
//! ```
//!
//! Whoever holds memory only because it was left over (files read ahead, buffers that wait for their next use) says so by
//! lending a [`Spare`] to the budget, and is asked to give back before anybody is refused.
//!
//! The crate does not allocate the memory it counts, and it does not believe its own counts: [`measure`]
//! asks the kernel what the process really holds. Where a limit comes from when the user gives none (or
//! gives one that the container does not allow) is answered by [`limits`].

mod budget;
mod bytes;
mod ledger;
pub mod limits;
pub mod measure;

pub use budget::{Account, Budget, Reservation, Spare};
pub use bytes::{Bytes, Limit, ParseBytesError};
pub use ledger::{Entry, Ledger, OverBudget};
