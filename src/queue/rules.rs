//! What is said of a key alone, whatever its row: whose it is, and which route it takes.

use super::key::KeyHasher;
use super::owner::Ring;
use super::route::{Devices, Routes};

/// The rules of one moment. A change of the configuration makes new ones, so that whoever has asked these without the queue can see
/// whether the answers still hold.
pub struct Rules {
    pub(super) hasher: KeyHasher,
    pub(super) ring: Ring,
    pub(super) routes: Routes,
    pub(super) devices: Devices,
    /// The host says whose a key is and which route it takes.
    pub(super) classify: bool,
}

/// What the rules say of a key: `None` where another node owns it, else its rule, if one gives it a route.
pub type Ruled = Option<Option<u32>>;

impl Rules {
    /// The URL that a key is about.
    pub(super) fn url<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        self.devices.url_of(key)
    }

    /// Whether this node owns the key. Where the host classifies rows, that is for the host to say.
    pub(super) fn owns(&self, key: &[u8]) -> bool {
        self.owns_all() || self.ring.owns(self.url(key))
    }

    fn owns_all(&self) -> bool {
        self.classify || self.ring.nodes().len() == 1
    }

    /// Which rule gives the key its route.
    pub(super) fn route_of(&self, key: &[u8]) -> Option<usize> {
        self.routes.matched(self.url(key))
    }

    /// Both.
    pub(super) fn of(&self, key: &[u8]) -> Ruled {
        self.owns(key).then(|| if self.classify { None } else { self.route_of(key).map(|rule| rule as u32) })
    }

    /// Whether this node owns the key, and which rule gives it its route, for one key after the other.
    pub(super) fn next<'a>(&self, before: &mut Before<'a>, key: &'a [u8]) -> (bool, Option<usize>) {
        let url = self.url(key);
        if before.url != Some(url) {
            let owned = self.owns_all() || self.ring.owns(url);
            let rule = if owned { self.routes.matched_on(url, &mut before.origin) } else { None };
            before.said = (owned, rule);
            before.url = Some(url);
        }
        before.said
    }
}

/// What was said of the key before: in a walk, the next is often of the same URL, for another device, and mostly of the same host.
#[derive(Default)]
pub(super) struct Before<'a> {
    url: Option<&'a [u8]>,
    origin: &'a [u8],
    said: (bool, Option<usize>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_key_behind_another_is_said_of_what_is_said_of_it_alone() {
        let (routes, invalid) = Routes::new(
            &[
                json!({"match": "exact", "path": "/"}),
                json!({"match": "prefix", "path": "/a/"}),
                json!({"match": "contains", "path": "b"}),
                json!({"match": "prefix", "path": "/"}),
            ],
            &[json!("/a/a/")],
        );
        assert_eq!(invalid, []);
        let peers = ["a", "b"].map(String::from);
        let rings = [Ring::new("a", &peers), Ring::new("a", &[])];
        let mut state = 1u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for ring in rings {
            let devices = Devices::new("|", &["desktop".into(), "mobile".into()]);
            let hasher = KeyHasher::default();
            let rules = Rules { hasher, ring, routes: routes.clone(), devices, classify: false };
            let origins =
                ["https://a.b", "https://a.b:80", "https://a.b.", "http://A.b", "https://a.bb", "nothing", ""];
            let parts = ["/", "/a/", "a", "b/", "/../", "?a", "%2e", "é"];
            let keys: Vec<String> = (0..3_000)
                .flat_map(|_| {
                    let mut url = origins[random(7)].to_owned();
                    (0..random(5)).for_each(|_| url += parts[random(8)]);
                    ["|desktop", "|mobile", ""][random(3)..]
                        .iter()
                        .map(|device| url.clone() + device)
                        .collect::<Vec<_>>()
                })
                .collect();
            let mut before = Before::default();
            for key in keys.iter().map(String::as_bytes) {
                let owned = rules.owns(key);
                let rule = if owned { rules.route_of(key) } else { None };
                assert_eq!(rules.next(&mut before, key), (owned, rule), "{key:?}");
            }
        }
    }
}
