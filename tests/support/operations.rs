//! Bytes into operations. A story is a record of 8 bytes for the setting and one for each operation: any bytes are a story, and
//! a story with some of its records cut out is one too. That is what makes a failing one easy to shrink.

use std::collections::BTreeSet;

use queue_keeper::queue::config::Config;
use queue_keeper::queue::row::Row;
use queue_keeper::queue::time::Now;
use queue_keeper::queue::trust::Phase;
use queue_keeper::queue::walk::WalkKind;
use serde_json::{Value, json};

use super::naive::{Judged, Key, KeyId, Read, Said, Told};
use super::world::{World, log};

pub const RECORD: usize = 8;
const MINUTE: f64 = 60_000.0;
/// Some minute of 2026, in the middle of a page of 256.
const START: f64 = 29_500_031.0 * MINUTE;

/// What kind of story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Few keys, few minutes, few classes: ties and collisions all the time.
    Small,
    /// The same, with a host's own classifier.
    Host,
    /// Thousands of keys, many at a time: the index, the arena and the compression of keys.
    Large,
}

/// Numbers from a record: its own bytes first, then what a generator makes of them.
struct Draw {
    record: [u8; RECORD],
    at: usize,
    state: u64,
    /// The story has few classes and two minutes.
    narrow: bool,
}

pub fn mixed(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ x >> 31
}

impl Draw {
    fn new(record: &[u8]) -> Draw {
        let mut bytes = [0; RECORD];
        bytes[..record.len()].copy_from_slice(record);
        Draw { record: bytes, at: 0, state: u64::from_le_bytes(bytes), narrow: false }
    }

    fn byte(&mut self) -> u8 {
        if let Some(byte) = self.record.get(self.at) {
            self.at += 1;
            return *byte;
        }
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed(self.state) as u8
    }

    fn below(&mut self, n: usize) -> usize {
        match n {
            0..=1 => 0,
            2..=256 => usize::from(self.byte()) % n,
            _ => (usize::from(self.byte()) << 16 | usize::from(self.byte()) << 8 | usize::from(self.byte())) % n,
        }
    }

