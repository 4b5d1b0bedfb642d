//! The queue written down from SPEC.md, without a thought for speed: it scans and sorts everything, each time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use queue_keeper::queue::config::Config;
use queue_keeper::queue::keeper::Outcome;
use queue_keeper::queue::lease::Released;
use queue_keeper::queue::row::Row;
use queue_keeper::queue::time::Now;
use queue_keeper::queue::trust::Phase;
use queue_keeper::queue::walk::WalkKind;
use serde_json::{Value, json};

pub type KeyId = usize;
const MINUTE: f64 = 60_000.0;
const TEN_MINUTES: f64 = 600_000.0;

/// A key of the pool, and what never changes about it.
pub struct Key {
    pub bytes: Vec<u8>,
    pathname: Option<String>,
    /// FNV-1a over the URL and a bar.
    before_node: u32,
}

fn fnv(state: u32, units: impl Iterator<Item = u16>) -> u32 {
    units.fold(state, |state, unit| (state ^ u32::from(unit)).wrapping_mul(16_777_619))
}

impl Key {
    pub fn new(units: &[u16], delimiter: &str, devices: &[String]) -> Key {
        let bar: Vec<u16> = delimiter.encode_utf16().collect();
        let last = (0..units.len()).rev().find(|at| !bar.is_empty() && units[*at..].starts_with(&bar));
        let is_device = |rest: &[u16]| devices.iter().any(|device| device.encode_utf16().eq(rest.iter().copied()));
        let url = match last {
            Some(at) if is_device(&units[at + bar.len()..]) => &units[..at],
            _ => units,
        };
        let mut bytes = Vec::new();
        for char in char::decode_utf16(units.iter().copied()) {
            match char {
                Ok(char) => bytes.extend_from_slice(char.to_string().as_bytes()),
                Err(lone) => {
                    let unit = lone.unpaired_surrogate();
                    bytes.extend([0xED, 0x80 | (unit >> 6 & 0x3F) as u8, 0x80 | (unit & 0x3F) as u8]);
                }
            }
        }
        Key {
            bytes,
            pathname: url::Url::parse(&String::from_utf16_lossy(url)).ok().map(|url| url.path().to_owned()),
            before_node: fnv(2_166_136_261, url.iter().copied().chain([u16::from(b'|')])),
        }
    }
}

/// What the host's classifier says.
#[derive(Clone, Debug)]
pub struct Said {
    pub route: String,
    pub cadence: f64,
    pub carried: bool,
}

/// Who says where a row belongs.
#[derive(Clone, Debug)]
pub enum Judged {
    Rules,
    Host(Option<Said>),
}

#[derive(Clone, Debug)]
pub enum Told {
    Put(Row, Judged),
    Gone,
    Changed,
    Other,
}

/// A row as it is read from the table, and its version or NaN.
pub type Read = Option<(Row, Judged, f64)>;

#[derive(Clone, Debug)]
pub struct Class {
    pub route: String,
    pub cadence: f64,
    pub carried: bool,
    pub from_sitemap: bool,
    pub changed: bool,
    pub urgent: bool,
    pub demand: Option<f64>,
}

