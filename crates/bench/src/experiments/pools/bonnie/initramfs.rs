//! Files for the first file system of a Linux that boots, appended to the one that a distribution made: the kernel unpacks one
//! archive after the other (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).

/// Archives and the parts of an entry begin at multiples of this.
const ALIGNMENT: usize = 4;
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const FILE: u32 = 0o100_644;

/// An archive of cpio, "newc", to be appended to `initrd`.
pub struct Initramfs {
    bytes: Vec<u8>,
    entries: u32,
}

impl Initramfs {
    /// Begins after another one.
    pub fn after(initrd: Vec<u8>) -> Self {
        let mut begun = Self { bytes: initrd, entries: 0 };
        begun.align();
        begun
    }

    /// Adds a directory; what it lies in must be there.
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY, &[]);
    }

    /// Adds a program.
    pub fn program(&mut self, path: &str, data: &[u8]) {
        self.entry(path, PROGRAM, data);
    }

    /// Adds a file.
    pub fn file(&mut self, path: &str, data: &[u8]) {
        self.entry(path, FILE, data);
    }

    /// Both archives, one after the other.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, data: &[u8]) {
        self.entries += 1;
        self.bytes.extend_from_slice(b"070701");
        // Inode, mode, user, group, links, time, length, four numbers of devices, length of the name, checksum (unused).
        let (length, name) = (data.len() as u32, path.len() as u32 + 1);
        for number in [self.entries, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name, 0] {
            self.bytes.extend_from_slice(format!("{number:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(data);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(ALIGNMENT), 0);
    }
}
