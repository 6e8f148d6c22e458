//! Walks over whole machines, without a bug and with each of them.
//!
//! Owns: which machines are walked in CI and which by hand, and the bugs that have to be found.
//! Does not own: the machine.

use std::collections::{BTreeSet, HashSet};

use super::*;

const MAX_WALK: Duration = Duration::from_mins(5);
const A_SOAK: Duration = Duration::from_mins(30);

/// Three writers with a write each, and everything else that the machine can do.
const THREE_WRITERS: Protocol = whole(3, 1, 1);
/// The same with two writers of two writes each, both of which may wait for the log.
const TWO_WRITERS: Protocol = whole(2, 2, 2);
/// Two writers with one write each, enough for most steps.
const SMALL: Protocol = whole(2, 1, 1);
/// Three writers with a write each, and nothing else.
const BARE: Protocol = Protocol::new(3, 1);

/// Bugs for which a writer has to write twice, or which are as plain with two writers.
const OF_TWO_WRITERS: [&str; 11] =
    ["B2", "B3", "B4", "B5", "B5-twice", "B6", "B7", "B8", "B12", "B23", "L1"];
/// Bugs for which it takes two claims over the head of a writer.
const OF_THREE_WRITERS: [&str; 3] = ["B1", "B1-early", "H1"];

/// Every step of a machine without a bug.
const STEPS: &[&str] = &[
    "acknowledges",
    "appends",
    "appends again",
    "cannot flush",
    "checks its epoch",
    "claims",
    "commits to the base",
    "decides to remove an entry",
    "drains the manifest",
    "flushes",
    "freezes",
    "is fenced before its sentinel",
    "is fenced behind its sentinel",
    "is fenced while it replays",
    "learns that it is fenced",
    "lists",
    "looks",
    "looks again",
    "meets a foreign entry",
    "meets a successor",
    "meets an entry",
    "opens",
    "places a write",
    "puts its sentinel",
    "puts its sentinel again",
    "reads the log",
    "removes an entry",
    "removes it",
    "replays",
];

const fn whole(writers: usize, writes: u8, queued: u8) -> Protocol {
    let protocol = Protocol::new(writers, writes);
    Protocol { queued, reads_first: true, slow_collector: true, ..protocol }
}

fn keeps_every_promise(protocol: Protocol, longest: Duration, least: usize) {
    let walk = walk(protocol, longest);
    assert_eq!(walk.broken, None);
    assert!(walk.complete && walk.states > least, "{protocol:?}: {walk:?}");
}

#[test]
fn no_reachable_state_breaks_a_promise() {
    keeps_every_promise(THREE_WRITERS, MAX_WALK, 2_000_000);
    keeps_every_promise(TWO_WRITERS, MAX_WALK, 300_000);
    keeps_every_promise(Protocol { queued: 2, ..Protocol::new(2, 3) }, MAX_WALK, 1_000_000);
    keeps_every_promise(BARE, MAX_WALK, 40_000);
}

#[test]
#[ignore = "40 s of a processor and 1.2 GB: `make soak ONLY=model`"]
fn nor_does_one_of_four_writers() {
    keeps_every_promise(Protocol { queued: 1, ..Protocol::new(4, 1) }, A_SOAK, 10_000_000);
}

#[test]
#[ignore = "101 s of a processor and 2.9 GB: `make soak ONLY=model`"]
fn nor_does_one_of_three_writers_with_two_writes() {
    keeps_every_promise(Protocol { queued: 1, ..Protocol::new(3, 2) }, A_SOAK, 20_000_000);
}

#[test]
#[ignore = "70 s of a processor and 2.4 GB: `make soak ONLY=model`"]
fn nor_does_one_of_two_writers_with_three_writes() {
    keeps_every_promise(whole(2, 3, 2), A_SOAK, 15_000_000);
}

#[test]
fn the_model_finds_each_bug_that_is_put_into_it() {
    let of_two = OF_TWO_WRITERS.into_iter().map(|mutant| Protocol { mutant, ..TWO_WRITERS });
    let of_three = OF_THREE_WRITERS.into_iter().map(|mutant| Protocol { mutant, ..BARE });
    for protocol in of_two.chain(of_three) {
        assert!(walk(protocol, MAX_WALK).broken.is_some(), "{protocol:?}");
    }
}

/// The other half of B4. The surplus entries of such a replay are a successor's, and the check of
/// the epoch behind the replay sees that successor's claim.
#[test]
fn a_replay_that_reads_on_behind_its_sentinel_shows_no_reader_what_it_found() {
    for protocol in [SMALL, BARE] {
        keeps_every_promise(Protocol { mutant: "B4-behind", ..protocol }, MAX_WALK, 1_000);
    }
}

/// A machine in which no writer could take over or collect would keep every promise as well.
#[test]
fn every_step_is_taken() {
    let mut taken = BTreeSet::new();
    let readers = Protocol { reads_first: true, ..Protocol::new(2, 2) };
    for protocol in [SMALL, readers, BARE] {
        let (mut seen, mut ahead) = (HashSet::new(), vec![State::default()]);
        while let Some(state) = ahead.pop() {
            let mut steps = Vec::new();
            protocol.actions(&state, &mut steps);
            taken.extend(steps.iter().map(|step| step.does));
            let next = steps.into_iter().map(|step| *step.next);
            ahead.extend(next.filter(|next| seen.insert(next.clone())));
        }
    }
    assert_eq!(taken.into_iter().collect::<Vec<_>>(), STEPS);
}
