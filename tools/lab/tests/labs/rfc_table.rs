//! docs/reference/rfc.md names a test for each requirement of an RFC: all of these tests must
//! exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let Ok(listing) = fs::read_dir(dir) else { return Vec::new() };
    listing.map(|entry| entry.unwrap().path()).collect()
}

/// Adds the tests of every file below `dir` as `PREFIX::module::test`.
fn collect(dir: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for path in entries(dir) {
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let module = match stem {
            // The tests of a crate are one program, whose name is not part of the path.
            "main" | "mod" | "lib" | "it" | "labs" => prefix.to_owned(),
            stem => format!("{prefix}::{stem}"),
        };
        if path.is_dir() {
            collect(&path, &module, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            found.extend(tests_in(&text).map(|test| format!("{module}::{test}")));
        }
    }
}

/// The functions after `#[test]`, with or without other attributes between.
fn tests_in(text: &str) -> impl Iterator<Item = &str> {
    let mut marked = false;
    text.lines().map(str::trim).filter_map(move |line| {
        if line == "#[test]" {
            marked = true;
            return None;
        }
        let name = line.strip_prefix("fn ")?.split_once('(')?.0;
        std::mem::take(&mut marked).then_some(name)
    })
}

fn all_tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let packages = ["crates", "tools"].map(|group| entries(&workspace().join(group)));
    for package in packages.into_iter().flatten() {
        let name = package.file_name().unwrap().to_str().unwrap();
        for sources in ["src", "tests"] {
            collect(&package.join(sources), name, &mut found);
        }
    }
    found
}

/// The cells of the last column, with their lines.
fn answers(table: &str) -> impl Iterator<Item = (usize, &str)> {
    let rows = (1..).zip(table.lines()).filter(|(_, line)| line.starts_with("| "));
    let cells =
        rows.filter_map(|(number, line)| Some((number, line.strip_suffix(" |")?.rsplit(" | ").next()?)));
    cells.filter(|(_, cell)| !["shown by", "state", "---"].contains(cell))
}

fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|word| word.contains("::"))
}

#[test]
fn every_test_that_the_table_names_exists() {
    let table = fs::read_to_string(workspace().join("docs/reference/rfc.md")).unwrap();
    let tests = all_tests();
    let mut named = 0;
    let mut wrong = Vec::new();
    for (line, cell) in answers(&table) {
        for name in names(cell) {
            named += 1;
            if !tests.contains(name) {
                wrong.push(format!("line {line}: no test is named {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "docs/reference/rfc.md:\n{}", wrong.join("\n"));
    assert!(named > 100, "the table was not understood: {named} names");
}

#[test]
fn every_row_has_a_test_or_a_reason() {
    let table = fs::read_to_string(workspace().join("docs/reference/rfc.md")).unwrap();
    let reasons = ["**later**", "**no**", "**partly**", "see RFC "];
    let bare: Vec<_> = answers(&table)
        .filter(|(_, cell)| names(cell).next().is_none())
        .filter(|(_, cell)| !reasons.iter().any(|reason| cell.contains(reason)))
        .collect();
    assert!(bare.is_empty(), "docs/reference/rfc.md, rows that show nothing: {bare:?}");
}
