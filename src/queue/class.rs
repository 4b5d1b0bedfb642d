//! Classes: what rows have in common that decides their order.
//!
//! A class lives as long as it has rows; its age is its place in the order in which classes came to be. Looking one
//! up costs one hash; an event that leaves a row in its class does not even that.

use std::sync::Arc;

use ahash::RandomState;
use hashbrown::HashTable;

use super::bucket::Buckets;
use super::time::Minute;

/// A class's number while it lives. Numbers are used again; a class's `age` never is.
pub type ClassId = u32;
/// A route's number while a class or the configuration uses it.
pub type RouteId = u32;

/// The route of what no rule renders.
pub const UNROUTED: RouteId = 0;

/// Everything that makes a class. Two rows of equal keys are in one class.
#[derive(Clone, Copy, Debug)]
pub struct ClassKey {
    /// Which route.
    pub route: RouteId,
    /// ms between renders; may be anything where a host's own classifier says so.
    pub cadence: f64,
    /// The cadence came with the row.
    pub carried: bool,
    /// Listed in a sitemap.
    pub from_sitemap: bool,
    /// The page is known to have changed.
    pub changed: bool,
    /// Someone asked for it now.
    pub urgent: bool,
    /// ms between bot visits; NaN where unknown.
    pub demand: f64,
}

impl ClassKey {
    fn identity(&self) -> (u32, u64, u64, u8) {
        let flags = [self.carried, self.from_sitemap, self.changed, self.urgent];
        let flags = flags.iter().fold(0, |bits, flag| bits << 1 | u8::from(*flag));
        // One NaN, one zero: numbers that read the same are the same class.
        let bits = |number: f64| if number.is_nan() { f64::NAN.to_bits() } else { (number + 0.0).to_bits() };
        (self.route, bits(self.cadence), bits(self.demand), flags)
    }
}

impl PartialEq for ClassKey {
    fn eq(&self, other: &Self) -> bool {
        // What `identity` says, at a fraction of the cost: asked with every event.
        let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
        self.route == other.route
            && self.carried == other.carried
            && self.from_sitemap == other.from_sitemap
            && self.changed == other.changed
            && self.urgent == other.urgent
            && same(self.cadence, other.cadence)
            && same(self.demand, other.demand)
    }
}

/// A class and its rows.
pub struct Class {
    /// What its rows have in common.
    pub key: ClassKey,
    /// Smaller is older.
    pub age: u64,
    /// How many rows it has; never 0 between calls.
    pub rows: u64,
    /// When they are due.
    pub buckets: Buckets,
}

/// All classes.
#[derive(Default)]
pub struct Classes {
    classes: Vec<Option<Class>>,
    /// The first minute in which each has a row; `u64::MAX` where there is no class. Apart from the classes, so that
    /// asking which of 100,000 have anything due is a pass over one array.
    first: Vec<u64>,
    free: Vec<ClassId>,
    by_key: HashTable<ClassId>,
    hasher: RandomState,
    next_age: u64,
    routes: RouteNames,
    /// Some found before, each at the place that its key gives: most rows go to one of these.
    recent: Recent,
}

impl Classes {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Bytes allocated.
    pub fn bytes(&self) -> usize {
        self.classes.capacity() * size_of::<Option<Class>>()
            + self.first.capacity() * 8
            + self.free.capacity() * 4
            + self.by_key.allocation_size()
            + self.iter().map(|(_, class)| class.buckets.bytes()).sum::<usize>()
            + self.routes.bytes()
    }

    fn slot(&self, id: ClassId) -> Option<&Class> {
        self.classes.get(id as usize)?.as_ref()
    }

    /// A class that lives.
    pub fn get(&self, id: ClassId) -> &Class {
        self.slot(id).expect("a row's class lives as long as the row")
    }

    /// A class that lives, to change its buckets; then call [`Self::refresh`].
    pub fn get_mut(&mut self, id: ClassId) -> &mut Class {
        self.classes[id as usize].as_mut().expect("a row's class lives as long as the row")
    }

    /// A class by number and age, where that one still lives.
    pub fn living(&self, id: ClassId, age: u64) -> Option<&Class> {
        self.slot(id).filter(|class| class.age == age)
    }

    /// The class of this key, where there is one.
    pub fn find(&mut self, key: &ClassKey) -> Option<ClassId> {
        let place = Recent::place(key);
        let recent = self.recent.0[place];
        if self.slot(recent).is_some_and(|class| class.key == *key) {
            return Some(recent);
        }
        let hash = self.hasher.hash_one(key.identity());
        let same = |id: &ClassId| self.slot(*id).is_some_and(|class| class.key == *key);
        let found = *self.by_key.find(hash, same)?;
        self.recent.0[place] = found;
        Some(found)
    }

    /// The class of this key, made where there is none. It must get a row before anything else is asked.
    pub fn enter(&mut self, key: ClassKey) -> ClassId {
        if let Some(id) = self.find(&key) {
            return id;
        }
        let hash = self.hasher.hash_one(key.identity());
        self.routes.hold(key.route);
        let class = Class { key, age: self.next_age, rows: 0, buckets: Buckets::default() };
        self.next_age += 1;
        let id = match self.free.pop() {
            Some(id) => {
                self.classes[id as usize] = Some(class);
                id
            }
            None => {
                self.classes.push(Some(class));
                self.first.push(u64::MAX);
                self.classes.len() as ClassId - 1
            }
        };
        let (classes, hasher) = (&self.classes, &self.hasher);
        self.recent.0[Recent::place(&key)] = id;
        self.by_key.insert_unique(hash, id, |id| {
            classes[*id as usize].as_ref().map_or(0, |class| hasher.hash_one(class.key.identity()))
        });
        id
    }

