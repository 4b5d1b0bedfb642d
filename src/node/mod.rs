//! The binding: what JavaScript calls. Private to `index.js`, which checks arguments and gives results their shape.
//!
//! Events and rows come packed: all keys in one string, and [`STRIDE`] numbers each. Rows go out the same way. No export lets
//! a panic through: each runs inside [`call`] or [`boundary`].

mod batch;
mod copies;
mod error;
mod file;
mod raw;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ahash::RandomState;
use napi::bindgen_prelude::{Object, ObjectFinalize, PromiseRaw, ToNapiValue, Utf16String};
use napi::{Env, JsString};
use napi_derive::napi;
use serde::Serialize;
use smallvec::SmallVec;

use self::batch::{Packed, STRIDE, unpack, unpacked, version_of};
use self::error::{Code, Result, closed, error, failed, poisoned};
use self::raw::{Arguments, Value};
use crate::queue::claim::{Claim, Rows};
use crate::queue::codec;
use crate::queue::config::{Config, Patch};
use crate::queue::keeper::{Event, Keeper, Outcome};
use crate::queue::key::{KeyHasher, from_utf16, to_utf16};
use crate::queue::lease::Token;
use crate::queue::time::start_of;
use crate::queue::trust::Phase;
use crate::queue::walk::{WalkKind, Walked, WalkedRow};
use crate::shared::{self, SLICE, Shared};

/// Keys that share one string on their way out: whoever keeps one of them keeps no more than these.
const KEYS_A_STRING: usize = 64;
/// Bytes of several keys in one string: V8 makes none of more than 512 MiB.
const LONGEST_STRING: usize = 1 << 20;
/// Batches less than so many ms after one another would have been better gathered.
const HURRY_MS: f64 = 0.02;
/// Numbers before the rows that go out.
const HEAD: usize = 8;
/// Numbers a row takes on its way out: end of its key, token or misses, due time or end of hold, score, flags.
const OUT: usize = 5;

/// Runs what touches no queue; a panic becomes an error.
fn boundary<R>(f: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| Err(poisoned()))
}

/// Numbers for handles, from 1, over all threads.
static NEXT_HANDLE: AtomicU32 = AtomicU32::new(1);

thread_local! {
    /// The handles of this thread's JavaScript. They are numbers there, and not objects of a class: napi keeps track of
    /// borrowed objects in one map for the whole process, under a lock, which costs more than most calls here do.
    static HANDLES: RefCell<HashMap<u32, Rc<Native>, RandomState>> = RefCell::default();
}

/// A handle on a queue, of one thread.
struct Native {
    shared: Arc<Shared>,
    number: u32,
    hasher: KeyHasher,
    /// The epoch at which this handle became the feeder; 0 where it never did.
    epoch: Cell<u64>,
    /// Bytes this handle has reported to the garbage collector.
    reported: Cell<i64>,
    max_listed: u32,
    /// When the last batch came, on the monotonic clock.
    batch_at: Cell<f64>,
}

/// What JavaScript holds so that a handle ends with the object that nobody holds any more.
#[napi(custom_finalize)]
pub struct Owner {
    handle: u32,
}

#[napi]
impl Owner {
    #[napi(getter)]
    pub fn handle(&self) -> Result<u32> {
        boundary(|| Ok(self.handle))
    }
}

impl ObjectFinalize for Owner {
    fn finalize(self, env: Env) -> napi::Result<()> {
        boundary(|| {
            end(&env, self.handle);
            Ok(())
        })
        .map_err(rejected)
    }
}

/// Ends a handle, if it has not ended.
fn end(env: &Env, number: u32) {
    if let Ok(Some(native)) = HANDLES.try_with(|handles| handles.borrow_mut().remove(&number)) {
        native.report(env, 0);
        native.shared.give_up_reports(number.into());
    }
}

fn handle(number: u32) -> Result<Rc<Native>> {
    HANDLES.with_borrow(|handles| handles.get(&number).cloned()).ok_or_else(closed)
}

/// What every call on a handle runs in: a panic poisons the queue.
fn call<R>(number: u32, f: impl FnOnce(&Native, &Shared) -> Result<R>) -> Result<R> {
    let native = boundary(|| handle(number))?;
    catch_unwind(AssertUnwindSafe(|| f(&native, &native.shared))).unwrap_or_else(|_| {
        native.shared.poison();
        Err(poisoned())
    })
}

fn with<R>(number: u32, f: impl FnOnce(&mut Keeper) -> R) -> Result<R> {
    call(number, |_, shared| shared.with(f).map_err(failed))
}

