//! The parts of libvirt's description of a domain that a backup needs.

use anyhow::{Context as _, Result};
use roxmltree::{Document, Node};
use std::path::Path;

/// A domain.
#[derive(Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its disks that the guest may write to.
    pub disks: Vec<DomainDisk>,
    /// Whether an agent in the guest has its channel open.
    pub has_agent: bool,
    /// User and group of its QEMU, where libvirt says so.
    pub owner: Option<(u32, u32)>,
}

/// A disk of a domain.
#[derive(Debug, PartialEq, Eq)]
pub struct DomainDisk {
    /// `vda` and the like.
    pub target: String,
    /// Of its image.
    pub format: Option<String>,
    /// Whether an iothread serves it.
    pub has_iothread: bool,
    /// Whether the guest sees something else than the image: it is encrypted, or a part of it.
    pub is_transformed: bool,
    /// Where its image is: the attributes of its source.
    pub source: Vec<(String, String)>,
}

impl DomainDisk {
    /// Whether its format keeps bitmaps, which are what libvirt's checkpoints are made of.
    pub fn keeps_bitmaps(&self) -> bool {
        self.format.as_deref() == Some("qcow2")
    }

    /// Its image, where that is a file or device of this host.
    pub fn image(&self) -> Option<&Path> {
        let (_, path) = self.source.iter().find(|(name, _)| name == "file" || name == "dev")?;
        Some(Path::new(path))
    }
}

impl Domain {
    /// From what `virsh dumpxml` prints of a domain.
    pub fn parse(xml: &str) -> Result<Self> {
        let document = Document::parse(xml).context("libvirt's description of the domain is not XML")?;
        Self::of(document.root_element())
    }

    /// From what `virsh checkpoint-dumpxml` prints: the domain as it was then.
    pub fn of_checkpoint(xml: &str) -> Result<Self> {
        let document = Document::parse(xml).context("libvirt's description of the checkpoint is not XML")?;
        let domain = child(document.root_element(), "domain");
        Self::of(domain.context("libvirt describes a checkpoint without its domain")?)
    }

    fn of(root: Node<'_, '_>) -> Result<Self> {
        let devices = child(root, "devices").context("libvirt describes a domain without devices")?;
        let disks = children(devices, "disk").filter(|d| is_written_to(*d));
        let disks = disks.map(|d| disk(d, devices)).collect::<Result<_>>()?;
        let is_open = |channel: Node<'_, '_>| {
            child(channel, "target").is_some_and(|t| {
                t.attribute("name") == Some("org.qemu.guest_agent.0")
                    && t.attribute("state") == Some("connected")
            })
        };
        let has_agent = children(devices, "channel").any(is_open);
        let labels = children(root, "seclabel").filter(|l| l.attribute("model") == Some("dac"));
        let owner = labels.filter_map(|l| user_and_group(child(l, "label")?.text()?)).next();
        Ok(Domain { disks, has_agent, owner })
    }
}

pub(super) fn child<'a, 'i>(node: Node<'a, 'i>, name: &'a str) -> Option<Node<'a, 'i>> {
    children(node, name).next()
}

pub(super) fn children<'a, 'i>(node: Node<'a, 'i>, name: &'a str) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(move |n| n.has_tag_name(name))
}

fn is_written_to(disk: Node<'_, '_>) -> bool {
    let device = disk.attribute("device").unwrap_or("disk");
    matches!(device, "disk" | "lun") && child(disk, "readonly").is_none() && child(disk, "source").is_some()
}