    /// Once in `n` times.
    fn once_in(&mut self, n: usize) -> bool {
        self.below(n) == n - 1
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// The pool that the keys of a small story are taken from.
fn odd_keys() -> Vec<Vec<u16>> {
    let text = |text: &str| text.encode_utf16().collect::<Vec<u16>>();
    let mut keys: Vec<Vec<u16>> = [
        "https://x.com/",
        "https://x.com/a",
        "https://x.com/a|mobile",
        "https://x.com/a|desktop",
        "https://x.com/a|tablet",
        "https://x.com/a||mobile",
        "https://x.com/b/1",
        "https://x.com/b/2",
        "https://x.com/b/3",
        "https://x.com/b/x",
        "https://x.com/bx|mobile",
        "https://y.org/a/1?page=2",
        "https://y.org/a/2#part",
        "https://y.org/a/preview/1",
        "http://x.com/a",
        "HTTP://X.com:80/b/../a",
        "https://x.com",
        "https://x.com?b",
        "https:\\\\x.com\\a",
        "https://x.com/%61",
        "https://x.com/A",
        "https://x.com/a b",
        "https://x.com/a\tb",
        " https://x.com/a/9 ",
        "https://x.com/./a",
        "https://x.com/caf\u{e9}",
        "https://x.com/cafe\u{301}",
        "https://xn--mnchen-3ya.de/b",
        "https://m\u{fc}nchen.de/b",
        "https://x.com:8080/b/8",
        "https://1.2.3.4/a",
        "https://x.com/b/1|mobile",
        "https://x.com/b/2|mobile",
        "",
        "\0",
        "|",
        "|mobile",
        "__proto__",
        "constructor",
        "not a url",
        "not a url|desktop",
        "https://",
        "/a",
        "https://x.com/\u{1F600}",
        "https://x.com/a\0",
        "\u{FFFF}\u{10FFFF}",
    ]
    .iter()
    .map(|key| text(key))
    .collect();
    keys.push(vec![0xD800]);
    keys.push(vec![0xDC00, 0xD800]);
    keys.push([text("https://x.com/a"), vec![0xDFFF]].concat());
    keys.push([text("https://x.com/a"), vec![0xD83D], text("|mobile")].concat());
    for page in 0..16 {
        keys.push(text(&format!("https://x.com/a/{page}")));
    }
    keys
}

/// Keys of all lengths and styles; `style` makes later ones unlike the earlier.
fn many_keys(n: usize, seed: u64) -> Vec<Vec<u16>> {
    (0..n)
        .map(|i| {
            let random = mixed(seed ^ i as u64);
            let length = match random % 50 {
                0 => 9_000,
                1 => 1_000,
                2..6 => 300,
                _ => (random >> 8) as usize % 120,
            };
            let mut key = match i * 3 / n {
                0 => format!("https://www.example.com/a/shoes-{i}?size={}", random % 50),
                1 => format!("https://shop.example.org/b/{i:x}/"),
                _ => format!("https://x.com/{i}#"),
            };
            let mut state = random;
            while key.len() < length {
                state = mixed(state.wrapping_add(1));
                key.push_str(&format!("{state:x}"));
            }
            key.encode_utf16().collect()
        })
        .collect()
}

fn rules(draw: &mut Draw) -> Vec<Value> {
    let all = [
        json!({"match": "prefix", "path": "/a", "renderInterval": 120_000}),
        json!({"match": "prefix", "path": "/b/", "renderInterval": 3_600_000}),
        json!({"match": "exact", "path": "/"}),
        json!({"match": "exact", "path": "/a", "renderInterval": 60_000.5}),
        json!({"match": "contains", "path": "x"}),
        json!({"match": "contains", "path": "b"}),
        json!({"match": "prefix", "path": "/a", "renderInterval": 600_000}),
        json!({"match": "prefix", "path": "/b", "mode": "passthrough"}),
        json!({"match": "contains", "path": "%", "mode": "prerender"}),
        json!({"match": "prefix", "path": "/", "renderInterval": 86_400_000}),
        json!({"match": "prefix", "path": "a"}),
        json!({"match": "within", "path": "/a"}),
        json!({"match": "exact"}),
        json!({"match": "prefix", "path": "/a/", "renderInterval": -1}),
        json!({"match": "contains", "path": "/", "mode": "other"}),
        json!("prefix"),
    ];
    (0..draw.below(5)).map(|_| all[draw.below(all.len())].clone()).collect()
}

fn excludes(draw: &mut Draw) -> Vec<Value> {
    let all = [json!("/preview"), json!("/b/2"), json!(""), json!(5), json!("8080"), json!("caf")];
    (0..draw.below(3)).map(|_| all[draw.below(all.len())].clone()).collect()
}

fn nodes(draw: &mut Draw) -> Vec<&'static str> {
    match draw.below(6) {
        0 => vec![],
        1 => vec!["node-a"],
        2 => vec!["node-b"],
        3 => vec!["node-b", "node-c", "", "node-b"],
        4 => vec!["node-a", "\u{FF5E}", "\u{1F600}"],
        _ => vec!["node-c", "node-a"],
    }
}

fn priority(draw: &mut Draw) -> Value {
    let mut patch = json!({});
    if draw.below(2) == 0 {
        patch["sitemapBoost"] = json!(draw.one_of(&[2.0, 1.0, 0.5, 1.5, 0.0, 1e9]));
    }
    if draw.below(2) == 0 {
        patch["changedHeadStart"] = json!(draw.one_of(&[1.0, 0.0, -1.0, 0.25, 3.0]));
    }
    if draw.below(2) == 0 {
        patch["urgentHeadStart"] = json!(draw.one_of(&[0.5, 1.0, 0.0, 1e300]));
    }
    if draw.below(2) == 0 {
        patch["changedDemand"] = json!(draw.below(2) == 0);
    }
    patch
}

fn leases(draw: &mut Draw) -> Value {
    let mut patch = json!({});
    if draw.below(2) == 0 {
        patch["leaseMs"] = json!(draw.one_of(&[120_000.0, 1_000.0, 1.0, 30_000.0, 0.5]));
    }
    if draw.below(2) == 0 {
        patch["maxLeases"] = json!(draw.one_of(&[8_192, 0, 1, 2, 5]));
    }
    if draw.below(2) == 0 {
        patch["releaseGraceMs"] = json!(draw.one_of(&[5_000.0, 0.0, 1_000.0]));
    }
    if draw.below(2) == 0 {
        patch["missLimit"] = json!(draw.one_of(&[3, 0, 1]));
    }
    patch
}

/// A due time: near `wall` mostly.
fn due(draw: &mut Draw, wall: f64) -> f64 {
    let minute = (wall / MINUTE).floor() * MINUTE;
    match draw.below(32) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => -1.0,
        3 => 1e300,
        4 => draw.one_of(&[0.0, -0.0, 59_999.999, 60_000.0]),
        // The year 9999; the last minute that a u32 tells, and the one behind it.
        5 => draw.one_of(&[253_402_300_799_999.0, 4_294_967_295.0 * MINUTE, 4_294_967_296.0 * MINUTE]),
        6..10 => minute + (draw.below(120) as f64 - 60.0) * MINUTE,
        10 => minute + draw.below(1_800) as f64 * MINUTE,
        11 => minute - draw.below(600) as f64 * MINUTE,
        12 | 13 => wall + draw.below(60_000) as f64 - 30_000.0,
        // Many in one minute.
        14..20 => START,
        _ => minute + (draw.below(6) as f64 - 3.0) * MINUTE,
    }
}

