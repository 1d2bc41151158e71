//! A page of the container table.
#![no_main]

use format::{ContainerPage, Kind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::ContainerPage, body, ContainerPage::decode, ContainerPage::encode);
});