/// What only the feeder may do: refused once another has taken over.
fn feeding<R>(number: u32, f: impl FnOnce(&mut Keeper) -> Result<R>) -> Result<R> {
    call(number, |native, shared| {
        let done = shared.with(|keeper| {
            native.fed(keeper)?;
            f(keeper)
        });
        done.map_err(failed)?
    })
}

/// Gives the route names of a batch numbers while `f` runs.
fn with_routes<R>(keeper: &mut Keeper, names: &[String], f: impl FnOnce(&mut Keeper, &[u32]) -> R) -> R {
    let routes: Vec<u32> = names.iter().map(|name| keeper.hold_route(name)).collect();
    let result = f(keeper, &routes);
    for route in routes {
        keeper.release_route(route);
    }
    result
}

fn wtf8(units: &[u16]) -> Vec<u8> {
    let mut key = Vec::new();
    from_utf16(units, &mut key);
    key
}

fn text<'env>(env: &'env Env, bytes: &[u8]) -> Result<JsString<'env>> {
    text_of(env, bytes, bytes.is_ascii())
}

fn text_of<'env>(env: &'env Env, bytes: &[u8], is_ascii: bool) -> Result<JsString<'env>> {
    let made = if is_ascii {
        env.create_string_latin1(bytes)
    } else {
        let mut units = Vec::with_capacity(bytes.len());
        to_utf16(bytes, &mut units);
        env.create_string_utf16(units)
    };
    made.map_err(|err| error(Code::Argument, err.reason.clone()))
}

fn json(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|err| error(Code::Argument, err.to_string()))
}

fn parse<T: serde::de::DeserializeOwned>(json: &str) -> Result<T> {
    serde_json::from_str(json)
        .map_err(|err| error(Code::Argument, format!("an option is not what it should be: {err}")))
}

/// The keys in `bytes`, each of which ends where `ends` says, in strings of [`KEYS_A_STRING`] or, where they are long, fewer. Tells `put`
/// where each ends in its string; of the first in a string, -1 less that.
fn key_strings<'env>(
    env: &'env Env,
    bytes: &[u8],
    mut ends: &[usize],
    mut put: impl FnMut(usize, f64),
) -> Result<Vec<JsString<'env>>> {
    let mut strings = Vec::with_capacity(ends.len().div_ceil(KEYS_A_STRING));
    let (mut start, mut at) = (0, 0);
    while !ends.is_empty() {
        let most = start + LONGEST_STRING;
        let some = ends.iter().take(KEYS_A_STRING).take_while(|end| **end <= most).count().max(1);
        let (these, rest) = ends.split_at(some);
        let joined = &bytes[start..these[some - 1]];
        let is_ascii = joined.is_ascii();
        let mut units = 0;
        for (i, &end) in these.iter().enumerate() {
            let key = &bytes[start..end];
            units += if is_ascii { key.len() } else { utf16_len(key) };
            put(at, if i == 0 { -1.0 - units as f64 } else { units as f64 });
            (start, at) = (end, at + 1);
        }
        strings.push(text_of(env, joined, is_ascii)?);
        ends = rest;
    }
    Ok(strings)
}

fn utf16_len(key: &[u8]) -> usize {
    let mut units = Vec::new();
    to_utf16(key, &mut units);
    units.len()
}

fn room(out: &[f64]) -> usize {
    out.len().saturating_sub(HEAD) / OUT
}

fn put_rows(rows: &Rows, tokens: &[Token], out: &mut [f64]) {
    let slots = out[HEAD..].chunks_exact_mut(OUT);
    for (i, (row, out)) in rows.rows.iter().zip(slots).enumerate() {
        out[1] = tokens.get(i).map_or(0.0, |token| *token as f64);
        out[2] = row.due_at;
        out[3] = row.score;
        out[4] = f64::from(u8::from(row.from_sitemap) | u8::from(row.changed) << 1 | u8::from(row.urgent) << 2);
    }
}

/// A snapshot written.
#[napi(object)]
pub struct SavedSnapshot {
    pub rows: f64,
    pub bytes: f64,
    pub ms: f64,
}

/// A snapshot read.
#[napi(object)]
pub struct LoadedSnapshot {
    pub rows: f64,
    pub saved_at: f64,
    pub ms: f64,
}

impl Native {
    /// A new handle of this thread on a queue.
    fn on(shared: Arc<Shared>) -> Result<Owner> {
        let (hasher, max_listed) =
            shared.with(|keeper| (keeper.hasher(), keeper.config().max_listed)).map_err(failed)?;
        let number = NEXT_HANDLE.fetch_add(1, Ordering::Relaxed);
        let native = Native {
            shared,
            number,
            hasher,
            epoch: Cell::new(0),
            reported: Cell::new(0),
            max_listed: u32::try_from(max_listed).unwrap_or(u32::MAX),
            batch_at: Cell::new(f64::NEG_INFINITY),
        };
        HANDLES.with_borrow_mut(|handles| handles.insert(number, Rc::new(native)));
        Ok(Owner { handle: number })
    }