fn row(draw: &mut Draw, wall: f64) -> Row {
    if draw.narrow && !draw.once_in(6) {
        let due = START - MINUTE * draw.below(2) as f64;
        return Row { from_sitemap: draw.once_in(4), ..Row::due_at(due) };
    }
    let due = due(draw, wall);
    let flags = draw.byte();
    Row {
        due,
        interval: match flags & 7 {
            0 => draw.one_of(&[0.0, -1.0, f64::INFINITY, 1e300, 1e-300, 5e-324, 0.1]),
            1 => draw.one_of(&[60_000.0, 120_000.0, 86_400_000.0]),
            _ => f64::NAN,
        },
        changed_at: if flags & 0x30 == 0 { draw.one_of(&[1.0, 1e12, 0.0, -5.0, f64::INFINITY]) } else { f64::NAN },
        urgent_at: if flags & 0xC0 == 0 { draw.one_of(&[1.0, 1e12, f64::NAN, 0.0]) } else { f64::NAN },
        demand: if flags & 0x11 == 0 { draw.one_of(&[60_000.0, 120_000.0, 1e300, 0.0, -1.0]) } else { f64::NAN },
        from_sitemap: flags & 8 != 0,
    }
}

fn judged(draw: &mut Draw, host: bool) -> Judged {
    if !host {
        return Judged::Rules;
    }
    if draw.once_in(8) {
        return Judged::Host(None);
    }
    Judged::Host(Some(Said {
        route: draw.one_of(&["alpha", "beta", "unrouted", "route:prefix:/a", "", "gamma"]).to_owned(),
        cadence: match draw.below(8) {
            0 => draw.one_of(&[0.0, -0.0, f64::NAN, -1.0, f64::INFINITY, 1e-300, 1e300]),
            1 | 2 => 120_000.0,
            _ => 60_000.0,
        },
        carried: draw.once_in(4),
    }))
}

fn phase(draw: &mut Draw) -> Phase {
    use Phase::*;
    draw.one_of(&[Live, Live, Live, Live, Loading, WaitingForPeers, Failed, Starting, Stopped])
}

fn read(draw: &mut Draw, world: &World, host: bool, key: KeyId, then: &Read) -> Read {
    match draw.below(8) {
        0 => None,
        1 => Some((row(draw, world.model.now.wall), judged(draw, host), f64::NAN)),
        2 => then.clone(),
        // It has moved on, and nobody has said so.
        3 => world.read(key).map(|(row, judged, _)| {
            let due = world.model.now.wall + 120_000.0;
            (Row { due, ..row }, judged, f64::NAN)
        }),
        _ => world.read(key),
    }
}

