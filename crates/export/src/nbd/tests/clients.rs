//! Where the server listens, and to how many.

use super::client::Client;
use super::{start, Bench, SIZE};
use crate::memory_device::Memory;
use crate::nbd::{Address, Server};
use std::fs;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

fn serve_at(path: &Path) -> io::Result<Server> {
    start(&Address::Unix(path.to_owned()), Arc::new(Memory::new(SIZE)), Arc::default(), 4)
}

#[test]
fn more_clients_than_there_may_be_are_turned_away() {
    let bench = Bench::of(Memory::new(SIZE), 3);
    let mut clients: Vec<Client> = vec![bench.client(), bench.simple(), bench.raw()];
    bench.wait_for_clients(3);
    for _ in 0..5 {
        bench.raw().expect_end();
    }
    assert_eq!(bench.server().clients(), 3);
    assert_eq!(clients[0].read(0, 9).data, bench.device.bytes()[..9]);
    clients.remove(1).leave();
    bench.wait_for_clients(2);
    bench.client().leave();
    drop(clients);
    bench.wait_for_clients(0);
    assert_eq!(bench.server().served(), 3, "one was gone before it had agreed on anything");
}

#[test]
fn a_socket_is_taken_over_only_if_nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    // A server was killed.
    drop(UnixListener::bind(&path).unwrap());
    let server = serve_at(&path).unwrap();
    Client::connect(server.address()).greet(true);
    let error = serve_at(&path).err().unwrap();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    Client::connect(server.address()).greet(true);
    server.stop();
    assert!(!path.exists());
    serve_at(&dir.path().join("nowhere/socket")).err().unwrap();
    serve_at(&dir.path().join("x".repeat(200))).err().unwrap();
}

/// A file to which nobody listens was taken for a socket that a server has left behind, and removed: with `--socket` on
/// a disk's image the image was gone.
#[test]
fn a_file_that_is_no_socket_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk.raw");
    fs::write(&path, "precious").unwrap();
    assert_eq!(serve_at(&path).err().unwrap().kind(), io::ErrorKind::AddrInUse);
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(serve_at(&link).is_err());
    assert!(serve_at(dir.path()).is_err());
    assert_eq!(fs::read(&link).unwrap(), b"precious");
}

#[test]
fn the_system_chooses_a_port() {
    let any = Address::Tcp("127.0.0.1:0".parse().unwrap());
    let device = Arc::new(Memory::new(SIZE));
    let server = start(&any, device.clone(), Arc::default(), 4).unwrap();
    let Address::Tcp(address) = server.address().clone() else { panic!("no port") };
    assert_ne!(address.port(), 0);
    assert_eq!(server.address().to_string(), format!("nbd://{address}"));
    let mut client = Client::connect(server.address());
    client.greet(true);
    client.structured();
    client.go("");
    assert!(client.read(0, SIZE as u32).data == device.bytes());
    assert_eq!(
        start(server.address(), device, Arc::default(), 4).err().unwrap().kind(),
        io::ErrorKind::AddrInUse
    );
    client.leave();
    server.stop();
}

/// Paths stood in the URI as they were: one with a blank or a percent sign led clients elsewhere.
#[test]
fn a_uri_leads_to_the_socket_whatever_its_name() {
    let uri = |path: &str| Address::Unix(path.into()).to_string();
    assert_eq!(uri("/run/a-b_c.1~/s"), "nbd+unix:///?socket=/run/a-b_c.1~/s");
    assert_eq!(uri("/a b/100%/x&y#z+é"), "nbd+unix:///?socket=/a%20b/100%25/x%26y%23z%2B%C3%A9");
    let v6 = Address::Tcp("[::1]:10809".parse().unwrap());
    assert_eq!(v6.to_string(), "nbd://[::1]:10809");
}
