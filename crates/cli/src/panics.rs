//! Panics are bugs of ours: they are told as such, with the place of a note to send us, and never as raw text.

use crate::errors::Code;
use std::io::Write;

/// From now on a panic writes a note and says where it is.
pub fn install() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or("an unknown place".to_owned(), ToString::to_string);
        let message = info.payload_as_str().unwrap_or("no message");
        let path = std::env::temp_dir().join(format!("plimsoll-crash-{}.txt", std::process::id()));
        let arguments: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
        let trace = std::backtrace::Backtrace::force_capture();
        let note = format!(
            "plimsoll {} crashed at {place}\n{message}\narguments: {arguments:?}\n\n{trace}\n",
            env!("CARGO_PKG_VERSION")
        );
        let written = std::fs::write(&path, note).is_ok();
        let code = Code::Bug;
        let mut err = std::io::stderr();
        // The cursor may be hidden and the line half drawn.
        if std::io::IsTerminal::is_terminal(&err) {
            let _ = write!(err, "\r\x1b[K\x1b[?25h");
        }
        let _ = writeln!(err, "error[{code}]: a bug in plimsoll: {message}\n  at    {place}");
        if written {
            let _ = writeln!(err, "  do    please send us {}", path.display());
        }
    }));
}