/// Plays a story to its end. Panics where keeper and model differ. Returns how many operations it had.
pub fn play(profile: Profile, story: &[u8], log: Option<&mut Vec<String>>) -> u64 {
    let mut records = story.chunks(RECORD);
    let mut draw = Draw::new(records.next().unwrap_or_default());
    let host = profile == Profile::Host;
    let config = setting(&mut draw, host);
    let units = match profile {
        Profile::Large => many_keys([600, 3_000, 3_000, 8_000][draw.below(4)], u64::from(draw.byte())),
        _ => {
            let mut keys = odd_keys();
            let wanted = 4 + draw.below(56);
            let mut taken = Vec::new();
            while taken.len() < wanted {
                taken.push(keys.swap_remove(draw.below(keys.len())));
            }
            if draw.once_in(12) {
                let long = format!("https://x.com/a/{}", "long/".repeat(20_000));
                taken.push(long.encode_utf16().collect());
            }
            taken
        }
    };
    let keys: Vec<Key> = units.iter().map(|key| Key::new(key, &config.delimiter, &config.device_types)).collect();
    let mut world = World::new(keys, config, Now { wall: START, mono: 0.0 }, log.is_some());
    log!(world, "{profile:?}, {} keys, {:?}", world.keys.len(), world.model.config);
    if log.is_some() {
        for (id, key) in units.iter().enumerate().filter(|(_, key)| key.len() < 200 && units.len() < 100) {
            log!(world, "key {id}: {:?}", String::from_utf16_lossy(key));
        }
    }
    let narrow = draw.once_in(3);
    let mut count = 0;
    // What has been done is wanted most of all where it ends in a panic.
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        for record in records {
            let mut draw = Draw { narrow, ..Draw::new(record) };
            match profile {
                Profile::Large => large_step(&mut world, &mut draw),
                _ => small_step(&mut world, &mut draw, host),
            }
            world.check(profile != Profile::Large, false);
            count += 1;
        }
        world.settle();
    }));
    if let (Some(log), Some(done)) = (log, world.log.take()) {
        *log = done;
    }
    if let Err(panic) = done {
        std::panic::resume_unwind(panic);
    }
    count
}

fn setting(draw: &mut Draw, host: bool) -> Config {
    let mut config = Config { node: "node-a".into(), classify: host, ..Config::default() };
    let choice = draw.byte();
    config.max_listed = [200, 1, 3, 0][usize::from(choice & 3)];
    config.flow_minutes = [60, 60, 5, 1][usize::from(choice >> 2 & 3)];
    (config.delimiter, config.device_types) = match choice >> 4 & 7 {
        0 => ("||".into(), vec!["mobile".into()]),
        1 => ("|".into(), vec![]),
        2 => ("/".into(), vec!["a".into(), "".into()]),
        _ => ("|".into(), vec!["desktop".into(), "mobile".into()]),
    };
    if choice & 0x80 != 0 && !host {
        config.routes = rules(draw);
        config.exclude_path_patterns = excludes(draw);
        config.nodes = nodes(draw).iter().map(|node| node.to_string()).collect();
    }
    if draw.below(4) == 0 {
        config.priority.sitemap_boost = draw.one_of(&[0.0, 0.5, 1.0]);
    }
    if draw.below(2) == 0 {
        config.leases.miss_limit = draw.below(3) as u32;
        config.leases.lease_ms = draw.one_of(&[1_000.0, 30_000.0]);
        config.leases.release_grace_ms = draw.one_of(&[5_000.0, 0.0, 1_000.0]);
    }
    config
}

fn any_key(world: &World, draw: &mut Draw) -> KeyId {
    draw.below(world.keys.len())
}

/// A write to the table: its event comes now, later, twice or never.
fn write(world: &mut World, draw: &mut Draw, key: KeyId, told: Told) {
    let version = world.next_version;
    world.next_version += 1.0;
    match &told {
        Told::Put(row, judged) => drop(world.table.insert(key, (*row, judged.clone(), version))),
        _ => drop(world.table.remove(&key)),
    }
    match draw.below(16) {
        0 => log!(world, "lost: key {key} {told:?}"),
        1 | 2 => world.under_way.push((key, told, version)),
        3 => {
            world.apply(key, &told, version);
            world.under_way.push((key, told, version));
        }
        4 => {
            let told = if draw.below(2) == 0 { Told::Changed } else { told };
            world.apply(key, &told, f64::NAN);
        }
        _ => world.apply(key, &told, version),
    }
}

