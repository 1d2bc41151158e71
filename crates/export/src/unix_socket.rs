//! Unix sockets that servers listen on.

use rustix::fs::{fchmod, Mode};
use rustix::net::{self, bind, socket_with, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// Makes a socket that only its owner may use, from the first moment.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Linux gives the permissions of the open socket, less the umask, to the file that binding makes.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

/// Clients that wait to be accepted; as many as the standard library lets wait.
const BACKLOG: i32 = 128;

/// Binds to a path; a socket that a dead server has left there is removed.
pub(crate) fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match bind_private(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            // Connecting to any other kind of file is refused, too.
            let is_socket = std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
            let refused = UnixStream::connect(path).err().map(|e| e.kind());
            if !is_socket || refused != Some(io::ErrorKind::ConnectionRefused) {
                return Err(e);
            }
            std::fs::remove_file(path)?;
            bind_private(path)
        }
        other => other,
    }
}
