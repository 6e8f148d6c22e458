//! `make sim`, `make soak`, `make mutants`: many lives, or one again.
//!
//! Owns: the choice of seeds, the report and the line that replays a failure.
//! Does not own: what a life is.

#![expect(clippy::print_stdout, reason = "the report is what this program is for")]
#![expect(clippy::print_stderr, reason = "and the words of a failure")]

use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lancemem_sim::model::{Protocol, walk};
use lancemem_sim::{Counts, Life, live};
use parking_lot::Mutex;

/// A life is many small allocations: with this one it takes a sixth fewer instructions.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Seeds that have failed once; each line a seed, then what it found.
const KEPT: &str = include_str!("../seeds.txt");
/// One life of so many is lived twice.
const TWICE: u64 = 100;
const MAX_FAILURES: usize = 10;
/// Hunts for a known bug, each from another seed.
const HUNTS: usize = 9;
const MAX_HUNT: u64 = 2_000;
const MAX_WALK: Duration = Duration::from_mins(30);

/// What the command line and the environment ask for.
struct Order {
    seeds: u64,
    first: u64,
    puts: usize,
    threads: usize,
    until: Option<Instant>,
}

#[derive(Default)]
struct Report {
    lives: u64,
    twice: u64,
    counts: Counts,
    failures: Vec<(u64, String)>,
}

fn main() -> ExitCode {
    lancemem_sim::note_panics();
    let puts = number("LANCEMEM_PUTS").and_then(|puts| usize::try_from(puts).ok()).unwrap_or(500);
    if let Some(seed) = number("LANCEMEM_SEED") {
        return replay(seed, puts);
    }
    let mut words = std::env::args().skip(1);
    let word = words.next().unwrap_or_default();
    let amount: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let first = number("LANCEMEM_FIRST_SEED").unwrap_or_else(of_the_clock);
    let threads = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
    let order = Order { seeds: amount, first, puts, threads, until: None };
    match word.as_str() {
        "seeds" => run(&order),
        "minutes" => {
            let until = Instant::now() + Duration::from_mins(amount.max(1));
            run(&Order { seeds: u64::MAX, until: Some(until), ..order })
        }
        "model" => {
            let writers = words.next().and_then(|word| word.parse().ok()).unwrap_or(3);
            let queued = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
            let more: Vec<String> = words.collect();
            let has = |word: &str| more.iter().any(|it| it == word);
            model(Protocol {
                queued,
                reads_first: has("reads-first"),
                slow_collector: has("slow-collector"),
                ..Protocol::new(writers, u8::try_from(amount.clamp(1, 3)).unwrap_or(1))
            })
        }
        "hunt" => hunt(puts, threads, Duration::from_secs(amount.max(1))),
        _ => {
            eprintln!(
                "lancemem-sim seeds N | minutes N | hunt SECONDS | model WRITES WRITERS \
                 [QUEUED reads-first slow-collector]; or LANCEMEM_SEED=n"
            );
            ExitCode::from(2)
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[expect(clippy::disallowed_methods, reason = "fresh seeds; the run prints which they are")]
fn of_the_clock() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() * 1_000_000)
}

fn replay(seed: u64, puts: usize) -> ExitCode {
    let life = live(seed, puts, std::env::var_os("LANCEMEM_TRACE").is_some());
    let again = live(seed, puts, false);
    println!("seed {seed}, {puts} puts, trace {:016x}", life.trace);
    if again.trace != life.trace {
        println!("FAILED: the same seed gave another trace: {:016x}", again.trace);
        return ExitCode::FAILURE;
    }
    if let Some(reason) = life.failure {
        println!("FAILED: {reason}");
        return ExitCode::FAILURE;
    }
    println!("nothing is broken");
    ExitCode::SUCCESS
}

/// The kept seeds, then fresh ones.
fn run(order: &Order) -> ExitCode {
    let kept: Vec<u64> =
        KEPT.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    let report = Mutex::new(Report::default());
    let next = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..order.threads {
            scope.spawn(|| {
                while let Some(seed) = take(order, &kept, next.fetch_add(1, Ordering::Relaxed)) {
                    if report.lock().failures.len() >= MAX_FAILURES {
                        return;
                    }
                    let life = live(seed, order.puts, false);
                    let twice = seed % TWICE == 0;
                    let again = twice.then(|| live(seed, order.puts, false));
                    record(&report, &life, again.as_ref(), order.puts);
                }
            });
        }
    });
    conclude(&report.into_inner(), order, kept.len(), started.elapsed())
}

fn take(order: &Order, kept: &[u64], index: u64) -> Option<u64> {
    let at = usize::try_from(index).unwrap_or(usize::MAX);
    if let Some(seed) = kept.get(at) {
        return Some(*seed);
    }
    let fresh = index - kept.len() as u64;
    let over = fresh >= order.seeds || order.until.is_some_and(|until| Instant::now() >= until);
    (!over).then(|| order.first.wrapping_add(fresh))
}

