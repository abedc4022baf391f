//! Cargo: which mutants do not compile, and the programs of a package's tests.

use crate::error::{Error, Result};
use crate::plant::ON;
use crate::tree::Tree;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The end of a command's output that an error shows, in characters.
const SHOWN: usize = 2000;

/// A package of the copy.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) directory: PathBuf,
    /// The programs with labs, which are not run.
    labs: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    #[serde(default)]
    metadata: Option<OwnMetadata>,
}

#[derive(Deserialize)]
struct OwnMetadata {
    suite: Option<Suite>,
}

#[derive(Deserialize)]
struct Suite {
    #[serde(default)]
    labs: Vec<String>,
}

#[derive(Deserialize)]
struct Message {
    message: Option<Diagnostic>,
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Span {
    file_name: PathBuf,
    byte_end: usize,
    is_primary: bool,
}

/// The package to which all paths belong.
pub(crate) fn package_of(tree: &Tree, paths: &[PathBuf]) -> Result<Package> {
    let output = cargo(tree, &["metadata", "--no-deps", "--format-version", "1"])?;
    let said = String::from_utf8_lossy(&output.stdout);
    let metadata: Metadata = serde_json::from_str(&said).map_err(|_| failed("cargo metadata", &output))?;
    let wanted = paths.iter().map(|path| tree.place_of(path)).collect::<Result<Vec<_>>>()?;
    let package = metadata.packages.into_iter().find_map(|package| {
        let directory = package.manifest_path.parent()?.to_owned();
        let first = tree.root().join(wanted.first()?);
        let labs = package.metadata.and_then(|own| own.suite).map(|suite| suite.labs).unwrap_or_default();
        first.starts_with(&directory).then_some(Package { name: package.name, directory, labs })
    });
    let no_crate = |path: &PathBuf| Error::NoCrate { path: path.clone() };
    let package = package.ok_or_else(|| no_crate(&paths[0]))?;
    match wanted.iter().find(|path| !tree.root().join(path).starts_with(&package.directory)) {
        Some(path) => Err(no_crate(path)),
        None => Ok(package),
    }
}

/// The mutants because of which the package does not compile; empty if it does.
pub(crate) fn refused(tree: &Tree, package: &str) -> Result<BTreeSet<u32>> {
    let output = cargo(tree, &["check", "--lib", "--message-format=json", "-p", package])?;
    if output.status.success() {
        return Ok(BTreeSet::new());
    }
    let errors = messages(&output).filter_map(|message| message.message).filter(|said| said.level == "error");
    let spans = errors.flat_map(|error| error.spans).filter(|span| span.is_primary);
    let refused: BTreeSet<u32> = spans.filter_map(|span| mutant_at(tree.root(), &span)).collect();
    if refused.is_empty() { Err(failed("cargo check", &output)) } else { Ok(refused) }
}

/// The last mutant that begins before the end of this place.
fn mutant_at(root: &Path, span: &Span) -> Option<u32> {
    let text = fs::read(root.join(&span.file_name)).ok()?;
    let before = String::from_utf8_lossy(text.get(..span.byte_end)?).into_owned();
    let (_, behind) = before.rsplit_once(ON)?;
    behind.split(')').next()?.parse().ok()
}

/// Builds the tests of a package. Returns their programs, without those that hold labs.
pub(crate) fn build_tests(tree: &Tree, package: &Package) -> Result<Vec<PathBuf>> {
    let programs = build(tree, &["test", "--no-run", "-p", &package.name])?.into_iter();
    Ok(programs.filter(|(name, _)| !package.labs.contains(name)).map(|(_, program)| program).collect())
}

/// Builds the simulator. Returns its program.
pub(crate) fn build_simulator(tree: &Tree) -> Result<PathBuf> {
    let programs = build(tree, &["build", "-p", "testudo-sim", "--bin", "testudo-sim"])?;
    let simulator = programs.into_iter().next().map(|(_, program)| program);
    simulator
        .ok_or_else(|| Error::Command { command: "cargo build".to_owned(), said: "no program".to_owned() })
}

/// The programs that a command of cargo builds, each with the name of its target.
fn build(tree: &Tree, arguments: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let output = cargo(tree, &[arguments, &["--message-format=json"]].concat())?;
    if !output.status.success() {
        return Err(failed(&format!("cargo {}", arguments.join(" ")), &output));
    }
    let programs = messages(&output).filter_map(|message| Some((message.target?.name, message.executable?)));
    Ok(programs.collect())
}

fn messages(output: &Output) -> impl Iterator<Item = Message> {
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<String> = said.lines().map(str::to_owned).collect();
    lines.into_iter().filter_map(|line| serde_json::from_str(&line).ok())
}

fn cargo(tree: &Tree, arguments: &[&str]) -> Result<Output> {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(tree.root()).env("CARGO_TARGET_DIR", &tree.target);
    // A mutant often leaves something unused.
    command.env("RUSTFLAGS", "--cap-lints=allow").env("CARGO_INCREMENTAL", "0");
    command.output().map_err(Error::io("start cargo"))
}

fn failed(command: &str, output: &Output) -> Error {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let skipped = said.chars().count().saturating_sub(SHOWN);
    Error::Command { command: command.to_owned(), said: said.chars().skip(skipped).collect() }
}
