//! What `--json` prints is what docs/json.md says: names of fields, and their types. One name has one kind of value in all
//! commands, and one form.
//!
//! `SAPWOOD_BLESS=1` writes the page's blocks anew.

use crate::common;
use crate::common::mounted::{is_mounted, until};
use crate::common::qemu::Machine;
use crate::common::{files_below, qemu_img, random, Bench, Child, DAMAGED, DONE, FAILED, USAGE};
use rustix::process::Signal;
use serde_json::{json, Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Fields that are null where all is well, and what they are otherwise.
const OTHERWISE: [(&str, &str); 7] = [
    ("bytes", "number"),
    ("consistency", "text"),
    ("error", "text"),
    ("held_up", "text"),
    ("not_frozen", "text"),
    ("overdue_since", "number"),
    ("why", "text"),
];

/// What `status` ends with where something is damaged.
const DAMAGED_STATUS: i32 = 2;

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md")
}

/// A value with each text, number and so on replaced by its type; of a list's elements, what all of them have together.
fn shape(value: &Value) -> Value {
    match value {
        Value::Null => json!("null"),
        Value::Bool(_) => json!("true or false"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("text"),
        Value::Array(all) => Value::Array(all.iter().map(shape).reduce(joined).into_iter().collect()),
        Value::Object(fields) if is_by_name(fields) => {
            let all = fields.values().map(shape).reduce(joined).unwrap_or(json!("text"));
            json!({ "NAME": all })
        }
        Value::Object(fields) => {
            // In alphabetical order.
            let sorted: BTreeMap<String, Value> =
                fields.iter().map(|(k, v)| (k.clone(), field(k, v))).collect();
            Value::Object(sorted.into_iter().collect())
        }
    }
}

/// The shape of a field.
fn field(name: &str, value: &Value) -> Value {
    match OTHERWISE.iter().find(|(field, _)| *field == name) {
        Some((_, kind)) if value.is_null() => json!(format!("{kind} or null")),
        _ => shape(value),
    }
}

/// Whether the keys are names that users gave, of tags.
fn is_by_name(fields: &Map<String, Value>) -> bool {
    fields.keys().any(|key| ["source-format", "copied-from", "for"].contains(&key.as_str()))
        || fields.is_empty()
}

/// What two shapes have together.
fn joined(a: Value, b: Value) -> Value {
    match (a, b) {
        (a, b) if a == b => a,
        (Value::Object(mut a), Value::Object(b)) => {
            for (key, value) in b {
                let both = match a.remove(&key) {
                    Some(other) => joined(other, value),
                    None => value,
                };
                a.insert(key, both);
            }
            let sorted: BTreeMap<String, Value> = a.into_iter().collect();
            Value::Object(sorted.into_iter().collect())
        }
        (Value::Array(a), Value::Array(b)) => {
            Value::Array(a.into_iter().chain(b).reduce(joined).into_iter().collect())
        }
        (a, b) if a == "null" => or_null(b),
        (a, b) if b == "null" => or_null(a),
        (Value::String(a), Value::String(b)) if bare(&a) == bare(&b) => {
            json!(format!("{} or null", bare(&a)))
        }
        (a, b) => panic!("{a} and {b} are elements of one list"),
    }
}

/// A type without its ` or null`.
fn bare(kind: &str) -> &str {
    kind.trim_end_matches(" or null")
}

fn or_null(shape: Value) -> Value {
    match shape {
        Value::String(kind) => json!(format!("{} or null", bare(&kind))),
        shape => shape,
    }
}

/// All fields of all commands by name.
#[derive(Default)]
struct Fields {
    /// The type of each, and where it was first.
    seen: BTreeMap<String, (String, String)>,
    /// Those that have another type elsewhere.
    wrong: BTreeSet<String>,
}

impl Fields {
    /// Adds what a command prints.
    fn add(&mut self, title: &str, shape: &Value) {
        match shape {
            Value::Object(fields) => {
                for (name, value) in fields.iter().filter(|(name, _)| *name != "NAME") {
                    self.add_field(title, name, value);
                    self.add(title, value);
                }
            }
            Value::Array(all) => all.iter().for_each(|value| self.add(title, value)),
            _ => {}
        }
    }

    fn add_field(&mut self, title: &str, name: &str, value: &Value) {
        let kind = kind_of(value);
        let (known, first) = self.seen.entry(name.to_owned()).or_insert((kind.clone(), title.to_owned()));
        match same_kind(known, &kind) {
            Some(both) => *known = both,
            None => drop(self.wrong.insert(format!("{name}: {known} in {first}, {kind} in {title}"))),
        }
    }
}

/// The type of a field: of a list, with that of its elements; of an object, with the names of its fields.
fn kind_of(shape: &Value) -> String {
    match shape {
        Value::String(kind) => bare(kind).to_owned(),
        Value::Array(all) => match all.first() {
            None => "list of null".to_owned(),
            // Lists of one name may say more or less of their elements.
            Some(Value::Object(_)) => "list of objects".to_owned(),
            Some(element) => format!("list of {}", kind_of(element)),
        },
        Value::Object(fields) => {
            format!("object of {}", fields.keys().map(String::as_str).collect::<Vec<_>>().join(", "))
        }
        _ => unreachable!("a shape has no values"),
    }
}

/// What both types are, where one may be null or a list without elements.
fn same_kind(a: &str, b: &str) -> Option<String> {
    let is_part =
        |a: &str, b: &str| a == b || a == "null" || (a == "list of null" && b.starts_with("list of "));
    if is_part(a, b) {
        return Some(b.to_owned());
    }
    is_part(b, a).then(|| a.to_owned())
}

/// A snapshot is told as its id, beside its disk.
fn check_snapshots(title: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(id)) = fields.get("snapshot") {
                let is_id = id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
                assert!(is_id, "{title}: the snapshot is {id}");
            }
            fields.values().for_each(|v| check_snapshots(title, v));
        }
        Value::Array(all) => all.iter().for_each(|v| check_snapshots(title, v)),
        _ => {}
    }
}

