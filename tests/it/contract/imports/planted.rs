//! The finder itself, on small crates made up for it.

use super::{Imports, Sources, circles::circles, imports};

pub(super) fn sources(files: &[(&str, &str)]) -> Sources {
    files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
}

fn of(files: &[(&str, &str)]) -> Imports {
    imports(&sources(files))
}

/// Each import as `from → to: names`.
fn lines(imports: &Imports) -> Vec<String> {
    imports.iter().map(|((from, to), names)| format!("{from} → {to}: {}", super::listed(names))).collect()
}

fn circle_files(imports: &Imports) -> Vec<Vec<String>> {
    circles(imports).into_iter().map(|circle| circle.into_iter().collect()).collect()
}

#[test]
fn two_files_that_import_each_other_are_a_circle() {
    let found = of(&[
        ("lib.rs", "mod a; mod b; mod c; use a::A;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "pub struct B; fn f() { crate::c::g() }"),
        ("c.rs", "pub fn g() -> crate::a::A { todo!() }"),
    ]);
    assert_eq!(lines(&found), ["a.rs → b.rs: B", "b.rs → c.rs: g", "c.rs → a.rs: A", "lib.rs → a.rs: A"]);
    assert_eq!(circle_files(&found), [["a.rs", "b.rs", "c.rs"]]);
}

#[test]
fn a_module_and_its_child_are_a_circle_through_super() {
    let found = of(&[
        ("main.rs", "mod a;"),
        ("a/mod.rs", "mod b; pub struct A; fn f() -> b::B { b::B }"),
        ("a/b.rs", "pub struct B; impl B { fn a(&self) -> super::A { super::A } }"),
    ]);
    assert_eq!(circle_files(&found), [["a/b.rs", "a/mod.rs"]]);
}

#[test]
fn a_facade_is_followed_to_the_file_that_defines_the_item() {
    let found = of(&[
        ("lib.rs", "mod a; mod c; pub use a::B;"),
        ("a/mod.rs", "mod b; pub(crate) use b::*; pub use b::B;"),
        ("a/b.rs", "pub struct B(crate::c::C); pub fn made() {}"),
        ("c.rs", "use crate::B; pub struct C(Box<B>); fn f() { crate::a::made() }"),
    ]);
    assert_eq!(lines(&found), ["a/b.rs → c.rs: C", "c.rs → a/b.rs: B, made"]);
    assert_eq!(circle_files(&found), [["a/b.rs", "c.rs"]]);
}

#[test]
fn imports_that_only_go_down_are_no_circle() {
    let found = of(&[
        ("lib.rs", "mod a; mod b; pub use a::run; fn start() { a::run() }"),
        ("a.rs", "use crate::b; pub fn run() { b::help(); let b = 1; drop(b); }"),
        ("b.rs", "pub fn help() {} #[cfg(test)] mod tests { use crate::a::run; }"),
    ]);
    assert_eq!(lines(&found), ["a.rs → b.rs: help", "lib.rs → a.rs: run"]);
    assert!(circles(&found).is_empty());
}

/// A module and a function of one name; a façade that leads back to itself.
#[test]
fn names_that_mean_two_things_are_followed_to_both() {
    let found = of(&[
        ("lib.rs", "mod run; mod b; pub use run::run; pub use b::*;"),
        ("run.rs", "pub fn run() {}"),
        ("b.rs", "use super::*; fn f() { run() }"),
    ]);
    assert_eq!(lines(&found), ["b.rs → run.rs: run"]);
}

#[test]
fn macros_attributes_and_uses_inside_functions_are_read() {
    let found = of(&[
        ("lib.rs", "mod ids; mod a; mod b;"),
        ("ids.rs", "macro_rules! id { ($name:ident) => { pub struct $name; } } id!(ChildId);"),
        ("a.rs", "fn f() { assert!(matches!(1, crate::b::ONE)); { use crate::ids; ids::ChildId; } }"),
        (
            "b.rs",
            "pub const ONE: u8 = 1; struct S { #[serde(with = \"crate::a::f\")] #[arg(x = crate::ids::ChildId)] s: u8 }",
        ),
    ]);
    assert_eq!(
        lines(&found),
        ["a.rs → b.rs: ONE", "a.rs → ids.rs: ChildId", "b.rs → a.rs: f", "b.rs → ids.rs: ChildId"]
    );
}
