//! The hooks of an object, and its footer. The input is a body of a footer, its length before it, and hooks behind it.
#![no_main]

use format::{encode_frame, Hook, HookRange, HooksFooter, HooksSum, Kind, HOOK_BYTES};
use fuzz::HERE;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some((len, rest)) = bytes.split_first_chunk() {
        let tail = rest.last_chunk();
        if let Some(at) = tail.and_then(|t| HooksFooter::begins_at(u64::from_le_bytes(*len), t).ok()) {
            assert_eq!(at % HOOK_BYTES as u64, 0);
        }
    }
    let Some((len, rest)) = bytes.split_first_chunk() else { return };
    let Some((body, hooks)) = rest.split_at_checked(usize::from(u16::from_le_bytes(*len))) else { return };
    let hooks = hooks.as_chunks::<HOOK_BYTES>().0;
    for bytes in hooks {
        if let Some(hook) = Hook::decode(bytes) {
            assert_eq!(hook.encode(), *bytes, "another hook comes back");
        }
    }
    let count = hooks.len() as u64;
    let Ok(footer) = HooksFooter::decode(HERE, &encode_frame(Kind::Hooks, HERE, body), count) else { return };
    let mut sum = HooksSum::default();
    sum.feed(hooks.as_flattened());
    let _ = footer.is_of(&sum);
    for prefix in hooks.iter().filter_map(Hook::decode).map(|h| h.prefix).chain([0, 1 << 63, u64::MAX]) {
        let HookRange { all, guess } = footer.find(prefix);
        assert!(all.start <= all.end && all.end <= count, "{all:?} of {count} hooks");
        assert!(all.is_empty() || all.contains(&guess), "{guess} is not in {all:?}");
    }
});