/// The page with the blocks replaced below the headings of these titles.
fn with_blocks(text: &str, blocks: &[(String, Value)]) -> String {
    let mut parts = text.split("\n### ");
    let mut written = parts.next().unwrap().to_owned();
    let mut titles = Vec::new();
    for part in parts {
        let (title, rest) = part.split_once('\n').unwrap();
        let title = title.trim_matches('`');
        titles.push(title.to_owned());
        let (_, shape) =
            blocks.iter().find(|(t, _)| t == title).unwrap_or_else(|| panic!("{title}: nothing was run"));
        let (before, block) = rest.split_once("```json\n").unwrap_or((rest, "```\n"));
        let (_, after) = block.split_once("```\n").unwrap();
        let shape = serde_json::to_string_pretty(shape).unwrap();
        written += &format!("\n### `{title}`\n{before}```json\n{shape}\n```\n{after}");
    }
    for (title, _) in blocks {
        assert!(titles.contains(title), "the page says nothing of {title}");
    }
    written
}

/// Commands that print no object: text for shells, and help.
const WITHOUT_OBJECT: [&str; 2] = ["completions", "help"];

/// Every command that the help lists was run.
fn check_that_all_are_there(bench: &Bench, blocks: &[(String, Value)]) {
    let help = String::from_utf8(bench.done(&["--help"]).stdout).unwrap();
    let groups = help.split("Options:").next().unwrap();
    let listed = groups.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let commands: Vec<&str> = listed.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 20, "{help}");
    for command in commands.into_iter().filter(|c| !WITHOUT_OBJECT.contains(c)) {
        let is_there = blocks.iter().any(|(title, _)| title.split(' ').next() == Some(command));
        assert!(is_there, "{command}: was not run");
    }
}

/// What commands print of a vault in which an object is damaged, and a snapshot is held for an overlay.
fn damaged(bench: &Bench, add: &mut impl FnMut(&str, &Value)) {
    let vault = Bench::new("balanced");
    let image = bench.arg("disk");
    vault.done(&["-q", "backup", "web01/vda", &image]);
    vault.done(&["-q", "backup", "web02/vda", &image]);
    let overlay = vault.arg("overlay");
    let mut run = |title: &str, args: &[&str], code: i32| {
        println!("{title}, damaged");
        let ended = vault.run(&[&["--json"][..], args].concat());
        assert_eq!(ended.code(), Some(code), "{ended}");
        add(title, &ended.json());
    };
    run("nbd", &["nbd", "web01/vda", "--overlay", &overlay, "--", "true"], DONE);
    let object = &vault.data_objects()[0];
    let mut bytes = std::fs::read(object).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(object, bytes).unwrap();
    run("verify", &["verify", "--data"], DAMAGED);
    run("repair", &["repair", "--data"], DAMAGED);
    run("stats", &["stats"], DONE);
    run("status", &["status"], DAMAGED_STATUS);
    let manifest =
        files_below(&vault.store.join("objects/disks")).into_iter().find(|f| f.ends_with("manifest"));
    std::fs::write(manifest.unwrap(), b"x").unwrap();
    run("stats", &["stats"], DAMAGED);
    run("popular status", &["popular", "status"], DAMAGED);
    run("retain", &["retain", "--all", "--last", "1"], DAMAGED);
}

