//! Why a request is not carried out: a rule of POSIX, or a fault.

use std::io;

use rustix::io::Errno;

use crate::error::PoolError;

/// The result of a request.
pub(super) type Answer<T> = std::result::Result<T, Refusal>;

/// What a request ends with.
#[derive(Debug)]
pub(super) enum Refusal {
    /// What POSIX says of such requests.
    Errno(Errno),
    /// The pool cannot do it.
    Pool(PoolError),
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Refusal::Errno(errno)
    }
}

impl From<PoolError> for Refusal {
    fn from(error: PoolError) -> Self {
        Refusal::Pool(error)
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Errno(errno) => errno.into(),
            // The file system was full, which is no fault: the caller learns it.
            Refusal::Pool(PoolError::Full | PoolError::CatalogFull) => Errno::NOSPC.into(),
            Refusal::Pool(error) => error.into(),
        }
    }
}
