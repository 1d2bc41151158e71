//! Lists of changes, as the tools that watch disks write them.

use crate::error::{ImageError, Result};
use std::ops::Range;

const SECTOR_BYTES: u64 = 512;

/// Ranges, and the bytes of the blocks that they are made of.
pub(super) fn parse(path: &str, text: &[u8]) -> Result<(Vec<Range<u64>>, u64)> {
    let wrong = |why: String| ImageError::Changes { path: path.to_owned(), why };
    let text = std::str::from_utf8(text).map_err(|e| wrong(format!("is not text: {e}")))?;
    match text.trim_start().as_bytes().first() {
        Some(b'[') => json(text).map(|ranges| (ranges, 1)),
        Some(b'<') => thin_delta(text),
        _ => lines(text).map(|ranges| (ranges, 1)),
    }
    .map_err(wrong)
}

fn range(offset: u64, length: u64) -> std::result::Result<Range<u64>, String> {
    let end = offset
        .checked_add(length)
        .ok_or_else(|| format!("{length} bytes at {offset} end beyond any disk"))?;
    Ok(offset..end)
}

fn lines(text: &str) -> std::result::Result<Vec<Range<u64>>, String> {
    // The program that writes the list may have died within a line.
    if !text.is_empty() && !text.ends_with('\n') {
        return Err("is cut off: its last line does not end".into());
    }
    let mut all = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let (Some(offset), Some(length), None) = (words.next(), words.next(), words.next()) else {
            if line.trim().is_empty() {
                continue;
            }
            return Err(format!("line {} is not an offset and a length in bytes: {:?}", n + 1, line.trim()));
        };
        let number = |word: &str| {
            let parsed = match word.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16),
                None => word.parse(),
            };
            parsed.map_err(|_| format!("line {}: {word:?} is not a number of bytes", n + 1))
        };
        all.push(range(number(offset)?, number(length)?)?);
    }
    Ok(all)
}

fn json(text: &str) -> std::result::Result<Vec<Range<u64>>, String> {
    let list: Vec<serde_json::Value> =
        serde_json::from_str(text).map_err(|e| format!("is not a JSON array: {e}"))?;
    let mut all = Vec::new();
    for entry in list {
        let number = |name: &str| entry.get(name).and_then(serde_json::Value::as_u64);
        let (Some(offset), Some(length)) = (number("offset"), number("length")) else {
            return Err(format!("has an entry without \"offset\" and \"length\" in bytes: {entry}"));
        };
        // Other maps of nbdinfo have types too, but those do not describe changes.
        let dirty = match (entry.get("type"), entry.get("description").and_then(serde_json::Value::as_str)) {
            (None, _) | (Some(_), Some("dirty")) => true,
            (Some(_), Some("clean")) => false,
            _ => {
                return Err(format!(
                    "has an entry that is neither clean nor dirty: {entry}; nbdinfo needs --map=qemu:dirty-bitmap:NAME"
                ))
            }
        };
        if dirty {
            all.push(range(offset, length)?);
        }
    }
    Ok(all)
}

fn thin_delta(text: &str) -> std::result::Result<(Vec<Range<u64>>, u64), String> {
    let document = roxmltree::Document::parse(text).map_err(|e| format!("is not XML: {e}"))?;
    let root = document.root_element();
    let number = |node: roxmltree::Node<'_, '_>, name: &str| {
        let value = node.attribute(name).and_then(|v| v.parse::<u64>().ok());
        value.ok_or_else(|| format!("has a <{}> without a number {name:?}", node.tag_name().name()))
    };
    if root.tag_name().name() != "superblock" {
        return Err(format!("is <{}>, not the <superblock> of thin_delta", root.tag_name().name()));
    }
    let block = number(root, "data_block_size")?;
    let block_bytes = block.checked_mul(SECTOR_BYTES).ok_or("has data blocks of impossible size")?;
    let diffs: Vec<_> = root.children().filter(|n| n.has_tag_name("diff")).collect();
    let [diff] = diffs[..] else { return Err(format!("has {} <diff>, one is expected", diffs.len())) };
    let mut all = Vec::new();
    for node in diff.children().filter(roxmltree::Node::is_element) {
        match node.tag_name().name() {
            "same" => continue,
            "different" | "left_only" | "right_only" => {}
            other => {
                return Err(format!("has a <{other}>, which is not known; use thin_delta without --verbose"))
            }
        }
        let bytes = |blocks: u64| blocks.checked_mul(block_bytes).ok_or("names blocks beyond any disk");
        all.push(range(bytes(number(node, "begin")?)?, bytes(number(node, "length")?)?)?);
    }
    Ok((all, block_bytes))
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<Range<u64>> {
        parse("changes", text.as_bytes()).expect("a list").0
    }

    #[test]
    fn lists_of_every_form_are_read() {
        assert_eq!(of(""), []);
        assert_eq!(of("\n"), []);
        assert_eq!(of("# nothing\n"), []);
        assert_eq!(of("[]"), []);
        assert_eq!(of("# dirty\n4096 8192\n\n0x10000  0x1000 # last\n"), [4096..12288, 65536..69632]);
        let rbd = r#"[{"offset":0,"length":4194304,"exists":"true"},{"offset":8388608,"length":4096,"exists":"false"}]"#;
        assert_eq!(of(rbd), [0..4194304, 8388608..8392704]);
        let nbdinfo = r#"[{ "offset": 0, "length": 65536, "type": 0, "description": "clean"},
            { "offset": 65536, "length": 131072, "type": 1, "description": "dirty"}]"#;
        assert_eq!(of(nbdinfo), [65536..196608]);
        let thin = r#"<superblock uuid="" time="1" transaction="2" data_block_size="128" nr_data_blocks="100">
            <diff left="1" right="2">
              <different begin="0" length="2"/> <same begin="2" length="8"/>
              <right_only begin="10" length="1"/> <left_only begin="20" length="1"/>
            </diff></superblock>"#;
        assert_eq!(of(thin), [0..131072, 655360..720896, 1310720..1376256]);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        let thin =
            |diff: &str| format!("<superblock data_block_size=\"128\"><diff>{diff}</diff></superblock>");
        let bad = [
            "4096\n".to_owned(),
            "4096 8192 7\n".to_owned(),
            "-1 4096\n".to_owned(),
            "1e3 4096\n".to_owned(),
            "0 4096\n8192 40".to_owned(),
            format!("{} 1\n", u64::MAX),
            "[{\"offset\":0,\"length\":4096,\"type\":3,\"description\":\"hole,zero\"}]".to_owned(),
            "[{\"offset\":0,\"length\":4096,\"type\":1}]".to_owned(),
            "[{\"offset\":0,\"length\":4096}".to_owned(),
            "[{\"start\":0,\"length\":4096}]".to_owned(),
            "[{\"offset\":0,\"length\":4096,\"type\":\"dirty\"}]".to_owned(),
            "[{\"offset\":-4096,\"length\":4096}]".to_owned(),
            "<diff/>".to_owned(),
            "<superblock><diff/></superblock>".to_owned(),
            thin("<different begin=\"0\"/>"),
            thin("<surprise begin=\"0\" length=\"1\"/>"),
            thin(&format!("<different begin=\"{}\" length=\"1\"/>", u64::MAX)),
            "<superblock data_block_size=\"128\"><diff>".to_owned(),
        ];
        for text in &bad {
            let e = parse("changes", text.as_bytes()).expect_err(text);
            assert!(e.to_string().starts_with("changes: "), "{e}");
        }
        assert!(parse("changes", &[0xff, 0xfe]).is_err());
    }
}