    /// Returns what the garbage collector knows of in all, this queue and others.
    fn report(&self, env: &Env, bytes: i64) -> i64 {
        let before = self.reported.replace(bytes);
        env.adjust_external_memory(bytes - before).unwrap_or(0)
    }

    fn fed(&self, keeper: &Keeper) -> Result<()> {
        fed(self.epoch.get(), keeper)
    }
}

/// Whether a handle that became the feeder at this epoch, or never did, may feed.
fn fed(epoch: u64, keeper: &Keeper) -> Result<()> {
    if epoch != 0 && epoch != keeper.epoch() {
        return Err(error(Code::Deposed, "another feeder has taken over this queue: stop feeding it from here"));
    }
    Ok(())
}

fn the_walk(keeper: &Keeper, walk: f64) -> Result<()> {
    if keeper.walking(walk as u64) {
        return Ok(());
    }
    Err(error(Code::Walk, "this walk has ended or another has begun: begin a new one"))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Described<'a> {
    due_at: f64,
    minute: u32,
    route: &'a str,
    cadence_ms: f64,
    carried: bool,
    from_sitemap: bool,
    changed: bool,
    urgent: bool,
    demand_period_ms: Option<f64>,
}

/// Throws where another copy of the addon is loaded in this process: it would be a second queue. Call it first.
#[napi]
pub fn check_copies() -> Result<()> {
    boundary(|| match copies::other() {
        Some(path) => {
            Err(error(Code::Argument, format!("another copy of the addon is loaded in this process, from {path}")))
        }
        None => Ok(()),
    })
}

/// The version of the addon.
#[napi]
pub fn addon_version() -> Result<String> {
    boundary(|| Ok(env!("CARGO_PKG_VERSION").to_owned()))
}

/// What the calls take and return is that of the package's files with the same number, `INTERFACE` in `lib/addon-file.js`.
#[napi]
pub fn addon_interface() -> Result<u32> {
    boundary(|| Ok(1))
}

/// What is called for every event, every row of a walk, every claim and result.
#[napi(module_exports)]
pub fn hot_exports(mut exports: Object<'_>, env: Env) -> napi::Result<()> {
    boundary(|| {
        let mut made = || {
            raw::export(&env, &mut exports, "applyBatch", apply_batch)?;
            raw::export(&env, &mut exports, "walkRows", walk_rows)?;
            raw::export(&env, &mut exports, "top", top)?;
            raw::export(&env, &mut exports, "claim", claim)?;
            raw::export(&env, &mut exports, "release", release)
        };
        made().map_err(|err: napi::Error| error(Code::Argument, err.reason.clone()))
    })
    .map_err(rejected)
}

/// The handle that a raw export is called on.
fn raw_handle(arguments: &Arguments<'_>) -> Result<u32> {
    Ok(arguments.number(0)? as u32)
}

/// A queue of its own.
#[napi]
pub fn create(config: String, manual: Option<f64>) -> Result<Owner> {
    boundary(|| Native::on(Arc::new(Shared::new(parse(&config)?, manual))))
}

/// The queue of this name.
#[napi]
pub fn open(name: String, config: Option<String>, manual: Option<f64>) -> Result<Owner> {
    boundary(|| {
        let config: Option<Config> = config.as_deref().map(parse).transpose()?;
        let shared = shared::open(&name, config, manual).ok_or_else(|| {
            error(Code::Options, format!("the queue {name:?} was opened with other options: open it with the same ones, or with none, and use configure()"))
        })?;
        Native::on(shared)
    })
}

#[napi]
pub fn max_listed(handle: u32) -> Result<u32> {
    call(handle, |native, _| Ok(native.max_listed))
}

/// Whether hosts classify the rows of this queue.
#[napi]
pub fn classified(handle: u32) -> Result<bool> {
    with(handle, |keeper| keeper.config().classify)
}

/// Closes the handle. The queue of a name stays.
#[napi]
pub fn close(env: &Env, handle: u32) -> Result<()> {
    boundary(|| {
        end(env, handle);
        Ok(())
    })
}

/// Tells the garbage collector how much memory the queue takes, where this is the handle to tell. Returns all that it
/// knows of, in bytes.
#[napi]
pub fn report_memory(env: &Env, handle: u32) -> Result<f64> {
    call(handle, |native, shared| {
        let bytes = if shared.reports(native.number.into()) {
            shared.with(|keeper| keeper.bytes()).map_err(failed)?
        } else {
            0
        };
        Ok(native.report(env, bytes as i64) as f64)
    })
}

