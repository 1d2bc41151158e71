//! Backups of NBD exports, and of what their dirty bitmaps name, from a real `qemu-nbd`.

use crate::common::{qemu_img, qemu_io, Bench, FAILED, REFUSED, USAGE};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// A `qemu-nbd` that ends with the test.
struct Export(Child);

impl Export {
    /// Exports an image read-only on a socket, with a bitmap if one is named.
    fn of(image: &str, socket: &Path, bitmap: Option<&str>) -> Self {
        let mut command = Command::new("qemu-nbd");
        command.args(["--read-only", "--persistent", "--shared=4", "--format=qcow2", "--export-name=vda"]);
        command.arg("--socket").arg(socket);
        command.args(bitmap.map(|b| format!("--bitmap={b}")));
        let export = Export(command.arg(image).spawn().unwrap());
        let start = Instant::now();
        while !socket.exists() {
            assert!(start.elapsed() < Duration::from_secs(20), "qemu-nbd does not come up");
            std::thread::sleep(Duration::from_millis(10));
        }
        export
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn exports_are_read_and_bitmaps_say_what_changed() {
    let bench = Bench::new("balanced");
    let image = bench.arg("disk.qcow2");
    qemu_img(&["create", "-q", "-f", "qcow2", &image, "300M"]);
    qemu_io(&image, "write -q -P 1 1M 9M");
    qemu_io(&image, "write -q -P 2 200M 5M");
    let socket = bench.path("socket");
    let uri = format!("nbd+unix:///vda?socket={}", socket.display());
    let raw = || {
        qemu_img(&["convert", "-O", "raw", &image, &bench.arg("raw")]);
        std::fs::read(bench.path("raw")).unwrap()
    };

    let export = Export::of(&image, &socket, None);
    let first = bench.json(&["backup", "vm/vda", &uri]);
    assert_eq!((&first["source_format"], &first["scan"]["kind"]), (&"nbd".into(), &"whole".into()));
    assert_eq!(first["size"], 300 << 20);
    assert_eq!(first["data_bytes"], 14 << 20, "zeros are not read");
    assert!(bench.restored("vm/vda@latest") == raw());
    let since = first["snapshot"].as_str().unwrap();
    bench.fails(
        &["backup", "vm/vda", &uri, "--since", since, "--bitmap", "b0"],
        REFUSED,
        &["no dirty bitmap \"b0\""],
    );
    let elsewhere = uri.replace("/vda", "/vdb");
    bench.fails(&["backup", "vm/vda", &elsewhere], REFUSED, &["vdb"]);
    assert_eq!(bench.run(&["backup", "vm/vda", &uri, "--bitmap", "b0"]).code(), Some(USAGE));
    drop(export);
    std::fs::remove_file(&socket).ok();
    bench.fails(&["backup", "vm/vda", &uri], FAILED, &["cannot connect"]);

    qemu_img(&["bitmap", "--add", &image, "b0"]);
    qemu_io(&image, "write -q -P 3 8M 4k");
    qemu_io(&image, "write -q -P 4 100M 100k");
    qemu_io(&image, "write -q -z 200M 1M");
    let export = Export::of(&image, &socket, Some("b0"));
    let second = bench.json(&["backup", "vm/vda", &uri, "--since", since, "--bitmap", "b0"]);
    assert_eq!(
        second["scan"],
        serde_json::json!({ "kind": "changed", "bytes": 12 << 20, "why": null }),
        "three segments"
    );
    assert!(bench.restored("vm/vda@latest") == raw());
    // The bitmap is older than the newest snapshot by now.
    let third = bench.json(&["backup", "vm/vda", &uri, "--since", since, "--bitmap", "b0"]);
    assert_eq!(third["scan"]["kind"], "whole");
    assert_eq!(third["new_bytes"], 0);
    drop(export);
}