fn disk(disk: Node<'_, '_>, devices: Node<'_, '_>) -> Result<DomainDisk> {
    let target = child(disk, "target").context("libvirt describes a disk without a target")?;
    let name = target.attribute("dev").context("libvirt describes a disk whose target has no name")?;
    let driver = child(disk, "driver");
    let source = child(disk, "source").into_iter().flat_map(|s| s.attributes());
    // Numbers that libvirt gives anew each time the domain starts.
    let named = source.filter(|a| a.name() != "index");
    let mut source: Vec<_> = named.map(|a| (a.name().to_owned(), a.value().to_owned())).collect();
    source.sort();
    let controllers =
        children(devices, "controller").filter(|c| c.attribute("type") == target.attribute("bus"));
    let drivers = controllers.filter_map(|c| child(c, "driver")).chain(driver);
    Ok(DomainDisk {
        target: name.into(),
        format: driver.and_then(|d| d.attribute("type")).map(str::to_owned),
        has_iothread: drivers
            .into_iter()
            .any(|d| d.has_attribute("iothread") || child(d, "iothreads").is_some()),
        is_transformed: child(disk, "encryption").is_some()
            || child(disk, "source")
                .is_some_and(|s| child(s, "encryption").is_some() || child(s, "slices").is_some()),
        source,
    })
}

/// `+64055:+110`.
fn user_and_group(label: &str) -> Option<(u32, u32)> {
    let (user, group) = label.split_once(':')?;
    let number = |s: &str| s.strip_prefix('+')?.parse().ok();
    Some((number(user)?, number(group)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn disks_agent_and_owner_are_found() {
        let xml = "<domain type='kvm' id='1'><name>a</name><devices>\
            <disk type='file' device='disk'><driver name='qemu' type='qcow2' iothread='1'/><source file='/a' index='4'/>\
              <backingStore type='file'><source file='/base'/></backingStore><target dev='vda' bus='virtio'/></disk>\
            <disk type='block' device='disk'><driver name='qemu' type='raw'/><source dev='/b'/>\
              <target dev='sda' bus='scsi'/></disk>\
            <disk type='network'><source protocol='rbd' name='p/c'/><target dev='vdb' bus='virtio'/></disk>\
            <disk type='file' device='disk'><source file='/r'/><target dev='vdc' bus='virtio'/><readonly/></disk>\
            <disk type='file' device='cdrom'><target dev='sdb' bus='sata'/></disk>\
            <controller type='scsi' index='0'><driver iothread='2'/></controller>\
            <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' state='connected'/></channel>\
            </devices><seclabel type='dynamic' model='apparmor'><label>x</label></seclabel>\
            <seclabel type='dynamic' model='dac' relabel='yes'><label>+64055:+110</label></seclabel></domain>";
        let of = |target: &str, format: Option<&str>, has_iothread, source: &[(&str, &str)]| DomainDisk {
            target: target.into(),
            format: format.map(str::to_owned),
            has_iothread,
            is_transformed: false,
            source: source.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect(),
        };
        let disks = vec![
            of("vda", Some("qcow2"), true, &[("file", "/a")]),
            of("sda", Some("raw"), true, &[("dev", "/b")]),
            of("vdb", None, false, &[("name", "p/c"), ("protocol", "rbd")]),
        ];
        let images = disks.iter().map(DomainDisk::image).collect::<Vec<_>>();
        assert_eq!(images, [Some(Path::new("/a")), Some(Path::new("/b")), None]);
        let wanted = Domain { disks, has_agent: true, owner: Some((64055, 110)) };
        assert_eq!(Domain::parse(xml).unwrap(), wanted);
        for part in
            ["<encryption format='luks'/>", "<slices><slice type='storage' offset='1' size='2'/></slices>"]
        {
            let xml = xml.replace("<source dev='/b'/>", &format!("<source dev='/b'>{part}</source>"));
            assert!(Domain::parse(&xml).unwrap().disks[1].is_transformed, "{part}");
        }
        let checkpoint = format!("<domaincheckpoint><name>c</name>{xml}</domaincheckpoint>");
        assert_eq!(Domain::of_checkpoint(&checkpoint).unwrap(), wanted);
        assert!(Domain::of_checkpoint(xml).is_err());
        let silent = xml.replace("'connected'", "'disconnected'");
        assert!(!Domain::parse(&silent).unwrap().has_agent);
    }

    #[test]
    fn what_is_no_domain_is_refused() {
        for xml in ["", "<domain", "<domain/>", "<a><devices><disk><source/></disk></devices></a>"] {
            assert!(Domain::parse(xml).is_err(), "{xml}");
        }
    }
}