fn record(report: &Mutex<Report>, life: &Life, again: Option<&Life>, puts: usize) {
    let mut report = report.lock();
    report.lives += 1;
    for (kind, count) in &life.counts {
        *report.counts.entry(kind).or_default() += count;
    }
    let mut reasons: Vec<String> = life.failure.iter().cloned().collect();
    if let Some(again) = again {
        report.twice += 1;
        if again.trace != life.trace {
            reasons.push(format!("two traces: {:016x} and {:016x}", life.trace, again.trace));
        }
    }
    for reason in reasons {
        println!("FAILED: seed {} at commit {}: {reason}", life.seed, commit());
        println!("  replay: LANCEMEM_SEED={} LANCEMEM_PUTS={puts} make sim", life.seed);
        report.failures.push((life.seed, reason));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn conclude(report: &Report, order: &Order, kept: usize, took: Duration) -> ExitCode {
    let count = |kind: &str| report.counts.get(kind).copied().unwrap_or(0);
    let lives = report.lives.max(1);
    println!(
        "{} lives ({kept} kept seeds, then from {}), {} lived twice, {:.1} s, {:.1} ms a life",
        report.lives,
        order.first,
        report.twice,
        took.as_secs_f64(),
        took.as_secs_f64() * 1e3 * order.threads as f64 / lives as f64,
    );
    println!(
        "{} puts, {} acknowledged; {} opens, {} opened; {} reads of a job, {} of the log",
        count("put"),
        count("acknowledged"),
        count("open"),
        count("opened"),
        count("read of a job"),
        count("read of the log"),
    );
    let mut missing = Vec::new();
    for kind in FAULTS {
        println!("  {:<28} {:>10}", kind, count(kind));
        if count(kind) == 0 {
            missing.push(*kind);
        }
    }
    if !missing.is_empty() {
        println!("FAILED: never struck: {missing:?}; a run without faults proves nothing");
        return ExitCode::FAILURE;
    }
    if report.failures.is_empty() {
        println!("0 failures: at most {:.4} % of seeds fail (95 %)", 300.0 / lives as f64);
        return ExitCode::SUCCESS;
    }
    println!("{} failures", report.failures.len());
    ExitCode::FAILURE
}

/// Every fault and every actor that must have occurred.
const FAULTS: &[&str] = &[
    "compacted",
    "doomed open",
    "transfer",
    "view held",
    "delete of a key",
    "put of all columns",
    "put of some columns",
    "replace",
    "rule: aggregation",
    "rule: first_row",
    "rule: partial_update",
    "rule: sequence_by",
    "write counted once",
    "write repeated",
    "fault: 409",
    "fault: 412",
    "fault: 412 on a repeat",
    "fault: 503",
    "fault: answer lost",
    "fault: call cancelled",
    "fault: clock jumped",
    "fault: damaged",
    "fault: entry collected",
    "fault: flush failed",
    "fault: gave up waiting",
    "fault: killed",
    "fault: killed at any time",
    "fault: late write",
    "fault: listing cut",
    "fault: outage",
    "fault: overtaken",
    "fault: read refused",
    "fault: slow request",
    "fault: woke after a week",
];

/// Visits every state of a machine.
fn model(protocol: Protocol) -> ExitCode {
    let started = Instant::now();
    let walk = walk(protocol, MAX_WALK);
    let (states, depth) = (walk.states, walk.depth);
    println!("{states} states, {depth} steps deep, {:.1} s", started.elapsed().as_secs_f64());
    match walk.broken {
        Some(broken) => println!("FAILED: {broken}"),
        None if walk.complete => println!("every reachable state keeps every promise"),
        None => println!("not finished"),
    }
    if walk.complete { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How many lives it takes to find the bug that `LANCEMEM_MUTANT` has put back: the median of
/// hunts that go on side by side, so that it stands as soon as most of them have found it.
fn hunt(puts: usize, threads: usize, longest: Duration) -> ExitCode {
    let (next, found) = (AtomicU64::new(0), Mutex::new([u64::MAX; HUNTS]));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let turn = next.fetch_add(1, Ordering::Relaxed);
                    let (at, hunt) = (turn / HUNTS as u64, turn % HUNTS as u64);
                    let known = *found.lock();
                    let is_over = known[..].iter().filter(|it| **it < u64::MAX).count() > HUNTS / 2
                        || at >= MAX_HUNT
                        || started.elapsed() > longest;
                    if is_over {
                        return;
                    }
                    let index = usize::try_from(hunt).unwrap_or(0);
                    let is_open = known[index] > at;
                    if is_open && live(hunt * 1_000_000 + at, puts, false).failure.is_some() {
                        let mut found = found.lock();
                        found[index] = found[index].min(at + 1);
                    }
                }
            });
        }
    });
    let mut lengths = found.into_inner();
    lengths.sort_unstable();
    match lengths[HUNTS / 2] {
        u64::MAX => println!("more than {}", (next.into_inner() / HUNTS as u64).saturating_sub(1)),
        median => println!("{median}"),
    }
    ExitCode::SUCCESS
}

fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    output.map_or_else(
        |_| "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}
