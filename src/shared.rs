//! The queue for all threads: the registry of the process, the one lock, the clocks.
//!
//! A thin shell: nothing is decided here. A panic inside the lock poisons that one queue; the others, and the process, go on.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};

use crate::queue::config::Config;
use crate::queue::keeper::Keeper;
use crate::queue::time::Now;

/// Rows handled in one go before others are let at the lock.
pub const SLICE: usize = 64;

/// How long we work before we offer the CPU to others.
const BREATH: Duration = Duration::from_millis(2);

/// What keeps long work from standing in the way of others: a thread that wakes, be it that of JavaScript or one that its garbage collector
/// waits for, is otherwise let at the CPU only when ours has had its whole time slice, 4 ms and more.
pub struct Breath(Instant);

impl Default for Breath {
    fn default() -> Self {
        Breath(Instant::now())
    }
}

impl Breath {
    /// Whether it is time.
    fn is_due(&self) -> bool {
        self.0.elapsed() >= BREATH
    }

    /// To be called often.
    pub fn take(&mut self) {
        if self.is_due() {
            thread::yield_now();
            self.0 = Instant::now();
        }
    }
}

/// Why a call did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An earlier call panicked.
    Poisoned,
}

/// A queue, and what time it is for it.
pub struct Shared {
    inner: Mutex<Inner>,
    poisoned: AtomicBool,
    /// The handle that tells its garbage collector of the queue's memory; 0 where none does.
    reporter: AtomicU64,
}

struct Inner {
    keeper: Keeper,
    clocks: Clocks,
}

/// For so long, in ms, what the wall clock shows is told from the monotonic one: reading a clock is dear beside a single event.
const TOLD_MS: f64 = 1.0;

/// What time it is: by hand, or by the machine's clocks, the monotonic one counted from `start`.
struct Clocks {
    start: Instant,
    /// The time of a clock that is moved by hand.
    manual: Option<Now>,
    /// The machine's clocks when both were last read.
    read: Now,
}

impl Clocks {
    fn new(manual: Option<f64>) -> Clocks {
        let manual = manual.map(|wall| Now { wall, mono: 0.0 });
        Clocks { start: Instant::now(), manual, read: Now { wall: 0.0, mono: f64::NEG_INFINITY } }
    }