fn step_clock(world: &mut World, draw: &mut Draw) {
    // Which suspect was told when is not seen from outside, while a walk ends.
    if world.model.ending() {
        return;
    }
    let Now { wall, mono } = world.model.now;
    let lease = world.model.config.leases.lease_ms;
    let ahead = match draw.below(24) {
        0 => 1.0,
        1 => 0.0,
        2..5 => draw.one_of(&[999.0, 1_000.0, 5_000.0, 499.5]),
        5..12 => MINUTE * (1 + draw.below(3)) as f64,
        12..15 => lease,
        15 => MINUTE * draw.below(90) as f64,
        16 => 3_600_000.0 * draw.below(30) as f64,
        17 => 86_400_000.0 * draw.below(20) as f64,
        // To the very start of the next minute, and to just before it.
        18 => (wall / MINUTE).floor() * MINUTE + MINUTE - wall,
        19 => (wall / MINUTE).floor() * MINUTE + MINUTE - wall - 1.0,
        // The wall clock alone steps, either way.
        20 => return world.advance(wall - MINUTE * draw.below(5) as f64, mono + 10.0),
        21 => return world.advance(wall - 3_600_000.0 * draw.below(30) as f64, mono + 10.0),
        22 => return world.advance(draw.one_of(&[START, START, 0.0, 59_999.0, 253_402_300_799_999.0]), mono),
        _ => 10_000.0,
    };
    // The monotonic clock need not agree, and a reading that steps back is not believed.
    let mono = match draw.below(12) {
        0 => mono,
        1 => mono + MINUTE,
        2 => mono - 1_000.0,
        _ => mono + ahead.max(0.0),
    };
    world.advance(wall + ahead.max(0.0), mono);
}

fn configure(world: &mut World, draw: &mut Draw, host: bool) {
    let patch = match draw.below(if host { 3 } else { 12 }) {
        0 | 3 => json!({"priority": priority(draw)}),
        1 | 4 => json!({"leases": leases(draw)}),
        2 => json!({"node": draw.one_of(&["node-a", "node-a", "node-b"])}),
        5 | 6 => json!({"routes": rules(draw)}),
        7 => json!({"excludePathPatterns": excludes(draw)}),
        8 => json!({"defaultInterval": draw.one_of(&[86_400_000.0, 60_000.0, 120_000.0])}),
        9 | 10 => json!({"nodes": nodes(draw)}),
        _ => json!({"routes": rules(draw), "nodes": nodes(draw), "defaultInterval": 120_000.0,
                    "excludePathPatterns": excludes(draw)}),
    };
    world.configure(&patch);
    // At once, or in slices between which other things happen.
    if draw.below(2) == 0 {
        while !world.reclassify(1_000) {}
    }
}

