//! The dead chunks of a container, and with them sets of runs.
#![no_main]

use format::{DeadLog, Kind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::Dead, body, DeadLog::decode, DeadLog::encode);
});