    fn now(&mut self) -> Now {
        if let Some(manual) = self.manual {
            return manual;
        }
        let mut mono = ms(self.start.elapsed());
        if mono - self.read.mono >= TOLD_MS {
            let wall = ms(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
            // Read after the other, so that whatever comes in between makes the wall clock late, and never early: it would step back.
            mono = ms(self.start.elapsed());
            self.read = Now { wall, mono };
        }
        // Whole ms: `as` cuts off what is behind the point.
        Now { wall: (self.read.wall + (mono - self.read.mono)) as i64 as f64, mono }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

impl Shared {
    /// A queue on the real clocks, or on one moved by hand that begins at `manual` ms.
    pub fn new(config: Config, manual: Option<f64>) -> Shared {
        let mut clocks = Clocks::new(manual);
        let inner = Inner { keeper: Keeper::new(config, clocks.now()), clocks };
        Shared { inner: Mutex::new(inner), poisoned: AtomicBool::new(false), reporter: AtomicU64::new(0) }
    }

    fn guarded<R>(&self, inner: &mut Inner, f: &mut impl FnMut(&mut Keeper) -> R) -> Result<R, Failure> {
        let now = inner.clocks.now();
        let result = catch_unwind(AssertUnwindSafe(|| {
            inner.keeper.advance(now);
            f(&mut inner.keeper)
        }));
        result.map_err(|_| {
            // What a panic left behind may be anything: nobody looks at it again.
            self.poison();
            Failure::Poisoned
        })
    }

    fn lock(&self) -> Result<MutexGuard<'_, Inner>, Failure> {
        let inner = self.inner.lock();
        if self.poisoned.load(Ordering::Acquire) { Err(Failure::Poisoned) } else { Ok(inner) }
    }

    /// Whether the handle of this number is the one that reports the queue's memory: the first to ask is, until it gives up or
    /// another takes over. Every thread has its own garbage collector, and one queue must not weigh on all of them.
    pub fn reports(&self, handle: u64) -> bool {
        let first = self.reporter.compare_exchange(0, handle, Ordering::AcqRel, Ordering::Acquire);
        first.is_ok() || first == Err(handle)
    }

    /// From now on this handle reports.
    pub fn take_over_reports(&self, handle: u64) {
        self.reporter.store(handle, Ordering::Release);
    }

    /// This handle reports no more.
    pub fn give_up_reports(&self, handle: u64) {
        let _ = self.reporter.compare_exchange(handle, 0, Ordering::AcqRel, Ordering::Acquire);
    }

    /// Gives the queue up: a panic has been caught elsewhere while something was done for it.
    pub fn poison(&self) {
        self.poisoned.store(true, Ordering::Release);
    }

    /// Runs `f` on the queue, brought to the present.
    pub fn with<R>(&self, f: impl FnOnce(&mut Keeper) -> R) -> Result<R, Failure> {
        let mut f = Some(f);
        let mut inner = self.lock()?;
        // Called once: `guarded` takes a closure that `in_slices` calls again and again.
        let result = self.guarded(&mut inner, &mut |keeper| f.take().map(|f| f(keeper)))?;
        result.ok_or(Failure::Poisoned)
    }

    /// Runs `f` until it returns something; in between, whoever waits for the lock gets it.
    pub fn in_slices<R>(&self, f: impl FnMut(&mut Keeper) -> Option<R>) -> Result<R, Failure> {
        self.slices(None, f)
    }

    /// [`Self::in_slices`], where nobody waits for the result: in between, others get the CPU, too.
    pub fn in_background<R>(&self, f: impl FnMut(&mut Keeper) -> Option<R>) -> Result<R, Failure> {
        self.slices(Some(Breath::default()), f)
    }

    fn slices<R>(&self, mut breath: Option<Breath>, mut f: impl FnMut(&mut Keeper) -> Option<R>) -> Result<R, Failure> {
        let mut inner = self.lock()?;
        loop {
            if let Some(result) = self.guarded(&mut inner, &mut f)? {
                return Ok(result);
            }
            match &mut breath {
                Some(breath) if breath.is_due() => MutexGuard::unlocked_fair(&mut inner, || breath.take()),
                _ => MutexGuard::bump(&mut inner),
            }
            if self.poisoned.load(Ordering::Acquire) {
                return Err(Failure::Poisoned);
            }
        }
    }

    /// Moves a clock that is moved by hand; false where there is none. Leases see only the way forward.
    pub fn set_now(&self, wall: f64) -> Result<bool, Failure> {
        let mut inner = self.lock()?;
        let Some(now) = &mut inner.clocks.manual else { return Ok(false) };
        now.mono += (wall - now.wall).max(0.0);
        now.wall = wall;
        self.guarded(&mut inner, &mut |_| ())?;
        Ok(true)
    }
}

/// A queue of the process, and the options it was opened with.
struct Opened {
    shared: Arc<Shared>,
    config: Config,
    manual: Option<f64>,
}

static REGISTRY: Mutex<Option<HashMap<String, Opened>>> = Mutex::new(None);

/// The queue of this name. The first to open it sets its options; `None` where `config` differs from them.
/// Without a `config`, whatever there is, or the defaults.
pub fn open(name: &str, config: Option<Config>, manual: Option<f64>) -> Option<Arc<Shared>> {
    let mut registry = REGISTRY.lock();
    let opened = registry.get_or_insert_default().entry(name.to_owned()).or_insert_with(|| {
        let config = config.clone().unwrap_or_default();
        Opened { shared: Arc::new(Shared::new(config.clone(), manual)), config, manual }
    });
    let same = config.is_none_or(|config| config == opened.config && manual == opened.manual);
    same.then(|| opened.shared.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::keeper::{Event, Judge};
    use crate::queue::row::Row;

    #[test]
    fn a_panic_poisons_one_queue_and_no_other() {
        let (bad, good) = (Shared::new(Config::default(), None), Shared::new(Config::default(), None));
        assert_eq!(bad.with(|_| panic!("on purpose")), Err::<(), _>(Failure::Poisoned));
        assert_eq!(bad.with(|keeper| keeper.len()), Err(Failure::Poisoned));
        assert_eq!(bad.in_slices(|_| Some(())), Err(Failure::Poisoned));
        assert_eq!(good.with(|keeper| keeper.len()), Ok(0));
    }

    #[test]
    fn a_panic_in_another_thread_is_seen_between_slices() {
        let shared = Shared::new(Config::default(), None);
        std::thread::scope(|scope| {
            let (sent, received) = std::sync::mpsc::channel();
            let sliced = scope.spawn(|| {
                let sent = sent;
                shared.in_slices(|_| {
                    let _ = sent.send(());
                    None::<()>
                })
            });
            received.recv().expect("a slice has run");
            let _ = shared.with(|_| panic!("on purpose"));
            assert!(matches!(sliced.join(), Ok(Err(Failure::Poisoned))));
        });
    }

    #[test]
    fn a_name_is_one_queue_for_all_threads() {
        let first = open("shared-test", None, Some(0.0)).expect("it is new");
        let event = Event::Put(Row::due_at(0.0), Judge::Rules);
        first.with(|keeper| keeper.apply(b"https://x.com/", event, f64::NAN)).expect("whole");
        let seen = std::thread::spawn(|| open("shared-test", None, None).map(|shared| shared.with(|k| k.len())));
        assert_eq!(seen.join().expect("it does not panic"), Some(Ok(1)));
        let other = Config { max_listed: 7, ..Config::default() };
        assert!(open("shared-test", Some(other), None).is_none());
    }

    #[test]
    fn a_clock_moved_by_hand_never_steps_leases_back() {
        let shared = Shared::new(Config::default(), Some(1e6));
        for (wall, mono) in [(2e6, 1e6), (0.0, 1e6), (5e5, 1.5e6)] {
            assert_eq!(shared.set_now(wall), Ok(true));
            assert_eq!(shared.with(|keeper| keeper.now()), Ok(Now { wall, mono }));
        }
        assert_eq!(Shared::new(Config::default(), None).set_now(0.0), Ok(false));
    }
}
