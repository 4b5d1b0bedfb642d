//! What a keeper is told: its node and peers, routes, priorities, leases.

use serde::Deserialize;
use serde_json::Value;

use super::lease::LeaseSettings;
use super::order::Priority;

/// The options of a keeper (SPEC.md section 14). The types of the fields have been checked by whoever calls; rules are
/// judged one by one, and a wrong one is left out and reported.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Config {
    /// This node's name.
    pub node: String,
    /// Its peers.
    pub nodes: Vec<String>,
    /// Route rules, in order.
    pub routes: Vec<Value>,
    /// Paths that are not prerendered.
    pub exclude_path_patterns: Vec<Value>,
    /// ms between renders where neither row nor route says.
    pub default_interval: f64,
    /// Between the URL and the device type.
    pub delimiter: String,
    /// What may follow the delimiter.
    pub device_types: Vec<String>,
    /// See [`Priority`].
    #[serde(deserialize_with = "priority")]
    pub priority: Priority,
    /// See [`LeaseSettings`].
    #[serde(deserialize_with = "leases")]
    pub leases: LeaseSettings,
    /// Minutes that the flow remembers.
    pub flow_minutes: u32,
    /// The longest list in the state.
    pub max_listed: usize,
    /// The host classifies rows itself.
    pub classify: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            node: "localhost".into(),
            nodes: Vec::new(),
            routes: Vec::new(),
            exclude_path_patterns: Vec::new(),
            default_interval: 86_400_000.0,
            delimiter: "|".into(),
            device_types: vec!["desktop".into(), "mobile".into()],
            priority: Priority::default(),
            leases: LeaseSettings::default(),
            flow_minutes: 60,
            max_listed: 200,
            classify: false,
        }
    }
}

/// A change of some options; what is not named stays.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Patch {
    /// See [`Config`].
    pub node: Option<String>,
    /// See [`Config`]; an empty list never replaces one that has peers in it.
    pub nodes: Option<Vec<String>>,
    /// See [`Config`].
    pub routes: Option<Vec<Value>>,
    /// See [`Config`].
    pub exclude_path_patterns: Option<Vec<Value>>,
    /// See [`Config`].
    pub default_interval: Option<f64>,
    /// See [`Config`].
    pub priority: Option<PriorityPatch>,
    /// See [`Config`].
    pub leases: Option<LeasePatch>,
}

/// A change of some priorities.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PriorityPatch {
    sitemap_boost: Option<f64>,
    changed_head_start: Option<f64>,
    urgent_head_start: Option<f64>,
    changed_demand: Option<bool>,
}

impl PriorityPatch {
    /// The priorities after the change.
    pub fn over(&self, old: Priority) -> Priority {
        Priority {
            sitemap_boost: self.sitemap_boost.unwrap_or(old.sitemap_boost),
            changed_head_start: self.changed_head_start.unwrap_or(old.changed_head_start),
            urgent_head_start: self.urgent_head_start.unwrap_or(old.urgent_head_start),
            changed_demand: self.changed_demand.unwrap_or(old.changed_demand),
        }
    }
}

/// A change of some lease settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeasePatch {
    lease_ms: Option<f64>,
    max_leases: Option<u64>,
    release_grace_ms: Option<f64>,
    miss_limit: Option<u32>,
}

impl LeasePatch {
    /// The settings after the change.
    pub fn over(&self, old: LeaseSettings) -> LeaseSettings {
        LeaseSettings {
            lease_ms: self.lease_ms.unwrap_or(old.lease_ms),
            max_leases: self.max_leases.unwrap_or(old.max_leases),
            release_grace_ms: self.release_grace_ms.unwrap_or(old.release_grace_ms),
            miss_limit: self.miss_limit.unwrap_or(old.miss_limit),
        }
    }
}

fn priority<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Priority, D::Error> {
    Ok(PriorityPatch::deserialize(from)?.over(Priority::default()))
}

fn leases<'de, D: serde::Deserializer<'de>>(from: D) -> Result<LeaseSettings, D::Error> {
    Ok(LeasePatch::deserialize(from)?.over(LeaseSettings::default()))
}
