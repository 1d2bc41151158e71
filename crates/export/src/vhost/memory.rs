//! The guest's memory, as far as it is shared.

use std::fs::File;
use std::io;
use std::sync::Arc;
use vhost::vhost_user::message::{VhostUserMemoryRegion, VhostUserSingleMemoryRegion};
use vhost::vhost_user::{Error, Result};
use vm_memory::{
    GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryLoadGuard, GuestMemoryMmap,
    GuestRegionMmap,
};

/// Pieces of memory that a client may share; as many as the kernel takes.
pub(super) const REGIONS_MAX: usize = 509;

/// The guest's memory at a moment; it stays mapped as long as this is there.
pub(super) type MemoryGuard = GuestMemoryLoadGuard<GuestMemoryMmap>;

/// The guest's memory, which the client may change.
pub(super) struct Memory {
    now: GuestMemoryAtomic<GuestMemoryMmap>,
}

/// A piece of it, as the client describes it.
struct Region {
    /// Where it is in the client's memory: the addresses of queues are told so.
    at_client: u64,
    /// Where it is for the guest: the addresses in requests are told so.
    at_guest: u64,
    len: u64,
    mapped: Arc<GuestRegionMmap>,
}

/// What the client has shared. Changing it changes [`Memory`].
pub(super) struct Regions {
    memory: Arc<Memory>,
    regions: Vec<Region>,
}

impl Memory {
    /// No memory yet.
    pub fn new() -> Memory {
        Memory { now: GuestMemoryAtomic::new(GuestMemoryMmap::new()) }
    }

    /// The memory as it is now.
    pub fn guard(&self) -> MemoryGuard {
        self.now.memory()
    }
}

impl Regions {
    /// No regions yet.
    pub fn new(memory: Arc<Memory>) -> Regions {
        Regions { memory, regions: Vec::new() }
    }

    /// Replaces all regions.
    pub fn replace(&mut self, regions: &[VhostUserMemoryRegion], files: Vec<File>) -> Result<()> {
        let all = regions.iter().zip(files).map(|(region, file)| map(region, file));
        self.set(all.collect::<Result<_>>()?)
    }

    /// Adds a region.
    pub fn add(&mut self, region: &VhostUserSingleMemoryRegion, file: File) -> Result<()> {
        if self.regions.len() >= REGIONS_MAX {
            return Err(Error::InvalidParam);
        }
        let mut regions = self.kept(|_| true);
        regions.push(map(region, file)?);
        self.set(regions)
    }

    /// Takes a region away.
    pub fn remove(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        let is_it = |r: &Region| r.at_guest == region.guest_phys_addr && r.len == region.memory_size;
        let regions = self.kept(|r| !is_it(r));
        if regions.len() == self.regions.len() {
            return Err(Error::InvalidParam);
        }
        self.set(regions)
    }

    /// The guest's address of an address of the client.
    pub fn guest_address(&self, at_client: u64) -> Result<GuestAddress> {
        let has_it = |r: &&Region| at_client.checked_sub(r.at_client).is_some_and(|offset| offset < r.len);
        let region = self.regions.iter().find(has_it).ok_or(Error::InvalidParam)?;
        Ok(GuestAddress(at_client - region.at_client + region.at_guest))
    }

    fn kept(&self, stays: impl Fn(&Region) -> bool) -> Vec<Region> {
        let kept = self.regions.iter().filter(|r| stays(r));
        kept.map(|r| Region { mapped: Arc::clone(&r.mapped), ..*r }).collect()
    }

    fn set(&mut self, regions: Vec<Region>) -> Result<()> {
        let mut mapped: Vec<_> = regions.iter().map(|r| Arc::clone(&r.mapped)).collect();
        mapped.sort_by_key(|r| vm_memory::GuestMemoryRegion::start_addr(&**r));
        let memory = if mapped.is_empty() {
            GuestMemoryMmap::new()
        } else {
            GuestMemoryMmap::from_arc_regions(mapped).map_err(refused)?
        };
        // The lock is held for this only: a panic of another holder leaves nothing half done.
        self.memory.now.lock().unwrap_or_else(|e| e.into_inner()).replace(memory);
        self.regions = regions;
        Ok(())
    }
}

/// Maps a piece of a file. One that ends before the piece does would end the server, when that is used.
fn map(region: &VhostUserMemoryRegion, file: File) -> Result<Region> {
    let metadata = file.metadata().map_err(Error::ReqHandlerError)?;
    let (from, bytes) = (region.mmap_offset, region.memory_size);
    if !metadata.is_file() || from.checked_add(bytes).is_none_or(|end| end > metadata.len()) {
        return Err(refused(format!(
            "{bytes} bytes of memory from {from} on are not in the file that they were said to be in"
        )));
    }
    let end = region.guest_phys_addr.checked_add(region.memory_size);
    let end = end.and(region.user_addr.checked_add(region.memory_size));
    let at = GuestAddress(region.guest_phys_addr);
    let mapped = GuestRegionMmap::new(region.mmap_region(file)?, at).filter(|_| end.is_some());
    Ok(Region {
        at_client: region.user_addr,
        at_guest: region.guest_phys_addr,
        len: region.memory_size,
        mapped: Arc::new(mapped.ok_or(Error::InvalidParam)?),
    })
}

fn refused(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::ReqHandlerError(io::Error::other(why))
}
