//! Decoders of other people that may panic on broken files: the panic becomes a value, and nothing is printed.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`; `None` when it panicked.
///
/// The process's panic hook, which prints, is told apart by thread: it is wrapped once, and passed over only while `work` runs.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    if !std::thread::panicking() {
        HOOK.call_once(|| {
            let before = take_hook();
            set_hook(Box::new(move |info| {
                if !QUIET.get() {
                    before(info);
                }
            }));
        });
    }
    let outer = QUIET.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work)).ok();
    QUIET.set(outer);
    result
}

/// What a decoder says, for an error's text: the first line, at most 200 characters, since some quote the whole file.
pub(crate) fn brief(error: &dyn std::fmt::Display) -> String {
    let text = error.to_string();
    text.lines().next().unwrap_or("").trim_end().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::{brief, caught};

    #[test]
    fn long_words_are_cut() {
        assert_eq!(brief(&"wrong \nhere"), "wrong");
        assert_eq!(brief(&"é".repeat(1000)), "é".repeat(200));
        assert_eq!(brief(&""), "");
    }

    #[test]
    fn a_panic_is_none() {
        assert_eq!(caught(|| 1), Some(1));
        assert_eq!(caught(|| [1, 2][std::hint::black_box(2)]), None);
        // Inside another, and after it.
        assert_eq!(caught(|| caught(|| panic!("inner")).unwrap_or(3)), Some(3));
    }
}
