//! The rule for names of new disks.

use crate::base::error::{Result, VaultError};

/// The longest part of a name: parts are names of files in a mount.
const PART_BYTES_MAX: usize = 255;

/// Checks the name of a disk that is to be made.
///
/// It is `vm/disk`: two parts of letters, digits and combining marks of any script (Unicode's `XID_Continue`) and `. _ - + :`,
/// neither beginning with `.` or `-`, of 1 to 255 bytes each. So a name is never an option, a hidden file or a path, and has
/// no control, format or bidirectional character in it. Disks that are there already are found whatever they are called.
///
/// # Errors
/// `Usage`, with the rule.
pub fn check_disk_name(name: &str) -> Result<()> {
    match name.split_once('/') {
        Some((vm, disk)) if is_part(vm) && is_part(disk) => Ok(()),
        _ => Err(VaultError::Usage(format!(
            "{name:?} is not the name of a disk: two parts like web01/vda, of letters, digits and . _ - + :, neither beginning \
             with . or -, of at most {PART_BYTES_MAX} bytes each"
        ))),
    }
}

fn is_part(part: &str) -> bool {
    (1..=PART_BYTES_MAX).contains(&part.len())
        && !part.starts_with(['.', '-'])
        && part.chars().all(|c| unicode_ident::is_xid_continue(c) || ".-+:".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything above ASCII was accepted, so a name could turn the text after it around on a terminal, and a part of 400
    /// bytes could not be shown by a mount. One with a dash in front could be backed up, and was an option to `restore`.
    #[test]
    fn names_are_letters_digits_and_few_signs() {
        for good in [
            "web01/vda",
            "a/b",
            "_x/+y",
            "1/:0",
            "büro/plätte",
            "दिल्ली/डिस्क",
            "e\u{301}/x",
            "東京/一",
            "vm/a.b-c_d+e:f",
        ] {
            assert!(check_disk_name(good).is_ok(), "{good:?}");
        }
        let long = "x".repeat(255);
        assert!(check_disk_name(&format!("{long}/{long}")).is_ok());
        let mut bad: Vec<String> =
            ["", "vm", "vm/", "/vm", "a/b/c", "vm/.x", "../x", "-vm/x", "vm/-x", "vm/a@b", "vm/a b"]
                .map(String::from)
                .into();
        bad.extend([format!("{long}x/a"), format!("a/{long}x"), format!("a/{}", "ü".repeat(128))]);
        // Control, format (Cf), separators (Zl, Zp, Zs), private use, not assigned.
        let signs = "\0\n\x1b\x7f\u{85}\u{ad}\u{600}\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202e}\u{2066}\
                     \u{2069}\u{feff}\u{fff9}\u{e0041}\u{a0}\u{3000}\u{e000}\u{ffff}\\*?\"'$&|<>~%#,;=[](){}!";
        bad.extend(signs.chars().map(|c| format!("vm/a{c}b")));
        for bad in bad {
            let said = check_disk_name(&bad).unwrap_err().to_string();
            assert!(said.contains("is not the name of a disk") && said.contains("web01/vda"), "{said}");
            assert!(!said.contains(|c: char| c.is_control() || !c.is_ascii() && c != 'ü'), "{said:?}");
        }
    }
}
