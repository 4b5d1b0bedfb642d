//! The render queue of a prerender component: which page of a site is to be rendered next, what state the queue is in, and
//! whether those numbers can be trusted.
//!
//! | module | what lives there |
//! |---|---|
//! | [`queue`] | the queue itself: rows, order, leases, claims, walks, state. Pure Rust, single-threaded, without a clock |
//! | [`queue::keeper`] | the struct that owns the parts and keeps them in step: begin reading here |
//! | [`shared`] | one lock, the registry of the process, the clocks |
//! | `node` | the binding to Node (feature `node`): conversion, errors, the boundary that no panic crosses |
//!
//! Nothing points back: `queue` knows nobody, `shared` knows `queue`, `node` knows both.

pub mod queue;
pub mod shared;

// Exports are registered with Node, which a test build leaves out.
#[cfg(feature = "node")]
#[cfg_attr(test, allow(dead_code))]
mod node;
