//! Gives the MemTable atomics whose order a test chooses, too. Owns that switch only; the flags
//! of all crates stay those of `..`, so that what both need is compiled once.

fn main() {
    println!("cargo::rustc-cfg=lancemem_schedules");
}
