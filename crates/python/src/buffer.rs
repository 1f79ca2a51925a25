//! Memory of values that are known: reserved in the budget, aligned as kernels want it, never written once it is shared.

use plimsoll_budget::{Budget, Bytes, Reservation};
use plimsoll_exec::{Arena, ArenaError};
use plimsoll_tensor::TensorType;
use std::alloc::Layout;
use std::any::Any;

/// What kernels ask of operands.
const ALIGNMENT: usize = 64;

/// From this size on a value has a mapping of its own, which goes back to the system when the value goes.
const MAPPED: usize = 128 << 10;

/// A value in memory.
pub struct Buffer {
    ty: TensorType,
    ptr: *mut u8,
    /// Who owns the bytes.
    owner: Owner,
}

enum Owner {
    /// A block of the heap.
    Heap { layout: Layout, _held: Reservation },
    /// A mapping of its own.
    Mapping { _arena: Arena },
    /// Another library, which keeps them as long as this lives.
    Foreign { _keep: Box<dyn Any + Send + Sync> },
}

// SAFETY: the bytes are plain data that only the buffer's owner writes, before it is shared.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Zeros of this type, in the budget's account `tensors`.
    ///
    /// # Errors
    /// When the budget or the system does not give the memory.
    pub fn zeros(budget: &Budget, ty: TensorType) -> Result<Buffer, ArenaError> {
        let bytes = ty.bytes();
        let held = budget.account("tensors").reserve(Bytes::from(bytes)).map_err(ArenaError::from)?;
        if bytes >= MAPPED {
            let arena = Arena::new(held)?;
            return Ok(Buffer { ty, ptr: arena.ptr(), owner: Owner::Mapping { _arena: arena } });
        }
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT).expect("a small size has a layout");
        // SAFETY: the layout has a size.
        let ptr = unsafe { std::alloc::alloc_zeroed(layout) };
        if ptr.is_null() {
            std::alloc::handle_alloc_error(layout);
        }
        Ok(Buffer { ty, ptr, owner: Owner::Heap { layout, _held: held } })
    }

    /// A value with these bytes, as many as the type says.
    ///
    /// # Errors
    /// As [`Buffer::zeros`].
    ///
    /// # Panics
    /// With another number of bytes.
    pub fn of_bytes(budget: &Budget, ty: TensorType, bytes: &[u8]) -> Result<Buffer, ArenaError> {
        let mut buffer = Buffer::zeros(budget, ty)?;
        buffer.bytes_mut().copy_from_slice(bytes);
        Ok(buffer)
    }

    /// Memory of another library, which `keep` keeps; `None` when it is not aligned as kernels want it.
    ///
    /// # Safety
    /// `ptr` points to a value of the type that nobody writes while `keep` lives.
    pub unsafe fn foreign(ty: TensorType, ptr: *mut u8, keep: Box<dyn Any + Send + Sync>) -> Option<Buffer> {
        let aligned = (ptr as usize).is_multiple_of(ALIGNMENT);
        aligned.then_some(Buffer { ty, ptr, owner: Owner::Foreign { _keep: keep } })
    }

    /// Type and shape.
    pub fn ty(&self) -> &TensorType {
        &self.ty
    }

    /// The first byte.
    pub fn ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the owner has as many bytes as the type says.
        unsafe { std::slice::from_raw_parts(self.ptr, self.ty.bytes()) }
    }

    /// The bytes, to be filled before the buffer is shared.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; exclusive, and foreign memory is never asked for.
        unsafe { std::slice::from_raw_parts_mut(self.ptr, self.ty.bytes()) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Owner::Heap { layout, .. } = &self.owner {
            // SAFETY: allocated with this layout.
            unsafe { std::alloc::dealloc(self.ptr, *layout) };
        }
    }
}
