//! The allocator of the module: jemalloc, and one arena for the large buffers of all threads.
//!
//! Owns: where Rust's memory comes from (docs/decisions/0007). Does not own: memory of Python or
//! of pyarrow.
//!
//! Safety model: every pointer that leaves this module is jemalloc's, in whichever arena. jemalloc
//! finds the arena of a pointer itself, so all pointers are freed in the same way. Sizes and
//! alignments are passed on as `GlobalAlloc` guarantees them: no size is 0, an alignment is a power
//! of two, and memory is freed with the layout of its allocation. The index of the arena comes from
//! jemalloc, and arenas are never destroyed. When jemalloc starts it reads a C string through the
//! exported name below. The string ends with a zero, lives for ever and never changes, and nothing
//! else exports that name.

#![expect(unsafe_code, reason = "an allocator is unsafe by its nature; the model is above")]

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};

use tikv_jemalloc_sys::{MALLOCX_ALIGN, MALLOCX_ARENA, MALLOCX_ZERO, mallctl, mallocx, rallocx};
use tikv_jemallocator::Jemalloc;

/// jemalloc, because a MemTable consists of many buffers that are freed together. The allocator of
/// the C library does not return such buffers to the system.
#[global_allocator]
static ALLOCATOR: Shared = Shared { large: AtomicU32::new(NONE) };

/// Makes jemalloc reuse buffers of 8 MiB and more, such as an encoder's pages. By default it
/// returns them to the system at once, and the next such buffer costs a page fault for every 4 KiB.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static SETTINGS: &[u8; 21] = b"oversize_threshold:0\0";

/// Buffers of this size and more come from the shared arena: batches, log entries and pages.
/// Filling one costs more than the contention on the arena.
const LARGE_BYTES: usize = 1 << 20;
/// The index of jemalloc's first arena, which always exists; stands for "not created yet".
const NONE: u32 = 0;

/// jemalloc with one arena for the large buffers of all threads. An arena keeps freed memory for
/// seconds. With an arena for each thread, each would keep a few large buffers.
struct Shared {
    /// The index of the arena; `NONE` before it is created.
    large: AtomicU32,
}

/// Creates the arena of large buffers. Earlier allocations stay where they are.
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
    /// The flags of a large buffer; `None` for a buffer from the thread's own arena.
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
