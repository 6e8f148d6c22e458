//! Row addresses: the values of the column `_rowaddr` in Lance's scans.
//!
//! Owns: the two halves of an address, fragment id and row offset.
//! Does not own: row ids, which differ from addresses in a table with stable row ids.

use lancemem_core::types::{Error, Result};

/// Fragment and offset of a row address.
#[expect(clippy::cast_possible_truncation, reason = "an address is a fragment and an offset")]
pub const fn split_address(address: u64) -> (u32, u32) {
    ((address >> 32) as u32, address as u32)
}

/// The id of a fragment as the upper half of an address.
///
/// # Errors
/// An internal error for an id that no address can hold: Lance counts fragments in 32 bits.
pub fn address_half(fragment: u64) -> Result<u32> {
    u32::try_from(fragment).map_err(|_| {
        Error::internal(format!("a fragment id is limited to 2^32 - 1, the table has {fragment}"))
    })
}
