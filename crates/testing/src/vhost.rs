//! A client of vhost-user-blk, as a virtual machine is one: it shares memory, and queues requests there.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{fence, Ordering};

use rustix::fs::{ftruncate, memfd_create, MemfdFlags};
use vhost::vhost_user::message::{VhostUserConfigFlags, VhostUserProtocolFeatures};
use vhost::vhost_user::{Frontend, VhostUserFrontend, VhostUserVirtioFeatures};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, MmapRegion};
use vmm_sys_util::epoll::{ControlOperation, Epoll, EpollEvent, EventSet};
use vmm_sys_util::eventfd::EventFd;

/// Requests that wait in the queue at most.
pub const SLOTS: usize = 64;
/// Room for the data of each.
pub const SLOT_BYTES: usize = 1 << 20;
/// Descriptors: three for each request.
const QUEUE_SIZE: u16 = 256;
const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 16 * QUEUE_SIZE as u64;
const USED: u64 = AVAILABLE + 2 * QUEUE_SIZE as u64 + 8;
/// Heads and states of requests, 32 bytes each.
const HEADS: u64 = 16 << 10;
const DATA: u64 = 64 << 10;
const MEMORY_BYTES: usize = DATA as usize + SLOTS * SLOT_BYTES;
/// Where the guest has its memory, which is not where this process has it.
const GUEST: u64 = 0x10_0000;

/// `VIRTIO_BLK_T_*`
pub mod kind {
    /// Read.
    pub const READ: u32 = 0;
    /// Write.
    pub const WRITE: u32 = 1;
    /// Make durable.
    pub const FLUSH: u32 = 4;
    /// What the disk is called.
    pub const ID: u32 = 8;
    /// Discard ranges.
    pub const DISCARD: u32 = 11;
    /// Zero ranges.
    pub const ZERO: u32 = 13;
}

/// Bits of features.
pub mod feature {
    /// The disk is read-only.
    pub const READ_ONLY: u64 = 1 << 5;
    /// The guest flushes.
    pub const FLUSH: u64 = 1 << 9;
    /// `VIRTIO_F_VERSION_1`
    pub const VERSION_1: u64 = 1 << 32;
    /// Each side says which request it wants to be told of.
    pub const EVENT_INDEX: u64 = 1 << 29;
}

/// A request that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// Its slot.
    pub slot: usize,
    /// 0: fine; 1: an error; 2: not supported. 255 if the server wrote none.
    pub status: u8,
}

/// A guest with one queue.
pub struct Guest {
    front_end: Frontend,
    memory: GuestMemoryMmap,
    /// Where the guest has it.
    base: u64,
    queue: usize,
    kick: EventFd,
    call: EventFd,
    /// Waits for it.
    calls: Epoll,
    /// Features that were agreed on.
    features: u64,
    available: u16,
    /// What it was when the server was told last.
    told: u16,
    used: u16,
}

impl Guest {
    /// Connects, and starts the queue from its beginning. Of the features in `wanted`, and those that are always needed, it
    /// takes what the server has.
    pub fn connect(socket: &Path, wanted: u64) -> io::Result<Guest> {
        let memory = new_memory(GUEST)?;
        Self::connect_with(socket, wanted, memory, (0, 0))
    }

    /// Leaves without a word, as a machine that is cut off, and returns the memory and where the queue stood: for
    /// [`Guest::go_on`].
    pub fn leave(self) -> (GuestMemoryMmap, (u16, u16)) {
        (self.memory, (self.available, self.used))
    }

    /// Connects anew, and goes on with a queue as it was.
    pub fn go_on(socket: &Path, wanted: u64, left: (GuestMemoryMmap, (u16, u16))) -> io::Result<Guest> {
        Self::connect_with(socket, wanted, left.0, left.1)
    }

    /// Connects, and starts two queues, each of which has its own memory and its own side of the connection.
    pub fn connect_with_two(socket: &Path, wanted: u64) -> io::Result<(Guest, Guest)> {
        let (first, second) = (new_memory(GUEST)?, new_memory(2 * GUEST + MEMORY_BYTES as u64)?);
        let front_end = Frontend::connect(socket, 2).map_err(|e| io::Error::other(e.to_string()))?;
        let parts = [first, second];
        let features = Self::agree(&front_end, wanted, &parts)?;
        let [first, second] = parts;
        let second = Self::start(front_end.clone(), 1, features, second, (0, 0))?;
        Ok((Self::start(front_end, 0, features, first, (0, 0))?, second))
    }

    /// Says that there is more memory than there is.
    pub fn connect_with_short_memory(socket: &Path) -> io::Result<Guest> {
        let memory = new_memory(GUEST)?;
        let file =
            memory.iter().next().and_then(|region| region.file_offset()).ok_or(io::ErrorKind::NotFound)?;
        ftruncate(file.file(), MEMORY_BYTES as u64 - 1)?;
        Self::connect_with(socket, 0, memory, (0, 0))
    }

