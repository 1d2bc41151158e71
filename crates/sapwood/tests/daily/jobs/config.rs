//! The configuration file: what is right, what is wrong, and the words for it.

use super::*;
use crate::common::{DONE, USAGE};

#[test]
fn a_check_lists_the_jobs_and_when_they_are_due() {
    let jobs = Jobs::new(
        r#"
[defaults]
zone = "Europe/Berlin"
[jobs.web]
schedule = "daily 02:30"
disks = { "web01/vda" = "DIR/a.raw", wiki = "libvirt:wiki" }
[jobs.by-hand]
disks = { "db/vda" = { source = "nbd://db/vda" } }
"#,
    );
    let said = jobs.done(&["config", "check"]);
    for words in ["web ", "daily 02:30", "T02:30:00+0", "by-hand", "only by name", "no errors, 2 jobs"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let json = jobs.json(&["config", "check"]);
    let web = &json["jobs"][1];
    assert_eq!((web["job"].as_str(), web["disks"].as_array().unwrap().len()), (Some("web"), 2));
    let wait = web["next_due"].as_i64().unwrap() - now();
    assert!((0..=25 * 3600).contains(&wait), "{wait}");
    assert!(json["jobs"][0]["next_due"].is_null());
    // A time limit of the defaults is for those jobs that compress again.
    let limited = "[defaults]\nrecompress_for = '2h'\n[jobs.a]\ndisks = { 'a/b' = '/x' }\n[jobs.b]\nrecompress = 9\ndisks = { 'b/b' = '/x' }\n";
    let limited = jobs.bench.file("limited.toml", limited.as_bytes());
    assert!(jobs.done(&["config", "check", &limited]).contains("no errors, 2 jobs"));
    // The file may also be named.
    let other = jobs.bench.file("other.toml", b"");
    assert!(jobs.done(&["config", "check", &other]).contains("no errors, 0 jobs"));
}

/// Each text, and what the error names: line, key, and what is right.
#[test]
fn errors_name_line_and_key_and_say_what_is_allowed() {
    let disk = "disks = { \"a/b\" = \"/x\" }";
    let with = |line: &str| format!("[jobs.web]\n{disk}\n{line}");
    let all = |line: &str| format!("[jobs.web]\ndisks = \"all\"\n{line}");
    for (text, said) in [
        ("stroe = 1".to_owned(), &["line 1", "stroe", "`store`", "`jobs`"][..]),
        ("store = 1".into(), &["line 1, store", "expected a string"]),
        ("[jobs.web\n".into(), &["line 1"]),
        ("state_dir = \"x\"".into(), &["state_dir", "begin with /"]),
        (with("shedule = \"hourly\""), &["line 3, jobs.web.shedule", "`schedule`"]),
        (with("schedule = \"nightly\""), &["line 3, jobs.web.schedule", "daily 02:30"]),
        (with("schedule = \"daily 25:00\""), &["line 3, jobs.web.schedule", "00:00 to 23:59"]),
        (with("zone = \"Mars/Base\""), &["line 3, jobs.web.zone", "Europe/Berlin"]),
        (with("limit = \"fast\""), &["line 3, jobs.web.limit", "50M"]),
        (with("verify = \"all\""), &["line 3, jobs.web.verify", "`metadata`", "`data`"]),
        (with("retain = { last = 0 }"), &["line 3, jobs.web.retain.last", "nonzero"]),
        (with("retain = { dayly = 1 }"), &["line 3, jobs.web.retain.dayly", "`daily`"]),
        (with("retain = {}"), &["line 3, jobs.web.retain", "has no rule", "weekly"]),
        (with("retain = { within = \"3\" }"), &["line 3, jobs.web.retain.within", "14d"]),
        (
            with("tags = { source-format = \"raw\" }"),
            &["line 3, jobs.web.tags", "what backups say themselves"],
        ),
        (with("policy = \"best\""), &["line 3, jobs.web.policy", "balanced"]),
        (with("codec = \"rar\""), &["line 3, jobs.web.codec", "rar"]),
        (with("warn_age = 3"), &["line 3, jobs.web.warn_age", "expected a string"]),
        (with("gc = \"yes\""), &["line 3, jobs.web.gc", "expected a boolean"]),
        ("[jobs.web]\ngc = true".into(), &["line 1, jobs.web", "has no disks", "disks = \"all\""]),
        (all("verify = \"no\""), &["line 1, jobs.web", "add verify, gc"]),
        (format!("{}\n[defaults]\ngc = true", all("")), &["line 1, jobs.web", "add verify, gc"]),
        (all("gc = true\nlimit = \"50M\""), &["line 1, jobs.web", "limit is of no use"]),
        (all("gc = true\nstore = \"second\""), &["job web", "store: \"second\" must begin with /"]),
        ("[jobs.web]\ndisks = \"some\"".into(), &["line 2, jobs.web.disks", "\"some\" is no table"]),
        (with("store = \"/x\""), &["line 1, jobs.web", "a store is for a job with disks = \"all\""]),
        ("[defaults]\nstore = \"/x\"".into(), &["line 1, defaults", "at the top of the file"]),
        (
            "[defaults]\nrecompress = 20".into(),
            &["line 2", "recompress", "20 is not a level of zstd from 1 to 19"],
        ),
        (
            "[defaults]\nrecompress_for = '1d'".into(),
            &["line 2", "recompress_for", "is not a time limit: 90s, 10m, 2h"],
        ),
        ("[jobs.web]\ndisks = {}".into(), &["line 2, jobs.web.disks", "names no disk"]),
        ("[jobs.web]\ndisks = 3".into(), &["line 2, jobs.web.disks", "a table from disks to sources"]),
        ("[jobs.\"../x\"]\ndisks = {}".into(), &["line 1", "is not the name of a job"]),
        (format!("[defaults]\n{disk}"), &["line 1, defaults", "[jobs.NAME.disks]"]),
    ] {
        refused(&text, said);
    }
}

#[test]
fn disks_and_sources_must_fit() {
    for (name, source, said) in [
        ("web", "\"/x\"", "is not the name of a disk"),
        ("a/b/c", "\"/x\"", "is not the name of a disk"),
        ("a/b", "\"images/x.raw\"", "a path that begins with /"),
        ("a/b", "\"rbd:pool/x\"", "a path that begins with /"),
        ("a/b", "\"-\"", "standard input"),
        ("a/b", "\"libvirt:wiki\"", "name the machine alone"),
        ("a/b", "\"qmp:/run/x.qmp\"", "name the machine alone"),
        ("a", "\"qmp:/run/x.qmp#vda\"", "is not the name of a disk"),
        ("a", "\"libvirt:\"", "libvirt:DOMAIN"),
        ("a", "\"libvirt:web*\"", "keep their own names"),
        ("*", "\"libvirt:web\"", "keep their own names"),
        ("*", "\"/images/x.raw\"", "keep their own names"),
        ("a/b", "\"qmp:x.qmp#vda\"", "begin with /"),
        ("a/b", "\"nbd://\"", "names no host"),
        ("a/b", "\"nbd+unix:///x\"", "names no socket"),
        ("a/b", "{ source = \"/x\", source_format = \"vdi\" }", "raw, qcow2, vmdk"),
        ("a/b", "{ format = \"raw\" }", "`source_format`"),
        ("a/b", "{}", "missing field `source`"),
        ("a/b", "1", "a source, or a table like"),
    ] {
        refused(
            &format!("[jobs.x]\n[jobs.x.disks]\n\"{name}\" = {source}"),
            &["line 3, jobs.x.disks.", said],
        );
    }
}

fn refused(text: &str, said: &[&str]) {
    let bench = Bench::bare();
    let file = bench.file("sapwood.toml", text.as_bytes());
    let ended = bench.run(&["config", "check", &file]);
    assert!(ended.stderr.contains(&file), "{text}: {ended}");
    assert_eq!((ended.code(), ended.stderr.lines().count()), (Some(USAGE), 1), "{text}: {ended}");
    for words in said {
        assert!(ended.stderr.contains(words), "{text}: {ended}: does not say {words:?}");
    }
}

#[test]
fn a_missing_configuration_is_said() {
    let bench = Bench::bare();
    bench.fails(&["--config", "/none/x.toml", "config", "check"], USAGE, &["/none/x.toml: cannot read"]);
    let jobs = Jobs::new(TWO_DISKS);
    let ended = jobs.run(&["run", "mail"]);
    ended.expect_failure(USAGE, &["mail: ", "sapwood.toml has no such job", "it has: web"]);
}

/// `--store` and SAPWOOD_STORE come first.
#[test]
fn the_vault_of_the_configuration_is_used_if_no_other_is_named() {
    let jobs = Jobs::new("");
    jobs.bench.backup("web01/vda", &jobs.bench.arg("a.raw"));
    assert!(jobs.done(&["snapshots"]).contains("web01/vda"));
    let ended = jobs.run(&["--store", "/none/vault", "snapshots"]);
    assert!(ended.code() != Some(DONE) && ended.stderr.contains("/none/vault"), "{ended}");
}

/// The example of the page is what `config check` accepts, with every setting in it.
#[test]
fn the_example_of_the_documentation_is_right() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md")).unwrap();
    let example = page.split("```toml\n").nth(1).unwrap().split("\n```").next().unwrap();
    let bench = Bench::bare();
    let file = bench.file("sapwood.toml", example.as_bytes());
    let said = bench.json(&["config", "check", &file]);
    assert!(said["jobs"].as_array().unwrap().len() >= 3, "{said}");
    // The error for an unknown key lists every setting.
    let wrong = bench.file("wrong.toml", b"[defaults]\nx = 1");
    let ended = bench.run(&["config", "check", &wrong]);
    let settings: Vec<&str> = ended.stderr.split('`').skip(3).step_by(2).collect();
    assert!(settings.len() >= 16, "{ended}");
    for setting in settings {
        assert!(page.contains(&format!("| `{setting}` |")), "{setting} is not in the table");
        assert!(
            example.contains(&format!("{setting} =")) || example.contains(&format!(".{setting}]")),
            "{setting}"
        );
    }
}
