//! OpenStack Glance with its images on a pool's mount, beside ext4 on an equal disk (LiveDFS 2011, section 4.2).

pub mod insert;
mod service;
pub mod start_up;