/// Applies a batch of events: handle, keys, numbers, count and, where a host has classified them, names of routes. Returns three numbers
/// in one: the place of the status that they have left; 4 where the batch before it, through this handle, was less than [`HURRY_MS`] ago; and
/// from 8 on how many were applied. The others were ignored.
fn apply_batch(arguments: &Arguments<'_>) -> Result<f64> {
    call(raw_handle(arguments)?, |native, shared| {
        let names = arguments.strings(4)?;
        // SAFETY: from here on no JavaScript runs.
        let numbers = unsafe { arguments.numbers(2) }?;
        let count = arguments.number(3)? as usize;
        unpacked(arguments, 1, numbers, count, &native.hasher, |batch| {
            let (mut i, mut applied) = (0, 0_u32);
            let done = shared.in_slices(|keeper| {
                if let Err(err) = native.fed(keeper) {
                    return Some(Err(err));
                }
                let end = batch.len().min(i + SLICE);
                if end - i > 1 {
                    std::hint::black_box(keeper.warm(batch.to_warm(i..end)));
                }
                with_routes(keeper, &names, |keeper, routes| {
                    for at in i..end {
                        let packed = batch.get(at, routes);
                        let event = match packed.kind {
                            0 => Event::Put(packed.row, packed.judge),
                            1 => Event::Gone,
                            2 => Event::Changed,
                            _ => Event::Other,
                        };
                        let outcome = keeper.apply_hashed(packed.hash, packed.key, event, packed.version);
                        applied += u32::from(outcome == Outcome::Applied);
                    }
                });
                i = end;
                (i == batch.len()).then(|| {
                    let now = keeper.now().mono;
                    let hurried = now - native.batch_at.replace(now) < HURRY_MS;
                    Ok(f64::from(applied) * 8.0 + f64::from(u8::from(hurried) << 2 | keeper.status() as u8))
                })
            });
            done.map_err(failed)?
        })
    })
}

/// Counts an event that cannot be read.
#[napi]
pub fn malformed(handle: u32, what: String) -> Result<()> {
    with(handle, |keeper| keeper.malformed(&what))
}

/// The best rows: handle, how many, and where to. As many as the room in `out` allows. Head of `out`: rows, skippedLeased, complete, whether the room was too small.
fn top(arguments: &Arguments<'_>) -> Result<Value> {
    call(raw_handle(arguments)?, |_, shared| {
        let wanted = arguments.number(1)? as usize;
        // SAFETY: the buffer is a scratch one, see `numbers_mut`.
        let out = unsafe { arguments.numbers_mut(2) }?;
        let room = room(out);
        let top = shared.with(|keeper| keeper.top(wanted.min(room))).map_err(failed)?;
        let rows = top.rows.rows.len();
        put_rows(&top.rows, &[], out);
        out[0] = rows as f64;
        out[1] = top.skipped_leased as f64;
        out[2] = f64::from(u8::from(top.complete));
        out[3] = f64::from(u8::from(room < wanted && rows == room));
        let ends: Vec<usize> = top.rows.rows.iter().map(|row| row.key_end).collect();
        let env = arguments.env();
        let strings = key_strings(&env, &top.rows.keys, &ends, |at, end| out[HEAD + at * OUT] = end)?;
        arguments.array(&strings)
    })
}

/// Leases the best rows: handle, how many, and where to. `out` must have room for `n` of them and `max_listed` held ones. Head: jobs, held, due, complete, skippedLeased,
/// refused (0 none, then by cause), status (by its place), expiresAt.
fn claim(arguments: &Arguments<'_>) -> Result<Value> {
    call(raw_handle(arguments)?, |native, shared| {
        let n = arguments.number(1)? as usize;
        // SAFETY: the buffer is a scratch one, see `numbers_mut`.
        let out = unsafe { arguments.numbers_mut(2) }?;
        let n = n.min(room(out).saturating_sub(native.max_listed as usize));
        let claim = shared.with(|keeper| keeper.claim(n)).map_err(failed)?;
        let Claim { jobs, tokens, expires_at, status, due, complete, skipped_leased, held, refused } = claim;
        put_rows(&jobs, &tokens, out);
        let mut keys = jobs.keys;
        let mut ends: Vec<usize> = jobs.rows.iter().map(|row| row.key_end).collect();
        let slots = out[HEAD + ends.len() * OUT..].chunks_exact_mut(OUT);
        for (held, out) in held.iter().zip(slots) {
            keys.extend_from_slice(&held.key);
            ends.push(keys.len());
            out[1] = f64::from(held.misses);
            out[2] = held.until;
        }
        out[0] = jobs.rows.len() as f64;
        out[1] = held.len() as f64;
        out[2] = due as f64;
        out[3] = f64::from(u8::from(complete));
        out[4] = skipped_leased as f64;
        out[5] = refused.map_or(0.0, |cause| cause as u8 as f64 + 1.0);
        out[6] = f64::from(status as u8);
        out[7] = expires_at;
        let env = arguments.env();
        let strings = key_strings(&env, &keys, &ends, |at, end| out[HEAD + at * OUT] = end)?;
        arguments.array(&strings)
    })
}

