//! The keeper against a naive model of SPEC.md (`support/naive.rs`): random operations on both, all that can be seen
//! compared after every one, and at the end of a story the queue against the table.
//!
//! A failing story is shrunk, and the last line printed replays it:
//!
//!     MODEL_STORY=small:0102... cargo test --no-default-features --test model replay -- --nocapture
//!
//! For as long as one likes, from a seed of one's own (the same stories as `fuzz/`, without its eyes):
//!
//!     MODEL_SECONDS=120 SEED=7 cargo test --release --no-default-features --test model long -- --nocapture
//!
//! Canaries: each of these was tried in `src/queue`, one at a time, and must make a test here fail.
//!
//! - `class`: ages given twice. `order`: the younger class first on a tie; a head start times a boost below 1; a score of
//!   infinity times a boost of 0. `explain`: a rank that is short by one.
//! - `lease`: a lease 1 ms short; a hold that grows by addition; a hold that is not honoured; a lease given back that
//!   leaves its miss; a release by an older token. `claim`: one lease above the limit.
//! - `state`: a lateness edge that belongs to the bin below; an hour of 61 minutes. `flow`: a row still due counted as
//!   rescheduled; a minute that has left the window.
//! - `version`: an older version applied. `owner`: a tie won by the later node. `route`: the first delimiter instead of the last.
//! - `keeper`: an equal event that moves its row; an empty list of nodes that replaces peers; a place of reclassification not
//!   kept in step; a read, or a walk, that forgets an event because the row was dropped or added in between; an
//!   event without a value that verifies a row of a snapshot; a verification that is forgotten with the next phase.
//! - `walk`: a row gained behind a walk's back counted as missed. `claim`: a confirmation that a walk overwrites.
//! - `index`: a gap that cuts an entry off. `records`: a scan that goes on in the middle of a record; an image that sees later writes.

mod support;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
use std::time::{Duration, Instant};

use queue_keeper::queue::config::Config;
use queue_keeper::queue::keeper::{Event, Judge, Keeper};
use queue_keeper::queue::row::Row;
use queue_keeper::queue::time::Now;
use queue_keeper::queue::walk::WalkKind;
use support::operations::{Profile, RECORD, mixed, play};

fn name(profile: Profile) -> &'static str {
    match profile {
        Profile::Small => "small",
        Profile::Host => "host",
        Profile::Large => "large",
    }
}

fn story_of(seed: u64, operations: usize) -> Vec<u8> {
    let mut state = mixed(seed);
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(state).to_le_bytes()
    };
    (0..=operations).flat_map(|_| next()).collect()
}

thread_local! {
    /// Panics of this thread are being looked at: they need not be printed.
    static QUIET: Cell<bool> = const { Cell::new(false) };
}

fn quietly() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                print(info);
            }
        }));
    });
}

fn failure(profile: Profile, story: &[u8]) -> Option<String> {
    let result = catch_unwind(AssertUnwindSafe(|| play(profile, story, None)));
    let panic = result.err()?;
    let text = panic.downcast_ref::<String>().cloned();
    Some(text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string())).unwrap_or_default())
}

/// Cuts records out of a failing story as long as it goes on failing.
fn shrunk(profile: Profile, mut story: Vec<u8>) -> Vec<u8> {
    let until = Instant::now() + Duration::from_secs(60);
    let mut most = story.len() / RECORD / 2;
    while most > 0 && Instant::now() < until {
        let mut at = 1;
        let mut cut = false;
        while at * RECORD < story.len() && Instant::now() < until {
            let end = ((at + most) * RECORD).min(story.len());
            let without = [&story[..at * RECORD], &story[end..]].concat();
            if failure(profile, &without).is_some() {
                story = without;
                cut = true;
            } else {
                at += most;
            }
        }
        if !cut {
            most /= 2;
        }
    }
    story
}