    fn connect_with(
        socket: &Path,
        wanted: u64,
        memory: GuestMemoryMmap,
        place: (u16, u16),
    ) -> io::Result<Guest> {
        let front_end = Frontend::connect(socket, 1).map_err(|e| io::Error::other(e.to_string()))?;
        let parts = [memory];
        let features = Self::agree(&front_end, wanted, &parts)?;
        let [memory] = parts;
        Self::start(front_end, 0, features, memory, place)
    }

    /// Agrees on features, which it returns, and shares memory.
    fn agree(front_end: &Frontend, wanted: u64, memory: &[GuestMemoryMmap]) -> io::Result<u64> {
        let mut front_end = front_end.clone();
        let failed = |e: vhost::Error| io::Error::other(e.to_string());
        front_end.set_owner().map_err(failed)?;
        let offered = front_end.get_features().map_err(failed)?;
        let always = feature::VERSION_1 | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();
        let features = offered & (wanted | always);
        let protocol = front_end.get_protocol_features().map_err(failed)?;
        let ours = VhostUserProtocolFeatures::CONFIG | VhostUserProtocolFeatures::REPLY_ACK;
        front_end.set_protocol_features(protocol & ours).map_err(failed)?;
        front_end.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
        front_end.set_features(features).map_err(failed)?;
        let shared = memory.iter().flat_map(|memory| memory.iter());
        let shared: Result<Vec<_>, _> = shared.map(VhostUserMemoryRegionInfo::from_guest_region).collect();
        front_end.set_mem_table(&shared.map_err(failed)?).map_err(failed)?;
        Ok(features)
    }

    /// Starts a queue where it is.
    fn start(
        mut front_end: Frontend,
        queue: usize,
        features: u64,
        memory: GuestMemoryMmap,
        (available, used): (u16, u16),
    ) -> io::Result<Guest> {
        let failed = |e: vhost::Error| io::Error::other(e.to_string());
        let region = memory.iter().next().ok_or(io::ErrorKind::NotFound)?;
        let base = vm_memory::GuestMemoryRegion::start_addr(region).0;
        let shared = VhostUserMemoryRegionInfo::from_guest_region(region).map_err(failed)?;
        let (kick, call) = (EventFd::new(0)?, EventFd::new(0)?);
        let calls = Epoll::new()?;
        calls.ctl(ControlOperation::Add, call.as_raw_fd(), EpollEvent::new(EventSet::IN, 0))?;
        front_end.set_vring_num(queue, QUEUE_SIZE).map_err(failed)?;
        front_end.set_vring_base(queue, used).map_err(failed)?;
        let at = shared.userspace_addr;
        let addresses = VringConfigData {
            queue_max_size: QUEUE_SIZE,
            queue_size: QUEUE_SIZE,
            flags: 0,
            desc_table_addr: at + DESCRIPTORS,
            used_ring_addr: at + USED,
            avail_ring_addr: at + AVAILABLE,
            log_addr: None,
        };
        front_end.set_vring_addr(queue, &addresses).map_err(failed)?;
        front_end.set_vring_call(queue, &call).map_err(failed)?;
        front_end.set_vring_kick(queue, &kick).map_err(failed)?;
        front_end.set_vring_enable(queue, true).map_err(failed)?;
        Ok(Guest {
            front_end,
            memory,
            base,
            queue,
            kick,
            call,
            calls,
            features,
            available,
            told: available,
            used,
        })
    }

    /// Features that were agreed on.
    pub fn features(&self) -> u64 {
        self.features
    }

    /// A part of the configuration space.
    pub fn config(&mut self, offset: u32, len: usize) -> io::Result<Vec<u8>> {
        let buf = vec![0; len];
        let read = self.front_end.get_config(offset, len as u32, VhostUserConfigFlags::WRITABLE, &buf);
        read.map(|(_, bytes)| bytes).map_err(|e| io::Error::other(e.to_string()))
    }

    /// Stops the queue, and returns which request would be next.
    pub fn stop(&self) -> io::Result<u32> {
        self.front_end.get_vring_base(self.queue).map_err(|e| io::Error::other(e.to_string()))
    }

    /// The guest's memory, to break rules in.
    pub fn memory(&self) -> &GuestMemoryMmap {
        &self.memory
    }

    /// The data of a slot.
    pub fn data(&self, slot: usize, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.memory.read_slice(&mut data, self.data_of(slot)).expect("within the memory");
        data
    }

    /// Fills the start of a slot.
    pub fn put(&self, slot: usize, data: &[u8]) {
        self.memory.write_slice(data, self.data_of(slot)).expect("within the memory");
    }

