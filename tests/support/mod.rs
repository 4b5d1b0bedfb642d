//! The keeper beside a naive model of SPEC.md: random operations on both, compared after every step.
//!
//! Included by `tests/model.rs` and by `fuzz/fuzz_targets/operations.rs`.
#![allow(dead_code)]

pub mod naive;
pub mod operations;
pub mod world;