/// Confirms a claimed row; `numbers` is the row as it was read, or nothing where there is none.
#[napi]
pub fn confirm(handle: u32, token: f64, numbers: Option<&[f64]>, route: Option<String>) -> Result<bool> {
    with(handle, |keeper| {
        let names: Vec<String> = route.into_iter().collect();
        with_routes(keeper, &names, |keeper, routes| {
            let row = numbers.filter(|numbers| numbers.len() >= STRIDE).map(|numbers| unpack(numbers, routes));
            keeper.confirm(token as Token, row.map(|(row, judge, _)| (row, judge)), version_of(numbers))
        })
    })
}

/// Ends a lease that nobody has got as if it had not been granted.
#[napi]
pub fn give_back(handle: u32, token: f64) -> Result<bool> {
    with(handle, |keeper| keeper.give_back(token as Token))
}

/// The key of a live lease.
#[napi]
pub fn leased_key<'env>(env: &'env Env, handle: u32, token: f64) -> Result<Option<JsString<'env>>> {
    let key = with(handle, |keeper| keeper.leased_key(token as Token))?;
    boundary(|| key.map(|key| text(env, &key)).transpose())
}

/// Ends a lease: handle, key and, where it is to be that one only, token. Returns how it ended, by its place.
fn release(arguments: &Arguments<'_>) -> Result<f64> {
    call(raw_handle(arguments)?, |_, shared| {
        let token = arguments.number_given(2)?.map(|token| token as Token);
        let ended = batch::key(arguments, 1, |key| shared.with(|keeper| keeper.release(key, token)).map_err(failed))?;
        Ok(f64::from(ended as u8))
    })
}

#[napi]
pub fn extend(handle: u32, token: f64, ms: Option<f64>) -> Result<Option<f64>> {
    with(handle, |keeper| keeper.extend(token as Token, ms))
}

#[napi]
pub fn set_paused(handle: u32, paused: bool) -> Result<()> {
    with(handle, |keeper| keeper.set_paused(paused))
}

#[napi]
pub fn status(handle: u32) -> Result<&'static str> {
    with(handle, |keeper| keeper.status().name())
}

/// When something may change by itself, ms since the epoch.
#[napi]
pub fn next_change(handle: u32) -> Result<Option<f64>> {
    with(handle, |keeper| keeper.next_change())
}

#[napi]
pub fn due_minute_of(handle: u32, key: Utf16String) -> Result<Option<u32>> {
    with(handle, |keeper| keeper.due_minute_of(&wtf8(&key)))
}

#[napi]
pub fn due_summary(handle: u32) -> Result<String> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Summary {
        rows: usize,
        due: u64,
        first_due_minute: Option<u32>,
        earliest_not_yet_due_minute: Option<u32>,
    }
    with(handle, |keeper| {
        let (due, rows, first, earliest) = keeper.due_summary();
        json(&Summary { rows, due, first_due_minute: first, earliest_not_yet_due_minute: earliest })
    })?
}

#[napi]
pub fn state_json(handle: u32) -> Result<String> {
    let state = with(handle, |keeper| keeper.state())?;
    boundary(|| json(&state))
}

#[napi]
pub fn describe(handle: u32, key: Utf16String) -> Result<Option<String>> {
    let described = with(handle, |keeper| {
        keeper.describe(&wtf8(&key)).map(|(class, route, minute)| {
            json(&Described {
                due_at: start_of(minute),
                minute,
                route,
                cadence_ms: class.cadence,
                carried: class.carried,
                from_sitemap: class.from_sitemap,
                changed: class.changed,
                urgent: class.urgent,
                demand_period_ms: (!class.demand.is_nan()).then_some(class.demand),
            })
        })
    })?;
    described.transpose()
}

#[napi]
pub fn explain(handle: u32, key: Utf16String) -> Result<String> {
    with(handle, |keeper| json(&keeper.explain(&wtf8(&key))))?
}

