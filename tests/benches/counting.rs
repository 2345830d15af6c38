//! The system's allocator, counting calls and live bytes.
//!
//! Made for benchmarks of one thread: counts are read and written without a locked instruction, which would cost more
//! than what is measured.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

pub struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static LIVE: AtomicI64 = AtomicI64::new(0);

/// Allocations and reallocations so far.
pub fn allocations() -> u64 {
    ALLOCATIONS.load(Relaxed)
}

/// Bytes asked for and not given back.
pub fn live_bytes() -> i64 {
    LIVE.load(Relaxed)
}

fn note(calls: u64, bytes: i64) {
    ALLOCATIONS.store(ALLOCATIONS.load(Relaxed) + calls, Relaxed);
    LIVE.store(LIVE.load(Relaxed) + bytes, Relaxed);
}

// SAFETY: every call goes unchanged to the system's allocator, which keeps the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: the caller's layout, unchanged.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(0, -(layout.size() as i64));
        // SAFETY: `alloc` took the pointer from the same allocator.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(1, size as i64 - layout.size() as i64);
        // SAFETY: the caller's pointer, layout and size, unchanged.
        unsafe { System.realloc(pointer, layout, size) }
    }
}
