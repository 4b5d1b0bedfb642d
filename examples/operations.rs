//! Operations of the queue without Node, to be counted and profiled: `operations <load|apply|claim|state> <rows> <times>`.

use std::ops::Range;
use std::time::{Duration, Instant};

use queue_keeper::queue::config::Config;
use queue_keeper::queue::keeper::{Event, Judge, Keeper, WARMED};
use queue_keeper::queue::row::Row;
use queue_keeper::queue::time::Now;
use queue_keeper::queue::walk::{WalkKind, WalkedRow};
use smallvec::SmallVec;

const NOW: Now = Now { wall: 1_700_000_000_000.0, mono: 0.0 };
const WORDS: [&str; 24] = [
    "mens",
    "waterproof",
    "hiking",
    "boots",
    "brown",
    "leather",
    "jacket",
    "summer",
    "dress",
    "running",
    "shoe",
    "classic",
    "fit",
    "jeans",
    "shirt",
    "cotton",
    "wool",
    "scarf",
    "black",
    "blue",
    "green",
    "kids",
    "organic",
    "premium",
];

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        (x ^ x >> 31) % bound
    }

    fn word(&mut self) -> &'static str {
        WORDS[self.below(WORDS.len() as u64) as usize]
    }

    fn row(&mut self) -> Row {
        let mut row = Row::due_at(NOW.wall + (self.below(2_880) as f64 - 600.0) * 60_000.0);
        row.from_sitemap = self.below(10) < 7;
        row
    }
}

fn load(keys: &[String], random: &mut Random) -> Keeper {
    let mut config = Config::default();
    // As good as none of the time passes that a key is held after its release.
    config.leases.release_grace_ms = 0.0;
    let mut keeper = Keeper::new(config, NOW);
    let hasher = keeper.hasher();
    keeper.begin_walk(WalkKind::Load);
    for keys in keys.chunks(WARMED) {
        let rows = keys.iter().map(|key| {
            let key = key.as_bytes();
            WalkedRow { key, hash: hasher.hash(key), row: random.row(), judge: Judge::Rules, version: f64::NAN }
        });
        keeper.walk_rows(&rows.collect::<SmallVec<[WalkedRow<'_>; WARMED]>>());
    }
    while keeper.end_walk(false, 0, 100_000).is_none() {}
    keeper
}

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_else(|| "apply".into());
    let mut number = |default: u64| args.next().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (rows, times) = (number(100_000), number(1_000_000));
    let mut random = Random(1);
    let keys: Vec<String> = (0..rows)
        .map(|_| {
            let words = [random.word(), random.word(), random.word(), random.word()].join("-");
            let (id, colour) = (10_000_000 + random.below(89_999_999), random.word());
            format!("https://www.example-retail.com/product/{words}-{id}?color={colour}|desktop")
        })
        .collect();
    let each = |start: Instant, times: u64| start.elapsed().as_nanos() as f64 / times as f64;
    let start = Instant::now();
    let mut keeper = load(&keys, &mut random);
    let hasher = keeper.hasher();
    eprintln!("load {:.0} ns a row, {:.1} B a row", each(start, rows), keeper.bytes() as f64 / rows as f64);
    let start = Instant::now();
    let mut done = 0;
    match what.as_str() {
        "load" => {
            while done < times {
                std::hint::black_box(load(&keys, &mut random));
                done += 1;
            }
        }
        "apply" => {
            let (mut ahead, mut applied) = (Duration::ZERO, Duration::ZERO);
            while done < times {
                // As they come from JavaScript: keys one behind the other, rows beside them.
                let mut bytes = Vec::new();
                let events: Vec<(Range<usize>, Row)> = (0..100 * WARMED)
                    .map(|_| {
                        let start = bytes.len();
                        bytes.extend_from_slice(keys[random.below(rows) as usize].as_bytes());
                        (start..bytes.len(), random.row())
                    })
                    .collect();
                for batch in events.chunks(WARMED) {
                    let start = Instant::now();
                    let hashes: SmallVec<[u64; WARMED]> =
                        batch.iter().map(|(key, _)| hasher.hash(&bytes[key.clone()])).collect();
                    let rows = batch.iter().map(|(_, row)| row.due);
                    std::hint::black_box(keeper.warm(hashes.iter().copied().zip(rows)));
                    let read = Instant::now();
                    for (hash, (key, row)) in hashes.iter().zip(batch) {
                        done += 1;
                        let put = Event::Put(*row, Judge::Rules);
                        keeper.apply_hashed(*hash, &bytes[key.clone()], put, done as f64);
                    }
                    ahead += read - start;
                    applied += read.elapsed();
                }
            }
            let each = |time: Duration| time.as_nanos() as f64 / done as f64;
            eprintln!("of an apply: hash and read ahead {:.0} ns, the rest {:.0} ns", each(ahead), each(applied));
        }
        "claim" => {
            while done < times {
                let passed = done as f64;
                keeper.advance(Now { wall: NOW.wall + passed, mono: passed });
                let claim = keeper.claim(20);
                assert_eq!(claim.tokens.len(), 20, "too few rows are due: take more rows");
                for ((key, _), token) in claim.jobs.iter().zip(&claim.tokens) {
                    // Due again at once: the queue must not run dry, however many are claimed.
                    let due = NOW.wall - random.below(600) as f64 * 60_000.0;
                    keeper.apply(key, Event::Put(Row::due_at(due), Judge::Rules), f64::NAN);
                    keeper.release(key, Some(*token));
                }
                done += 1;
            }
        }
        "state" => {
            while done < times {
                std::hint::black_box(serde_json::to_string(&keeper.state()).expect("it is JSON"));
                done += 1;
            }
        }
        _ => return,
    }
    eprintln!("{what} {:.0} ns each", each(start, done));
}
