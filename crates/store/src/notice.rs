//! Lines for people, on work that waits or goes on with less than it should have. A program says once where they go; until
//! then they go nowhere.

use std::sync::OnceLock;

static NOTICE: OnceLock<fn(&str)> = OnceLock::new();

/// Sends notices to `say` from now on. The first one to ask for that stays.
pub fn send_notices_to(say: fn(&str)) {
    let _ = NOTICE.set(say);
}

/// Tells people a line.
pub fn notice(line: &str) {
    if let Some(say) = NOTICE.get() {
        say(line);
    }
}
