use super::*;

fn files(texts: &[(&str, &str)]) -> Files {
    texts.iter().map(|(file, text)| ((*file).into(), (*text).into())).collect()
}

fn wrongs(texts: &[(&str, &str)]) -> Vec<String> {
    check(&files(texts)).iter().map(ToString::to_string).collect()
}

#[test]
fn a_circle_is_named_with_what_ties_it() {
    let crate_ = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "use crate::b::{self, B}; pub struct A; fn f() -> B { b::make() }"),
        ("b.rs", "pub struct B; pub fn make() -> B { B } fn g(_: super::c::C) {}"),
        ("c.rs", "pub struct C(crate::a::A);"),
    ];
    let circle = "circle of modules\n    a.rs -> b.rs: B, make\n    b.rs -> c.rs: C\n    c.rs -> a.rs: A";
    assert_eq!(wrongs(&crate_), [circle]);
}

#[test]
fn circles_without_a_common_arrow_are_named() {
    let crate_ = [
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "pub struct A(crate::b::B);"),
        ("b.rs", "pub struct B(crate::a::A, crate::c::C);"),
        ("c.rs", "pub struct C(crate::b::B);"),
    ];
    let found = wrongs(&crate_);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn re_exports_lead_to_the_definition() {
    let crate_ = [
        ("lib.rs", "pub mod container; mod reader;"),
        ("container.rs", "mod tables; pub use tables::*; pub use writer::Writer as Appender; mod writer;"),
        ("container/tables.rs", "pub struct Tables; use crate::reader::Reader; fn f(_: Reader) {}"),
        ("container/writer.rs", "pub struct Writer;"),
        ("reader.rs", "use crate::container::{Appender, Tables}; pub struct Reader(Tables, Appender);"),
    ];
    let found = wrongs(&crate_);
    let circle =
        "circle of folders: container.rs -> reader.rs\n    container/tables.rs -> reader.rs: Reader\n    \
                  reader.rs -> container/tables.rs: Tables\n    reader.rs -> container/writer.rs: Writer";
    assert_eq!(found[1], circle);
    assert_eq!(found.len(), 2, "{found:?}");
}

#[test]
fn a_parent_may_hand_on_what_its_children_define() {
    let facade = [
        (
            "lib.rs",
            "mod a; mod b; pub use a::{A, Shape}; pub use b::B; pub(crate) use a::make; pub struct Shared;",
        ),
        ("a.rs", "use crate::Shared; pub struct A(Shared); pub trait Shape {} pub fn make() {}"),
        ("b.rs", "use crate::A; pub struct B(A);"),
    ];
    assert_eq!(wrongs(&facade), [""; 0]);

    let used = [("lib.rs", "mod a; pub use a::A; pub struct Shared; impl A {}"), facade[1]];
    assert_eq!(wrongs(&used), ["circle of modules\n    a.rs -> lib.rs: Shared\n    lib.rs -> a.rs: A"]);

    let methods = [("lib.rs", "mod a; use a::Shape; pub struct Shared;"), facade[1]];
    assert_eq!(
        wrongs(&methods),
        ["circle of modules\n    a.rs -> lib.rs: Shared\n    lib.rs -> a.rs: Shape"]
    );
}

#[test]
fn what_is_compiled_for_tests_only_is_left_out() {
    let crate_ = [
        ("lib.rs", "mod a; mod b; #[cfg(test)] mod sim;"),
        ("a.rs", "pub struct A; #[cfg(test)] mod tests; #[cfg(test)] use crate::b::B; #[cfg(test)] impl A { fn b(_: B) {} }"),
        ("a/tests.rs", "use crate::b::B; use super::A;"),
        ("b.rs", "pub struct B(crate::a::A); #[cfg(test)] mod tests { use crate::sim::Sim; }"),
        ("sim.rs", "pub struct Sim(crate::b::B);"),
    ];
    assert_eq!(wrongs(&crate_), [""; 0]);
}

