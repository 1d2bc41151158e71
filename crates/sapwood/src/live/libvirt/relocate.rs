//! Rewrites a domain's definition for disks that are somewhere else now.

use super::domain::{child, children, Domain};
use anyhow::{Context as _, Result};
use roxmltree::{Document, Node};
use std::collections::BTreeMap;
use std::ops::Range;

/// A disk of a domain that is a file now.
#[derive(Clone, Debug)]
pub struct Relocated {
    /// `vda` and the like.
    pub target: String,
    /// The file, from the root on.
    pub path: String,
    /// `raw` or `qcow2`.
    pub format: &'static str,
}

/// The disks of a definition that the guest may write to, by target, and the format that it says they have.
pub fn defined_disks(xml: &str) -> Result<BTreeMap<String, Option<String>>> {
    let document = Document::parse(xml).context("the definition is not XML")?;
    let devices = child(document.root_element(), "devices").context("the definition has no devices")?;
    let wanted: Vec<String> = Domain::parse(xml)?.disks.into_iter().map(|d| d.target).collect();
    let format = |disk: Node<'_, '_>| child(disk, "driver")?.attribute("type").map(str::to_owned);
    let all = children(devices, "disk").filter_map(|d| Some((target_of(d)?.to_owned(), format(d))));
    Ok(all.filter(|(target, _)| wanted.contains(target)).collect())
}

/// The definition with disks where they are now. All the rest stays as it is, to the byte.
pub fn relocate(xml: &str, disks: &[Relocated]) -> Result<String> {
    let document = Document::parse(xml).context("the definition is not XML")?;
    let devices = child(document.root_element(), "devices").context("the definition has no devices")?;
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for disk in children(devices, "disk") {
        if let Some(now) = disks.iter().find(|d| Some(d.target.as_str()) == target_of(disk)) {
            edit(disk, now, &mut edits);
        }
    }
    edits.sort_by_key(|(range, _)| range.start);
    let mut out = xml.to_owned();
    for (range, text) in edits.into_iter().rev() {
        out.replace_range(range, &text);
    }
    Ok(out)
}

fn target_of<'a>(disk: Node<'a, '_>) -> Option<&'a str> {
    child(disk, "target")?.attribute("dev")
}

/// What changes of one disk.
fn edit(disk: Node<'_, '_>, now: &Relocated, edits: &mut Vec<(Range<usize>, String)>) {
    set_attribute(disk, "type", "file", edits);
    let source = format!("<source file='{}'/>", escaped(&now.path));
    let target = child(disk, "target").map_or(disk.range().end, |t| t.range().start);
    match child(disk, "source") {
        Some(old) => edits.push((old.range(), source)),
        None => edits.push((target..target, source)),
    }
    match child(disk, "driver") {
        Some(driver) => set_attribute(driver, "type", now.format, edits),
        None => edits.push((target..target, format!("<driver name='qemu' type='{}'/>", now.format))),
    }
    // What the old image stood on, or was being copied to, and how its storage was entered. QEMU gave us what it decrypts.
    for name in ["backingStore", "mirror", "auth", "encryption"] {
        edits.extend(children(disk, name).map(|n| (n.range(), String::new())));
    }
}

fn set_attribute(node: Node<'_, '_>, name: &str, value: &str, edits: &mut Vec<(Range<usize>, String)>) {
    match node.attribute_node(name) {
        Some(attribute) => edits.push((attribute.range_value(), value.to_owned())),
        None => {
            let behind_name = node.range().start + 1 + node.tag_name().name().len();
            edits.push((behind_name..behind_name, format!(" {name}='{value}'")));
        }
    }
}

fn escaped(path: &str) -> String {
    path.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('\'', "&apos;")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const XML: &str = "<domain type='kvm'>\n  <name>a</name><devices>\
        <disk type='network' device='disk'><auth username='x'/><driver name='qemu' type='raw' cache='none'/>\
        <source protocol='rbd' name='p/&amp;'><host name='h'/></source><target dev='vda' bus='virtio'/>\
        <boot order='1'/></disk>\
        <disk><backingStore/><source file='/b'/><target dev='vdb'/></disk>\
        <disk type='file' device='cdrom'><target dev='sda'/><readonly/></disk>\
        <disk type='block' device='disk'><driver type='qcow2'/><source dev='/c'/><target dev='vdc'/></disk>\
        </devices></domain>";

    #[test]
    fn disks_move_and_the_rest_stays() {
        let found: Vec<_> = defined_disks(XML).unwrap().into_iter().collect();
        let of = |t: &str, f: Option<&str>| (t.to_owned(), f.map(str::to_owned));
        assert_eq!(found, [of("vda", Some("raw")), of("vdb", None), of("vdc", Some("qcow2"))]);
        let now =
            |target: &str, path: &str, format| Relocated { target: target.into(), path: path.into(), format };
        let moved =
            relocate(XML, &[now("vda", "/new/it's <a>", "qcow2"), now("vdb", "/new/b", "raw")]).unwrap();
        let wanted = "<domain type='kvm'>\n  <name>a</name><devices>\
            <disk type='file' device='disk'><driver name='qemu' type='qcow2' cache='none'/>\
            <source file='/new/it&apos;s &lt;a&gt;'/><target dev='vda' bus='virtio'/>\
            <boot order='1'/></disk>\
            <disk type='file'><source file='/new/b'/><driver name='qemu' type='raw'/><target dev='vdb'/></disk>\
            <disk type='file' device='cdrom'><target dev='sda'/><readonly/></disk>\
            <disk type='block' device='disk'><driver type='qcow2'/><source dev='/c'/><target dev='vdc'/></disk>\
            </devices></domain>";
        assert_eq!(moved, wanted);
        assert!(Document::parse(&moved).is_ok());
        assert_eq!(relocate(XML, &[]).unwrap(), XML);
    }

    #[test]
    fn what_is_no_definition_is_refused() {
        for xml in ["", "{}", "<domain/>", "<domain><devices>"] {
            assert!(relocate(xml, &[]).is_err() && defined_disks(xml).is_err(), "{xml}");
        }
    }
}
