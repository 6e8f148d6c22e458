//! Switches the MemTable to loom. Owns that switch only; the flags of all crates stay those of `..`.

fn main() {
    println!("cargo::rustc-cfg=lancemem_loom");
}
