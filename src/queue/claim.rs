//! Claims: the best rows, leased; and what becomes of the leases.

use super::class::ClassKey;
use super::keeper::{Changed, Judge, Keeper, Kind, Reader, WARMED};
use super::late::Wrong;
use super::lease::{Granted, Released, Token, Verdict};
use super::order::{Listed, Merge, Place, Side};
use super::row::Row;
use super::table::{NONE, RowId, Table};
use super::time::{Minute, Now, start_of};
use super::trust::Status;
use super::watch::Touch;

/// A due row, as told to others.
#[derive(Clone, Debug, PartialEq)]
pub struct DueRow {
    /// Where the key ends in [`Rows::keys`]; it begins where the one before ends.
    pub key_end: usize,
    /// When it was due, ms since the epoch.
    pub due_at: f64,
    /// Listed in a sitemap.
    pub from_sitemap: bool,
    /// The page is known to have changed.
    pub changed: bool,
    /// Someone asked for it now.
    pub urgent: bool,
    /// See [`super::order::Scale::score`].
    pub score: f64,
}

/// Due rows and their keys, one behind the other.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rows {
    /// All keys.
    pub keys: Vec<u8>,
    /// All rows.
    pub rows: Vec<DueRow>,
}

/// Rows listed at once: more would drive one another out of the cache.
const LISTED: usize = 8_192;
/// What most keys take, bytes: room made beforehand for this much each is seldom grown.
const USUAL_KEY: usize = 128;

impl Rows {
    fn with_room(rows: usize) -> Rows {
        Rows { keys: Vec::with_capacity(rows * USUAL_KEY), rows: Vec::with_capacity(rows) }
    }

    fn push(&mut self, table: &Table, row: RowId, class: &ClassKey, place: Place) {
        table.key_into(row, &mut self.keys);
        self.rows.push(DueRow {
            key_end: self.keys.len(),
            due_at: start_of(place.minute),
            from_sitemap: class.from_sitemap,
            changed: class.changed,
            urgent: class.urgent,
            score: place.score,
        });
    }

    /// Each row with its key.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &DueRow)> {
        let mut start = 0;
        self.rows.iter().map(move |row| {
            let key = &self.keys[start..row.key_end];
            start = row.key_end;
            (key, row)
        })
    }
}

/// The best due rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Top {
    /// Best first.
    pub rows: Rows,
    /// Leased rows passed over.
    pub skipped_leased: u64,
    /// Every due row was examined.
    pub complete: bool,
}

/// Why a claim was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// There is no room for another lease.
    Limit = 0,
    /// Claims are paused.
    Paused = 1,
    /// The keeper has not begun, or has stopped.
    Unready = 2,
}

/// A held key passed over by a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldKey {
    /// Which.
    pub key: Vec<u8>,
    /// How often in a row it has missed.
    pub misses: u32,
    /// When the hold ends, ms since the epoch.
    pub until: f64,
}

/// What a claim came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// The rows granted, best first.
    pub jobs: Rows,
    /// Their tokens.
    pub tokens: Vec<Token>,
    /// When their leases end, ms since the epoch.
    pub expires_at: f64,
    /// What the fleet is told.
    pub status: Status,
    /// Rows due, in flight included.
    pub due: u64,
    /// Every due row was examined.
    pub complete: bool,
    /// Leased rows passed over.
    pub skipped_leased: u64,
    /// Held keys passed over, the first of them.
    pub held: Vec<HeldKey>,
    /// Why fewer jobs than asked for were given although there were more.
    pub refused: Option<Refused>,
}

impl Keeper {
    /// The best `n` due rows that are not leased.
    pub fn top(&self, n: usize) -> Top {
        let mut top = Top { rows: Rows::with_room(n.min(self.due as usize)), ..Top::default() };
        let (table, classes, priority) = (&self.table, &self.classes, &self.config.priority);
        let mut merge = Merge::new(table, classes, &self.fronts, priority, self.now.wall, self.minute);
        let mut listed = Listed::default();
        let mut last = None;
        while top.rows.rows.len() < n {
            merge.list(&self.fronts, (n - top.rows.rows.len()).min(LISTED), &mut listed);
            if listed.is_empty() {
                top.complete = true;
                break;
            }
            for (group, rows) in listed.groups() {
                last = Some(group.last());
                let class = &classes.get(group.class).key;
                for rows in rows.chunks(WARMED) {
                    std::hint::black_box(rows.iter().fold(0, |read, row| read ^ table.warm_record(*row)));
                    for &row in rows {
                        if table.noted(row) && self.leases.peek(row) == Verdict::Leased {
                            top.skipped_leased += 1;
                        } else {
                            top.rows.push(table, row, class, group.place);
                        }
                    }
                }
            }
        }
        if n > 0 {
            top.skipped_leased += merge.leased_before(&self.fronts, last.filter(|_| !top.complete));
        }
        top
    }