/// Plays a story; where it fails, says how in as few operations as can be.
fn must_hold(profile: Profile, story: Vec<u8>) -> u64 {
    quietly();
    QUIET.set(true);
    let held = catch_unwind(AssertUnwindSafe(|| play(profile, &story, None)));
    if let Ok(count) = held {
        QUIET.set(false);
        return count;
    }
    let story = if std::env::var_os("MODEL_NO_SHRINK").is_some() { story } else { shrunk(profile, story) };
    let why = failure(profile, &story).unwrap_or_default();
    let mut log = Vec::new();
    let _ = catch_unwind(AssertUnwindSafe(|| play(profile, &story, Some(&mut log))));
    QUIET.set(false);
    // Of a story of thousands of rows, what is about one row says little but at its end.
    let one_row = |line: &str| {
        ["apply", "walk_row", "lost", "repair", "confirm", "release"].iter().any(|op| line.starts_with(op))
    };
    if log.len() > 400 {
        let end = log.split_off(log.len() - 100);
        log.retain(|line| !one_row(line));
        log.extend(end);
    }
    for line in &log {
        println!("    {line}");
    }
    println!("{why}");
    let hex: String = story.iter().map(|byte| format!("{byte:02x}")).collect();
    println!(
        "replay: MODEL_STORY={}:{hex} cargo test --no-default-features --test model replay -- --nocapture",
        name(profile)
    );
    panic!("{why}");
}

fn stories(profile: Profile, seed: u64, count: u64, operations: usize) {
    for i in 0..count {
        must_hold(profile, story_of(seed.wrapping_add(i), operations));
    }
}

#[test]
fn a_small_queue_does_what_the_specification_says() {
    stories(Profile::Small, 1, 60, 250);
}

#[test]
fn a_queue_with_a_hosts_classifier_does_too() {
    stories(Profile::Host, 1_000, 25, 250);
}

#[test]
fn a_large_queue_does_too() {
    stories(Profile::Large, 2_000, 3, 40);
}

#[test]
fn versions_in_every_order_end_the_same() {
    let events = [(due(1.0), 1.0), (due(2.0), 2.0), (Event::Gone, 3.0), (due(4.0), 4.0), (Event::Gone, 5.0)];
    for count in 1..=events.len() {
        for mut order in 0..120 {
            let mut left: Vec<usize> = (0..count).collect();
            let mut keeper = Keeper::new(Config::default(), Now { wall: 0.0, mono: 0.0 });
            while !left.is_empty() {
                let (event, version) = events[left.remove(order % left.len())];
                order /= left.len() + 1;
                keeper.apply(b"https://x.com/", event, version);
                keeper.validate();
            }
            let expected = [Some(1), Some(2), None, Some(4), None][count - 1];
            assert_eq!(keeper.due_minute_of(b"https://x.com/"), expected, "the first {count}, in order {order}");
        }
    }
}

fn many(n: usize, seed: u64) -> Vec<Vec<u8>> {
    let key = |i: usize| {
        let random = mixed(seed ^ i as u64);
        format!("https://x.com/{i}/{}", format!("{random:x}").repeat(1 + random as usize % 9)).into_bytes()
    };
    (0..n).map(key).collect()
}

fn due(minute: f64) -> Event {
    Event::Put(Row::due_at(minute * 60_000.0), Judge::Rules)
}

