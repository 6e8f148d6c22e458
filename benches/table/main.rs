//! The benches of a whole table, in one program: each links Lance, which takes a minute a program.
//!
//! Owns: which of them runs.
//! Does not own: the measurements (a module each; `common` has their common parts), or the benches
//! of the core (`put`, `object_store`).
//!
//! `cargo bench --workspace --bench table -- NAME [ARGUMENTS]`; without a name all of them, one
//! after the other.

#![expect(clippy::print_stderr, reason = "a program names what it runs and what it takes")]
#![recursion_limit = "256"]

mod common;
mod flush;
mod lookup;
mod record_index;
mod scan;

/// Gets the arguments behind its name.
type Bench = fn(&[String]);

const BENCHES: [(&str, Bench); 4] = [
    ("flush", flush::run),
    ("lookup", lookup::run),
    ("record_index", record_index::run),
    ("scan", scan::run),
];

fn main() {
    // Cargo itself adds `--bench`.
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let Some(wanted) = arguments.first() else {
        for (name, run) in BENCHES {
            eprintln!("{name}:");
            run(&[]);
        }
        return;
    };
    if let Some((_, run)) = BENCHES.iter().find(|(name, _)| name == wanted) {
        run(&arguments[1..]);
    } else {
        let names = BENCHES.map(|(name, _)| name).join(", ");
        eprintln!("name one of {names}: cargo bench --workspace --bench table -- NAME");
        std::process::exit(2);
    }
}
