//! `make sim`: many lives, or one again.
//!
//! Owns: the choice of seeds, the report and the line that replays a failure.
//! Does not own: what a life is.

#![expect(clippy::print_stdout, reason = "the report is what this program is for")]

fn main() {
    let seeds: u64 = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(10);
    let start: u64 = std::env::args().nth(2).and_then(|it| it.parse().ok()).unwrap_or(1);
    lancemem_sim::note_panics();
    let verbose = std::env::var_os("LANCEMEM_TRACE").is_some();
    let mut counts = lancemem_sim::Counts::new();
    for seed in start..start + seeds {
        let life = lancemem_sim::live(seed, 500, verbose);
        if let Some(failure) = &life.failure {
            println!("seed {seed}: {failure}");
        }
        for (k, v) in life.counts {
            *counts.entry(k).or_default() += v;
        }
    }
    println!("{counts:#?}");
}
