//! What can go wrong with a run directory.

use std::path::{Path, PathBuf};

/// A run directory that cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file that is not what it should be.
    #[error("{}:{line}: {message}", path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// A directory in which no run is.
    #[error("{}: no run is here: there is neither {log} nor {plan}", path.display(), log = crate::LOG, plan = crate::PLAN)]
    NoRun {
        /// Which directory.
        path: PathBuf,
    },
}

impl RunError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> RunError + '_ {
        |source| RunError::Io { path: path.to_owned(), source }
    }

    pub(crate) fn format(path: &Path, line: usize, message: impl ToString) -> RunError {
        RunError::Format { path: path.to_owned(), line, message: message.to_string() }
    }
}

impl From<std::io::Error> for RunError {
    fn from(source: std::io::Error) -> RunError {
        RunError::Io { path: PathBuf::new(), source }
    }
}