fn small_step(world: &mut World, draw: &mut Draw, host: bool) {
    let wall = world.model.now.wall;
    // What was begun goes on between all else.
    if world.model.reclassifying() && draw.below(2) == 0 {
        world.reclassify(1 + draw.below(if draw.narrow { 3 } else { 7 }));
        // The place where it goes on is the one to pull from under its feet.
        if let Some(key) = world.model.in_turn().filter(|_| draw.below(2) == 0) {
            let told = if draw.below(3) == 0 { Told::Gone } else { Told::Put(row(draw, wall), judged(draw, host)) };
            write(world, draw, key, told);
            return;
        }
    }
    match draw.byte() {
        0..60 => {
            let key = any_key(world, draw);
            let told = if draw.once_in(6) { Told::Gone } else { Told::Put(row(draw, wall), judged(draw, host)) };
            write(world, draw, key, told);
        }
        // An event of its own, of any version that the row has had, or of none.
        60..85 => {
            let key = any_key(world, draw);
            let told = match draw.below(12) {
                0 | 1 => Told::Changed,
                2 => Told::Other,
                3 => Told::Gone,
                4..7 => match world.read(key) {
                    Some((row, judged, _)) => Told::Put(row, judged),
                    None => Told::Gone,
                },
                _ => Told::Put(row(draw, wall), judged(draw, host)),
            };
            let version = match draw.below(3) {
                0 => f64::NAN,
                _ => {
                    let newest = world.table.get(&key).map_or(world.next_version - 1.0, |(_, _, version)| *version);
                    (newest - draw.below(6) as f64).max(0.0)
                }
            };
            world.apply(key, &told, version);
        }
        85..95 if !world.under_way.is_empty() => {
            let at = draw.below(world.under_way.len());
            let (key, told, version) = world.under_way.swap_remove(at);
            world.apply(key, &told, version);
        }
        85..125 => step_clock(world, draw),
        125..142 => {
            let n = draw.one_of(&[1, 1, 2, 3, 5, 100, 0]);
            world.claim(n);
        }
        142..155 => {
            let live = world.live_tokens();
            if !live.is_empty() && !draw.once_in(8) {
                let (token, key, then) = live[draw.below(live.len())].clone();
                let read = read(draw, world, host, key, &then);
                world.confirm(token, &read);
            } else if !world.tokens.is_empty() {
                let (token, _, then) = world.tokens[draw.below(world.tokens.len())].clone();
                world.confirm(token, &then);
            }
        }
        155..170 => {
            if world.tokens.is_empty() {
                let key = any_key(world, draw);
                world.release(key, None);
                return;
            }
            let newest = world.tokens.len() - 1;
            let at = if draw.below(2) == 0 { newest - draw.below(newest.min(5) + 1) } else { draw.below(newest + 1) };
            let (token, key, _) = world.tokens[at].clone();
            let key = if draw.once_in(16) { any_key(world, draw) } else { key };
            // A result writes the row again first, mostly.
            if draw.below(2) == 0 {
                let row = Row { due: wall + 120_000.0, ..row(draw, wall) };
                let judged = judged(draw, host);
                write(world, draw, key, Told::Put(row, judged));
            }
            world.release(key, (!draw.once_in(4)).then_some(token));
            if draw.once_in(3) && !world.model.ending() {
                let Now { wall, mono } = world.model.now;
                world.advance(wall + 1.0, mono + world.model.config.leases.release_grace_ms);
                world.claim(1);
            }
        }
        170..175 => {
            let live = world.live_tokens();
            if !live.is_empty() {
                let token = live[draw.below(live.len())].0;
                let ms = draw.one_of(&[None, Some(0.0), Some(1_000.0), Some(500_000.0)]);
                match draw.below(3) {
                    0 => world.give_back(token),
                    _ => world.extend(token, ms),
                }
            } else if let Some(&(token, ..)) = world.tokens.last() {
                world.extend(token, None);
                world.give_back(token);
            }
        }
        175..183 => configure(world, draw, host),
        183 => world.clean_marks(1 + draw.below(5)),
        184..187 => world.set_paused(draw.below(3) == 0),
        187..193 => {
            let resyncing = draw.one_of(&[None, None, Some(true), Some(false)]);
            let phase = phase(draw);
            world.set_phase(phase, resyncing, draw.once_in(4).then_some("no answer"));
        }
        // A walk given up while it ends leaves suspects behind of which nobody was told.
        193 if !world.model.ending() => world.take_feeder(),
        194 => world.malformed(),
        195..219 => walk(world, draw, host),
        219..226 => world.head_check(draw.one_of(&[1, 2, 5, 64])),
        // While a walk ends it is not seen from outside whether a key is suspect already.
        226..241 if world.model.ending() => {}
        226..241 => {
            let Some((key, then)) = world.reads.pop_front() else {
                let key = any_key(world, draw);
                let read = read(draw, world, host, key, &None);
                world.repair(key, &read);
                return;
            };
            // Somebody else's turn; or the answer never comes.
            match draw.below(8) {
                0 => world.reads.push_back((key, then)),
                1 if draw.once_in(2) => world.read_failed(key),
                1 => {}
                _ => {
                    let read = read(draw, world, host, key, &then);
                    world.repair(key, &read);
                }
            }
        }
        241..247 => match draw.below(8) {
            0..3 => world.begin_image(),
            _ => _ = world.go_on_imaging(),
        },
        247..252 if world.restoring.is_some() => _ = world.go_on_restoring(1 + draw.below(9)),
        247..252 if !world.model.walking() => {
            if draw.below(2) == 0 {
                world.begin_image();
                while !world.go_on_imaging() {}
            }
            world.restart();
            world.go_on_restoring(draw.below(30));
        }
        _ => world.top(draw.below(12)),
    }
}