fn same(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

impl PartialEq for Class {
    fn eq(&self, other: &Class) -> bool {
        let flags = |class: &Class| (class.carried, class.from_sitemap, class.changed, class.urgent);
        self.route == other.route
            && same(self.cadence, other.cadence)
            && flags(self) == flags(other)
            && self.demand == other.demand
    }
}

pub struct Kept {
    pub age: u64,
    pub minute: u32,
    seq: u64,
    unverified: bool,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum State {
    Idle,
    Leased,
    Grace,
    Held,
}

#[derive(Clone, Copy, Default)]
struct Memory {
    misses: u32,
    released_due: Option<u32>,
    hold_served: bool,
}

pub struct Entry {
    pub state: State,
    pub until: f64,
    token: u64,
    expired: bool,
    touched: Touch,
    memory: Memory,
    before: Memory,
    due: u32,
    granted_at: f64,
    version: Option<f64>,
    /// A walk has begun since the grant.
    before_walk: bool,
}

struct Rule {
    how: &'static str,
    path: String,
    /// None for a passthrough.
    route: Option<String>,
    interval: Option<f64>,
}

#[derive(Clone, Copy, PartialEq)]
enum Did {
    Nothing,
    Added,
    Moved,
    Removed,
}

#[derive(Clone, Default)]
pub struct Report {
    at: f64,
    scanned: u64,
    owned: u64,
    unowned: u64,
    missing: u64,
    mismatched: u64,
    phantoms: u64,
    gained: u64,
    lost: u64,
    unreadable: u64,
    malformed: u64,
    partial: bool,
    repaired: u64,
    late: u64,
    ms: f64,
}

impl Report {
    fn count(&mut self, wrong: Wrong) -> &mut u64 {
        match wrong {
            Wrong::Missing => &mut self.missing,
            Wrong::Mismatched => &mut self.mismatched,
            Wrong::Phantom => &mut self.phantoms,
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "at": self.at, "scanned": self.scanned, "owned": self.owned, "unowned": self.unowned, "missing": self.missing,
            "mismatched": self.mismatched, "phantoms": self.phantoms, "gained": self.gained, "lost": self.lost,
            "unreadableRows": self.unreadable, "malformed": self.malformed, "partial": self.partial,
            "repaired": self.repaired, "late": self.late, "ms": self.ms,
        })
    }
}

struct Walk {
    load: bool,
    started_mono: f64,
    touched: BTreeSet<KeyId>,
    seen: BTreeSet<KeyId>,
    report: Report,
    /// Rings there had been when it began.
    former: usize,
    /// Whether there had been any.
    may_gain: bool,
    /// A node has left since.
    gaining: bool,
    /// Once it ends: keys that must be suspects, and keys that may be since something happened to them meanwhile.
    ending: Option<(BTreeSet<KeyId>, BTreeSet<KeyId>)>,
}

#[derive(Default, Clone, Copy)]
struct Minute {
    came_due: u64,
    added: u64,
    triggered: u64,
    rescheduled: u64,
    removed: u64,
    added_due: u64,
    removed_due: u64,
    claimed: u64,
}

struct Reclassify {
    classes: VecDeque<u64>,
    class: Option<u64>,
    minute: u64,
    /// What is left of the minute it has come to.
    rows: VecDeque<KeyId>,
    moved: u64,
    dropped: u64,
}

#[derive(Default)]
struct Trust {
    applied: u64,
    ignored: u64,
    outdated: u64,
    flagged: u64,
    malformed: u64,
    last_event_at: Option<f64>,
    load_started_at: Option<f64>,
    loaded_at: Option<f64>,
    load_ms: Option<f64>,
    load_rows: u64,
    unreadable: u64,
    partial_load: bool,
    verify: Option<Report>,
    missed_before: bool,
    verified_at: Option<f64>,
    last_resync: Option<Report>,
    resync_was_last: bool,
    checked_at: Option<f64>,
    checked: u64,
    check_repaired: u64,
    repaired: u64,
    late: u64,
    gained: u64,
    lost: u64,
    last_error: Option<String>,
}

/// A key that could not be read: the how-maniest, and when it is to be read again.
struct Failed {
    number: u64,
    again_at: f64,
    key: KeyId,
    /// Its flag told of it; it may be suspect alone.
    told: bool,
}

struct Unheard {
    wrong: Wrong,
    version: f64,
    under_way: bool,
    at: f64,
}

impl Unheard {
    fn is_own(&self, gone: bool, version: f64, mono: f64) -> bool {
        match self.wrong {
            Wrong::Phantom => gone && mono - self.at < MINUTE,
            _ => version == self.version,
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Wrong {
    Missing,
    Mismatched,
    Phantom,
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Touch {
    None,
    Read,
    Event,
}

pub struct Expected {
    pub key: KeyId,
    pub score: f64,
    pub minute: u32,
}

pub struct ExpectedTop {
    pub rows: Vec<Expected>,
    pub skipped_leased: u64,
    pub complete: bool,
}

pub struct ExpectedClaim {
    pub rows: Vec<Expected>,
    pub held: Vec<(KeyId, u32, f64)>,
    pub skipped_leased: u64,
    pub complete: bool,
    pub due: u64,
    pub status: &'static str,
    pub refused: Option<&'static str>,
}

/// A row of a snapshot, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Saved {
    pub class: Class,
    pub minute: u32,
    pub key: KeyId,
}

pub struct Model {
    pub keys: Rc<Vec<Key>>,
    pub config: Config,
    rules: Vec<Rule>,
    invalid: Vec<usize>,
    ring: Vec<String>,
    /// Rings of before, and what this node was called.
    former: Vec<(Vec<String>, String)>,
    pub now: Now,
    /// The minute in which the queue was made; no later than it is now.
    began: u32,
    pub rows: BTreeMap<KeyId, Kept>,
    /// By age: what it is, and how many rows it has.
    pub classes: BTreeMap<u64, (Class, u64)>,
    next_age: u64,
    next_seq: u64,
    pub version: u64,
    flow: BTreeMap<u32, Minute>,
    pub leases: BTreeMap<KeyId, Entry>,
    /// When each was last taken.
    versions: BTreeMap<KeyId, (f64, f64)>,
    walk: Option<Walk>,
    lost_since_walk: u64,
    reclassify: Option<Reclassify>,
    /// Keys to be read, and whether they are told of: an event, or reads that did not agree, have said that they are to be.
    to_read: VecDeque<(KeyId, bool)>,
    reading: BTreeMap<KeyId, f64>,
    touched: BTreeMap<KeyId, (Touch, f64)>,
    /// When each was handed out, and whether it is told of.
    by_flag: BTreeMap<KeyId, (f64, bool)>,
    /// Keys that could not be read.
    failed: VecDeque<Failed>,
    /// How many there have been.
    failures: u64,
    lost: bool,
    /// What was to be read, and lost, when the walk under way began.
    before_walk: (BTreeSet<KeyId>, u64, bool),
    suspects: BTreeMap<KeyId, f64>,
    /// Writes a verification put right: what was wrong, the version read (NaN: gone), of the walk under way or the last, and when.
    unheard: BTreeMap<KeyId, Unheard>,
    /// Rows that no walk may have read since the load.
    unread: u64,
    /// By single reads.
    unheard_reads: BTreeMap<KeyId, Unheard>,
    checked: BTreeMap<KeyId, f64>,
    pub paused: bool,
    pub phase: Phase,
    resyncing: bool,
    whole: bool,
    any_walk_ended: bool,
    epoch: u64,
    epoch_at: Option<f64>,
    trust: Trust,
    refused: [u64; 3],
    lease_counts: [u64; 6],
}

const GRANTED: usize = 0;
const RELEASED: usize = 1;
const EXPIRED: usize = 2;
const STALE: usize = 3;
const HOLDS: usize = 4;
const GIVEN_BACK: usize = 5;

fn positive(number: f64) -> bool {
    number.is_finite() && number > 0.0
}

fn minute_of(now: Now) -> u32 {
    (now.wall / MINUTE).floor().clamp(0.0, f64::from(u32::MAX)) as u32
}

pub fn due_minute(ms: f64) -> Option<u32> {
    let minute = (ms / MINUTE).floor();
    (ms.is_finite() && ms >= 0.0 && minute <= f64::from(u32::MAX)).then_some(minute as u32)
}

fn ring_of(config: &Config) -> Vec<String> {
    let mut ring: Vec<String> = config.nodes.iter().filter(|name| !name.is_empty()).cloned().collect();
    ring.push(config.node.clone());
    ring.sort_by_key(|name| name.encode_utf16().collect::<Vec<_>>());
    ring.dedup();
    ring
}

fn owner_in<'a>(ring: &'a [String], key: &Key) -> &'a str {
    let hash = |name: &str| fnv(key.before_node, name.encode_utf16());
    let highest = ring.iter().map(|name| hash(name)).max().expect("a ring has this node");
    ring.iter().find(|name| hash(name) == highest).expect("one has the highest")
}

fn rules_of(config: &Config) -> (Vec<Rule>, Vec<usize>) {
    let (mut rules, mut invalid) = (Vec::new(), Vec::new());
    for (index, pattern) in config.exclude_path_patterns.iter().enumerate() {
        match pattern {
            Value::String(path) if !path.is_empty() => {
                rules.push(Rule { how: "contains", path: path.clone(), route: None, interval: None });
            }
            _ => invalid.push(index),
        }
    }
    for (index, rule) in config.routes.iter().enumerate() {
        let how = ["exact", "prefix", "contains"].into_iter().find(|how| rule["match"] == **how);
        let path = rule["path"].as_str().unwrap_or("");
        let mode = rule.get("mode").filter(|mode| !mode.is_null());
        let known_mode = mode.is_none_or(|mode| *mode == "prerender" || *mode == "passthrough");
        let Some(how) =
            how.filter(|how| known_mode && !path.is_empty() && (*how == "contains" || path.starts_with('/')))
        else {
            invalid.push(index);
            continue;
        };
        let interval = rule["renderInterval"].as_f64().filter(|interval| positive(*interval));
        if rule.get("renderInterval").is_some() && interval.is_none() {
            invalid.push(index);
        }
        let passes = mode.is_some_and(|mode| *mode == "passthrough");
        let route = (!passes).then(|| format!("route:{how}:{path}"));
        rules.push(Rule { how, path: path.to_owned(), route, interval });
    }
    (rules, invalid)
}

/// Changes `config` as `configure` does, from the same JSON.
fn patched(config: &mut Config, patch: &Value) {
    let strings = |list: &Value| -> Vec<String> {
        list.as_array().expect("a list").iter().map(|name| name.as_str().expect("a name").to_owned()).collect()
    };
    for (name, value) in patch.as_object().expect("an object") {
        let number = |field: &str, old: f64| value.get(field).and_then(Value::as_f64).unwrap_or(old);
        match name.as_str() {
            "node" => config.node = value.as_str().expect("a name").to_owned(),
            "nodes" => {
                let nodes = strings(value);
                if !nodes.is_empty() {
                    config.nodes = nodes;
                }
            }
            "routes" => config.routes = value.as_array().expect("a list").clone(),
            "excludePathPatterns" => config.exclude_path_patterns = value.as_array().expect("a list").clone(),
            "defaultInterval" => config.default_interval = value.as_f64().expect("a number"),
            "priority" => {
                let old = &mut config.priority;
                old.sitemap_boost = number("sitemapBoost", old.sitemap_boost);
                old.changed_head_start = number("changedHeadStart", old.changed_head_start);
                old.urgent_head_start = number("urgentHeadStart", old.urgent_head_start);
                old.changed_demand = value.get("changedDemand").and_then(Value::as_bool).unwrap_or(old.changed_demand);
            }
            "leases" => {
                let old = &mut config.leases;
                old.lease_ms = number("leaseMs", old.lease_ms);
                old.max_leases = number("maxLeases", old.max_leases as f64) as u64;
                old.release_grace_ms = number("releaseGraceMs", old.release_grace_ms);
                old.miss_limit = number("missLimit", f64::from(old.miss_limit)) as u32;
            }
            _ => panic!("no such option: {name}"),
        }
    }
}

impl Model {
    pub fn new(keys: Rc<Vec<Key>>, config: Config, now: Now) -> Model {
        let (rules, invalid) = rules_of(&config);
        Model {
            keys,
            rules,
            invalid,
            ring: ring_of(&config),
            config,
            former: Vec::new(),
            now,
            began: minute_of(now),
            rows: BTreeMap::new(),
            classes: BTreeMap::new(),
            next_age: 0,
            next_seq: 0,
            version: 0,
            flow: BTreeMap::new(),
            leases: BTreeMap::new(),
            versions: BTreeMap::new(),
            walk: None,
            lost_since_walk: 0,
            reclassify: None,
            to_read: VecDeque::new(),
            reading: BTreeMap::new(),
            touched: BTreeMap::new(),
            by_flag: BTreeMap::new(),
            failed: VecDeque::new(),
            failures: 0,
            lost: false,
            before_walk: Default::default(),
            suspects: BTreeMap::new(),
            unheard: BTreeMap::new(),
            unread: 0,
            unheard_reads: BTreeMap::new(),
            checked: BTreeMap::new(),
            paused: false,
            phase: Phase::Live,
            resyncing: false,
            whole: true,
            any_walk_ended: false,
            epoch: 0,
            epoch_at: None,
            trust: Trust::default(),
            refused: [0; 3],
            lease_counts: [0; 6],
        }
    }

    pub fn minute(&self) -> u32 {
        minute_of(self.now)
    }

    pub fn class(&self, key: KeyId) -> Option<(&Class, u32)> {
        let kept = self.rows.get(&key)?;
        Some((&self.classes[&kept.age].0, kept.minute))
    }

    pub fn walking(&self) -> bool {
        self.walk.is_some()
    }

    pub fn ending(&self) -> bool {
        self.walk.as_ref().is_some_and(|walk| walk.ending.is_some())
    }

    pub fn reclassifying(&self) -> bool {
        self.reclassify.is_some()
    }

    /// The row whose turn it is to be reclassified, where its minute has been begun.
    pub fn in_turn(&self) -> Option<KeyId> {
        self.reclassify.as_ref()?.rows.front().copied()
    }

    // --- which rows are kept, and where (SPEC 3)

    pub fn owns(&self, key: KeyId) -> bool {
        self.config.classify || owner_in(&self.ring, &self.keys[key]) == self.config.node
    }

    fn rule_of(&self, key: KeyId) -> Option<&Rule> {
        let path = self.keys[key].pathname.as_deref()?;
        self.rules.iter().find(|rule| match rule.how {
            "exact" => path == rule.path,
            "prefix" => path.starts_with(&rule.path),
            _ => path.contains(&rule.path),
        })
    }

    /// The route, and the cadence of rows that carry none.
    fn route_of(&self, key: KeyId) -> (String, f64) {
        match self.rule_of(key) {
            Some(Rule { route: Some(route), interval, .. }) => {
                (route.clone(), interval.unwrap_or(self.config.default_interval))
            }
            _ => ("unrouted".to_owned(), self.config.default_interval),
        }
    }

    pub fn judge(&self, key: KeyId, row: &Row, judged: &Judged) -> Option<(Class, u32)> {
        let minute = due_minute(row.due)?;
        let (route, cadence, carried) = match judged {
            Judged::Host(said) => {
                let said = said.as_ref()?;
                (said.route.clone(), said.cadence, said.carried)
            }
            Judged::Rules => {
                let (route, cadence) = self.route_of(key);
                let carried = positive(row.interval);
                (route, if carried { row.interval } else { cadence }, carried)
            }
        };
        let changed = positive(row.changed_at);
        let class = Class {
            route,
            cadence,
            carried,
            from_sitemap: row.from_sitemap,
            changed,
            urgent: positive(row.urgent_at) && !changed,
            demand: (changed && positive(row.demand)).then_some(row.demand),
        };
        Some((class, minute))
    }

    /// What should be kept for a key whose row in the table is this.
    pub fn wanted(&self, key: KeyId, read: &Read) -> Option<(Class, u32)> {
        let (row, judged, _) = read.as_ref()?;
        if self.owns(key) { self.judge(key, row, judged) } else { None }
    }

    fn enter(&mut self, class: &Class) -> u64 {
        let known = self.classes.iter().find(|(_, (other, _))| other == class).map(|(age, _)| *age);
        let age = known.unwrap_or_else(|| {
            self.next_age += 1;
            self.classes.insert(self.next_age, (class.clone(), 0));
            self.next_age
        });
        self.classes.get_mut(&age).expect("just there").1 += 1;
        age
    }

    fn leave(&mut self, age: u64) {
        let class = self.classes.get_mut(&age).expect("its rows are in it");
        class.1 -= 1;
        if class.1 == 0 {
            self.classes.remove(&age);
        }
    }

    fn put_in(&mut self, key: KeyId, age: u64, minute: u32, unverified: bool) {
        self.next_seq += 1;
        if let Some(going) = &mut self.reclassify
            && going.class == Some(age)
            && going.minute == u64::from(minute) + 1
            && !going.rows.is_empty()
        {
            going.rows.push_back(key);
        }
        self.rows.insert(key, Kept { age, minute, seq: self.next_seq, unverified });
    }

    fn take_out(&mut self, key: KeyId) -> Kept {
        if let Some(going) = &mut self.reclassify {
            going.rows.retain(|other| *other != key);
        }
        self.rows.remove(&key).expect("it is kept")
    }

    fn flowing(&mut self) -> &mut Minute {
        let minute = self.minute();
        self.flow.entry(minute).or_default()
    }

    fn change(&mut self, key: KeyId, target: Option<(Class, u32)>, event: bool) -> Did {
        let now = self.minute();
        let did = match (self.rows.contains_key(&key), target) {
            (false, None) => return Did::Nothing,
            (false, Some((class, minute))) => {
                let age = self.enter(&class);
                self.put_in(key, age, minute, false);
                if event {
                    self.flowing().added += 1;
                    self.flowing().added_due += u64::from(minute <= now);
                }
                Did::Added
            }
            (true, None) => {
                let kept = self.take_out(key);
                self.leave(kept.age);
                if event {
                    self.flowing().removed += 1;
                    self.flowing().removed_due += u64::from(kept.minute <= now);
                }
                if let Some(entry) = self.leases.get_mut(&key)
                    && entry.state == State::Grace
                {
                    entry.memory = Memory::default();
                }
                self.forget(key);
                if let Some(since) = self.reading.get_mut(&key) {
                    *since = self.now.mono;
                }
                Did::Removed
            }
            (true, Some((class, minute))) => {
                let kept = &self.rows[&key];
                let (old_age, old_minute) = (kept.age, kept.minute);
                if self.classes[&old_age].0 == class && old_minute == minute {
                    return Did::Nothing;
                }
                let age = self.enter(&class);
                let kept = self.take_out(key);
                self.put_in(key, age, minute, kept.unverified);
                self.leave(old_age);
                if minute != old_minute {
                    self.settle(key);
                    self.forget(key);
                }
                if event {
                    match (old_minute <= now, minute <= now) {
                        (false, true) => self.flowing().triggered += 1,
                        (true, false) => self.flowing().rescheduled += 1,
                        _ => {}
                    }
                }
                Did::Moved
            }
        };
        self.version += 1;
        if did == Did::Removed
            && let Some(walk) = &mut self.walk
        {
            // Should it come back, that is a row which the walk has not seen.
            walk.seen.remove(&key);
        }
        if let Some((must, may)) = self.walk.as_mut().and_then(|walk| walk.ending.as_mut())
            && did != Did::Moved
        {
            must.remove(&key);
            may.insert(key);
        }
        did
    }

    // --- order (SPEC 4)

    fn score(&self, class: &Class, minute: u32) -> f64 {
        let priority = &self.config.priority;
        let late = (self.now.wall - f64::from(minute) * MINUTE).max(0.0);
        let divisor = match class.demand {
            Some(demand) if class.changed && priority.changed_demand => demand,
            _ => class.cadence,
        };
        let mut score = if divisor > 0.0 { late / divisor } else { late };
        if class.from_sitemap {
            // Infinitely late and of no weight: of no weight.
            score = if priority.sitemap_boost == 0.0 { 0.0 } else { score * priority.sitemap_boost };
        }
        let head_start = if class.changed {
            priority.changed_head_start
        } else if class.urgent {
            priority.urgent_head_start
        } else {
            0.0
        };
        if positive(head_start) { score + head_start * priority.sitemap_boost.max(1.0) } else { score }
    }

    /// All due rows, best first.
    pub fn order(&self) -> Vec<Expected> {
        let mut due: Vec<(f64, u32, u64, u64, KeyId)> = Vec::new();
        for (key, kept) in &self.rows {
            if kept.minute <= self.minute() {
                let score = self.score(&self.classes[&kept.age].0, kept.minute);
                due.push((score, kept.minute, kept.age, kept.seq, *key));
            }
        }
        due.sort_by(|a, b| b.0.total_cmp(&a.0).then((a.1, a.2, a.3).cmp(&(b.1, b.2, b.3))));
        due.into_iter().map(|(score, minute, _, _, key)| Expected { key, score, minute }).collect()
    }

    fn out_of_reach(&self, key: KeyId) -> bool {
        self.leases.get(&key).is_some_and(|entry| matches!(entry.state, State::Leased | State::Grace))
    }

    pub fn top(&self, n: usize) -> ExpectedTop {
        let (mut rows, mut skipped_leased) = (Vec::new(), 0);
        for row in self.order() {
            if rows.len() >= n {
                break;
            }
            if self.out_of_reach(row.key) {
                skipped_leased += 1;
            } else {
                rows.push(row);
            }
        }
        ExpectedTop { complete: rows.len() < n, rows, skipped_leased }
    }

    pub fn due(&self) -> u64 {
        self.rows.values().filter(|kept| kept.minute <= self.minute()).count() as u64
    }

    // --- events (SPEC 5)

    pub fn advance(&mut self, now: Now) {
        let before = self.minute();
        self.now = Now { wall: now.wall, mono: self.now.mono.max(now.mono) };
        let minute = self.minute();
        self.began = self.began.min(minute);
        let window = self.config.flow_minutes.max(11);
        if minute > before {
            for kept in self.rows.values() {
                if kept.minute > before && kept.minute <= minute && minute - kept.minute < window {
                    self.flow.entry(kept.minute).or_default().came_due += 1;
                }
            }
        }
        if minute < before {
            self.flow.retain(|at, _| before.saturating_sub(*at) < self.config.flow_minutes);
        }
        if minute != before {
            self.flow.retain(|at, _| *at <= minute && minute - *at < window);
        }
        let mono = self.now.mono;
        let over: Vec<KeyId> = self
            .leases
            .iter()
            .filter(|(_, e)| e.state != State::Idle && e.until <= mono)
            .map(|(key, _)| *key)
            .collect();
        for key in over {
            let entry = self.leases.get_mut(&key).expect("it is there");
            match entry.state {
                State::Leased => {
                    entry.memory.misses += 1;
                    entry.expired = true;
                    self.lease_counts[EXPIRED] += 1;
                }
                State::Held => entry.memory.hold_served = true,
                _ => {}
            }
            entry.state = State::Idle;
            self.forget(key);
        }
    }

    /// Whether an older version than this is remembered for sure, may be, or cannot be any more.
    fn newer_known(&self, key: KeyId, version: f64) -> Option<bool> {
        match self.versions.get(&key) {
            Some((known, at)) if *known > version => match self.now.mono - at {
                age if age < TEN_MINUTES => Some(true),
                age if age < 4.0 * TEN_MINUTES => None,
                _ => Some(false),
            },
            _ => Some(false),
        }
    }

    /// Whether it cannot be told from outside if a newer version than this is still remembered.
    pub fn is_unsure(&self, key: KeyId, version: f64) -> bool {
        self.newer_known(key, version).is_none()
    }

    /// What was read is not overwritten by an event of before.
    fn learn_version(&mut self, key: KeyId, read: &Read) {
        if let Some((_, _, version)) = read
            && !version.is_nan()
            && self.newer_known(key, *version) == Some(false)
        {
            self.versions.insert(key, (*version, self.now.mono));
        }
    }

    fn touch(&mut self, key: KeyId, says_what: bool) {
        if let Some(entry) = self.leases.get_mut(&key) {
            entry.touched = Touch::Event;
        }
        if self.reading.remove(&key).is_some() {
            self.touched.insert(key, (Touch::Event, self.now.mono));
        }
        if says_what {
            self.verified(key);
        }
        self.walk_touched(key);
    }

    fn walk_touched(&mut self, key: KeyId) {
        let Some(walk) = &mut self.walk else { return };
        match &mut walk.ending {
            None => {
                walk.touched.insert(key);
            }
            Some((must, may)) => {
                must.remove(&key);
                may.insert(key);
            }
        }
    }

    fn verified(&mut self, key: KeyId) {
        if let Some(kept) = self.rows.get_mut(&key) {
            kept.unverified = false;
        }
    }

    /// `outcome` is what the keeper said: it is followed where a version may have been forgotten or not.
    pub fn apply(&mut self, key: KeyId, told: &Told, version: f64, outcome: Outcome) -> Outcome {
        self.trust.last_event_at = Some(self.now.wall);
        let expected = self.take(key, told, version, outcome);
        match expected {
            Outcome::Applied => self.trust.applied += 1,
            Outcome::Ignored => self.trust.ignored += 1,
        }
        expected
    }

    fn take(&mut self, key: KeyId, told: &Told, version: f64, outcome: Outcome) -> Outcome {
        if let Told::Other = told {
            return Outcome::Ignored;
        }
        if !self.owns(key) {
            if !version.is_nan() && !self.newer_known(key, version).unwrap_or(false) {
                self.versions.insert(key, (version, self.now.mono));
            }
            self.touch(key, true);
            self.drop_lost(key);
            return Outcome::Ignored;
        }
        self.hear(key, matches!(told, Told::Gone), version);
        if let Told::Changed = told {
            self.trust.flagged += 1;
            self.touch(key, false);
            self.flag(key, true);
            return Outcome::Ignored;
        }
        if !version.is_nan() {
            if self.newer_known(key, version).unwrap_or(outcome == Outcome::Ignored) {
                self.trust.outdated += 1;
                return Outcome::Ignored;
            }
            self.versions.insert(key, (version, self.now.mono));
        }
        self.touch(key, true);
        let target = match told {
            Told::Put(row, judged) => self.judge(key, row, judged),
            _ => None,
        };
        self.change(key, target, true);
        Outcome::Applied
    }

    /// The event of a write that was put right without it.
    fn hear(&mut self, key: KeyId, gone: bool, version: f64) {
        let mono = self.now.mono;
        if self.unheard_reads.get(&key).is_some_and(|read| read.is_own(gone, version, mono)) {
            self.unheard_reads.remove(&key);
            self.trust.late += 1;
        }
        let Some(unheard) = self.unheard.get(&key).filter(|unheard| unheard.is_own(gone, version, mono)) else {
            return;
        };
        let (wrong, under_way) = (unheard.wrong, unheard.under_way);
        self.unheard.remove(&key);
        self.trust.late += 1;
        let hear = |report: &mut Report| {
            *report.count(wrong) -= 1;
            report.repaired -= 1;
            report.late += 1;
        };
        match &mut self.walk {
            Some(walk) if under_way => hear(&mut walk.report),
            _ => self.verified_reports().into_iter().for_each(hear),
        }
    }

    /// The last verification's report, and its copy where it was a resync.
    fn verified_reports(&mut self) -> Vec<&mut Report> {
        let Some(verify) = &mut self.trust.verify else { return Vec::new() };
        let resync = self.trust.last_resync.as_mut().filter(|_| self.trust.resync_was_last);
        std::iter::once(verify).chain(resync).collect()
    }

    /// A read has put something else in place: others that read the key meanwhile may be older.
    fn overtake(&mut self, key: KeyId, did: Did, leases: bool) {
        if did == Did::Nothing {
            return;
        }
        if leases
            && let Some(entry) = self.leases.get_mut(&key)
            && entry.touched == Touch::None
        {
            entry.touched = Touch::Read;
        }
        if self.reading.remove(&key).is_some() {
            self.touched.insert(key, (Touch::Read, self.now.mono));
        }
        if let Some((must, may)) = self.walk.as_mut().and_then(|walk| walk.ending.as_mut()) {
            // Before or after its turn as a suspect.
            must.remove(&key);
            may.insert(key);
        }
    }

    /// A read that another has overtaken: where they differ, the key is read again.
    fn doubt(&mut self, key: KeyId, target: &Option<(Class, u32)>) {
        let kept = self.class(key).map(|(class, minute)| (class.clone(), minute));
        if kept != *target {
            self.flag(key, true);
        }
    }

    /// A kept row that a change of the configuration has not come to yet is first put where it belongs.
    fn settle_row(&mut self, key: KeyId) {
        if self.reclassify.is_none() || !self.rows.contains_key(&key) {
            return;
        }
        if !self.owns(key) {
            if self.reading.contains_key(&key) {
                self.touched.insert(key, (Touch::Event, self.now.mono));
            }
            self.drop_lost(key);
            return;
        }
        let (class, minute) = self.class(key).expect("it is kept");
        let mut class = class.clone();
        let (route, cadence) = self.route_of(key);
        class.route = route;
        if !class.carried {
            class.cadence = cadence;
        }
        if self.change(key, Some((class, minute)), false) == Did::Moved
            && let Some(going) = &mut self.reclassify
        {
            going.moved += 1;
        }
    }

    pub fn malformed(&mut self, what: &str) {
        self.trust.malformed += 1;
        self.trust.last_error = Some(what.to_owned());
    }

    fn flag(&mut self, key: KeyId, told: bool) {
        match self.to_read.iter_mut().find(|(other, _)| *other == key) {
            Some((_, already)) => *already |= told,
            None => self.to_read.push_back((key, told)),
        }
    }

    // --- leases and claims (SPEC 6 and 7)

    /// An entry that has nothing left to say is forgotten.
    fn forget(&mut self, key: KeyId) {
        let kept = self.rows.contains_key(&key);
        if let Some(entry) = self.leases.get(&key)
            && entry.state == State::Idle
            && (!kept || (entry.memory.misses == 0 && entry.memory.released_due.is_none()))
        {
            self.leases.remove(&key);
        }
    }

    /// A release whose row moved on resets the count.
    fn settle(&mut self, key: KeyId) {
        let due = self.rows.get(&key).map(|kept| kept.minute);
        if let Some(entry) = self.leases.get_mut(&key)
            && entry.memory.released_due.is_some()
            && entry.memory.released_due != due
        {
            entry.memory = Memory::default();
        }
    }

    pub fn in_flight(&self) -> u64 {
        self.leases.values().filter(|entry| entry.state == State::Leased).count() as u64
    }

    pub fn held_keys(&self) -> u64 {
        self.leases.values().filter(|entry| entry.state == State::Held).count() as u64
    }

    fn held_due(&self) -> u64 {
        let held = self.leases.iter().filter(|(_, entry)| entry.state == State::Held);
        held.filter(|(key, _)| self.rows.get(key).is_some_and(|kept| kept.minute <= self.minute())).count() as u64
    }

    pub fn status(&self) -> &'static str {
        match () {
            () if self.paused => "paused",
            () if matches!(self.phase, Phase::Starting | Phase::Stopped) => "unready",
            () if self.due() > 0 => "queued",
            () if self.whole => "empty",
            () => "unready",
        }
    }

    /// Everything but the tokens, which are the keeper's to choose: see [`Self::granted`].
    pub fn claim(&mut self, n: usize) -> ExpectedClaim {
        let mut claim = ExpectedClaim {
            rows: Vec::new(),
            held: Vec::new(),
            skipped_leased: 0,
            complete: false,
            due: self.due(),
            status: self.status(),
            refused: None,
        };
        let stopped = matches!(self.phase, Phase::Starting | Phase::Stopped);
        if self.paused || stopped {
            claim.refused = Some(if self.paused { "paused" } else { "unready" });
            self.refused[if self.paused { 1 } else { 2 }] += 1;
            return claim;
        }
        let settings = self.config.leases;
        let mono = self.now.mono;
        for row in self.order() {
            if claim.rows.len() >= n {
                break;
            }
            if self.out_of_reach(row.key) {
                claim.skipped_leased += 1;
                continue;
            }
            let cadence = self.classes[&self.rows[&row.key].age].0.cadence;
            if let Some(entry) = self.leases.get(&row.key)
                && entry.state == State::Held
            {
                claim.held.push((row.key, entry.memory.misses, entry.until));
                continue;
            }
            if self.in_flight() >= settings.max_leases {
                claim.refused = Some("limit");
                self.refused[0] += 1;
                break;
            }
            let fresh = Entry {
                state: State::Idle,
                until: 0.0,
                token: 0,
                expired: false,
                touched: Touch::None,
                before_walk: false,
                memory: Memory::default(),
                before: Memory::default(),
                due: 0,
                granted_at: 0.0,
                version: None,
            };
            let entry = self.leases.entry(row.key).or_insert(fresh);
            entry.before = entry.memory;
            if entry.memory.released_due == Some(row.minute) {
                entry.memory.misses += 1;
            }
            entry.memory.released_due = None;
            let misses = entry.memory.misses;
            if misses > settings.miss_limit && !entry.memory.hold_served {
                let doubled = settings.lease_ms * 2f64.powi((misses - settings.miss_limit) as i32);
                entry.until = mono + if cadence > 0.0 { doubled.min(cadence) } else { doubled };
                entry.state = State::Held;
                claim.held.push((row.key, misses, entry.until));
                self.lease_counts[HOLDS] += 1;
                continue;
            }
            entry.memory.hold_served = false;
            entry.state = State::Leased;
            entry.until = mono + settings.lease_ms;
            entry.touched = Touch::None;
            entry.before_walk = false;
            entry.expired = false;
            entry.due = row.minute;
            entry.granted_at = self.now.wall;
            entry.version = None;
            self.lease_counts[GRANTED] += 1;
            self.flowing().claimed += 1;
            claim.rows.push(row);
        }
        claim.complete = claim.rows.len() < n && claim.refused.is_none();
        claim.held.truncate(self.config.max_listed);
        claim
    }

    pub fn granted(&mut self, key: KeyId, token: u64) {
        self.leases.get_mut(&key).expect("just granted").token = token;
    }

    pub fn leased_key(&self, token: u64) -> Option<KeyId> {
        let live = self.leases.iter().find(|(_, entry)| entry.state == State::Leased && entry.token == token);
        live.map(|(key, _)| *key)
    }

    /// What is kept is of a snapshot, or the key is to be read since it is told of.
    fn is_doubtful(&self, key: KeyId) -> bool {
        self.rows.get(&key).is_some_and(|kept| kept.unverified)
            || self.to_read.contains(&(key, true))
            || self.by_flag.get(&key).is_some_and(|(_, told)| *told)
            || self.failed.iter().any(|failed| failed.key == key && failed.told)
    }

    /// A single read has put right what nobody had told of.
    fn put_right(&mut self, key: KeyId, read: &Read) {
        self.trust.repaired += 1;
        let wrong = if read.is_none() { Wrong::Phantom } else { Wrong::Mismatched };
        let version = read.as_ref().map_or(f64::NAN, |(_, _, version)| *version);
        if read.is_none() || !version.is_nan() {
            self.unheard_reads.insert(key, Unheard { wrong, version, under_way: false, at: self.now.mono });
        }
    }

    pub fn confirm(&mut self, token: u64, read: &Read) -> bool {
        let Some(key) = self.leased_key(token) else { return false };
        self.settle_row(key);
        let target = self.wanted(key, read);
        let due = target.as_ref().map(|(_, minute)| *minute).filter(|minute| *minute <= self.minute());
        let touched = self.leases[&key].touched;
        if touched == Touch::Read {
            self.doubt(key, &target);
        }
        let touched = touched != Touch::None;
        if !touched {
            self.learn_version(key, read);
            let doubtful = self.is_doubtful(key);
            let did = self.change(key, target, false);
            if did != Did::Nothing && !doubtful {
                self.put_right(key, read);
            }
            self.verified(key);
            if !self.leases[&key].before_walk {
                self.walk_touched(key);
            }
            self.overtake(key, did, false);
        }
        if let Some(due) = due {
            let entry = self.leases.get_mut(&key).expect("it is leased");
            entry.version = read.as_ref().map(|(_, _, version)| *version).filter(|version| !version.is_nan());
            if !touched {
                entry.due = due;
            }
            return true;
        }
        self.lease_counts[STALE] += 1;
        self.undo(key);
        false
    }

    pub fn give_back(&mut self, token: u64) -> bool {
        let Some(key) = self.leased_key(token) else { return false };
        self.lease_counts[GIVEN_BACK] += 1;
        self.undo(key);
        true
    }

    fn undo(&mut self, key: KeyId) {
        let minute = (self.leases[&key].granted_at / MINUTE) as u32;
        if let Some(flow) = self.flow.get_mut(&minute) {
            flow.claimed = flow.claimed.saturating_sub(1);
        }
        let entry = self.leases.get_mut(&key).expect("it is leased");
        entry.memory = entry.before;
        entry.state = State::Idle;
        self.settle(key);
        self.forget(key);
    }

    pub fn release(&mut self, key: KeyId, token: Option<u64>) -> Released {
        let Some(entry) = self.leases.get_mut(&key) else { return Released::Unknown };
        let live = entry.state == State::Leased;
        if let Some(token) = token.filter(|token| *token != entry.token) {
            return if live && token < entry.token { Released::Superseded } else { Released::Unknown };
        }
        if !live {
            return if token.is_some() && entry.expired { Released::Expired } else { Released::Unknown };
        }
        entry.memory.released_due = Some(entry.due);
        entry.state = State::Grace;
        entry.until = self.now.mono + self.config.leases.release_grace_ms;
        self.lease_counts[RELEASED] += 1;
        self.settle(key);
        Released::Released
    }

    pub fn extend(&mut self, token: u64, ms: Option<f64>) -> Option<f64> {
        let key = self.leased_key(token)?;
        let now = self.now;
        let ms = ms.unwrap_or(self.config.leases.lease_ms);
        let entry = self.leases.get_mut(&key).expect("it is leased");
        entry.until = entry.until.max(now.mono + ms);
        Some(now.wall + (entry.until - now.mono))
    }

    // --- configuration, walks, repairs (SPEC 8)

    pub fn configure(&mut self, patch: &Value) {
        let old = self.config.clone();
        patched(&mut self.config, patch);
        let ring = ring_of(&self.config);
        let ring_changed = ring != self.ring || self.config.node != old.node;
        if ring_changed {
            if self.epoch > 0 && self.ring.iter().any(|node| !ring.contains(node)) {
                self.whole = false;
                if let Some(walk) = &mut self.walk {
                    walk.gaining = true;
                }
            }
            self.former.push((std::mem::replace(&mut self.ring, ring), old.node.clone()));
        }
        let rules_changed = old.routes != self.config.routes
            || old.exclude_path_patterns != self.config.exclude_path_patterns
            || old.default_interval != self.config.default_interval;
        (self.rules, self.invalid) = rules_of(&self.config);
        if (ring_changed || rules_changed) && !self.config.classify {
            let (moved, dropped) = self.reclassify.take().map_or((0, 0), |going| (going.moved, going.dropped));
            self.reclassify = Some(Reclassify {
                classes: self.classes.keys().copied().collect(),
                class: None,
                minute: 0,
                rows: VecDeque::new(),
                moved,
                dropped,
            });
        }
    }

    /// Oldest class first, minute by minute, first in first.
    fn next_to_reclassify(&mut self) -> Option<KeyId> {
        loop {
            let going = self.reclassify.as_mut()?;
            if let Some(key) = going.rows.pop_front() {
                return Some(key);
            }
            let from = going.minute;
            let here = |kept: &Kept| Some(kept.age) == going.class && u64::from(kept.minute) >= from;
            match self.rows.values().filter(|kept| here(kept)).map(|kept| kept.minute).min() {
                Some(minute) => {
                    let mut rows: Vec<(u64, KeyId)> = Vec::new();
                    for (key, kept) in &self.rows {
                        if here(kept) && kept.minute == minute {
                            rows.push((kept.seq, *key));
                        }
                    }
                    rows.sort_unstable();
                    going.rows = rows.into_iter().map(|(_, key)| key).collect();
                    going.minute = u64::from(minute) + 1;
                }
                None => {
                    going.class = Some(going.classes.pop_front()?);
                    going.minute = 0;
                }
            }
        }
    }

    pub fn reclassify(&mut self, most: usize) -> Option<(u64, u64)> {
        for _ in 0..most {
            let Some(key) = self.next_to_reclassify() else {
                return Some(self.reclassify.take().map_or((0, 0), |going| (going.moved, going.dropped)));
            };
            self.settle_row(key);
        }
        None
    }

    fn drop_lost(&mut self, key: KeyId) {
        if self.change(key, None, false) == Did::Removed {
            self.trust.lost += 1;
            self.lost_since_walk += 1;
            if let Some(going) = &mut self.reclassify {
                going.dropped += 1;
            }
        }
    }

    fn is_gained(&self, key: KeyId) -> bool {
        !self.config.classify && self.former.iter().any(|(ring, node)| owner_in(ring, &self.keys[key]) != node)
    }

    pub fn begin_walk(&mut self, kind: WalkKind) {
        let load = kind == WalkKind::Load;
        self.abandon_walk();
        if load {
            self.trust.load_started_at = Some(self.now.wall);
        }
        self.walk = Some(Walk {
            load,
            started_mono: self.now.mono,
            touched: BTreeSet::new(),
            seen: BTreeSet::new(),
            report: Report::default(),
            former: self.former.len(),
            may_gain: !self.former.is_empty(),
            gaining: false,
            ending: None,
        });
        for entry in self.leases.values_mut() {
            entry.before_walk = true;
        }
        self.before_walk = (self.by_flag.keys().copied().collect(), self.failures, self.lost);
    }

    pub fn abandon_walk(&mut self) {
        self.walk = None;
        for (key, found) in std::mem::take(&mut self.unheard) {
            let of = if found.under_way { &mut self.unheard_reads } else { &mut self.unheard };
            of.insert(key, Unheard { under_way: false, ..found });
        }
    }

    pub fn walk_row(&mut self, key: KeyId, row: &Row, judged: &Judged, version: f64) {
        let owned = match judged {
            Judged::Rules => self.owns(key),
            Judged::Host(said) => said.is_some(),
        };
        let gained = self.is_gained(key);
        self.settle_row(key);
        let Some(walk) = &mut self.walk else { return };
        walk.report.scanned += 1;
        *(if owned { &mut walk.report.owned } else { &mut walk.report.unowned }) += 1;
        if walk.touched.contains(&key) {
            return;
        }
        let load = walk.load;
        let target = if owned { self.judge(key, row, judged) } else { None };
        if owned && !version.is_nan() {
            self.versions.insert(key, (version, self.now.mono));
        }
        let doubtful = self.is_doubtful(key);
        let did = self.change(key, target, false);
        self.verified(key);
        self.overtake(key, did, true);
        let walk = self.walk.as_mut().expect("under way");
        if self.rows.contains_key(&key) {
            walk.seen.insert(key);
        }
        let report = &mut walk.report;
        let wrong = match did {
            Did::Nothing => return,
            Did::Added if load => return,
            _ if load => {
                report.mismatched += 1;
                return;
            }
            Did::Added if gained => {
                report.gained += 1;
                self.trust.gained += 1;
                return;
            }
            _ if doubtful => return,
            Did::Added if self.unread > 0 => {
                self.unread -= 1;
                return;
            }
            Did::Added => Wrong::Missing,
            Did::Moved | Did::Removed => Wrong::Mismatched,
        };
        *report.count(wrong) += 1;
        report.repaired += 1;
        self.trust.repaired += 1;
        if !version.is_nan() {
            self.unheard.insert(key, Unheard { wrong, version, under_way: true, at: self.now.mono });
        }
    }

    pub fn walk_malformed(&mut self) {
        self.trust.malformed += 1;
        if let Some(walk) = &mut self.walk {
            walk.report.scanned += 1;
            walk.report.malformed += 1;
        }
    }

    pub fn begin_ending(&mut self, partial: bool) {
        let Some(walk) = &mut self.walk else { return };
        let mut must: BTreeSet<KeyId> = self.rows.keys().copied().collect();
        must.retain(|key| !partial && !walk.seen.contains(key) && !walk.touched.contains(key));
        walk.ending = Some((must, BTreeSet::new()));
        if !partial {
            // What an earlier walk suspected, this one has seen, or suspects again.
            self.suspects.clear();
        }
    }

    /// The walk is over, with these suspects. Returns the report, and the suspects to which something happened meanwhile.
    pub fn end_walk(&mut self, partial: bool, unreadable: u64, suspects: &[KeyId]) -> (Report, Vec<KeyId>) {
        let mut walk = self.walk.take().expect("a walk is under way");
        let (must, may) = walk.ending.take().expect("it ends");
        let got: BTreeSet<KeyId> = suspects.iter().copied().collect();
        // What goes and comes back while the walk ends may be told twice: it is read twice.
        let told = |key: &KeyId| suspects.iter().filter(|other| *other == key).count();
        assert!(got.iter().all(|key| told(key) == 1 || may.contains(key)), "a suspect is told once");
        assert!(must.is_subset(&got), "what the walk did not see is suspect: {must:?} of {got:?}");
        assert!(!partial || got.is_empty(), "a partial walk has no suspects");
        let more: Vec<KeyId> = got.difference(&must).copied().collect();
        assert!(more.iter().all(|key| may.contains(key)), "what it saw is not: {more:?} of {may:?}");
        for key in got {
            self.suspects.insert(key, self.now.mono);
            self.reading.insert(key, self.now.mono);
            self.touched.remove(&key);
        }
        let report = &mut walk.report;
        report.at = self.now.wall;
        report.ms = self.now.mono - walk.started_mono;
        report.partial = partial;
        report.unreadable = unreadable;
        report.lost = std::mem::take(&mut self.lost_since_walk);
        self.trust.unreadable = unreadable;
        let left = if partial { u64::MAX } else { unreadable };
        self.unread = if walk.load || walk.may_gain { left } else { left.min(self.unread) };
        if walk.load {
            self.trust.loaded_at = Some(self.now.wall);
            self.trust.load_ms = Some(report.ms);
            self.trust.load_rows = report.scanned;
            self.trust.partial_load = partial;
        } else {
            self.unheard.retain(|_, unheard| unheard.under_way);
            self.unheard.values_mut().for_each(|unheard| unheard.under_way = false);
            let missed =
                self.trust.missed_before || self.trust.verify.as_ref().is_some_and(|verify| verify.repaired > 0);
            self.trust.missed_before = partial && missed;
            if !partial {
                self.trust.verified_at = Some(report.at);
            }
            self.trust.verify = Some(report.clone());
            self.trust.resync_was_last = self.resyncing;
            if self.resyncing {
                self.trust.last_resync = Some(report.clone());
            }
        }
        self.any_walk_ended = true;
        if !partial {
            self.trust.partial_load = false;
            self.whole = !walk.gaining;
            if unreadable == 0 {
                let (by_flag, failures, lost) = std::mem::take(&mut self.before_walk);
                self.by_flag.retain(|key, _| !by_flag.contains(key));
                self.failed.retain(|failed| failed.number > failures);
                self.lost &= !lost;
            }
            // What a change of nodes during the walk gained, the next walk finds.
            self.former.drain(..walk.former);
        }
        (walk.report, more)
    }

    pub fn head_check(&mut self, n: usize) -> Vec<KeyId> {
        let mono = self.now.mono;
        self.checked.retain(|_, at| mono - *at < MINUTE);
        self.unheard_reads.retain(|_, read| mono - read.at < TEN_MINUTES);
        self.touched.retain(|_, (_, at)| mono - *at < TEN_MINUTES);
        let before = self.by_flag.len() + self.suspects.len();
        self.by_flag.retain(|_, (at, _)| mono - *at < TEN_MINUTES);
        let (to_read, by_flag, failed) = (&self.to_read, &self.by_flag, &self.failed);
        self.suspects.retain(|key, at| {
            mono - *at < TEN_MINUTES
                || to_read.iter().any(|(other, _)| other == key)
                || by_flag.contains_key(key)
                || failed.iter().any(|failed| failed.key == *key)
        });
        if self.by_flag.len() + self.suspects.len() < before {
            self.lost = true;
            self.before_walk.2 = false;
        }
        let rows = &self.rows;
        self.reading.retain(|key, at| rows.contains_key(key) || mono - *at < TEN_MINUTES);
        let mut keys = Vec::new();
        while keys.len() < n {
            while self.failed.front().is_some_and(|failed| failed.again_at <= mono) {
                let Failed { key, told, .. } = self.failed.pop_front().expect("just seen");
                self.flag(key, told);
            }
            let Some((key, told)) = self.to_read.pop_front() else { break };
            self.by_flag.insert(key, (mono, told));
            self.before_walk.0.remove(&key);
            keys.push(key);
        }
        for row in self.top(n).rows {
            if !keys.contains(&row.key) && !self.checked.contains_key(&row.key) {
                self.checked.insert(row.key, mono);
                keys.push(row.key);
            }
        }
        for key in &keys {
            self.reading.insert(*key, mono);
            self.touched.remove(key);
        }
        if !keys.is_empty() {
            self.trust.checked_at = Some(self.now.wall);
            self.trust.checked += keys.len() as u64;
        }
        keys
    }

    /// The key was handed out, and could not be read.
    pub fn read_failed(&mut self, key: KeyId) {
        self.reading.remove(&key);
        self.touched.remove(&key);
        let by_flag = self.by_flag.remove(&key);
        if by_flag.is_none() && !self.suspects.contains_key(&key) {
            return;
        }
        let told = by_flag.is_some_and(|(_, told)| told);
        if let Some((_, already)) = self.to_read.iter_mut().find(|(other, _)| *other == key) {
            *already |= told;
            return;
        }
        self.failures += 1;
        match self.failed.iter_mut().find(|failed| failed.key == key) {
            Some(failed) => {
                failed.number = self.failures;
                failed.told |= told;
            }
            None => {
                self.failed.push_back(Failed { number: self.failures, again_at: self.now.mono + MINUTE, key, told });
            }
        }
    }

    pub fn repair(&mut self, key: KeyId, read: &Read) -> bool {
        self.settle_row(key);
        let doubtful = self.is_doubtful(key);
        self.reading.remove(&key);
        let suspect = self.suspects.remove(&key).is_some();
        let by_flag = self.by_flag.remove(&key);
        let target = self.wanted(key, read);
        if let Some((by, _)) = self.touched.remove(&key) {
            if let Some((_, told)) = by_flag {
                self.flag(key, told);
            }
            if by == Touch::Read {
                self.doubt(key, &target);
            }
            return false;
        }
        self.learn_version(key, read);
        let gained = self.is_gained(key);
        let did = self.change(key, target, false);
        self.verified(key);
        self.walk_touched(key);
        self.overtake(key, did, true);
        match did {
            Did::Nothing => return false,
            Did::Added if gained => {
                self.trust.gained += 1;
                return true;
            }
            _ => {}
        }
        if !suspect {
            self.trust.check_repaired += 1;
            if !doubtful {
                self.put_right(key, read);
            }
            return true;
        }
        if doubtful {
            return true;
        }
        let wrong = if read.is_none() { Wrong::Phantom } else { Wrong::Mismatched };
        let version = read.as_ref().map_or(f64::NAN, |(_, _, version)| *version);
        let reports = self.verified_reports();
        let counted = !reports.is_empty();
        for report in reports {
            *report.count(wrong) += 1;
            report.repaired += 1;
        }
        self.trust.repaired += u64::from(counted);
        if counted && (wrong == Wrong::Phantom || !version.is_nan()) {
            self.unheard.insert(key, Unheard { wrong, version, under_way: false, at: self.now.mono });
        }
        true
    }

    pub fn set_phase(&mut self, phase: Phase, resyncing: Option<bool>, error: Option<String>) {
        if !self.any_walk_ended {
            self.whole = phase == Phase::Live && self.epoch == 0;
        }
        self.phase = phase;
        self.resyncing = resyncing.unwrap_or(self.resyncing);
        if error.is_some() {
            self.trust.last_error = error;
        }
    }

    pub fn take_feeder(&mut self) -> u64 {
        self.epoch += 1;
        self.epoch_at = Some(self.now.wall);
        if self.epoch == 1 && !self.any_walk_ended {
            self.whole = false;
            self.phase = Phase::Starting;
        }
        self.abandon_walk();
        // What was flagged and is being read, another is to read.
        let mut keys: Vec<_> = std::mem::take(&mut self.by_flag).into_iter().collect();
        keys.sort_by(|(a, _), (b, _)| self.keys[*a].bytes.cmp(&self.keys[*b].bytes));
        for (key, (_, told)) in keys {
            self.flag(key, told);
        }
        self.epoch
    }

    /// What a snapshot of now holds, in its order.
    pub fn saved(&self) -> Vec<Saved> {
        let mut rows: Vec<(u64, u32, u64, KeyId)> =
            self.rows.iter().map(|(key, kept)| (kept.age, kept.minute, kept.seq, *key)).collect();
        rows.sort_unstable();
        let saved = |(age, minute, _, key)| Saved { class: self.classes[&age].0.clone(), minute, key };
        rows.into_iter().map(saved).collect()
    }

    /// Keeps a row of a snapshot, unless something newer is known of it. `kept` is what the keeper did, where either will do.
    pub fn restore(&mut self, saved: &Saved, kept: bool) -> bool {
        let key = saved.key;
        if self.rows.contains_key(&key) || !self.owns(key) {
            return false;
        }
        match self.versions.get(&key) {
            Some((_, at)) if self.now.mono - at < TEN_MINUTES => return false,
            Some(_) if !kept => return false,
            _ => {}
        }
        let mut class = saved.class.clone();
        if !self.config.classify {
            let (route, cadence) = self.route_of(key);
            class.route = route;
            if !class.carried {
                class.cadence = cadence;
            }
        }
        self.change(key, Some((class, saved.minute)), false);
        self.rows.get_mut(&key).expect("just kept").unverified = true;
        true
    }

    // --- the state document and the rest (SPEC 9 and 11)

    /// How many whole minutes rates are taken over.
    fn rate_minutes(&self) -> u32 {
        (self.minute() - self.began).min(10)
    }

    fn recent(&self) -> Minute {
        let mut sum = Minute::default();
        let now = self.minute();
        for (at, minute) in &self.flow {
            if *at < now && now - *at <= self.rate_minutes() {
                sum.came_due += minute.came_due;
                sum.triggered += minute.triggered;
                sum.rescheduled += minute.rescheduled;
                sum.removed += minute.removed;
                sum.added_due += minute.added_due;
                sum.removed_due += minute.removed_due;
                sum.claimed += minute.claimed;
            }
        }
        sum
    }

    fn awaiting_read(&self) -> usize {
        let flagged = self
            .to_read
            .iter()
            .map(|(key, _)| key)
            .chain(self.by_flag.keys())
            .chain(self.failed.iter().map(|failed| &failed.key));
        flagged.chain(self.suspects.keys()).collect::<BTreeSet<_>>().len()
    }

    pub fn exact(&self) -> bool {
        self.phase == Phase::Live
            && !self.resyncing
            && self.whole
            && self.rows.values().all(|kept| !kept.unverified)
            && self.to_read.is_empty()
            && self.by_flag.is_empty()
            && self.failed.is_empty()
            && self.suspects.is_empty()
            && !self.lost
            && !self.trust.missed_before
            && self.trust.verify.as_ref().is_none_or(|verify| verify.repaired == 0)
    }

    /// The earliest moment at which something changes by itself.
    pub fn next_change(&self) -> Option<f64> {
        let due = self.rows.values().filter(|kept| kept.minute > self.minute());
        let due = due.map(|kept| f64::from(kept.minute) * MINUTE);
        let ends = self.leases.values().filter(|entry| entry.state != State::Idle);
        let ends = ends.map(|entry| self.now.wall + (entry.until - self.now.mono).max(0.0));
        due.chain(ends).min_by(f64::total_cmp)
    }

    pub fn due_summary(&self) -> (u64, usize, Option<u32>, Option<u32>) {
        let now = self.minute();
        let minutes = || self.rows.values().map(|kept| kept.minute);
        (self.due(), self.rows.len(), minutes().filter(|at| *at <= now).min(), minutes().filter(|at| *at > now).min())
    }

    pub fn state(&self) -> Value {
        let now = self.minute();
        let at = |minute: Option<u32>| minute.map(|minute| f64::from(minute) * MINUTE);
        let rows: Vec<(&Class, &Kept)> = self.rows.values().map(|kept| (&self.classes[&kept.age].0, kept)).collect();
        let due: Vec<(&Class, &Kept)> = rows.iter().copied().filter(|(_, kept)| kept.minute <= now).collect();
        let late = |class: &Class, minute: u32| {
            (class.cadence > 0.0).then(|| f64::from(now - minute) * MINUTE / class.cadence)
        };
        let count = |f: &dyn Fn(&Class) -> bool| due.iter().filter(|(class, _)| f(class)).count() as u64;
        let oldest = |f: &dyn Fn(&Class) -> bool| {
            at(due.iter().filter(|(class, _)| f(class)).map(|(_, kept)| kept.minute).min())
        };
        let bins = |f: &dyn Fn(&Class) -> bool| {
            let mut bins = [0u64; 5];
            for (class, kept) in due.iter().filter(|(class, _)| f(class)) {
                let late = late(class, kept.minute).unwrap_or(0.0);
                bins[[0.25, 1.0, 2.0, 4.0].iter().filter(|edge| late >= **edge).count()] += 1;
            }
            bins
        };
        let mut demands: Vec<Option<f64>> = due.iter().filter(|(c, _)| c.changed).map(|(c, _)| c.demand).collect();
        demands.sort_by(|a, b| a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY)));
        demands.dedup();
        let by_demand: Vec<Value> = demands
            .into_iter()
            .map(|period| {
                let it = |class: &Class| class.changed && class.demand == period;
                json!({"periodMs": period, "due": count(&it), "oldestDueAt": oldest(&it)})
            })
            .collect();
        let mut routes: Vec<&str> = due.iter().map(|(class, _)| class.route.as_str()).collect();
        routes.sort_unstable();
        routes.dedup();
        routes.sort_by_key(|route| std::cmp::Reverse(count(&|class| class.route == **route)));
        let most = self.config.max_listed;
        let by_route: Vec<Value> = routes
            .iter()
            .take(most)
            .map(|route| {
                json!({
                    "route": route,
                    "due": count(&|class| class.route == **route),
                    "sitemap": bins(&|class| class.route == **route && class.from_sitemap),
                    "discovered": bins(&|class| class.route == **route && !class.from_sitemap),
                })
            })
            .collect();
        let mut classes = Vec::new();
        for (age, (class, rows)) in &self.classes {
            let mine = || due.iter().filter(|(_, kept)| kept.age == *age);
            let Some(first) = mine().map(|(_, kept)| kept.minute).min() else { continue };
            let latest = late(class, first);
            let value = json!({
                "route": class.route, "cadenceMs": class.cadence, "carried": class.carried,
                "fromSitemap": class.from_sitemap, "changed": class.changed, "urgent": class.urgent,
                "demandPeriodMs": class.demand, "rows": rows, "due": mine().count() as u64, "oldestDueAt": at(Some(first)),
                "oldestLatenessCadences": latest,
            });
            classes.push((latest.unwrap_or(-1.0), mine().count(), value));
        }
        // Stable: the older class first where all is equal.
        classes.sort_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
        let truncated = routes.len() > most || classes.len() > most;
        let classes: Vec<Value> = classes.into_iter().take(most).map(|(_, _, value)| value).collect();
        let coming = |from: u64, to: u64| {
            let ahead = |kept: &Kept| u64::from(kept.minute).checked_sub(u64::from(now)).unwrap_or(u64::MAX);
            rows.iter().filter(|(_, kept)| kept.minute > now && (from..=to).contains(&ahead(kept))).count() as u64
        };
        let by_hour: Vec<u64> = (0..24).map(|hour| coming(hour * 60, hour * 60 + 59)).collect();
        let recent = self.recent();
        let minutes = f64::from(self.rate_minutes().max(1));
        let gain = (recent.rescheduled + recent.removed_due) as f64 / minutes
            - (recent.came_due + recent.triggered + recent.added_due) as f64 / minutes;
        let all = bins(&|_| true);
        let later: u64 = all[2..].iter().sum();
        let drain = match later {
            0 => Some(0.0),
            later if gain > 0.0 => Some(later as f64 / gain * MINUTE),
            _ => None,
        };
        let (_, _, first_due, next_due) = self.due_summary();
        let flow: Vec<Value> = self
            .flow
            .iter()
            .filter(|(at, _)| self.minute() - **at < self.config.flow_minutes)
            .filter(|(_, m)| m.came_due + m.added + m.triggered + m.rescheduled + m.removed > 0)
            .map(|(at, m)| {
                json!({"minute": at, "cameDue": m.came_due, "added": m.added, "triggered": m.triggered,
                       "rescheduled": m.rescheduled, "removed": m.removed})
            })
            .collect();
        let trust = &self.trust;
        let live = self.phase == Phase::Live;
        let wall = self.now.wall;
        let mut keeper = json!({
            "phase": self.phase.name(), "rows": self.rows.len(), "classes": self.classes.len(),
            "resyncing": self.resyncing, "exact": self.exact(), "loadStartedAt": trust.load_started_at,
            "loadedAt": trust.loaded_at, "loadMs": trust.load_ms, "loadRows": trust.load_rows,
            "unreadableRows": trust.unreadable, "partialLoad": trust.partial_load,
        });
        let more = json!({
            "eventsApplied": trust.applied, "eventsIgnored": trust.ignored, "eventsOutdated": trust.outdated,
            "eventsFlagged": trust.flagged, "malformed": trust.malformed, "lastEventAt": trust.last_event_at,
            "verify": trust.verify.as_ref().map(Report::json),
            "lastResync": trust.last_resync.as_ref().map(Report::json),
            "topCheck": {"at": trust.checked_at, "checked": trust.checked, "repaired": trust.check_repaired},
            "repairedTotal": trust.repaired, "lateTotal": trust.late, "gainedTotal": trust.gained, "lostTotal": trust.lost,
            "lastError": trust.last_error, "epoch": self.epoch, "epochAt": self.epoch_at, "feederSilentMs": Value::Null,
            "unverifiedRows": self.rows.values().filter(|kept| kept.unverified).count(),
            "awaitingRead": self.awaiting_read(), "invalidRules": self.invalid,
            "ring": self.ring, "flowMinutes": self.config.flow_minutes, "verifiedAt": trust.verified_at, "carriedRows": self.carried_rows(),
        });
        for (name, value) in more.as_object().expect("an object") {
            keeper[name] = value.clone();
        }
        json!({
            "schema": 1, "node": self.config.node, "generatedAt": wall,
            "now": {
                "due": self.due(), "dueSitemap": count(&|class| class.from_sitemap),
                "dueDiscovered": count(&|class| !class.from_sitemap), "dueChanged": count(&|class| class.changed),
                "oldestChangedAt": oldest(&|class| class.changed), "dueUrgent": count(&|class| class.urgent),
                "oldestUrgentAt": oldest(&|class| class.urgent), "changedByDemand": by_demand,
                "inFlight": self.in_flight(), "heldKeys": self.held_keys(), "heldDue": self.held_due(),
                "unclaimed": self.due().saturating_sub(self.in_flight()), "paused": self.paused,
                "leasesLeft": self.config.leases.max_leases.saturating_sub(self.in_flight()),
                "status": self.status(), "drainEtaMs": drain,
            },
            "coming": {"next15m": coming(1, 15), "next60m": coming(1, 60), "next24h": by_hour.iter().sum::<u64>(),
                       "byHour": by_hour},
            "lateness": {
                "edges": [0.25, 1.0, 2.0, 4.0], "sitemap": bins(&|class| class.from_sitemap),
                "discovered": bins(&|class| !class.from_sitemap), "oldestDueAt": at(first_due), "nextDueAt": at(next_due),
                "byRoute": by_route, "classes": classes, "listsTruncated": truncated,
            },
            "flow": flow,
            "trust": {
                "source": "keeper", "live": live, "phase": self.phase.name(), "exact": self.exact(), "stateAt": wall,
                "stateAgeMs": 0.0, "maxAgeMs": 5_000.0,
                "keeper": keeper,
            },
        })
    }

    pub fn explain(&self, key: KeyId, order: &[Expected]) -> Value {
        let (mono, wall) = (self.now.mono, self.now.wall);
        let entry = self.leases.get(&key);
        let lease = entry.filter(|entry| entry.state == State::Leased);
        let lease = lease
            .map(|e| json!({"grantedAt": e.granted_at, "expiresAt": wall + (e.until - mono), "version": e.version}));
        let held = entry.filter(|entry| entry.state == State::Held);
        let hold = held.map(|e| json!({"misses": e.memory.misses, "until": wall + (e.until - mono)}));
        let misses = entry.map_or(0, |entry| entry.memory.misses);
        let owner = if self.config.classify { &self.config.node } else { owner_in(&self.ring, &self.keys[key]) };
        let mut value = json!({
            "owner": owner, "lease": lease, "misses": misses, "hold": hold, "kept": false, "reason": null, "carried": false,
            "fromSitemap": false, "changed": false, "urgent": false, "demandPeriodMs": null, "dueAt": null, "due": false,
            "score": null, "rank": null, "waitMs": null,
        });
        let (route, cadence) = self.route_of(key);
        value["routeCadenceMs"] = json!((!self.config.classify).then_some(cadence));
        let Some((class, minute)) = self.class(key) else {
            value["reason"] = json!(if self.owns(key) { "unknown" } else { "not-owned" });
            value["route"] = json!(route);
            value["cadenceMs"] = json!(cadence);
            return value;
        };
        value["kept"] = json!(true);
        value["route"] = json!(class.route);
        value["cadenceMs"] = json!(class.cadence);
        value["carried"] = json!(class.carried);
        value["fromSitemap"] = json!(class.from_sitemap);
        value["changed"] = json!(class.changed);
        value["urgent"] = json!(class.urgent);
        value["demandPeriodMs"] = json!(class.demand);
        value["dueAt"] = json!(f64::from(minute) * MINUTE);
        value["due"] = json!(minute <= self.minute());
        if minute <= self.minute() {
            let place = order.iter().position(|row| row.key == key).expect("it is due");
            let rank = place as u64 + 1;
            let rate = self.recent().claimed as f64 / f64::from(self.rate_minutes().max(1));
            value["score"] = json!(order[place].score);
            value["rank"] = json!(rank);
            value["waitMs"] = json!((rate > 0.0).then(|| rank as f64 / rate * MINUTE));
        }
        value
    }

    /// Some samples of the metrics, by name and labels.
    pub fn metrics(&self) -> Vec<(String, u64)> {
        let mut samples = vec![
            (
                "keeper_live".to_owned() + &format!("{{reason=\"{}\"}}", self.not_live()),
                u64::from(self.not_live() == ""),
            ),
            ("keeper_exact".into(), u64::from(self.exact())),
            ("keeper_resyncing".into(), u64::from(self.resyncing)),
            ("keeper_paused".into(), u64::from(self.paused)),
            ("keeper_in_flight".into(), self.in_flight()),
            ("keeper_held_keys".into(), self.held_keys()),
            ("keeper_claims_granted_total".into(), self.lease_counts[GRANTED]),
            ("keeper_claims_given_back_total".into(), self.lease_counts[GIVEN_BACK]),
            ("keeper_claims_stale_total".into(), self.lease_counts[STALE]),
            ("keeper_leases_released_total".into(), self.lease_counts[RELEASED]),
            ("keeper_leases_expired_total".into(), self.lease_counts[EXPIRED]),
            ("keeper_holds_total".into(), self.lease_counts[HOLDS]),
            ("keeper_events_applied_total".into(), self.trust.applied),
            ("keeper_malformed_total".into(), self.trust.malformed),
            ("keeper_repaired_total{cause=\"missed\"}".into(), self.trust.repaired),
            ("keeper_repaired_total{cause=\"gained\"}".into(), self.trust.gained),
            ("keeper_late_total".into(), self.trust.late),
            ("keeper_rows".into(), self.rows.len() as u64),
            ("keeper_carried_rows".into(), self.carried_rows() as u64),
            ("keeper_ring_nodes".into(), self.ring.len() as u64),
            ("keeper_classes".into(), self.classes.len() as u64),
        ];
        for (cause, count) in ["limit", "paused", "unready"].iter().zip(self.refused) {
            samples.push((format!("keeper_claims_refused_total{{cause=\"{cause}\"}}"), count));
        }
        if self.phase == Phase::Live {
            let sitemap = |kept: &&Kept| self.classes[&kept.age].0.from_sitemap;
            let due = || self.rows.values().filter(|kept| kept.minute <= self.minute());
            samples.push(("keeper_due_rows".into(), self.due()));
            samples.push(("keeper_due{source=\"sitemap\"}".into(), due().filter(sitemap).count() as u64));
            samples
                .push(("keeper_due{source=\"discovered\"}".into(), due().filter(|kept| !sitemap(kept)).count() as u64));
        }
        samples
    }

    fn carried_rows(&self) -> usize {
        self.rows.values().filter(|kept| self.classes[&kept.age].0.carried).count()
    }

    fn not_live(&self) -> String {
        if self.phase == Phase::Live { String::new() } else { self.phase.name().replace('-', " ") }
    }
}