/// Changes the configuration; returns rows moved and rows dropped.
#[napi]
pub fn configure(handle: u32, patch: String) -> Result<Vec<f64>> {
    call(handle, |_, shared| {
        configured(shared, &patch)?;
        reclassified(shared)
    })
}

/// [`configure`], the rows put where they belong by another thread. What is wrong with the patch is thrown at once.
#[napi]
pub fn configure_async<'env>(env: &'env Env, handle: u32, patch: String) -> Result<PromiseRaw<'env, Vec<f64>>> {
    call(handle, |native, shared| {
        configured(shared, &patch)?;
        off_thread(env, native.shared.clone(), |shared| reclassified(shared))
    })
}

fn configured(shared: &Shared, patch: &str) -> Result<()> {
    let patch: Patch = parse(patch)?;
    shared.with(|keeper| keeper.configure(patch)).map_err(failed)
}

fn reclassified(shared: &Shared) -> Result<Vec<f64>> {
    let done = shared.in_slices(|keeper| keeper.reclassify(SLICE)).map_err(failed)?;
    Ok(vec![done.moved as f64, done.dropped as f64])
}

#[napi]
pub fn begin_walk(handle: u32, load: bool) -> Result<f64> {
    call(handle, |native, shared| begun(shared, native.epoch.get(), load))
}

/// Fewer keys say too little of others.
const LEAST_SAMPLE: usize = 64;

/// Learns how keys are compressed from a sample. False where that has been done, or the sample says too little.
#[napi]
pub fn learn_keys<'env>(env: &'env Env, handle: u32, keys: Vec<Utf16String>) -> Result<PromiseRaw<'env, bool>> {
    call(handle, |native, _| {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| wtf8(key)).collect();
        off_thread(env, native.shared.clone(), move |shared| {
            if keys.len() < LEAST_SAMPLE {
                return Ok(false);
            }
            let codec = codec::learn(keys.iter().map(Vec::as_slice));
            shared.with(|keeper| keeper.take_codec(codec)).map_err(failed)
        })
    })
}

/// [`begin_walk`]; the marks that a walk given up has left are taken off by another thread.
#[napi]
pub fn begin_walk_async<'env>(env: &'env Env, handle: u32, load: bool) -> Result<PromiseRaw<'env, f64>> {
    call(handle, |native, _| {
        let epoch = native.epoch.get();
        off_thread(env, native.shared.clone(), move |shared| begun(shared, epoch, load))
    })
}

fn begun(shared: &Shared, epoch: u64, load: bool) -> Result<f64> {
    let kind = if load { WalkKind::Load } else { WalkKind::Verify };
    let begun = shared.in_slices(|keeper| {
        if let Err(err) = fed(epoch, keeper) {
            return Some(Err(err));
        }
        // The thread that changed the configuration may have ended before all rows were gone through.
        keeper.reclassify(SLICE)?;
        keeper.abandon_walk();
        keeper.clean_marks(SLICE * 16).then(|| Ok(keeper.begin_walk(kind) as f64))
    });
    begun.map_err(failed)?
}

/// Rows as a walk has read them: handle, walk, then as [`apply_batch`]. A kind other than 0 is a row whose key cannot be read.
fn walk_rows(arguments: &Arguments<'_>) -> Result<f64> {
    call(raw_handle(arguments)?, |native, shared| {
        let names = arguments.strings(5)?;
        let walk = arguments.number(1)?;
        // SAFETY: see `apply_batch`.
        let numbers = unsafe { arguments.numbers(3) }?;
        let count = arguments.number(4)? as usize;
        unpacked(arguments, 2, numbers, count, &native.hasher, |batch| {
            let mut i = 0;
            let done = shared.in_slices(|keeper| {
                if let Err(err) = native.fed(keeper).and_then(|()| the_walk(keeper, walk)) {
                    return Some(Err(err));
                }
                let end = batch.len().min(i + SLICE);
                with_routes(keeper, &names, |keeper, routes| {
                    let mut rows: SmallVec<[WalkedRow<'_>; SLICE]> = SmallVec::new();
                    for at in i..end {
                        let Packed { key, hash, kind, row, judge, version } = batch.get(at, routes);
                        if kind == 0 {
                            rows.push(WalkedRow { key, hash, row, judge, version });
                        } else {
                            keeper.walk_malformed();
                        }
                    }
                    keeper.walk_rows(&rows);
                });
                i = end;
                (i == batch.len()).then_some(Ok(count as f64))
            });
            done.map_err(failed)?
        })
    })
}

/// Ends a walk. Returns the report, as JSON, and then the suspects.
#[napi]
pub fn end_walk<'env>(
    handle: u32,
    env: &'env Env,
    walk: f64,
    partial: bool,
    unreadable: f64,
) -> Result<Vec<JsString<'env>>> {
    call(handle, |native, shared| {
        let walked = ended(shared, native.epoch.get(), walk, partial, unreadable)?;
        let mut strings = vec![text(env, json(&walked.report)?.as_bytes())?];
        for key in &walked.suspects {
            strings.push(text(env, key)?);
        }
        Ok(strings)
    })
}

