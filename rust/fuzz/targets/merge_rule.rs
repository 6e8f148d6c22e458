//! The decoder `merge_rule` on bytes that libFuzzer makes up.
//!
//! Owns: nothing. Does not own: what has to hold (`lancemem_testkit::decoders`).

#![no_main]

libfuzzer_sys::fuzz_target!(init: lancemem_fuzz::begin("merge_rule"), |bytes: &[u8]| {
    let _ = lancemem_testkit::decoders::merge_rule(bytes);
});
