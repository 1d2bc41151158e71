//! What a client says of its memory and its queues.

use super::config::{config, features, QUEUES_MAX};
use super::memory::{Regions, REGIONS_MAX};
use super::permission::Permission;
use super::ring::{Addresses, Ring};
use super::rings::Rings;
use std::fs::File;
use std::io;
use std::sync::Arc;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight,
    VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut, VhostUserVirtioFeatures};
use vhost::VhostUserMemoryRegionBase;

/// A client.
pub(super) struct Session {
    rings: Arc<Rings>,
    regions: Regions,
    /// Queues that were in use before may go on.
    may_go_on: Arc<Permission>,
    /// Queues have started, all of them from the beginning.
    has_begun_anew: Option<bool>,
}

impl Session {
    /// A client of which nothing is known yet. Queues that were in use before may go on only if `may_go_on`, which becomes
    /// true when a client stops or leaves all of whose queues have started from the beginning.
    pub fn new(rings: Arc<Rings>, may_go_on: Arc<Permission>) -> Session {
        let regions = Regions::new(Arc::clone(rings.memory()));
        Session { rings, regions, may_go_on, has_begun_anew: None }
    }

    fn ring(&self, index: u32) -> Result<&Ring> {
        self.rings.ring(index as usize).ok_or(Error::InvalidParam)
    }

    /// Whether a queue may start where it is.
    fn check_start(&mut self, index: u32) -> Result<()> {
        let is_new = !self.ring(index)?.has_begun(self.rings.memory());
        self.has_begun_anew = Some(is_new && self.has_begun_anew != Some(false));
        if is_new || self.may_go_on.is_given() {
            return Ok(());
        }
        Err(Error::ReqHandlerError(io::Error::other(
            "the pool was not closed, so what the guest had not flushed is lost: restart the machine",
        )))
    }

    /// A guest whose queues have all started from the beginning, since the server runs, may go on where they are now. Queues start
    /// one after the other: with the first one alone it cannot be told.
    fn note_what_began(&self) {
        if self.rings.is_uncertain() {
            self.may_go_on.take_back();
        } else if self.has_begun_anew == Some(true) {
            self.may_go_on.give();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.note_what_began();
    }
}

fn not_supported<T>(what: &'static str) -> Result<T> {
    Err(Error::InvalidOperation(what))
}

impl VhostUserBackendReqHandlerMut for Session {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.reset_device()
    }

    fn reset_device(&mut self) -> Result<()> {
        for (index, ring) in self.rings.all().iter().enumerate() {
            ring.enable(false);
            self.rings.stop(index);
        }
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(features(self.rings.device()))
    }

    fn set_features(&mut self, agreed: u64) -> Result<()> {
        if agreed & !features(self.rings.device()) != 0 {
            return Err(Error::InvalidParam);
        }
        self.rings.agree(agreed);
        // Who cannot enable queues one by one has them all enabled.
        if agreed & VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits() == 0 {
            for (index, ring) in self.rings.all().iter().enumerate() {
                ring.enable(true);
                self.rings.look(index);
            }
        }
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
            | VhostUserProtocolFeatures::RESET_DEVICE
            | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS)
    }

    fn set_protocol_features(&mut self, _features: u64) -> Result<()> {
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(QUEUES_MAX as u64)
    }

    fn get_config(&mut self, offset: u32, size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        Ok(config(self.rings.device(), offset, size))
    }

    fn set_config(&mut self, _offset: u32, _buf: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        not_supported("nothing of the configuration can be changed")
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        self.regions.replace(regions, files)?;
        Ok(None)
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Ok(REGIONS_MAX as u64)
    }

    fn add_mem_region(
        &mut self,
        region: &VhostUserSingleMemoryRegion,
        file: File,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        self.regions.add(region, file)?;
        Ok(None)
    }

    fn remove_mem_region(&mut self, region: &VhostUserSingleMemoryRegion) -> Result<()> {
        self.regions.remove(region)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        self.ring(index)?.set_size(size).map_err(|_| Error::InvalidParam)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let addresses = Addresses {
            descriptors: self.regions.guest_address(descriptor)?,
            available: self.regions.guest_address(available)?,
            used: self.regions.guest_address(used)?,
        };
        let set = self.ring(index)?.set_addresses(self.rings.memory(), &addresses);
        set.map_err(|_| Error::InvalidParam)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let next = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.ring(index)?.set_next(next);
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let next = self.rings.stop(index as usize).ok_or(Error::InvalidParam)?;
        self.note_what_began();
        Ok(VhostUserVringState::new(index, u32::from(next)))
    }

    fn set_vring_kick(&mut self, index: u8, kick: Option<File>) -> Result<()> {
        self.check_start(index.into())?;
        let kick = kick.ok_or(Error::InvalidOperation("a queue must kick"))?;
        self.rings.start(index.into(), kick).map_err(Error::ReqHandlerError)
    }

    fn set_vring_call(&mut self, index: u8, call: Option<File>) -> Result<()> {
        if let Some(call) = &call {
            // The client may have filled it: a write must not wait.
            rustix::io::ioctl_fionbio(call, true).map_err(|e| Error::ReqHandlerError(e.into()))?;
        }
        self.ring(index.into())?.set_call(call);
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _file: Option<File>) -> Result<()> {
        self.ring(index.into()).map(drop)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.enable(enable);
        self.rings.look(index as usize);
        Ok(())
    }

    fn set_gpu_socket(&mut self, _gpu_backend: GpuBackend) -> Result<()> {
        not_supported("this is a disk")
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        not_supported("nothing is shared with others")
    }

    fn get_inflight_fd(&mut self, _inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        not_supported("requests in hand are not kept")
    }

    fn set_inflight_fd(&mut self, _inflight: &VhostUserInflight, _file: File) -> Result<()> {
        not_supported("requests in hand are not kept")
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        not_supported("there is no state to move")
    }

    fn check_device_state(&mut self) -> Result<()> {
        not_supported("there is no state to move")
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        not_supported("the server shares no memory")
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        not_supported("a machine with this disk cannot move to another host")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::memory_device::Memory;

    /// A guest may have used its second queue only: that the first one begins from the start says nothing.
    #[test]
    fn a_new_queue_beside_one_that_was_in_use_proves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let rings =
            || Arc::new(Rings::new(Arc::new(Memory::new(4096)), "a".into(), Box::new(|_| ())).unwrap());
        let may_go_on = Arc::new(Permission::new(dir.path().join("began"), "one"));
        for _ in 0..2 {
            let mut session = Session::new(rings(), Arc::clone(&may_go_on));
            session.check_start(0).unwrap();
            session.ring(1).unwrap().set_next(5);
            assert!(session.check_start(1).is_err());
            drop(session);
            assert!(!may_go_on.is_given());
        }
        // All of them anew: it may go on from then on.
        let mut session = Session::new(rings(), Arc::clone(&may_go_on));
        session.check_start(0).unwrap();
        session.check_start(1).unwrap();
        drop(session);
        // Also with a later server, unless something was lost in between.
        for (lineage, is_fine) in [("one", true), ("two", false)] {
            let may_go_on = Arc::new(Permission::new(dir.path().join("began"), lineage));
            let mut session = Session::new(rings(), may_go_on);
            session.ring(1).unwrap().set_next(5);
            assert_eq!(session.check_start(1).is_ok(), is_fine);
        }
    }
}
