//! Ctrl-C during `fit`: the first one ends training after the step, the second one ends the process as usual.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static WATCHERS: AtomicUsize = AtomicUsize::new(0);

/// While it lives, SIGINT sets a flag instead of ending the process.
pub(super) struct Watcher {
    previous: libc::sigaction,
}

extern "C" fn on_signal(signal: libc::c_int) {
    if INTERRUPTED.swap(true, Ordering::SeqCst) {
        // The second one: back to the default, and again.
        // SAFETY: both calls are allowed in a signal handler.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

impl Watcher {
    /// Takes over SIGINT; `None` when another `fit` in this process has it.
    pub fn start() -> Option<Watcher> {
        if WATCHERS.fetch_add(1, Ordering::SeqCst) > 0 {
            WATCHERS.fetch_sub(1, Ordering::SeqCst);
            return None;
        }
        INTERRUPTED.store(false, Ordering::SeqCst);
        // SAFETY: the structures are plain data and valid for the calls; the handler only does what handlers may.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let mut previous: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGINT, &action, &mut previous);
            Some(Watcher { previous })
        }
    }

    /// Whether Ctrl-C was pressed.
    pub fn interrupted() -> bool {
        WATCHERS.load(Ordering::Relaxed) > 0 && INTERRUPTED.load(Ordering::Relaxed)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // SAFETY: gives back what was taken over.
        unsafe { libc::sigaction(libc::SIGINT, &self.previous, std::ptr::null_mut()) };
        WATCHERS.fetch_sub(1, Ordering::SeqCst);
    }
}
