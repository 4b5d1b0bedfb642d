//! Leases, misses and holds.
//!
//! A key has an entry here while it is leased, in the grace after a release, or held, and after that as long as
//! there is something to remember: misses, or the due minute at which a release left its row. A kept row's entry is
//! found by its row; the entry of a key whose row has gone, by the key. In flight is the number of entries that are leased:
//! it is counted where the state changes, in `enter`, and nowhere else.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use ahash::RandomState;

use super::counts::MinuteCounts;
use super::front::Number;
use super::table::{NONE, RowId};
use super::time::{Minute, Now};
use super::watch::Touch;

/// How leases work. All of it may change at any time; leases already granted keep their end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeaseSettings {
    /// How long a grant lasts, ms.
    pub lease_ms: f64,
    /// How many may be live at once.
    pub max_leases: u64,
    /// How long a released key cannot be granted, ms.
    pub release_grace_ms: f64,
    /// How many misses in a row a key may have before it is held.
    pub miss_limit: u32,
}

impl Default for LeaseSettings {
    fn default() -> Self {
        LeaseSettings { lease_ms: 120_000.0, max_leases: 8_192, release_grace_ms: 5_000.0, miss_limit: 3 }
    }
}

/// Tokens begin no higher than this, in the year 2112: half of what a JavaScript number can count.
const LATEST_TOKEN: f64 = (1u64 << 52) as f64;

/// Names one grant, and no other, across restarts of the process.
pub type Token = u64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Leased,
    Grace,
    Held,
}

/// What is remembered of a key between its grants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Memory {
    misses: u32,
    /// A release left the row due in this minute; granting it there again is a miss.
    released_due: Option<Minute>,
    /// A hold has ended: the next attempt is granted whatever the misses.
    hold_served: bool,
}

struct Entry {
    row: RowId,
    /// The key, while no row is kept for it.
    orphan: Option<Box<[u8]>>,
    state: State,
    /// The last token has run out, rather than been released.
    expired: bool,
    /// What has touched the key since the claim.
    touched: Touch,
    memory: Memory,
    /// What the memory was before the claim, for a lease that is given back.
    before: Memory,
    /// The row's due minute at the grant; while it is held, now.
    due: Minute,
    token: Token,
    granted_at: f64,
    /// Of the row that the lease was confirmed with; NaN where it was not, or it has none.
    version: f64,
    /// How many walks had begun at the grant.
    walks: u64,
    /// When the state ends by itself, on the monotonic clock.
    until: f64,
    /// Tells a timer whether it is still meant.
    stamp: u32,
    /// What the row was told when it came to be before a front: see [`super::front`].
    number: Option<Number>,
}

/// A row to be granted.
pub struct Granted {
    /// Which.
    pub row: RowId,
    /// It may have an entry.
    pub noted: bool,
    /// Its due minute.
    pub due: Minute,
    /// See [`Leases::set_number`].
    pub number: Option<Number>,
}

/// How a release ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// The lease was live and is over.
    Released = 0,
    /// That lease had run out.
    Expired = 1,
    /// The key has since been granted again.
    Superseded = 2,
    /// No such lease.
    Unknown = 3,
}

/// Whether a due row can be granted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// It can.
    Grantable,
    /// It is leased, or in the grace after a release.
    Leased,
    /// It is held, until this moment of the monotonic clock.
    Held { misses: u32, until: f64 },
}

/// A live lease, as told to others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lease {
    /// Which one.
    pub token: Token,
    /// Wall-clock ms.
    pub granted_at: f64,
    /// On the monotonic clock.
    pub until: f64,
    /// Of the row that it was confirmed with; NaN where it was not, or it has none.
    pub version: f64,
}

/// All that the table knows of one key.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Standing {
    /// The live lease.
    pub lease: Option<Lease>,
    /// Misses in a row.
    pub misses: u32,
    /// The end of the hold, on the monotonic clock.
    pub held_until: Option<f64>,
}

/// What happened since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// Leases granted.
    pub granted: u64,
    /// Leases that ended by a release.
    pub released: u64,
    /// Leases that ran out.
    pub expired: u64,
    /// Leases that ended since the row was stale.
    pub stale: u64,
    /// Leases given back.
    pub given_back: u64,
    /// Times a key was held.
    pub holds: u64,
}