fn walk(world: &mut World, draw: &mut Draw, host: bool) {
    if world.model.ending() {
        world.end_walk(draw.below(3) as u64, 1 + draw.below(4));
        return;
    }
    if !world.model.walking() {
        // A snapshot is read before the table is walked.
        while !world.go_on_restoring(100) {}
        let kind = if draw.once_in(3) { WalkKind::Load } else { WalkKind::Verify };
        world.begin_walk(kind);
        return;
    }
    match draw.below(16) {
        0 => world.abandon_walk(),
        1 => world.walk_malformed(),
        2 => {
            // Rows that are nowhere, as far as the table here knows.
            let key = any_key(world, draw);
            let row = row(draw, world.model.now.wall);
            let judged = judged(draw, host);
            world.walk_row(key, &row, &judged, f64::NAN);
        }
        3 if !world.to_walk.is_empty() => {
            world.partial = true;
            world.end_walk(draw.below(5) as u64, usize::MAX);
        }
        // What another node has for a moment is ours again before the walk comes to it.
        5 if !host => {
            for node in ["node-b", "node-a"] {
                world.configure(&json!({"node": node, "nodes": ["node-a", "node-b"]}));
                while !world.reclassify(1_000) {}
            }
        }
        4 => {
            let kind = if draw.once_in(3) { WalkKind::Load } else { WalkKind::Verify };
            world.begin_walk(kind);
        }
        _ => {
            let mut rows = Vec::new();
            for _ in 0..1 + draw.below(10) {
                let Some(key) = world.to_walk.pop_front() else { break };
                let Some((row, judged, version)) = world.table.get(&key).cloned() else { continue };
                rows.push((key, row, judged, if draw.once_in(6) { f64::NAN } else { version }));
            }
            if draw.once_in(8) && !rows.is_empty() {
                // A walk that comes to a key twice, and finds it changed.
                let (key, ..) = *draw.one_of(&rows.iter().collect::<Vec<_>>());
                rows.push((key, row(draw, world.model.now.wall), judged(draw, host), f64::NAN));
            }
            world.walk_rows(&rows);
            if world.to_walk.is_empty() {
                let most = draw.one_of(&[usize::MAX, 1, 2, 5]);
                world.end_walk(0, most);
            }
        }
    }
}

/// Many rows at a time.
fn large_step(world: &mut World, draw: &mut Draw) {
    let n = world.keys.len();
    let wall = world.model.now.wall;
    let some = |draw: &mut Draw| -> Vec<KeyId> {
        let (from, count) = (draw.below(n), draw.below(n / 2) + 1);
        let stride = draw.one_of(&[1, 1, 7, 13]);
        let keys: BTreeSet<KeyId> = (0..count).map(|i| (from + i * stride) % n).collect();
        keys.into_iter().collect()
    };
    let row = |draw: &mut Draw| Row {
        due: (wall / MINUTE).floor() * MINUTE + (draw.below(600) as f64 - 200.0) * MINUTE,
        interval: if draw.once_in(9) { 60_000.0 * draw.below(20) as f64 } else { f64::NAN },
        from_sitemap: draw.below(3) == 0,
        ..Row::due_at(0.0)
    };
    match draw.below(24) {
        0..8 => {
            for key in some(draw) {
                let told = Told::Put(row(draw), Judged::Rules);
                write(world, draw, key, told);
            }
        }
        8..12 => {
            for key in some(draw) {
                write(world, draw, key, Told::Gone);
            }
        }
        // Nothing is left.
        12 => {
            for key in 0..n {
                write(world, draw, key, Told::Gone);
                if world.model.rows.contains_key(&key) {
                    world.apply(key, &Told::Gone, f64::NAN);
                }
            }
        }
        13 | 14 => {
            let n = draw.below(300);
            world.claim(n);
            let live = world.live_tokens();
            for (token, key, read) in live.into_iter().take(draw.below(200)) {
                match draw.below(3) {
                    0 => _ = world.confirm(token, &read),
                    1 => world.give_back(token),
                    _ => _ = world.release(key, Some(token)),
                }
            }
        }
        15 => {
            step_clock(world, draw);
            if draw.once_in(3) && !world.model.ending() {
                world.abandon_walk();
            }
            world.clean_marks(1 + draw.below(n / 2));
        }
        16 => configure(world, draw, false),
        17 => {
            world.reclassify(1 + draw.below(n / 3));
        }
        18 => {
            world.begin_image();
            world.go_on_imaging();
        }
        19 => {
            world.go_on_imaging();
        }
        20 if !world.model.ending() => {
            let n = draw.below(200);
            world.head_check(n);
            for (key, then) in std::mem::take(&mut world.reads) {
                world.repair(key, &then);
            }
        }
        _ if world.model.ending() => {
            world.end_walk(0, 1 + draw.below(n / 4));
        }
        _ if world.model.walking() => {
            let mut rows = Vec::new();
            for _ in 0..draw.below(n) {
                let Some(key) = world.to_walk.pop_front() else { break };
                if let Some((row, judged, version)) = world.table.get(&key).cloned() {
                    rows.push((key, row, judged, version));
                }
            }
            world.walk_rows(&rows);
            if world.to_walk.is_empty() {
                world.end_walk(0, 1 + draw.below(n / 4));
            }
        }
        _ => world.begin_walk(WalkKind::Verify),
    }
}