/// A scan in slices remembers where it was. Records were joined, cleared away and used again in between, and it went on
/// inside a key: marks were written into the letters of a URL.
#[test]
fn what_comes_and_goes_between_the_slices_of_a_scan_does_no_harm() {
    for round in 0..6u64 {
        let mut keeper = Keeper::new(Config::default(), Now { wall: 1e12, mono: 0.0 });
        let first = many(if round == 0 { 50 } else { 12_000 }, round);
        for key in &first {
            keeper.apply(key, due(1.0), f64::NAN);
        }
        keeper.begin_walk(WalkKind::Verify);
        let slice = 13 + first.len() / 7 * round as usize;
        let abandoned = round % 2 == 0;
        if abandoned {
            keeper.abandon_walk();
            keeper.clean_marks(slice);
        } else {
            assert_eq!(keeper.end_walk(false, 0, slice), None);
        }
        // All go, or all but a few that hold the arena together.
        let stay = if round < 2 { 0 } else { 10 };
        for (_, key) in first.iter().enumerate().filter(|(i, _)| stay == 0 || i % stay != 0) {
            keeper.apply(key, Event::Gone, f64::NAN);
        }
        let second = many(first.len(), round + 100);
        for key in &second {
            keeper.apply(key, due(2.0), f64::NAN);
        }
        keeper.validate();
        let mut expected: Vec<&Vec<u8>> =
            first.iter().step_by(stay.max(1)).filter(|_| stay > 0).chain(&second).collect();
        expected.sort_unstable();
        let check = |keeper: &Keeper| {
            keeper.validate();
            let mut keys = keeper.keys();
            keys.sort_unstable();
            assert!(keys.iter().eq(expected.iter().copied()), "round {round}: keys are what they were");
        };
        if abandoned {
            while !keeper.clean_marks(slice) {}
        } else {
            let walked = loop {
                if let Some(walked) = keeper.end_walk(false, 0, slice) {
                    break walked;
                }
            };
            let suspects: HashSet<Vec<u8>> = walked.suspects.into_iter().collect();
            let stayed = first.iter().step_by(stay.max(1)).filter(|_| stay > 0);
            assert!(stayed.into_iter().all(|key| suspects.contains(key)), "round {round}: what stayed was not seen");
        }
        check(&keeper);
    }
}

/// FNV-1a has 32 bits, so two names that tie over some URL are found soon.
#[test]
fn on_a_tie_the_first_node_in_order_owns() {
    let url = b"https://x.com/";
    let hash = |name: &str| {
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
        url.iter().chain(b"|").copied().chain(name.bytes()).fold(2_166_136_261, step)
    };
    let mut names = HashMap::new();
    let pair = (0u32..).find_map(|i| {
        let name = format!("node-{i}");
        names.insert(hash(&name), name.clone()).map(|other| (other, name))
    });
    let (mut a, mut b) = pair.expect("there are more names than hashes");
    if b < a {
        std::mem::swap(&mut a, &mut b);
    }
    for (node, peer) in [(&a, &b), (&b, &a)] {
        let config = Config { node: node.clone(), nodes: vec![peer.clone()], ..Config::default() };
        let mut keeper = Keeper::new(config, Now { wall: 0.0, mono: 0.0 });
        keeper.apply(url, due(0.0), f64::NAN);
        assert_eq!((keeper.explain(url).owner, keeper.len()), (a.clone(), usize::from(*node == a)), "{a} and {b}");
    }
}

#[test]
fn replay() {
    let Ok(story) = std::env::var("MODEL_STORY") else { return };
    let (profile, hex) = story.split_once(':').expect("MODEL_STORY=<profile>:<hex>");
    let profile = [Profile::Small, Profile::Host, Profile::Large].into_iter().find(|other| name(*other) == profile);
    let bytes = (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex"));
    must_hold(profile.expect("small, host or large"), bytes.collect());
}

#[test]
fn long() {
    let Ok(seconds) = std::env::var("MODEL_SECONDS") else { return };
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().expect("a number"));
    let until = Instant::now() + Duration::from_secs(seconds.parse().expect("a number"));
    let mut counts = [0u64; 3];
    let mut i = 0u64;
    while Instant::now() < until {
        let (profile, at) = match i % 16 {
            15 => (Profile::Large, 2),
            3 | 7 | 11 => (Profile::Host, 1),
            _ => (Profile::Small, 0),
        };
        let operations = if profile == Profile::Large { 60 } else { [100, 300, 1_000][(i / 16 % 3) as usize] };
        counts[at] += must_hold(profile, story_of(mixed(seed) ^ i, operations));
        i += 1;
    }
    println!(
        "{i} stories, seed {seed}: {} small operations, {} with a host's classifier, {} large",
        counts[0], counts[1], counts[2]
    );
}