    /// Queues a request with `len` bytes of the slot, which must be free. The server sees it with the next [`Guest::kick`].
    pub fn submit(&mut self, slot: usize, kind: u32, sector: u64, len: usize) {
        let (first, head) = (slot as u16 * 3, HEADS + slot as u64 * 32);
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        self.memory.write_slice(&header, self.at(head)).expect("within the memory");
        self.memory.write_slice(&[255], self.at(head + 16)).expect("within the memory");
        let is_read = matches!(kind, kind::READ | kind::ID);
        self.describe(first, self.base + head, 16, false, Some(first + 1));
        if len > 0 {
            self.describe(first + 1, self.data_of(slot).0, len as u32, is_read, Some(first + 2));
            self.describe(first + 2, self.base + head + 16, 1, true, None);
        } else {
            self.describe(first + 1, self.base + head + 16, 1, true, None);
        }
        self.offer(first);
    }

    /// Fills in a descriptor: where, how long, whether the server writes, and which is next.
    pub fn describe(&self, index: u16, address: u64, len: u32, is_written: bool, next: Option<u16>) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&address.to_le_bytes());
        bytes[8..12].copy_from_slice(&len.to_le_bytes());
        let flags = u16::from(next.is_some()) | u16::from(is_written) << 1;
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&next.unwrap_or(0).to_le_bytes());
        self.memory
            .write_slice(&bytes, self.at(DESCRIPTORS + 16 * u64::from(index)))
            .expect("within the memory");
    }

    /// Puts a request that begins with a descriptor into the queue.
    pub fn offer(&mut self, first: u16) {
        let place = AVAILABLE + 4 + 2 * u64::from(self.available % QUEUE_SIZE);
        self.memory.write_obj(first.to_le(), self.at(place)).expect("within the memory");
        self.available = self.available.wrapping_add(1);
        self.memory
            .store(self.available.to_le(), self.at(AVAILABLE + 2), Ordering::Release)
            .expect("within the memory");
    }

    /// Tells the server that there are requests, if it wants to be told.
    pub fn kick(&mut self) {
        fence(Ordering::SeqCst);
        let wanted = if self.features & feature::EVENT_INDEX == 0 {
            self.load(USED) & 1 == 0
        } else {
            // Which request it wants to be told of: is it among those that it was not told of?
            let event = self.load(USED + 4 + 8 * u64::from(QUEUE_SIZE));
            self.available.wrapping_sub(event).wrapping_sub(1) < self.available.wrapping_sub(self.told)
        };
        self.told = self.available;
        if wanted {
            self.kick.write(1).expect("an eventfd takes a number");
        }
    }

    /// A request that is done; waits for one.
    pub fn wait(&mut self) -> Done {
        loop {
            if let Some(done) = self.poll() {
                return done;
            }
            // The server tells of the next one that it does from here on.
            let event = AVAILABLE + 4 + 2 * u64::from(QUEUE_SIZE);
            self.memory.write_obj(self.used.to_le(), self.at(event)).expect("within the memory");
            fence(Ordering::SeqCst);
            if self.load(USED + 2) == self.used {
                self.wait_for_call();
            }
        }
    }

    fn wait_for_call(&self) {
        // Some servers make it so that reading does not wait, for both.
        while let Err(e) = self.call.read() {
            assert_eq!(e.kind(), io::ErrorKind::WouldBlock, "reading an eventfd");
            // Interrupted: the next round waits again.
            let _ = self.calls.wait(-1, &mut [EpollEvent::default()]);
        }
    }

    /// A request that is done, if there is one.
    pub fn poll(&mut self) -> Option<Done> {
        if self.load(USED + 2) == self.used {
            return None;
        }
        let place = USED + 4 + 8 * u64::from(self.used % QUEUE_SIZE);
        let first: u32 = self.memory.read_obj(self.at(place)).expect("within the memory");
        self.used = self.used.wrapping_add(1);
        let slot = (u32::from_le(first) / 3) as usize;
        let status = self.memory.read_obj(self.at(HEADS + slot as u64 * 32 + 16)).expect("within the memory");
        Some(Done { slot, status })
    }

    /// One request in slot 0, from its beginning to its end. Returns its status.
    pub fn ask(&mut self, kind: u32, sector: u64, len: usize) -> u8 {
        self.submit(0, kind, sector, len);
        self.kick();
        self.wait().status
    }

    fn at(&self, place: u64) -> GuestAddress {
        GuestAddress(self.base + place)
    }

    fn data_of(&self, slot: usize) -> GuestAddress {
        self.at(DATA + (slot * SLOT_BYTES) as u64)
    }

    fn load(&self, place: u64) -> u16 {
        u16::from_le(self.memory.load(self.at(place), Ordering::Acquire).expect("within the memory"))
    }
}

fn new_memory(at: u64) -> io::Result<GuestMemoryMmap> {
    let file: File = memfd_create("guest", MemfdFlags::CLOEXEC)?.into();
    ftruncate(&file, MEMORY_BYTES as u64)?;
    let region = MmapRegion::from_file(FileOffset::new(file, 0), MEMORY_BYTES).map_err(io::Error::other)?;
    let region =
        vm_memory::GuestRegionMmap::new(region, GuestAddress(at)).ok_or(io::ErrorKind::InvalidInput)?;
    GuestMemoryMmap::from_regions(vec![region]).map_err(io::Error::other)
}
