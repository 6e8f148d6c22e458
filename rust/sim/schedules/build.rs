//! Gives the MemTable atomics whose order a test chooses, too. Owns that switch only: the flags of
//! all crates stay the flags of `..`, so that shared dependencies are compiled once.

fn main() {
    println!("cargo::rustc-cfg=lancemem_schedules");
}
