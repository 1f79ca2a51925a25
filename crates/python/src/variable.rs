//! Variables: values that operations change.

use crate::buffer::Buffer;
use plimsoll_tensor::TensorType;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What a variable holds.
pub struct Cell {
    id: u64,
    ty: TensorType,
    buffer: Mutex<Arc<Buffer>>,
}

static NEXT: AtomicU64 = AtomicU64::new(1);

impl Cell {
    /// A variable with a first value.
    pub fn new(buffer: Arc<Buffer>) -> Arc<Cell> {
        let ty = *buffer.ty();
        Arc::new(Cell { id: NEXT.fetch_add(1, Ordering::Relaxed), ty, buffer: Mutex::new(buffer) })
    }

    /// Tells variables apart.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Type and shape.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// Its name among a record's states.
    pub fn state_name(&self) -> String {
        format!("variable {}", self.id)
    }

    /// What it holds, operations that were asked for and have not run aside.
    pub fn get(&self) -> Arc<Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Gives it another value.
    pub fn set(&self, buffer: Arc<Buffer>) {
        *self.buffer.lock().unwrap_or_else(PoisonError::into_inner) = buffer;
    }
}
