//! Variables: states of the session that operations change.

use plimsoll_tensor::TensorType;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A variable: a state of the session, which goes when the last one who knows it does.
pub struct Cell {
    id: u64,
    ty: TensorType,
    name: String,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

/// Variables that nobody knows any more: the session removes their states when it is asked for something next.
static GONE: Mutex<Vec<String>> = Mutex::new(Vec::new());

impl Cell {
    /// A variable whose state is still to be made.
    pub fn new(ty: TensorType) -> Arc<Cell> {
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Cell { id, ty, name: format!("variable {id}") })
    }

    /// Tells variables apart.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Type and shape.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The name of its state.
    pub fn state_name(&self) -> &str {
        &self.name
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        // The session may be at work, and this may be part of it.
        GONE.lock().unwrap_or_else(PoisonError::into_inner).push(std::mem::take(&mut self.name));
    }
}

/// The states of variables that nobody knows any more.
pub fn gone() -> Vec<String> {
    std::mem::take(&mut *GONE.lock().unwrap_or_else(PoisonError::into_inner))
}
