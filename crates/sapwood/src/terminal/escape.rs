//! Escapes names that guests and users chose, so that they cannot send control sequences to a terminal, nor be split
//! by a shell.

use std::borrow::Cow;

/// Bytes for people: control characters and bytes that are not text appear as `\xNN`.
pub fn escaped(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_control() || is_bidirectional(c) {
                out.extend(c.to_string().bytes().map(|b| format!("\\x{b:02x}")))
            } else {
                out.push(c)
            }
        }
        out.extend(chunk.invalid().iter().map(|b| format!("\\x{b:02x}")));
    }
    out
}

/// Marks that turn the direction of what follows: `exe.txt` may be shown for `txt.exe`.
fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A word of a command that a message proposes, as a shell reads it.
pub fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-:@%+=,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        for (word, quoted) in [
            ("/srv/vault", "/srv/vault"),
            ("/srv/größe", "/srv/größe"),
            ("/srv/my vault", "'/srv/my vault'"),
            ("/srv/it's", r"'/srv/it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(word), quoted);
        }
    }
}
