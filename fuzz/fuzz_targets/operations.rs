//! Any bytes are operations on a keeper and on a model of it, which must agree after every one: see `tests/support`.
//!
//!     cargo +nightly fuzz run operations -- -max_total_time=60 -max_len=4096 -len_control=0
#![no_main]

#[path = "../../tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;
use support::operations::{Profile, play};

fuzz_target!(|story: &[u8]| {
    let Some((first, story)) = story.split_first() else { return };
    // Thousands of keys take seconds to set up here: `MODEL_SECONDS` plays those.
    let profile = if first % 4 == 0 { Profile::Host } else { Profile::Small };
    // A story of any length takes as long as it is long.
    play(profile, &story[..story.len().min(4_096)], None);
});
