//! What can go wrong in a pipeline.

use crate::Spec;
use plimsoll_budget::{Bytes, OverBudget};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a pipeline can fail with. Cheap to clone.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pipeline is put together in a way that cannot work.
    #[error("{stage}: {message}")]
    Pipeline {
        /// The stage that objects.
        stage: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// A file could not be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: Arc<std::io::Error>,
    },
    /// Data that is not what it claims or has to be.
    #[error("{place}: {message}")]
    Data {
        /// Where: a file with the row or the offset, or the stage and the element.
        place: Place,
        /// What was found and what was expected.
        message: String,
    },
    /// The pipeline needs more memory than the budget has left.
    #[error(transparent)]
    OverBudget(#[from] Arc<OverBudget>),
    /// The pipeline has met a record that is larger than any it was planned for, and the budget has no room for it.
    #[error(
        "{place}: a record of {bytes}, larger than the {planned} that were planned for: {error}; a limit of {limit} would do"
    )]
    TooLarge {
        /// Where the record begins.
        place: Place,
        /// How large it is.
        bytes: Bytes,
        /// How large records were taken to be at the most.
        planned: Bytes,
        /// The limit with which there would be room for it.
        limit: Bytes,
        /// What the budget said.
        error: Arc<OverBudget>,
    },
    /// A saved position belongs to another pipeline.
    #[error("this position was saved by another pipeline:\n  saved  {saved}\n  here   {here}")]
    OtherPipeline {
        /// The digest in the saved position.
        saved: String,
        /// This pipeline's digest and description.
        here: String,
    },
}

/// Where in the data something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// A byte offset in a file.
    Offset(PathBuf, u64),
    /// A row of a file, counted from 0, where its place in bytes says little.
    Row(PathBuf, u64),
    /// A line of a file, counted from 1 as editors do.
    Line(PathBuf, u64),
    /// A whole file.
    File(PathBuf),
    /// An element that reached a stage, counted from 0.
    Element(&'static str, u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Offset(path, offset) => write!(f, "{}, offset {offset}", path.display()),
            Place::Row(path, row) => write!(f, "{}, row {row}", path.display()),
            Place::Line(path, line) => write!(f, "{}, line {line}", path.display()),
            Place::File(path) => write!(f, "{}", path.display()),
            Place::Element(stage, element) => write!(f, "{stage}, element {element}"),
        }
    }
}

impl Error {
    /// An error of how a pipeline is put together.
    pub fn pipeline(stage: impl Into<String>, message: impl Into<String>) -> Error {
        Error::Pipeline { stage: stage.into(), message: message.into() }
    }

    /// An error in the data.
    pub fn data(place: Place, message: impl Into<String>) -> Error {
        Error::Data { place, message: message.into() }
    }

    /// Something a map or filter function found wrong with its element.
    ///
    /// The stage puts the element's number in.
    pub fn element(message: impl Into<String>) -> Error {
        Error::data(Place::Element("function", 0), message)
    }

    pub(crate) fn io(path: &Path, error: std::io::Error) -> Error {
        Error::Io { path: path.into(), error: Arc::new(error) }
    }

    pub(crate) fn at_offset(path: &Path, offset: u64, message: impl Into<String>) -> Error {
        Error::data(Place::Offset(path.into(), offset), message)
    }

    pub(crate) fn in_file(path: &Path, message: impl Into<String>) -> Error {
        Error::data(Place::File(path.into()), message)
    }

    pub(crate) fn no_component(stage: &str, name: &str, spec: &Spec) -> Error {
        let names: Vec<&str> = spec.components().iter().map(|c| c.name.as_str()).collect();
        Error::pipeline(stage, format!("there is no component '{name}'; there are {}", names.join(", ")))
    }

    /// Whether the data of one element is to blame, so that leaving the element out lets the rest go on.
    pub fn is_data(&self) -> bool {
        matches!(self, Error::Data { .. })
    }

    pub(crate) fn is_over_budget(&self) -> bool {
        matches!(self, Error::OverBudget(_))
    }

    /// With the number of the element, where a function of the user only knew what was wrong.
    pub(crate) fn for_element(self, stage: &'static str, element: u64) -> Error {
        match self {
            Error::Data { place: Place::Element("function", _), message } => {
                Error::data(Place::Element(stage, element), message)
            }
            other => other,
        }
    }
}

impl From<OverBudget> for Error {
    fn from(error: OverBudget) -> Error {
        Error::OverBudget(Arc::new(error))
    }
}