/// The lease table.
#[derive(Default)]
pub struct Leases {
    entries: Vec<Entry>,
    free: Vec<u32>,
    by_row: HashMap<RowId, u32, RandomState>,
    orphans: HashMap<Box<[u8]>, u32, RandomState>,
    by_token: HashMap<Token, u32, RandomState>,
    /// Ends of states, soonest first: (moment as ordered bits, entry, stamp).
    timers: BinaryHeap<Reverse<(u64, u32, u32)>>,
    next_token: Token,
    leased: u64,
    held: u64,
    /// Held rows that are kept.
    held_rows: MinuteCounts,
    counts: LeaseCounts,
    /// Rows whose entry has gone, for the owner to take their flag off.
    dropped: Vec<RowId>,
    /// Rows that had a number and are leased no more, for the owner to tell their front.
    ended: Vec<(RowId, Number)>,
}

impl Leases {
    /// Live leases: what is in flight.
    pub fn in_flight(&self) -> u64 {
        self.leased
    }

    /// Keys held now.
    pub fn held(&self) -> u64 {
        self.held
    }

    /// Of these, those whose rows are due in `minute` or before.
    pub fn held_due(&self, minute: Minute) -> u64 {
        self.held_rows.between(0, minute)
    }

    /// See [`LeaseCounts`].
    pub fn counts(&self) -> LeaseCounts {
        self.counts
    }

    /// Rows whose entry has gone since this was last asked: their flag is to be taken off.
    pub fn take_dropped(&mut self) -> Vec<RowId> {
        std::mem::take(&mut self.dropped)
    }

    /// Whether [`Self::take_dropped`] would return any.
    pub fn any_dropped(&self) -> bool {
        !self.dropped.is_empty()
    }

    /// Rows with a number whose lease or grace has ended since this was last asked.
    pub fn take_ended(&mut self) -> Vec<(RowId, Number)> {
        std::mem::take(&mut self.ended)
    }

    /// Notes what a leased row is told when it comes to be before a front. Returns what it was told before.
    pub fn set_number(&mut self, row: RowId, number: Option<Number>) -> Option<Number> {
        let id = *self.by_row.get(&row)?;
        std::mem::replace(&mut self.entry(id).number, number)
    }

    /// What a leased row was told when it came to be before a front. For tests.
    pub fn number(&self, row: RowId) -> Option<Number> {
        self.entries[*self.by_row.get(&row)? as usize].number
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.free.capacity() * 4
            + (self.by_row.capacity() * 9 + self.orphans.capacity() * 25 + self.by_token.capacity() * 17) * 8 / 7
            + self.orphans.keys().map(|key| key.len() * 2).sum::<usize>()
            + self.timers.capacity() * 16
            + self.held_rows.bytes()
            + self.dropped.capacity() * 4
            + self.ended.capacity() * size_of::<(RowId, Number)>()
    }

    fn entry(&mut self, id: u32) -> &mut Entry {
        &mut self.entries[id as usize]
    }

    /// The one place where a state changes.
    fn enter(&mut self, id: u32, state: State, until: f64) {
        let entry = &mut self.entries[id as usize];
        for (old_or_new, count) in [(entry.state, u64::MAX), (state, 1)] {
            match old_or_new {
                State::Leased => self.leased = self.leased.wrapping_add(count),
                State::Held => self.held = self.held.wrapping_add(count),
                _ => {}
            }
        }
        if entry.state == State::Leased {
            self.by_token.remove(&entry.token);
        }
        if entry.row != NONE {
            match (entry.state, state) {
                (State::Held, State::Held) => {}
                (State::Held, _) => self.held_rows.remove(entry.due),
                (_, State::Held) => self.held_rows.add(entry.due),
                _ => {}
            }
        }
        if !matches!(state, State::Leased | State::Grace)
            && let Some(number) = entry.number.take()
        {
            self.ended.push((entry.row, number));
        }
        entry.state = state;
        entry.until = until;
        entry.stamp = entry.stamp.wrapping_add(1);
        if state == State::Leased {
            self.by_token.insert(entry.token, id);
        }
        if state != State::Idle {
            let timer = Reverse((until.max(0.0).to_bits(), id, entry.stamp));
            self.timers.push(timer);
            self.prune_timers();
        }
    }

    /// Timers of states that have ended otherwise stay in the heap; they must not pile up.
    fn prune_timers(&mut self) {
        if self.timers.len() > 4 * (self.entries.len() - self.free.len()) + 1024 {
            let entries = &self.entries;
            self.timers.retain(|Reverse((_, id, stamp))| entries[*id as usize].stamp == *stamp);
        }
    }