    /// Notes that a row came to or left `minute`: keeps the first minute, and ends the class where it has no rows.
    pub fn refresh(&mut self, id: ClassId, minute: Minute) {
        let class = self.classes[id as usize].as_ref().expect("a class in use lives");
        if class.rows == 0 {
            let hash = self.hasher.hash_one(class.key.identity());
            if let Ok(entry) = self.by_key.find_entry(hash, |other| *other == id) {
                entry.remove();
            }
            self.routes.release(class.key.route);
            self.classes[id as usize] = None;
            self.first[id as usize] = u64::MAX;
            self.free.push(id);
            return;
        }
        let first = &mut self.first[id as usize];
        if u64::from(minute) < *first {
            *first = u64::from(minute);
        } else if u64::from(minute) == *first && class.buckets.get(minute).rows == 0 {
            *first = class.buckets.first_from(minute).map_or(u64::MAX, u64::from);
        }
    }

    /// The classes that have a row due in `minute` or before, each with its first minute.
    pub fn due_by(&self, minute: Minute) -> impl Iterator<Item = (ClassId, Minute)> + '_ {
        let firsts = self.first.iter().enumerate();
        firsts
            .filter(move |(_, first)| **first <= u64::from(minute))
            .map(|(id, first)| (id as ClassId, *first as Minute))
    }

    /// Every class.
    pub fn iter(&self) -> impl Iterator<Item = (ClassId, &Class)> {
        self.classes.iter().enumerate().filter_map(|(id, class)| Some((id as ClassId, class.as_ref()?)))
    }

    /// The number of a route's name, held until [`Self::release_route`].
    pub fn hold_route(&mut self, name: &str) -> RouteId {
        self.routes.number(name)
    }

    /// Gives back what [`Self::hold_route`] held.
    pub fn release_route(&mut self, route: RouteId) {
        self.routes.release(route);
    }

    /// A route's name.
    pub fn route(&self, route: RouteId) -> &Arc<str> {
        self.routes.name(route)
    }

    /// Panics where the class table's own rules do not hold. For tests.
    pub fn validate(&self) {
        assert_eq!(self.iter().count(), self.by_key.len(), "classes: count");
        for (id, class) in self.iter() {
            let hash = self.hasher.hash_one(class.key.identity());
            assert_eq!(self.by_key.find(hash, |other| *other == id), Some(&id), "classes: look-up");
            let first = class.buckets.first_from(0).map_or(u64::MAX, u64::from);
            assert_eq!(self.first[id as usize], first, "classes: first minute");
            assert!(class.rows > 0, "classes: one without rows");
        }
    }
}

const RECENT: usize = 256;

/// Numbers of classes; what is there may be another class's, or no class's any more.
struct Recent([ClassId; RECENT]);

impl Default for Recent {
    fn default() -> Self {
        Recent([0; RECENT])
    }
}

impl Recent {
    /// Equal keys may have different places, where a NaN or a zero is written otherwise: they are found all the same.
    fn place(key: &ClassKey) -> usize {
        let flags = [key.carried, key.from_sitemap, key.changed, key.urgent];
        let flags = flags.iter().fold(key.route, |bits, flag| bits << 1 | u32::from(*flag));
        let bits = key.cadence.to_bits() ^ key.demand.to_bits().rotate_left(27) ^ u64::from(flags);
        (bits.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as usize
    }
}

/// Route names, each once, counted by use.
struct RouteNames {
    names: Vec<Option<(Arc<str>, u64)>>,
    numbers: std::collections::HashMap<Arc<str>, RouteId, RandomState>,
    free: Vec<RouteId>,
}

impl Default for RouteNames {
    fn default() -> Self {
        let name: Arc<str> = "unrouted".into();
        let numbers = [(name.clone(), UNROUTED)].into_iter().collect();
        RouteNames { names: vec![Some((name, 1))], numbers, free: Vec::new() }
    }
}

impl RouteNames {
    fn number(&mut self, name: &str) -> RouteId {
        if let Some(&number) = self.numbers.get(name) {
            self.hold(number);
            return number;
        }
        let name: Arc<str> = name.into();
        let entry = Some((name.clone(), 1));
        let number = match self.free.pop() {
            Some(number) => {
                self.names[number as usize] = entry;
                number
            }
            None => {
                self.names.push(entry);
                self.names.len() as RouteId - 1
            }
        };
        self.numbers.insert(name, number);
        number
    }

    fn hold(&mut self, number: RouteId) {
        if let Some(Some((_, uses))) = self.names.get_mut(number as usize) {
            *uses += 1;
        }
    }

    fn release(&mut self, number: RouteId) {
        if number == UNROUTED {
            return;
        }
        let Some(Some((name, uses))) = self.names.get_mut(number as usize) else { return };
        *uses -= 1;
        if *uses == 0 {
            self.numbers.remove(name);
            self.names[number as usize] = None;
            self.free.push(number);
        }
    }

    fn name(&self, number: RouteId) -> &Arc<str> {
        match &self.names[number as usize] {
            Some((name, _)) => name,
            None => unreachable!("a route in use keeps its name"),
        }
    }

    fn bytes(&self) -> usize {
        let names: usize = self.names.iter().flatten().map(|(name, _)| name.len() + 32).sum();
        names + (self.names.capacity() + self.numbers.capacity()) * 24
    }
}
