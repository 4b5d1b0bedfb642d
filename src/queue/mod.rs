//! The queue itself: pure Rust, without Node, clock, thread, file or unsafe. [`keeper`] is the way in.
#![forbid(unsafe_code)]

pub mod bucket;
pub mod claim;
pub mod class;
pub mod codec;
pub mod config;
pub mod counts;
pub mod explain;
pub mod flow;
pub mod follow;
pub mod front;
pub mod index;
pub mod keeper;
pub mod key;
pub mod late;
pub mod lease;
pub mod metrics;
pub mod order;
pub mod owner;
pub mod pages;
pub mod pulse;
pub mod records;
pub mod route;
pub mod row;
pub mod rules;
pub mod snapshot;
pub mod state;
pub mod table;
pub mod time;
pub mod trust;
pub mod version;
pub mod walk;
pub mod watch;