/// What a pool's server prints, with volumes over NBD, for machines, and with files.
fn served(bench: &Bench, pool: &str, add: &mut impl FnMut(&str, &Value)) {
    let (socket, files) = (bench.path("pool.socket"), bench.path("pool-files"));
    std::fs::create_dir(&files).unwrap();
    let mut serve = |option: &str, place: &Path, is_up: &dyn Fn() -> bool| {
        println!("pool serve {option}");
        let args = ["--json", "pool", "serve", pool, option, place.to_str().unwrap()];
        let server = Child::start(bench.command(&args), "pool serve");
        until("serving the pool", is_up);
        server.signal(Signal::TERM);
        let ended = server.wait();
        ended.expect_done();
        add("pool serve", &ended.json());
    };
    serve("--nbd", &socket, &|| socket.exists());
    let machines = bench.path("pool-machines");
    serve("--vhost", &machines, &|| machines.is_dir());
    serve("--mount", &files, &|| is_mounted(&files));
}

#[test]
fn every_command_prints_what_the_page_says() {
    let bench = Bench::bare();
    let mut blocks: Vec<(String, Value)> = Vec::new();
    // A command that is run twice shows what both have together.
    let mut add = |title: &str, value: &Value| {
        check_snapshots(title, value);
        match blocks.iter_mut().find(|(t, _)| t == title) {
            Some((_, known)) => *known = joined(known.take(), shape(value)),
            None => blocks.push((title.to_owned(), shape(value))),
        }
    };
    let mut run = |title: &str, args: &[&str]| {
        println!("{title}");
        let printed = bench.json(args);
        add(title, &printed);
        printed
    };
    run("init", &["init"]);
    // A disk with a file system.
    let image = bench.file("disk", &vec![0; 16 << 20]);
    assert!(Command::new("mkfs.ext4").args(["-q", "-F", &image]).status().unwrap().success());
    run("backup", &["backup", "web01/vda", &image, "--tag", "for=test"]);
    let mut bytes = std::fs::read(&image).unwrap();
    bytes[8 << 20..9 << 20].copy_from_slice(&random(1 << 20, 1));
    let image = bench.file("disk", &bytes);
    run("backup", &["backup", "web01/vda", &image]);
    run("snapshots", &["snapshots"]);
    run("tag", &["tag", "web01/vda@latest", "for=test"]);
    run("hold", &["hold", "web01/vda@latest"]);
    run("release", &["release", "web01/vda@latest"]);
    run("restore", &["restore", "web01/vda", &bench.arg("restored")]);
    run("diff", &["diff", "web01/vda@latest~1", "web01/vda"]);
    run("files", &["files", "web01/vda"]);
    run("files list", &["files", "web01/vda", "list"]);
    run("files get", &["files", "web01/vda", "get", "/lost+found", "--to", &bench.arg("")]);
    run("stats", &["stats"]);
    run("stats DISK", &["stats", "web01/vda"]);
    run("stats --availability", &["stats", "--availability"]);
    run("map", &["map", "web01/vda"]);
    run("study", &["study", &image]);
    run("verify", &["verify", "--data"]);
    run("snapshots", &["snapshots"]);
    // Something that can be healed, so that all fields are there.
    std::fs::remove_file(bench.store.join("objects/vault.copy")).unwrap();
    run("repair", &["repair"]);
    run("popular build", &["popular", "build"]);
    run("popular status", &["popular", "status"]);
    run("reindex", &["reindex"]);
    let second = bench.arg("second");
    assert!(common::sapwood(Path::new(&second), &["-q", "init"]).status().unwrap().success());
    run("copy", &["copy", "--all", "--to", &second]);
    let config = bench.file(
        "sapwood.toml",
        format!(
            "store = '{}'\nstate_dir = '{}'\n[jobs.nightly]\nschedule = 'daily 02:30'\nretain = {{ last = 3 }}\n\
             gc = true\nverify = 'data'\ncopy_to = '{second}'\n[jobs.nightly.disks]\n'web01/vda' = '{image}'\n\
             [jobs.second]\ndisks = 'all'\nstore = '{second}'\nverify = 'metadata'\n",
            bench.store.display(),
            bench.arg("state"),
        )
        .as_bytes(),
    );
    run("config check", &["config", "check", &config]);
    run("run", &["--config", &config, "run"]);
    // A week ago there was nothing.
    let week_ago = json!({ "time": vault::now() - 7 * 86_400, "store": bench.store, "stored_bytes": 0 });
    std::fs::write(bench.path("state/vault-sizes.jsonl"), format!("{week_ago}\n")).unwrap();
    run("status", &["--config", &config, "status"]);
    let mtar = bench.arg("a.mtar");
    run("mtar migrate", &["mtar", "migrate", &image, &mtar]);
    run("mtar restore", &["mtar", "restore", &mtar, &bench.arg("a.tar")]);
    let mzip = bench.arg("a.mz");
    run("mzip", &["mzip", &image, "-o", &mzip]);
    run("munzip", &["munzip", &mzip, "-o", &bench.arg("a.raw")]);
    run("munzip --list", &["munzip", "--list", &mzip]);
    run("retain", &["retain", "web01/vda", "--last", "1"]);
    qemu_img(&["create", "-q", "-f", "qcow2", &bench.arg("other.qcow2"), "16M"]);
    run("rename", &["rename", "web01/vda", "www/vda"]);
    bench.json(&["backup", "www/vda", &image]);
    run("delete", &["delete", "www/vda@latest~1"]);
    run("compact", &["compact"]);
    run("gc", &["gc"]);
    run("nbd", &["nbd", "www/vda", "--", "true"]);
    std::fs::create_dir(bench.path("mounted")).unwrap();
    run("mount", &["mount", &bench.arg("mounted"), "--", "true"]);
    run("remove", &["remove", "www/vda", "--yes"]);
    // A whole machine, and a disk that is in use while it comes.
    let of_machine = bench.file("machine.raw", &random(1 << 20, 9));
    let mut machine = Machine::start(&bench, &of_machine, "raw", Vec::new());
    run("backup VM", &["backup", "vm", &format!("qmp:{}", bench.arg("qmp.sock"))]);
    machine.kill();
    run("restore VM --to", &["restore", "vm", "--to", &bench.arg("machine")]);
    run("restore --live", &["-q", "restore", "vm/vd0", &bench.arg("live"), "--live", "--", "true"]);
    let pool = bench.arg("pool");
    let volume = |args: &[&str]| -> Vec<String> {
        ["volume", "--pool", &pool].iter().chain(args).map(|s| s.to_string()).collect()
    };
    run("pool create", &["pool", "create", &pool, "--size", "256MiB"]);
    for (title, args) in [
        ("volume create", &["create", "a", "--size", "10MiB"][..]),
        ("volume snapshot", &["snapshot", "a@monday"]),
        ("volume clone", &["clone", "a@monday", "b"]),
        ("volume create", &["create", "c", "--from", "vm/vd0"]),
        ("volume resize", &["resize", "b", "20MiB"]),
        ("volume share", &["share", "b", "background"]),
        ("volume list", &["list"]),
        ("volume delete", &["delete", "b"]),
    ] {
        let args = volume(args);
        run(title, &args.iter().map(String::as_str).collect::<Vec<_>>());
    }
    run("pool stats", &["pool", "stats", &pool]);
    run("pool check", &["pool", "check", &pool]);
    served(&bench, &pool, &mut add);
    // Where something is damaged, held or left out.
    damaged(&bench, &mut add);
    // Errors, too.
    let failed = bench.run(&["--json", "restore", "none/vda", &bench.arg("none")]);
    assert_eq!(failed.code(), Some(FAILED));
    let said = failed.json();
    assert_eq!(said["exit_code"], FAILED);
    add("errors", &said);
    let wrong = bench.run(&["--json", "backup", "no-disk", &image]);
    assert_eq!((wrong.code(), wrong.json()["exit_code"].as_i64()), (Some(USAGE), Some(USAGE.into())));
    let unknown = bench.run(&["--json", "backup"]);
    assert!(unknown.json()["error"].as_str().unwrap().contains("<DISK>"), "{unknown}");
    // Where the bytes of a disk were to come nothing else does.
    assert!(bench.run(&["--json", "restore", "none/vda", "-"]).stdout.is_empty());

    check_that_all_are_there(&bench, &blocks);
    let mut fields = Fields::default();
    blocks.iter().for_each(|(title, shape)| fields.add(title, shape));
    let wrong: Vec<String> = fields.wrong.into_iter().collect();
    assert!(wrong.is_empty(), "one name, several types:\n{}", wrong.join("\n"));
    let text = std::fs::read_to_string(page()).unwrap();
    let wanted = with_blocks(&text, &blocks);
    if std::env::var_os("SAPWOOD_BLESS").is_some() {
        std::fs::write(page(), wanted).unwrap();
    } else {
        assert!(
            text == wanted,
            "docs/json.md is outdated: SAPWOOD_BLESS=1 writes it anew; it would be:\n{wanted}"
        );
    }
}
