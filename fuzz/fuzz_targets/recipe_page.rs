//! A page of a recipe, and the summary that is made from it.
#![no_main]

use format::{Kind, RecipePage, Summary};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    if let Some(page) = fuzz::comes_back(Kind::RecipePage, body, RecipePage::decode, RecipePage::encode) {
        let summary = Summary::of(&page);
        let again = Summary::decode(fuzz::HERE, &summary.encode(fuzz::HERE));
        assert!(again == Ok(summary), "a summary does not come back");
    }
});