#[test]
fn folders_may_not_use_each_other_in_a_circle() {
    let crate_ = [
        ("lib.rs", "mod left; mod right;"),
        ("left.rs", "pub mod low; pub mod high;"),
        ("left/low.rs", "pub struct Low;"),
        ("left/high.rs", "use crate::right::Middle; pub struct High(Middle);"),
        ("right.rs", "use crate::left::low::Low; pub struct Middle(Low);"),
    ];
    let circle = "circle of folders: left.rs -> right.rs\n    left/high.rs -> right.rs: Middle\n    \
                  right.rs -> left/low.rs: Low";
    assert_eq!(wrongs(&crate_), [circle]);
}

#[test]
fn paths_in_macros_count() {
    let crate_ = [
        ("lib.rs", "#[macro_use] mod macros; mod a; mod b;"),
        ("macros.rs", "macro_rules! make { () => { $crate::a::A } }"),
        ("a.rs", "pub struct A; fn f(x: X) { assert!(x.b != crate::b::B::new(1), \"{}\", x.make); }"),
        ("b.rs", "pub struct B; fn f() { make!(); }"),
    ];
    let circle =
        "circle of modules\n    a.rs -> b.rs: B\n    b.rs -> macros.rs: make\n    macros.rs -> a.rs: A";
    assert_eq!(wrongs(&crate_), [circle]);
}

#[test]
fn paths_in_attributes_count() {
    let crate_ = [
        ("lib.rs", "mod args; mod serving;"),
        ("args.rs", "pub struct Args { #[arg(long, value_parser = crate::serving::parse_size)] size: u64 }"),
        ("serving.rs", "use crate::args::Args; pub fn parse_size(_: Args) {}"),
    ];
    let circle = "circle of modules\n    args.rs -> serving.rs: parse_size\n    serving.rs -> args.rs: Args";
    assert_eq!(wrongs(&crate_), [circle]);
}

#[test]
fn a_name_may_be_a_module_and_a_function() {
    let crate_ = [
        ("lib.rs", "pub mod backup; pub use backup::backup; mod stage;"),
        ("backup.rs", "use crate::stage::run; pub fn backup() { run() } pub struct Options;"),
        ("stage.rs", "use crate::backup::Options; pub fn run() {}"),
    ];
    let circle = "circle of modules\n    backup.rs -> stage.rs: run\n    stage.rs -> backup.rs: Options";
    assert_eq!(wrongs(&crate_), [circle]);
}

#[test]
fn a_crowded_folder_is_named() {
    let mut crate_ = files(&[("lib.rs", "mod a;"), ("a.rs", "")]);
    for n in 0..FOLDER_FILES_MAX {
        crate_.insert(format!("a/file{n}.rs"), String::new());
        crate_.insert(format!("a/file{n}/below.rs"), String::new());
    }
    assert_eq!(check(&crate_), []);
    crate_.insert("a/one_more.rs".into(), String::new());
    assert_eq!(check(&crate_), [Wrong::Crowded { folder: "a".into(), files: 15 }]);
}

#[test]
fn a_module_file_in_its_folder_is_named() {
    let found = wrongs(&[("lib.rs", "mod a;"), ("a/mod.rs", "mod b;"), ("a/b.rs", "")]);
    assert_eq!(found, ["a/mod.rs: a module's file stands beside its folder (foo.rs, not foo/mod.rs)"]);
}

#[test]
fn what_does_not_parse_is_named() {
    let found = wrongs(&[("lib.rs", "mod a;"), ("a.rs", "fn (")]);
    assert!(found[0].starts_with("a.rs: does not parse"), "{found:?}");
    assert_eq!(wrongs(&[("lib.rs", "mod a;")]), ["lib.rs: mod a has no file"]);
}

#[test]
fn floors_count_from_the_files_that_use_no_other() {
    let modules = Modules::of(&files(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a.rs", "pub struct A;"),
        ("b.rs", "pub struct B(crate::a::A);"),
        ("c.rs", "pub struct C(crate::b::B, crate::a::A);"),
    ]));
    let Ok(modules) = modules else { panic!("it parses") };
    let (floors, left) = modules.floors();
    assert_eq!(floors, [vec!["a.rs", "lib.rs"], vec!["b.rs"], vec!["c.rs"]]);
    assert_eq!(left, [""; 0]);
}
