//! The allocator of the module, and the one setting of it.
//!
//! Owns: that Rust allocates with jemalloc (docs/decisions/0007). Does not own: memory of Python
//! or of pyarrow.
//!
//! Safety model: when jemalloc starts it reads a C string through the pointer that has the name
//! below. The pointer is to bytes that end with a zero, live for ever and never change, and
//! nothing else in the module has the name.

#![expect(unsafe_code, reason = "jemalloc finds its settings by name; the safety model is above")]

use tikv_jemallocator::Jemalloc;

/// For the rows in memory: a MemTable is many buffers that live and die together, which the
/// allocator of the C library keeps after they were freed.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Buffers of 8 MiB and more, an encoder's pages, are reused as all others are. By default
/// jemalloc gives each back to the system at once, and the next one costs a page fault for every
/// 4 KiB.
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static SETTINGS: &[u8; 21] = b"oversize_threshold:0\0";
