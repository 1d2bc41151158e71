//! The root of a recipe.
#![no_main]

use format::{Kind, RecipeRoot};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    fuzz::comes_back(Kind::RecipeRoot, body, RecipeRoot::decode, RecipeRoot::encode);
});