    /// Leases the best `n` rows that can be granted.
    pub fn claim(&mut self, n: usize) -> Claim {
        let settings = self.config.leases;
        let mut claim = Claim {
            jobs: Rows::default(),
            tokens: Vec::new(),
            expires_at: self.now.wall + settings.lease_ms,
            status: self.status(),
            due: self.due,
            complete: false,
            skipped_leased: 0,
            held: Vec::new(),
            refused: None,
        };
        if !self.serving() || self.paused {
            let cause = if self.paused { Refused::Paused } else { Refused::Unready };
            claim.refused = Some(cause);
            self.trust.refused[cause as usize] += 1;
            return claim;
        }
        let (now, minute, walks) = (self.now, self.minute, self.walks);
        let room = settings.max_leases.saturating_sub(self.leases.in_flight());
        let most = n.min(self.due.min(room) as usize);
        let mut granted: Vec<RowId> = Vec::with_capacity(most);
        claim.tokens.reserve_exact(most);
        claim.jobs = Rows::with_room(most);
        // The merge reads the rows and classes while the lease table changes: they are apart.
        let Keeper { table, classes, config, leases, fronts, .. } = &mut *self;
        let mut tell_held = |row: RowId, misses: u32, until: f64| {
            if claim.held.len() < config.max_listed {
                let until = now.wall + (until - now.mono);
                claim.held.push(HeldKey { key: table.key(row), misses, until });
            }
        };
        fronts.begin_claim();
        let mut merge = Merge::new(table, classes, fronts, &config.priority, now.wall, minute);
        let mut listed = Listed::default();
        let mut last = None;
        // Rows that come to be leased and before a front that there was.
        let mut passed = 0;
        let mut ahead = n;
        'listing: while granted.len() < n {
            let before = granted.len();
            merge.list(fronts, ahead.min(LISTED), &mut listed);
            if listed.is_empty() {
                claim.complete = true;
                break;
            }
            for (group, rows) in listed.groups() {
                let (class, place) = (&classes.get(group.class).key, group.place);
                let fronted = u64::from(group.side != Side::NoFront);
                last = Some(group.last());
                let mut moves = !matches!(group.side, Side::Before(_)) && fronts.moves(group.class);
                for &row in rows {
                    let noted = table.noted(row);
                    let known = if noted { leases.peek(row) } else { Verdict::Grantable };
                    let verdict = match known {
                        Verdict::Leased => {
                            claim.skipped_leased += 1;
                            if moves {
                                leases.set_number(row, Some(fronts.pass(group.class, row, place.minute)));
                                passed += fronted;
                            }
                            continue;
                        }
                        Verdict::Grantable if leases.in_flight() >= settings.max_leases => {
                            claim.refused = Some(Refused::Limit);
                            break 'listing;
                        }
                        Verdict::Grantable if noted => {
                            leases.consider(row, place.minute, class.cadence, &settings, now.mono)
                        }
                        verdict => verdict,
                    };
                    if let Verdict::Held { misses, until } = verdict {
                        tell_held(row, misses, until);
                        moves = moves && fronts.hold(group.class, row, place.minute);
                        continue;
                    }
                    let number = match group.side {
                        Side::Before(open) => {
                            fronts.close(group.class, open);
                            Some(open.number)
                        }
                        _ => moves.then(|| fronts.pass(group.class, row, place.minute)),
                    };
                    passed += number.map_or(0, |_| fronted);
                    let grant = Granted { row, noted, due: place.minute, number };
                    claim.tokens.push(leases.grant(grant, &settings, walks, now).token);
                    claim.jobs.push(table, row, class, place);
                    granted.push(row);
                    if granted.len() == n {
                        break 'listing;
                    }
                }
            }
            // Where all are in flight or held, many may be: those of several lists are read side by side.
            ahead = if granted.len() > before { n - granted.len() } else { ahead.saturating_mul(2) };
        }
        if n > 0 {
            claim.skipped_leased += merge.leased_before(fronts, last.filter(|_| !claim.complete)) - passed;
        }
        for row in granted {
            self.table.set_noted(row, true);
        }
        if claim.refused.is_some() {
            self.trust.refused[Refused::Limit as usize] += 1;
        }
        if !claim.tokens.is_empty() {
            self.flow.at(self.minute).claimed += claim.tokens.len() as u64;
        }
        claim
    }

    /// The key of a live lease.
    pub fn leased_key(&self, token: Token) -> Option<Vec<u8>> {
        match self.leases.leased(token)? {
            (NONE, orphan) => orphan.map(<[u8]>::to_vec),
            (row, _) => Some(self.table.key(row)),
        }
    }

    /// A claimed row has been read from the table: `row` is what is there now. Returns whether it is to be rendered; if not, the
    /// lease is over as if it had not been granted. `version` is the row's, NaN where it has none. What was kept is put right, unless an event has come since the claim.
    pub fn confirm(&mut self, token: Token, row: Option<(Row, Judge)>, version: f64) -> bool {
        let Some(key) = self.leased_key(token) else { return false };
        let hash = self.table.hash(&key);
        let found = self.find_settled(hash, &key);
        let target = row.filter(|_| self.owns(&key)).and_then(|(row, judge)| self.judge(&key, &row, judge, found));
        let due = target.as_ref().map(|(_, minute)| *minute).filter(|minute| *minute <= self.minute);
        let touched = self.leases.touched(token);
        if touched == Touch::Read {
            self.doubt(hash, &key, found, target);
        }
        let touched = touched != Touch::None;
        if !touched {
            let doubtful = self.is_doubtful(hash, found);
            let changed = self.change(hash, found, &key, target, Kind::Repair);
            self.note_version(hash, changed.row(found), version);
            if changed != Changed::Nothing && !doubtful {
                self.count_repair(hash, Wrong::as_read(row.is_some()), version);
            }
            if let (Some(row), Some(_)) = (found, target) {
                // It has just been read from the table.
                self.set_verified(row);
            }
            // Of a key leased before the walk began, the walk's own read may well be newer.
            let newer = self.leases.walks_at_grant(token) == self.walks;
            if newer || self.walk.as_ref().is_some_and(|walk| walk.has_touched(hash)) {
                self.mark_touched(hash, found, changed);
            }
            self.overtake(hash, found, &key, changed, Reader::Lease);
        }
        if let Some(due) = due {
            self.leases.confirmed(token, (!touched).then_some(due), version);
            return true;
        }
        let now_due = self.find(&key).map_or(0, |row| self.table.due(row));
        let granted_at = self.leases.stale(token, now_due);
        self.not_given_out(granted_at);
        false
    }

    /// Ends a lease as if it had not been granted: whoever asked has not got the key. False where it is not live.
    pub fn give_back(&mut self, token: Token) -> bool {
        let Some(key) = self.leased_key(token) else { return false };
        let due = self.find(&key).map_or(0, |row| self.table.due(row));
        let granted_at = self.leases.give_back(token, due);
        self.not_given_out(granted_at);
        true
    }

    /// A lease has ended as if it had not been granted at that time.
    fn not_given_out(&mut self, granted_at: Option<f64>) {
        if let Some(wall) = granted_at {
            self.flow.not_given_out(Now { wall, ..self.now }.minute());
        }
        self.take_off_notes();
    }

    /// Whether what is kept for a key was not known to be right: it has come from a snapshot, or the key is told of. Where it is wrong, no
    /// write was missed.
    pub(super) fn is_doubtful(&self, hash: u64, found: Option<RowId>) -> bool {
        found.is_some_and(|row| self.table.unverified(row)) || self.watch.is_told(hash)
    }

    /// What was kept was wrong, and a single read has put it right before its event had come.
    pub(super) fn count_repair(&mut self, hash: u64, wrong: Wrong, version: f64) {
        self.trust.repaired_total += 1;
        self.unheard.read(hash, wrong, version, self.now.mono);
    }

    /// Ends the lease of a key that `token` names, or whatever lease is live.
    pub fn release(&mut self, key: &[u8], token: Option<Token>) -> Released {
        let row = self.find(key);
        let due = row.map_or(0, |row| self.table.due(row));
        let released = self.leases.release(row.unwrap_or(NONE), key, due, token, &self.config.leases, self.now.mono);
        self.take_off_notes();
        released
    }

    /// Lets a lease last `ms` from now, or as long as a new one would. Returns its end, ms since the epoch.
    pub fn extend(&mut self, token: Token, ms: Option<f64>) -> Option<f64> {
        let ms = ms.unwrap_or(self.config.leases.lease_ms);
        let until = self.leases.extend(token, ms, self.now.mono)?;
        Some(self.now.wall + (until - self.now.mono))
    }

    /// The due minute of the row kept for a key.
    pub fn due_minute_of(&self, key: &[u8]) -> Option<Minute> {
        self.find(key).map(|row| self.table.due(row))
    }
}
