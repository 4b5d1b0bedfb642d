//! What is said of a key alone, whatever its row: whose it is, and which route it takes.

use super::key::KeyHasher;
use super::owner::Ring;
use super::route::{Routes, url_of};

/// The rules of one moment. A change of the configuration makes new ones, so that whoever has asked these without the queue can see
/// whether the answers still hold.
pub struct Rules {
    pub(super) hasher: KeyHasher,
    pub(super) ring: Ring,
    pub(super) routes: Routes,
    pub(super) delimiter: Vec<u8>,
    pub(super) devices: Vec<Vec<u8>>,
    /// The host says whose a key is and which route it takes.
    pub(super) classify: bool,
}

/// What the rules say of a key: `None` where another node owns it, else its rule, if one gives it a route.
pub type Ruled = Option<Option<u32>>;

impl Rules {
    /// The URL that a key is about.
    pub(super) fn url<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        url_of(key, &self.delimiter, &self.devices)
    }

    /// Whether this node owns the key. Where the host classifies rows, that is for the host to say.
    pub(super) fn owns(&self, key: &[u8]) -> bool {
        self.classify || self.ring.nodes().len() == 1 || self.ring.owns(self.url(key))
    }

    /// Which rule gives the key its route.
    pub(super) fn route_of(&self, key: &[u8]) -> Option<usize> {
        self.routes.matched(self.url(key))
    }

    /// Both.
    pub(super) fn of(&self, key: &[u8]) -> Ruled {
        self.owns(key).then(|| if self.classify { None } else { self.route_of(key).map(|rule| rule as u32) })
    }
}