/// [`end_walk`], by another thread.
#[napi]
pub fn end_walk_async<'env>(
    env: &'env Env,
    handle: u32,
    walk: f64,
    partial: bool,
    unreadable: f64,
) -> Result<PromiseRaw<'env, EndedWalk>> {
    call(handle, |native, _| {
        let epoch = native.epoch.get();
        off_thread(env, native.shared.clone(), move |shared| {
            let walked = ended(shared, epoch, walk, partial, unreadable)?;
            Ok(EndedWalk { report: json(&walked.report)?, suspects: walked.suspects.into_iter() })
        })
    })
}

fn ended(shared: &Shared, epoch: u64, walk: f64, partial: bool, unreadable: f64) -> Result<Walked> {
    let done = shared.in_slices(|keeper| {
        if let Err(err) = fed(epoch, keeper).and_then(|()| the_walk(keeper, walk)) {
            return Some(Err(err));
        }
        keeper.end_walk(partial, unreadable as u64, SLICE * 16).map(Ok)
    });
    done.map_err(failed)?
}

/// What a walk came to, the suspects handed out bit by bit.
#[napi]
pub struct EndedWalk {
    report: String,
    suspects: std::vec::IntoIter<Vec<u8>>,
}

#[napi]
impl EndedWalk {
    #[napi(getter)]
    pub fn report(&self) -> Result<String> {
        boundary(|| Ok(self.report.clone()))
    }

    #[napi]
    pub fn next_suspects<'env>(&mut self, env: &'env Env, n: f64) -> Result<Vec<JsString<'env>>> {
        boundary(|| self.suspects.by_ref().take(n as usize).map(|key| text(env, &key)).collect())
    }
}

#[napi]
pub fn abandon_walk(handle: u32, walk: f64) -> Result<()> {
    with(handle, |keeper| {
        if keeper.walking(walk as u64) {
            keeper.abandon_walk();
        }
    })
}

#[napi]
pub fn head_check<'env>(env: &'env Env, handle: u32, n: f64) -> Result<Vec<JsString<'env>>> {
    let keys = feeding(handle, |keeper| Ok(keeper.head_check(n as usize)))?;
    boundary(|| keys.iter().map(|key| text(env, key)).collect())
}

#[napi]
pub fn repair(handle: u32, key: Utf16String, numbers: Option<&[f64]>, route: Option<String>) -> Result<bool> {
    feeding(handle, |keeper| {
        let key = wtf8(&key);
        let names: Vec<String> = route.into_iter().collect();
        Ok(with_routes(keeper, &names, |keeper, routes| {
            let row = numbers.filter(|numbers| numbers.len() >= STRIDE).map(|numbers| unpack(numbers, routes));
            keeper.repair(&key, row.map(|(row, judge, _)| (row, judge)), version_of(numbers))
        }))
    })
}

#[napi]
pub fn read_failed(handle: u32, key: Utf16String) -> Result<()> {
    feeding(handle, |keeper| {
        keeper.read_failed(&wtf8(&key));
        Ok(())
    })
}

#[napi]
pub fn set_phase(handle: u32, phase: String, resyncing: Option<bool>, error: Option<String>) -> Result<()> {
    feeding(handle, |keeper| {
        let unknown = || self::error::error(Code::Argument, format!("{phase:?} is not a phase"));
        keeper.set_phase(Phase::named(&phase).ok_or_else(unknown)?, resyncing, error);
        Ok(())
    })
}

#[napi]
pub fn take_feeder(handle: u32) -> Result<f64> {
    call(handle, |native, shared| {
        let epoch = shared.with(|keeper| keeper.take_feeder()).map_err(failed)?;
        native.epoch.set(epoch);
        shared.take_over_reports(native.number.into());
        Ok(epoch as f64)
    })
}

/// There will be a feeder.
#[napi]
pub fn expect_feeder(handle: u32) -> Result<()> {
    with(handle, |keeper| keeper.expect_feeder())
}

/// The feeder lives. Nothing where this handle does not feed, or no longer.
#[napi]
pub fn beat(handle: u32) -> Result<()> {
    call(handle, |native, shared| shared.with(|keeper| keeper.beat(native.epoch.get())).map_err(failed))
}

