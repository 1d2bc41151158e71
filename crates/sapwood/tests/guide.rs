//! The commands of the README and of the user's guide do what these say: they are run in their order, with their paths in
//! a directory of the test.
#![allow(clippy::unwrap_used)]

mod common;

use common::{qemu_img, random, Bench};
use std::path::Path;
use std::process::{Command, Stdio};

/// The places that the guide uses.
const PLACES: [&str; 4] = ["/srv", "/images", "/mnt/second", "/etc/sapwood"];

/// The blocks that begin with this line, in order.
fn blocks<'a>(text: &'a str, fence: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line == fence {
            let block: Vec<&'a str> = lines.by_ref().take_while(|l| *l != "```").collect();
            all.push(block.join("\n") + "\n");
        }
    }
    all
}

/// A text of the project, by its path.
fn page(path: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap()
}

/// Makes the places, with the images that the pages speak of.
fn places() -> Bench {
    let bench = Bench::bare();
    let root = bench.dir.path().to_str().unwrap();
    for place in PLACES {
        std::fs::create_dir_all(format!("{root}{place}")).unwrap();
    }
    // A disk with a file system, so that there are files to list.
    let raw = bench.file("raw", &vec![0; 64 << 20]);
    assert!(Command::new("mkfs.ext4").args(["-q", "-F", &raw]).status().unwrap().success());
    for (n, name) in ["web01", "mail", "db01"].into_iter().enumerate() {
        let mut disk = std::fs::read(&raw).unwrap();
        disk[40 << 20..41 << 20].copy_from_slice(&random(1 << 20, n as u64));
        let image = format!("{root}/images/{name}.qcow2");
        qemu_img(&["convert", "-f", "raw", "-O", "qcow2", &bench.file("disk", &disk), &image]);
    }
    std::fs::rename(bench.path("disk"), format!("{root}/images/db01.raw")).unwrap();
    bench
}

/// Runs the commands of a page, and returns what they printed.
fn run(bench: &Bench, page: &str, commands_min: usize) -> String {
    let mut script = blocks(page, "```sh").concat();
    let commands = script.lines().filter(|l| l.contains("sapwood ")).count();
    assert!(commands >= commands_min, "only {commands} commands were found");
    let root = bench.dir.path().to_str().unwrap();
    for place in PLACES {
        script = script.replace(&format!("{place}/"), &format!("{root}{place}/"));
    }
    let binary = Path::new(env!("CARGO_BIN_EXE_sapwood")).parent().unwrap();
    let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap());
    let ran = Command::new("bash")
        .args(["-euxo", "pipefail", "-c", &script])
        .env("PATH", path)
        .env_remove("SAPWOOD_CONFIG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "{out}\n{err}");
    out.into_owned()
}

#[test]
fn the_readmes_quick_start_works_as_printed() {
    let bench = places();
    run(&bench, &page("README.md"), 5);
    let image = |name: &str| format!("{}/images/{name}.qcow2", bench.dir.path().display());
    qemu_img(&["compare", "-q", &image("web01"), &image("restored")]);
}

#[test]
fn the_guide_works_as_printed() {
    let bench = places();
    let root = bench.dir.path().to_str().unwrap();
    let packed = Command::new("gzip").arg("-1").arg(format!("{root}/images/db01.raw")).status().unwrap();
    assert!(packed.success());
    let out = run(&bench, &page("docs/guide.md"), 20);
    let restored = |name: &str| std::fs::read(format!("{root}/images/{name}")).unwrap();
    let web01 = format!("{root}/images/web01.qcow2");
    qemu_img(&["compare", "-q", &web01, &format!("{root}/images/web01-restored.qcow2")]);
    assert!(restored("web01-before.raw") == restored("web01-piped.raw"));
    assert!(out.contains("snapshots copied") && out.contains("OK"), "{out}");
}
