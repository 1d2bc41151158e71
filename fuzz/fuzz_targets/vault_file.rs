//! `vault.json`, as it comes and with a checksum that fits.
#![no_main]

use format::VaultFile;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(file) = VaultFile::decode(bytes) {
        comes_back(file);
    }
    if let Some(Ok(file)) = summed(bytes).map(|text| VaultFile::decode(&text)) {
        comes_back(file);
    }
});

fn comes_back(file: VaultFile) {
    assert_eq!(VaultFile::decode(&file.encode()), Ok(file));
}

/// The text with its checksum put right.
fn summed(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut text: Value = serde_json::from_slice(bytes).ok()?;
    let string = |field: &str| text[field].as_str();
    let fields = format!(
        "{}\n{}\n\n{}\n{}",
        string("sapwood_vault")?,
        text["format_version"].as_u64()?,
        string("policy")?,
        text["created"].as_i64()?
    );
    *text.get_mut("checksum")? = format!("{:016x}", xxh3_64(fields.as_bytes())).into();
    serde_json::to_vec(&text).ok()
}
