//! The allocator of the module: jemalloc, and one arena for the large buffers of all threads.
//!
//! Owns: where Rust's memory comes from (docs/decisions/0007). Does not own: memory of Python or
//! of pyarrow.
//!
//! Safety model: every pointer that leaves here is jemalloc's, whichever arena it is of, and
//! jemalloc knows the arena of each, so that all of them go back the same way. Sizes and
//! alignments are handed on as `GlobalAlloc` promises them: no size is 0, an alignment is a power
//! of two, and what is freed has the layout that it was allocated with. The index of the arena is
//! one that jemalloc has given out; arenas are never destroyed. When jemalloc starts it reads a C
//! string through the pointer that has the name below: it is to bytes that end with a zero, live
//! for ever and never change, and nothing else in the module has the name.

#![expect(unsafe_code, reason = "an allocator is unsafe by its nature; the model is above")]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use tikv_jemalloc_sys::{MALLOCX_ALIGN, MALLOCX_ARENA, MALLOCX_ZERO, mallctl, mallocx, rallocx};
use tikv_jemallocator::Jemalloc;

/// For the rows in memory: a MemTable is many buffers that live and die together, which the
/// allocator of the C library keeps after they were freed.
#[global_allocator]
static ALLOCATOR: Shared = Shared { large: AtomicU32::new(NONE) };

/// Buffers of 8 MiB and more, an encoder's pages, are reused as all others are. By default
/// jemalloc gives each back to the system at once, and the next one costs a page fault for every
/// 4 KiB.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static SETTINGS: &[u8; 21] = b"oversize_threshold:0\0";

/// From this size on a buffer, a batch, a log entry or a page, costs more to fill than to find.
const LARGE_BYTES: usize = 1 << 20;
/// Jemalloc's first arena, which is there without having been made.
const NONE: u32 = 0;

/// Jemalloc, in which the threads share one arena for large buffers. An arena keeps for seconds
/// what was freed in it; with one for each thread a few such buffers would be kept by each.
struct Shared {
    /// `NONE` before it is made.
    large: AtomicU32,
}

/// Makes the arena of large buffers. What was allocated before stays where it is.
pub fn share_large_buffers() {
    let (mut arena, mut size) = (NONE, size_of::<u32>());
    // SAFETY: the name ends with a zero, and the answer is an `unsigned` (jemalloc's manual).
    let failed = unsafe {
        mallctl(c"arenas.create".as_ptr(), (&raw mut arena).cast(), &raw mut size, null_mut(), 0)
    };
    if failed == 0 {
        ALLOCATOR.large.store(arena, Ordering::Relaxed);
    }
}

impl Shared {
    /// The flags of a large buffer; `None` for those that threads have of their own.
    fn flags(&self, size: usize, align: usize) -> Option<c_int> {
        if size < LARGE_BYTES {
            return None;
        }
        match self.large.load(Ordering::Relaxed) {
            NONE => None,
            arena => Some(MALLOCX_ARENA(arena as usize) | MALLOCX_ALIGN(align)),
        }
    }
}

// SAFETY: jemalloc's functions keep what the trait asks for; all pointers are jemalloc's.
unsafe impl GlobalAlloc for Shared {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.flags(layout.size(), layout.align()) {
            // SAFETY: the size is not 0, as the caller promises, and the arena exists.
            Some(flags) => unsafe { mallocx(layout.size(), flags).cast() },
            // SAFETY: the caller's promises, handed on.
            None => unsafe { Jemalloc.alloc(layout) },
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match self.flags(layout.size(), layout.align()) {
            // SAFETY: as above.
            Some(flags) => unsafe { mallocx(layout.size(), flags | MALLOCX_ZERO).cast() },
            // SAFETY: as above.
            None => unsafe { Jemalloc.alloc_zeroed(layout) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer is jemalloc's and has this layout; jemalloc knows its arena.
        unsafe { Jemalloc.dealloc(pointer, layout) }
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        match self.flags(new_size, layout.align()) {
            // SAFETY: the pointer is jemalloc's, and the new size is not 0.
            Some(flags) => unsafe { rallocx(pointer.cast(), new_size, flags).cast() },
            // SAFETY: the caller's promises, handed on.
            None => unsafe { Jemalloc.realloc(pointer, layout, new_size) },
        }
    }
}