/// The feeder of this epoch, or this handle, is gone or going: nobody need wait for its silence.
#[napi]
pub fn vacate(handle: u32, epoch: Option<f64>) -> Result<()> {
    call(handle, |native, shared| {
        let epoch = epoch.map_or(native.epoch.get(), |epoch| epoch as u64);
        shared.with(|keeper| keeper.vacate(epoch)).map_err(failed)
    })
}

#[napi]
pub fn feeder_silence(handle: u32) -> Result<f64> {
    with(handle, |keeper| keeper.feeder_silence())
}

#[napi]
pub fn seize_feeder(handle: u32, silence: f64) -> Result<bool> {
    with(handle, |keeper| keeper.seize_feeder(silence))
}

#[napi]
pub fn metrics(handle: u32) -> Result<String> {
    with(handle, |keeper| keeper.metrics())
}

/// The queue is named here, on the JavaScript thread: once this returns, the thread may end and the handle be gone.
#[napi]
pub fn save_snapshot<'env>(env: &'env Env, handle: u32, path: String) -> Result<PromiseRaw<'env, SavedSnapshot>> {
    call(handle, |native, _| {
        let (path, shared) = (PathBuf::from(path), native.shared.clone());
        off_thread(env, shared, move |shared| {
            let saved = file::save(shared, &path)?;
            Ok(SavedSnapshot { rows: saved.rows as f64, bytes: saved.bytes as f64, ms: saved.ms })
        })
    })
}

/// See [`save_snapshot`]. What a deposed feeder still reads is kept no further.
#[napi]
pub fn load_snapshot<'env>(env: &'env Env, handle: u32, path: String) -> Result<PromiseRaw<'env, LoadedSnapshot>> {
    call(handle, |native, shared| {
        shared.with(|keeper| native.fed(keeper)).map_err(failed)??;
        let (path, shared, epoch) = (PathBuf::from(path), native.shared.clone(), native.epoch.get());
        off_thread(env, shared, move |shared| {
            let loaded = file::load(shared, &path, |keeper| fed(epoch, keeper))?;
            Ok(LoadedSnapshot { rows: loaded.rows as f64, saved_at: loaded.saved_at, ms: loaded.ms })
        })
    })
}

#[napi]
pub fn set_now(handle: u32, ms: f64) -> Result<()> {
    call(handle, |_, shared| {
        if shared.set_now(ms).map_err(failed)? {
            return Ok(());
        }
        Err(error(
            Code::Clock,
            "this keeper runs on the real clocks: give it `now` when it is made to move them by hand",
        ))
    })
}

#[napi]
pub fn size(handle: u32) -> Result<f64> {
    with(handle, |keeper| keeper.len() as f64)
}

#[napi]
pub fn version(handle: u32) -> Result<f64> {
    with(handle, |keeper| keeper.version() as f64)
}

#[napi]
pub fn class_count(handle: u32) -> Result<f64> {
    with(handle, |keeper| keeper.class_count() as f64)
}

#[napi]
pub fn bytes(handle: u32) -> Result<f64> {
    with(handle, |keeper| keeper.bytes() as f64)
}

/// Every kept key.
#[napi]
pub fn keys<'env>(env: &'env Env, handle: u32) -> Result<Vec<JsString<'env>>> {
    let keys = with(handle, |keeper| keeper.keys())?;
    boundary(|| keys.iter().map(|key| text(env, key)).collect())
}

/// Panics where an invariant does not hold: the queue is poisoned, and the message on stderr says why. For tests.
#[napi]
pub fn validate(handle: u32) -> Result<()> {
    with(handle, |keeper| keeper.validate())
}

/// A promise can reject only with an error of napi's own: the code goes first in its message, and `index.js` puts it in its place.
fn rejected(err: error::Error) -> napi::Error {
    napi::Error::from_reason(format!("{}: {}", err.status.as_ref(), err.reason))
}

/// Runs long work where no JavaScript waits for it; a panic poisons the queue.
fn off_thread<'env, R: ToNapiValue + Send + 'static>(
    env: &'env Env,
    shared: Arc<Shared>,
    f: impl FnOnce(&Arc<Shared>) -> Result<R> + Send + 'static,
) -> Result<PromiseRaw<'env, R>> {
    let work = async move {
        let done = tokio::task::spawn_blocking(move || {
            catch_unwind(AssertUnwindSafe(|| f(&shared))).unwrap_or_else(|_| {
                shared.poison();
                Err(poisoned())
            })
        });
        let cut_off = |_| Err(error(Code::Io, "the work was cut off: the process is ending"));
        done.await.unwrap_or_else(cut_off).map_err(rejected)
    };
    env.spawn_future(work).map_err(|err| error(Code::Io, err.reason.clone()))
}
