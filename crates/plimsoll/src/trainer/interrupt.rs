//! Ctrl-C and SIGTERM during `fit`: the first one ends training after the step, the second one ends the process as usual.

use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

/// The signal that came, or 0.
static INTERRUPTED: AtomicI32 = AtomicI32::new(0);
static WATCHERS: AtomicUsize = AtomicUsize::new(0);

const SIGNALS: [libc::c_int; 2] = [libc::SIGINT, libc::SIGTERM];

/// While it lives, SIGINT and SIGTERM set a flag instead of ending the process.
pub(super) struct Watcher {
    previous: [libc::sigaction; 2],
}

extern "C" fn on_signal(signal: libc::c_int) {
    if INTERRUPTED.swap(signal, Ordering::SeqCst) != 0 {
        // The second one: back to the default, and again.
        // SAFETY: both calls are allowed in a signal handler.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

impl Watcher {
    /// Takes over both signals; `None` when another `fit` in this process has it.
    pub fn start() -> Option<Watcher> {
        if WATCHERS.fetch_add(1, Ordering::SeqCst) > 0 {
            WATCHERS.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        INTERRUPTED.store(0, Ordering::SeqCst);
        let previous = SIGNALS.map(|signal| {
            // SAFETY: the structures are plain data and valid for the calls; the handler only does what handlers may.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let mut previous: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_signal as *const () as usize;
                action.sa_flags = libc::SA_RESTART;
                libc::sigaction(signal, &action, &mut previous);
                previous
            }
        });
        Some(Watcher { previous })
    }

    /// The signal that asks for the end, if one came.
    pub fn signal() -> Option<i32> {
        let signal = INTERRUPTED.load(Ordering::Relaxed);
        (WATCHERS.load(Ordering::Relaxed) > 0 && signal != 0).then_some(signal)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        for (signal, previous) in SIGNALS.iter().zip(&self.previous) {
            // SAFETY: gives back what was taken over.
            unsafe { libc::sigaction(*signal, previous, std::ptr::null_mut()) };
        }
        WATCHERS.fetch_sub(1, Ordering::SeqCst);
    }
}
