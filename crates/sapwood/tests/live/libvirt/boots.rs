//! A machine of two disks is backed up while it runs, is lost with its disks and its definition, comes back with one
//! command, and boots.

use super::*;

/// Code of a boot sector: it reads the first sector of the second disk, by the firmware, and writes to the serial port what
/// the text at [`SAYS`] and that sector say, or the text at [`NO_DISK`].
const CODE: [u8; 83] = [
    0xfa, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0, 0x8e, 0xd0, 0xbc, 0x00, 0x7c, 0xfb, 0xfc, 0xb8, 0x01, 0x02,
    0xbb, 0x00, 0x80, 0xb9, 0x01, 0x00, 0xba, 0x81, 0x00, 0xcd, 0x13, 0x72, 0x15, 0xbe, 0x53, 0x7c, 0xe8,
    0x17, 0x00, 0xbe, 0x00, 0x80, 0xe8, 0x11, 0x00, 0xbe, 0x96, 0x7c, 0xe8, 0x0b, 0x00, 0xf4, 0xeb, 0xfd,
    0xbe, 0x7a, 0x7c, 0xe8, 0x02, 0x00, 0xeb, 0xf5, 0xac, 0x84, 0xc0, 0x74, 0x12, 0x88, 0xc4, 0xba, 0xfd,
    0x03, 0xec, 0xa8, 0x20, 0x74, 0xfb, 0xba, 0xf8, 0x03, 0x88, 0xe0, 0xee, 0xeb, 0xe9, 0xc3,
];
const SAYS: &[u8; 39] = b"the guest boots; its second disk says \0";
const NO_DISK: &[u8; 28] = b"the guest has no second disk";

/// The boot sector.
fn boot_sector() -> Vec<u8> {
    let mut sector = [&CODE[..], SAYS, NO_DISK, b"\r\n\0"].concat();
    sector.resize(510, 0);
    sector.extend([0x55, 0xaa]);
    sector
}

/// Waits until the guest has said a line.
fn wait_for_line(bench: &Bench, line: &str) {
    let start = Instant::now();
    let said =
        || String::from_utf8_lossy(&std::fs::read(bench.path("serial")).unwrap_or_default()).into_owned();
    while !said().contains(line) {
        assert!(start.elapsed() < Duration::from_secs(120), "the guest does not say {line:?}: {:?}", said());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_machine_that_came_back_boots() {
    let mut bench = Bench::new("balanced");
    let mut content = random(DISK_BYTES, 8);
    content[..512].copy_from_slice(&boot_sector());
    let libvirt = machine(&mut bench, &content);
    // By the monitor, not by the guest: what its second boot reads is not what its first one could read.
    libvirt.write("vdb", 0, 4, b'A');
    wait_for_line(&bench, "the guest boots; its second disk says ");
    libvirt.write("vdb", 0, 6, b'B');
    back_up(&bench);

    libvirt.virsh(&["destroy", "vm"]);
    for name in libvirt.checkpoints() {
        libvirt.virsh(&["checkpoint-delete", "vm", &name, "--metadata"]);
    }
    libvirt.virsh(&["undefine", "vm"]);
    for file in ["a.qcow2", "b.raw", "a.raw", "domain.xml", "serial"] {
        std::fs::remove_file(bench.path(file)).unwrap();
    }
    bench.file("serial", b"");
    std::fs::set_permissions(bench.path("serial"), std::fs::Permissions::from_mode(0o666)).unwrap();

    bench.done(&["-q", "restore", "vm", "--to", &bench.arg("restored"), "--define"]);
    libvirt.virsh(&["start", "vm"]);
    wait_for_line(&bench, "the guest boots; its second disk says BBBBBB\r\n");
}