    fn make(&mut self, row: RowId) -> u32 {
        let entry = Entry {
            row,
            orphan: None,
            state: State::Idle,
            expired: false,
            touched: Touch::None,
            memory: Memory::default(),
            before: Memory::default(),
            due: 0,
            token: 0,
            granted_at: 0.0,
            version: f64::NAN,
            walks: 0,
            until: 0.0,
            stamp: 0,
            number: None,
        };
        let id = match self.free.pop() {
            Some(id) => {
                // A timer of the entry's former owner must not take it for its own.
                let stamp = self.entries[id as usize].stamp.wrapping_add(1);
                self.entries[id as usize] = Entry { stamp, ..entry };
                id
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.by_row.insert(row, id);
        id
    }

    /// Drops an entry that has nothing left to remember.
    fn drop_if_done(&mut self, id: u32) {
        let entry = &mut self.entries[id as usize];
        let nothing = entry.row == NONE || (entry.memory.misses == 0 && entry.memory.released_due.is_none());
        if entry.state != State::Idle || !nothing {
            return;
        }
        entry.stamp = entry.stamp.wrapping_add(1);
        if entry.row != NONE {
            self.by_row.remove(&entry.row);
            self.dropped.push(entry.row);
            entry.row = NONE;
        }
        if let Some(key) = entry.orphan.take() {
            self.orphans.remove(&key);
        }
        self.free.push(id);
    }

    /// A release's due minute, once its row has moved on from it, clears the misses.
    fn settle(memory: &mut Memory, row: RowId, due: Minute) {
        if memory.released_due.is_some_and(|released| row == NONE || released != due) {
            *memory = Memory::default();
        }
    }

    /// Ends what has run out by `mono`.
    pub fn advance(&mut self, mono: f64) {
        while let Some(&Reverse((until, id, stamp))) = self.timers.peek() {
            if until > mono.max(0.0).to_bits() {
                break;
            }
            self.timers.pop();
            let entry = &mut self.entries[id as usize];
            if entry.stamp != stamp {
                continue;
            }
            match entry.state {
                State::Leased => {
                    entry.memory.misses = entry.memory.misses.saturating_add(1);
                    entry.expired = true;
                    self.counts.expired += 1;
                }
                State::Held => entry.memory.hold_served = true,
                State::Grace | State::Idle => {}
            }
            self.enter(id, State::Idle, 0.0);
            self.drop_if_done(id);
        }
    }

    /// The moment at which something ends next.
    pub fn next_end(&self) -> Option<f64> {
        self.timers.peek().map(|Reverse((until, ..))| f64::from_bits(*until))
    }

    /// Whether a row is leased, in its grace, or held already; asking changes nothing.
    pub fn peek(&self, row: RowId) -> Verdict {
        let Some(&id) = self.by_row.get(&row) else { return Verdict::Grantable };
        let entry = &self.entries[id as usize];
        match entry.state {
            State::Leased | State::Grace => Verdict::Leased,
            State::Held => Verdict::Held { misses: entry.memory.misses, until: entry.until },
            State::Idle => Verdict::Grantable,
        }
    }

    /// Whether a due row can be granted now. A row that has missed too often is put on hold by asking.
    pub fn consider(&mut self, row: RowId, due: Minute, cadence: f64, settings: &LeaseSettings, mono: f64) -> Verdict {
        let Some(&id) = self.by_row.get(&row) else { return Verdict::Grantable };
        let verdict = self.peek(row);
        if verdict != Verdict::Grantable {
            return verdict;
        }
        let entry = &mut self.entries[id as usize];
        entry.before = entry.memory;
        if entry.memory.released_due == Some(due) {
            entry.memory.misses = entry.memory.misses.saturating_add(1);
        }
        entry.memory.released_due = None;
        let misses = entry.memory.misses;
        if misses <= settings.miss_limit || entry.memory.hold_served {
            return Verdict::Grantable;
        }
        let doublings = f64::from(misses - settings.miss_limit);
        let longest = if cadence > 0.0 { cadence } else { f64::INFINITY };
        let until = mono + (settings.lease_ms * doublings.exp2()).min(longest);
        entry.due = due;
        self.enter(id, State::Held, until);
        self.counts.holds += 1;
        Verdict::Held { misses, until }
    }

    /// Grants a row that [`Self::consider`] found grantable. `walks` is how many walks have begun so far.
    pub fn grant(&mut self, row: Granted, settings: &LeaseSettings, walks: u64, now: Now) -> Lease {
        let Granted { row, noted, due, number } = row;
        let known = if noted { self.by_row.get(&row).copied() } else { None };
        let id = known.unwrap_or_else(|| self.make(row));
        // Tokens begin at the clock's reading, so that a result from before a restart names no lease of after it; but
        // JavaScript must be able to tell them apart, whatever the clock says.
        self.next_token = (self.next_token + 1).max((now.wall * 1024.0).clamp(0.0, LATEST_TOKEN) as u64);
        let token = self.next_token;
        let until = now.mono + settings.lease_ms;
        let entry = self.entry(id);
        entry.token = token;
        entry.due = due;
        entry.granted_at = now.wall;
        entry.version = f64::NAN;
        entry.walks = walks;
        entry.touched = Touch::None;
        entry.expired = false;
        entry.memory.hold_served = false;
        entry.number = number;
        self.enter(id, State::Leased, until);
        self.counts.granted += 1;
        Lease { token, granted_at: now.wall, until, version: f64::NAN }
    }

    /// The row and key of a live lease: the key only where no row is kept.
    pub fn leased(&self, token: Token) -> Option<(RowId, Option<&[u8]>)> {
        let entry = &self.entries[*self.by_token.get(&token)? as usize];
        Some((entry.row, entry.orphan.as_deref()))
    }

    /// What has touched the key since this lease was granted.
    pub fn touched(&self, token: Token) -> Touch {
        self.by_token.get(&token).map_or(Touch::None, |id| self.entries[*id as usize].touched)
    }

    /// How many walks had begun when this live lease was granted.
    pub fn walks_at_grant(&self, token: Token) -> u64 {
        self.by_token.get(&token).map_or(0, |id| self.entries[*id as usize].walks)
    }

    /// The row of a live lease has been read. `due`: where it is due, where nothing has touched the key since the grant.
    pub fn confirmed(&mut self, token: Token, due: Option<Minute>, version: f64) {
        if let Some(&id) = self.by_token.get(&token) {
            let entry = self.entry(id);
            entry.due = due.unwrap_or(entry.due);
            entry.version = version;
        }
    }

    /// Ends a live lease as if it had not been granted: its row was not due any more. `due` is the row's due minute now. Returns when it
    /// was granted, ms since the epoch.
    pub fn stale(&mut self, token: Token, due: Minute) -> Option<f64> {
        let granted_at = self.undo(token, due)?;
        self.counts.stale += 1;
        Some(granted_at)
    }

    /// The same: whoever asked has not got the key.
    pub fn give_back(&mut self, token: Token, due: Minute) -> Option<f64> {
        let granted_at = self.undo(token, due)?;
        self.counts.given_back += 1;
        Some(granted_at)
    }

    fn undo(&mut self, token: Token, due: Minute) -> Option<f64> {
        let &id = self.by_token.get(&token)?;
        let entry = self.entry(id);
        let granted_at = entry.granted_at;
        entry.memory = entry.before;
        Self::settle(&mut entry.memory, entry.row, due);
        self.enter(id, State::Idle, 0.0);
        self.drop_if_done(id);
        Some(granted_at)
    }

    fn find(&self, row: RowId, key: &[u8]) -> Option<u32> {
        if row != NONE { self.by_row.get(&row) } else { self.orphans.get(key) }.copied()
    }

    /// Ends the lease that `token` names, or whatever lease of the key is live. `due` is the row's due minute now.
    pub fn release(
        &mut self,
        row: RowId,
        key: &[u8],
        due: Minute,
        token: Option<Token>,
        settings: &LeaseSettings,
        mono: f64,
    ) -> Released {
        let Some(id) = self.find(row, key) else { return Released::Unknown };
        let entry = self.entry(id);
        let live = entry.state == State::Leased;
        match token {
            Some(token) if token != entry.token => {
                return if live && token < entry.token { Released::Superseded } else { Released::Unknown };
            }
            _ if live => {}
            Some(_) if entry.expired => return Released::Expired,
            _ => return Released::Unknown,
        }
        entry.memory.released_due = Some(entry.due);
        Self::settle(&mut entry.memory, row, due);
        self.counts.released += 1;
        self.enter(id, State::Grace, mono + settings.release_grace_ms);
        Released::Released
    }

    /// Lets a live lease last `ms` from now on; it never ends earlier than it would have.
    pub fn extend(&mut self, token: Token, ms: f64, mono: f64) -> Option<f64> {
        let id = *self.by_token.get(&token)?;
        let until = (mono + ms).max(self.entry(id).until);
        self.enter(id, State::Leased, until);
        Some(until)
    }

    /// Something touched a key: what whoever leased it has read may be older.
    pub fn touch(&mut self, row: RowId, key: &[u8], by: Touch) {
        if let Some(id) = self.find(row, key) {
            let entry = self.entry(id);
            entry.touched = entry.touched.max(by);
        }
    }

    /// Whether any key without a row has an entry.
    pub fn any_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// A row with an entry is now due in another minute.
    pub fn moved(&mut self, row: RowId, due: Minute) {
        let Some(&id) = self.by_row.get(&row) else { return };
        let entry = &mut self.entries[id as usize];
        if entry.state == State::Held {
            self.held_rows.remove(entry.due);
            self.held_rows.add(due);
            entry.due = due;
        }
        Self::settle(&mut entry.memory, row, due);
        self.drop_if_done(id);
    }

    /// A row with an entry is kept no longer: `key` is its key.
    pub fn gone(&mut self, row: RowId, key: &[u8]) {
        let Some(id) = self.by_row.remove(&row) else { return };
        let entry = &mut self.entries[id as usize];
        entry.row = NONE;
        if entry.state == State::Held {
            self.held_rows.remove(entry.due);
        }
        if entry.state == State::Grace {
            entry.memory = Memory::default();
        }
        if entry.state == State::Idle {
            self.drop_if_done(id);
        } else {
            entry.orphan = Some(key.into());
            self.orphans.insert(key.into(), id);
        }
    }

    /// A row is kept for a key that had none. Returns whether there is an entry for it.
    pub fn came(&mut self, row: RowId, key: &[u8], due: Minute) -> bool {
        let Some(id) = self.orphans.remove(key) else { return false };
        let entry = &mut self.entries[id as usize];
        entry.orphan = None;
        entry.row = row;
        if entry.state == State::Held {
            self.held_rows.add(due);
            entry.due = due;
        }
        self.by_row.insert(row, id);
        true
    }

    /// What is known of a key.
    pub fn standing(&self, row: RowId, key: &[u8]) -> Standing {
        let Some(entry) = self.find(row, key).map(|id| &self.entries[id as usize]) else { return Standing::default() };
        let Entry { token, granted_at, until, version, .. } = *entry;
        let lease = Lease { token, granted_at, until, version };
        Standing {
            lease: (entry.state == State::Leased).then_some(lease),
            misses: entry.memory.misses,
            held_until: (entry.state == State::Held).then_some(entry.until),
        }
    }

    /// Rows that have an entry. For tests.
    pub fn rows(&self) -> impl Iterator<Item = RowId> + '_ {
        self.by_row.keys().copied()
    }

    /// Panics where the table's own rules do not hold. For tests.
    pub fn validate(&self) {
        let used = self.entries.len() - self.free.len();
        assert_eq!(self.by_row.len() + self.orphans.len(), used, "leases: entries");
        let (mut leased, mut held) = (0, 0);
        let mut held_rows = BTreeMap::<Minute, u64>::new();
        for (row, id) in &self.by_row {
            let entry = &self.entries[*id as usize];
            assert_eq!((entry.row, entry.orphan.is_none()), (*row, true), "leases: by row");
            let worth = entry.state != State::Idle || entry.memory.misses > 0 || entry.memory.released_due.is_some();
            assert!(worth, "leases: an entry with nothing to remember");
            if entry.state == State::Held {
                *held_rows.entry(entry.due).or_default() += 1;
            }
        }
        for (due, rows) in &held_rows {
            assert_eq!(self.held_rows.between(*due, *due), *rows, "leases: held rows");
        }
        assert_eq!(self.held_rows.between(0, Minute::MAX), held_rows.values().sum::<u64>(), "leases: held rows");
        for (key, id) in &self.orphans {
            let entry = &self.entries[*id as usize];
            assert_eq!((entry.row, entry.orphan.as_deref()), (NONE, Some(&**key)), "leases: orphans");
            assert!(entry.state != State::Idle, "leases: an idle orphan");
        }
        for id in self.by_row.values().chain(self.orphans.values()) {
            let entry = &self.entries[*id as usize];
            leased += u64::from(entry.state == State::Leased);
            held += u64::from(entry.state == State::Held);
            if entry.state == State::Leased {
                assert_eq!(self.by_token.get(&entry.token), Some(id), "leases: token");
            }
        }
        assert_eq!((leased, held), (self.leased, self.held), "leases: in flight or held");
        assert_eq!(self.by_token.len() as u64, leased, "leases: tokens");
        let LeaseCounts { granted, released, expired, stale, given_back, .. } = self.counts;
        assert_eq!(granted, released + expired + stale + given_back + leased, "leases: granted and ended");
    }
}
