//! Operations of the queue without Node, to be counted and profiled: `operations <load|apply|claim|state> <rows> <times>`.

use queue_keeper::queue::config::Config;
use queue_keeper::queue::keeper::{Event, Judge, Keeper};
use queue_keeper::queue::row::Row;
use queue_keeper::queue::time::Now;
use queue_keeper::queue::walk::WalkKind;

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
    for key in keys {
        let row = random.row();
        keeper.walk_row(hasher.hash(key.as_bytes()), key.as_bytes(), &row, Judge::Rules, f64::NAN);
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
    let each = |start: std::time::Instant, times: u64| start.elapsed().as_nanos() as f64 / times as f64;
    let start = std::time::Instant::now();
    let mut keeper = load(&keys, &mut random);
    let hasher = keeper.hasher();
    eprintln!("load {:.0} ns a row, {:.1} B a row", each(start, rows), keeper.bytes() as f64 / rows as f64);
    let start = std::time::Instant::now();
    let mut done = 0;
    match what.as_str() {
        "load" => {
            while done < times {
                std::hint::black_box(load(&keys, &mut random));
                done += 1;
            }
        }
        "apply" => {
            while done < times {
                let batch: Vec<(&[u8], u64, Row)> = (0..64)
                    .map(|_| {
                        let key = keys[random.below(rows) as usize].as_bytes();
                        (key, hasher.hash(key), random.row())
                    })
                    .collect();
                std::hint::black_box(keeper.warm(batch.iter().map(|(_, hash, row)| (*hash, row.due))));
                for (key, hash, row) in batch {
                    done += 1;
                    keeper.apply_hashed(hash, key, Event::Put(row, Judge::Rules), done as f64);
                }
            }
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
                std::hint::black_box(keeper.state_json());
                done += 1;
            }
        }
        _ => return,
    }
    eprintln!("{what} {:.0} ns each", each(start, done));
}
