//! The test programs that cargo builds, and the packages' statements about their tests.

use crate::compile;
use crate::error::{Error, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A test program that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The package, without the common prefix `testudo-`.
    pub(crate) package: String,
    /// The target: the crate of a library, or the file of an integration test.
    pub(crate) target: String,
    /// The executable.
    pub(crate) path: PathBuf,
    /// The working directory that cargo would use: that of the package.
    pub(crate) directory: PathBuf,
    /// Its tests hold labs, which have priority.
    pub(crate) labs: bool,
    /// It is built by [`Which::Labs`].
    pub(crate) first: bool,
    /// Prefixes of the names of its slowest tests: they begin first.
    pub(crate) long: Vec<String>,
}

/// One line of `--message-format=json`; other kinds of lines lack the fields.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    manifest_path: PathBuf,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
    message: Option<Diagnostic>,
}

/// A diagnostic of the compiler.
#[derive(Deserialize)]
struct Diagnostic {
    rendered: Option<String>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    #[serde(default)]
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<Target>,
    #[serde(default)]
    metadata: Option<PackageMetadata>,
}

#[derive(Clone, Default, Deserialize)]
struct PackageMetadata {
    #[serde(default)]
    suite: Suite,
}

/// `[package.metadata.suite]` of a Cargo.toml.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Suite {
    /// Targets whose tests hold labs.
    #[serde(default)]
    labs: Vec<String>,
    /// Tests that begin first, as `target::name`.
    #[serde(default)]
    long: Vec<String>,
    /// Crates whose tests are optimised like their package: they run for longer than that takes.
    #[serde(default)]
    optimised: Vec<String>,
}

/// The cargo of rust-toolchain.toml. Labs have priority, so the build of the other tests may run at
/// the same time.
fn cargo(which: Which) -> Command {
    match which {
        Which::Labs => Command::new("cargo"),
        Which::All => nice(Path::new("cargo")),
    }
}

/// A program at the lowest priority.
pub(crate) fn nice(program: &Path) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(program);
    nice
}

/// A program that ends with the thread that has started it. Otherwise the labs of a runner that is
/// killed would go on beside those of the next one.
pub(crate) fn bound(program: &Path) -> Command {
    let mut bound = Command::new("setpriv");
    bound.args(["--pdeathsig", "TERM"]).arg(program);
    bound
}

/// The build directory, which also has the logs of this program.
pub(crate) fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// The test programs to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Integration tests that hold labs: they can run while the others are built.
    Labs,
    /// Every test program.
    All,
}

/// The log of a build.
pub(crate) fn log(which: Which) -> PathBuf {
    target_dir().join(if which == Which::Labs { "log/build-labs.log" } else { "log/build-tests.log" })
}

/// The result of a build.
#[derive(Debug, Default)]
pub(crate) struct Built {
    /// The test programs.
    pub(crate) programs: Vec<Program>,
    /// Findings of lints, each once: a library is compiled for itself and for its own tests.
    pub(crate) findings: BTreeSet<String>,
}

/// Clippy compiles the workspace in place of rustc, on which it is based ([`compile`]): lints then
/// cost a sixth more time, while a separate check would need another build of everything but the code
/// generation. A finding does not prevent the build of the tests; the suite reports it as a separate
/// failure. Clippy's own way to pass arguments, each with this terminator.
const LINTS: (&str, &str) = ("CLIPPY_ARGS", "--cap-lints__CLIPPY_HACKERY__warn__CLIPPY_HACKERY__");

/// Builds test programs and the programs that they start, with lints. Cargo's output goes to a log;
/// compiler errors are shown. Calls `step` with cargo's progress.
pub(crate) fn build(which: Which, step: &mut dyn FnMut(&str)) -> Result<Built> {
    let packages = packages()?;
    let targets = if which == Which::Labs { packages.lab_tests() } else { BTreeSet::new() };
    let log = log(which);
    let mut log_file = create(&log)?;
    let mut cargo = cargo(which);
    // Always the whole workspace: a part of it has other features, and would be built twice.
    cargo.args(["test", "--workspace", "--no-run", "--message-format=json"]).envs([LINTS]);
    let own = std::env::current_exe().map_err(Error::io("find the running program"))?;
    cargo.env("RUSTC_WORKSPACE_WRAPPER", own).env(compile::OPTIMISED, packages.optimised().join(" "));
    cargo.args(targets.iter().flat_map(|target| ["--test", target]));
    // Benchmarks too, for their lints.
    cargo.args((which == Which::All).then_some("--all-targets"));
    // Cargo shows its progress only on terminals, unless it is told to.
    cargo.envs([("CARGO_TERM_PROGRESS_WHEN", "always"), ("CARGO_TERM_PROGRESS_WIDTH", "80")]);
    let failed = || Error::io("run cargo");
    let stderr = log_file.try_clone().map_err(failed())?;
    let mut child = cargo.stdout(Stdio::piped()).stderr(stderr).spawn().map_err(Error::io("run cargo"))?;
    let mut built = Built::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).lines() {
            let Some(message) = message(&line.map_err(failed())?)? else { continue };
            if let Some(said) = finding(&message) {
                log_file.write_all(said.as_bytes()).map_err(failed())?;
                built.findings.insert(said.to_owned());
            }
            built.programs.extend(program(message, &packages)?);
            step(units(&fs::read_to_string(&log).unwrap_or_default()).unwrap_or_default());
        }
    }
    if !child.wait().map_err(failed())?.success() {
        let text = fs::read_to_string(&log).unwrap_or_default();
        let mut out = std::io::stderr().lock();
        for line in complaints(&text) {
            writeln!(out, "{line}").map_err(Error::io("show what cargo said"))?;
        }
        return Err(Error::Build { log });
    }
    packages.check_built(which, &built.programs)?;
    built.programs.sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(built)
}

/// The progress of a build: `212/380` of the last `Building [===>   ] 212/380: ...`.
fn units(log: &str) -> Option<&str> {
    let (_, behind) = log.rsplit_once("Building [")?;
    let (_, behind) = behind.split_once("] ")?;
    behind.split(':').next().filter(|units| units.contains('/'))
}

/// The compiler's output, without cargo's.
fn complaints(log: &str) -> impl Iterator<Item = &str> {
    let steps = ["Compiling ", "Building [", "Finished ", "Downloaded ", "Downloading "];
    let lines = log.split(['\r', '\n']).map(|line| line.trim_start_matches("\x1b[K").trim_end());
    lines
        .filter(move |line| !line.is_empty() && !steps.iter().any(|step| line.trim_start().starts_with(step)))
}

/// Creates a file and its directories.
pub(crate) fn create(path: &Path) -> Result<File> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(Error::io(format!("make {}", directory.display())))?;
    }
    File::create(path).map_err(Error::io(format!("write {}", path.display())))
}

/// The workspace's packages from their Cargo.toml files: names, and statements about their tests.
#[derive(Default)]
struct Packages {
    known: BTreeMap<PathBuf, (String, Suite)>,
    /// Package and target of each.
    integration_tests: Vec<(String, String)>,
}

impl Packages {
    /// Refuses names in `[package.metadata.suite]` that no target of the package has: its labs
    /// would run like unit tests.
    fn check_names(package: &str, suite: &Suite, targets: &[Target]) -> Result<()> {
        let beginning = |long: &String| long.split("::").next().unwrap_or_default().to_owned();
        let named = suite.labs.iter().chain(&suite.optimised).cloned();
        let named = named.chain(suite.long.iter().map(beginning));
        let known = |name: &String| targets.iter().any(|target| target.name == *name);
        match named.into_iter().find(|name| !known(name)) {
            None => Ok(()),
            Some(found) => Err(Error::Output {
                program: format!("[package.metadata.suite] of {package}"),
                found,
                expected: "the name of a target of the package",
            }),
        }
    }

    /// Refuses a build that lacks an integration test: it would not be run, and nobody would
    /// notice.
    fn check_built(&self, which: Which, programs: &[Program]) -> Result<()> {
        let labs = self.lab_tests();
        let expected = |target: &str| which == Which::All || labs.contains(target);
        let built = |package: &str, target: &str| {
            programs.iter().any(|program| (&*program.package, &*program.target) == (package, target))
        };
        let lacks = |(package, target): &&(String, String)| expected(target) && !built(package, target);
        match self.integration_tests.iter().find(lacks) {
            None => Ok(()),
            Some((package, target)) => Err(Error::Output {
                program: "cargo test --no-run".into(),
                found: format!("no artifact for {target} of {package}"),
                expected: "a program for every integration test",
            }),
        }
    }

    /// Crates whose tests are optimised. A name that several packages have counts for all of them.
    fn optimised(&self) -> Vec<&str> {
        self.known.values().flat_map(|(_, suite)| &suite.optimised).map(String::as_str).collect()
    }

    /// Names of integration tests that hold labs. Cargo builds those of all packages that have one.
    fn lab_tests(&self) -> BTreeSet<&str> {
        let holds_labs =
            |target: &str| self.known.values().any(|(_, suite)| suite.labs.iter().any(|lab| lab == target));
        self.integration_tests
            .iter()
            .map(|(_, target)| target.as_str())
            .filter(|target| holds_labs(target))
            .collect()
    }
}

fn packages() -> Result<Packages> {
    let mut command = Command::new("cargo");
    command.args(["metadata", "--no-deps", "--format-version=1"]);
    let output = command.stderr(Stdio::inherit()).output().map_err(Error::io("run cargo metadata"))?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout).map_err(|error| Error::Output {
        program: "cargo metadata".into(),
        found: error.to_string(),
        expected: "packages, with [package.metadata.suite] of `labs`, `long` and `optimised`",
    })?;
    let mut packages = Packages::default();
    for package in metadata.packages {
        let suite = package.metadata.unwrap_or_default().suite;
        Packages::check_names(&package.name, &suite, &package.targets)?;
        let name = package.name.trim_start_matches("testudo-").to_owned();
        let tests = package.targets.into_iter().filter(|target| target.kind == ["test"]);
        packages.integration_tests.extend(tests.map(|target| (name.clone(), target.name)));
        packages.known.insert(package.manifest_path, (name, suite));
    }
    Ok(packages)
}

/// Parses a line; `None` if it is no message of cargo but output of a build script.
fn message(line: &str) -> Result<Option<Message>> {
    if !line.starts_with('{') {
        return Ok(None);
    }
    serde_json::from_str(line).map(Some).map_err(|error| Error::Output {
        program: "cargo test --message-format=json".into(),
        found: format!("{line} ({error})"),
        expected: "a message of cargo",
    })
}

/// The finding of the compiler or a lint, as rendered for users.
fn finding(message: &Message) -> Option<&str> {
    message.message.as_ref()?.rendered.as_deref()
}

fn program(message: Message, packages: &Packages) -> Result<Option<Program>> {
    let (Some(target), Some(path), true) =
        (message.target, message.executable, message.profile.is_some_and(|profile| profile.test))
    else {
        return Ok(None);
    };
    // Benchmarks are not tests.
    if message.reason != "compiler-artifact" || target.kind == ["bench"] {
        return Ok(None);
    }
    let Some((package, suite)) = packages.known.get(&message.manifest_path) else {
        return Err(Error::Output {
            program: "cargo test".into(),
            found: message.manifest_path.display().to_string(),
            expected: "a package of the workspace",
        });
    };
    let prefix = format!("{}::", target.name);
    Ok(Some(Program {
        package: package.clone(),
        path,
        directory: message.manifest_path.parent().unwrap_or(Path::new(".")).to_owned(),
        labs: suite.labs.contains(&target.name),
        first: target.kind == ["test"] && packages.lab_tests().contains(&*target.name),
        long: suite.long.iter().filter_map(|name| name.strip_prefix(&prefix)).map(str::to_owned).collect(),
        target: target.name,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;

    fn packages() -> Packages {
        let suite =
            Suite { labs: vec!["peers".into()], long: vec!["peers::rekeying::".into()], ..Suite::default() };
        let known = BTreeMap::from([("/w/gateway/Cargo.toml".into(), ("gateway".into(), suite))]);
        let of_gateway = |target: &str| ("gateway".to_owned(), target.to_owned());
        Packages { known, integration_tests: vec![of_gateway("peers"), of_gateway("it")] }
    }

    #[test]
    fn a_lab_ends_with_the_thread_that_started_it() {
        let start = || {
            let mut sh = bound(Path::new("sh"));
            let mut lab = sh.args(["-c", "echo; exec sleep 600"]).stdout(Stdio::piped()).spawn().unwrap();
            // It is bound from its first line on.
            lab.stdout.take().unwrap().read_exact(&mut [0]).unwrap();
            lab
        };
        let mut lab = std::thread::spawn(start).join().unwrap();
        assert_eq!(lab.wait().unwrap().signal(), Some(15));
    }

    #[test]
    fn only_integration_tests_with_labs_are_built_first() {
        assert_eq!(packages().lab_tests(), BTreeSet::from(["peers"]));
    }

    fn artifact(target: &str, test: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/w/gateway/Cargo.toml",
                "target":{{"name":"{target}","kind":["test"]}},"profile":{{"test":{test}}},"executable":"/w/target/x"}}"#
        )
    }

    /// Parses a line as [`build`] does.
    fn program(line: &str, packages: &Packages) -> Result<Option<Program>> {
        message(line)?.map_or(Ok(None), |message| super::program(message, packages))
    }

    #[test]
    fn findings_of_lints_are_shown_as_rendered() {
        let line = r#"{"reason":"compiler-message","manifest_path":"/w/gateway/Cargo.toml","message":
            {"rendered":"warning: needless\n","level":"warning"},"target":{"name":"x","kind":["lib"]}}"#;
        let message = message(line).unwrap().unwrap();
        assert_eq!(finding(&message), Some("warning: needless\n"));
        assert_eq!(super::program(message, &packages()).unwrap(), None);
        let artifact = super::message(&artifact("it", true)).unwrap().unwrap();
        assert_eq!(finding(&artifact), None);
    }

    #[test]
    fn a_benchmark_is_no_test() {
        let bench = artifact("filter", true).replace(r#"["test"]"#, r#"["bench"]"#);
        assert_eq!(program(&bench, &packages()).unwrap(), None);
    }

    #[test]
    fn a_test_program_knows_its_package_and_whether_it_holds_labs() {
        let found = program(&artifact("peers", true), &packages()).unwrap().unwrap();
        assert_eq!((found.package.as_str(), found.labs), ("gateway", true));
        assert_eq!(
            (found.directory, found.long),
            (PathBuf::from("/w/gateway"), vec!["rekeying::".to_owned()])
        );
        let other = program(&artifact("it", true), &packages()).unwrap().unwrap();
        assert_eq!((found.first, other.labs, other.first), (true, false, false));
    }

    #[test]
    fn a_build_tells_how_far_it_is_and_what_is_wrong() {
        let log = "   Compiling a v1\n    Building [=>    ] 7/380: a\r\x1b[K    Building [=>    ] 8/380: b(build)\r\x1b[Kerror: no\n --> x.rs:1\n";
        assert_eq!(units(log), Some("8/380"));
        assert_eq!(units("   Compiling a v1\n"), None);
        assert_eq!(complaints(log).collect::<Vec<_>>(), ["error: no", " --> x.rs:1"]);
    }

    #[test]
    fn programs_without_tests_and_other_lines_are_passed_over() {
        assert_eq!(program(&artifact("testudod", false), &packages()).unwrap(), None);
        assert_eq!(program(r#"{"reason":"build-finished","success":true}"#, &packages()).unwrap(), None);
        assert_eq!(program("warning: something", &packages()).unwrap(), None);
        assert!(program(r#"{"reason":7}"#, &packages()).is_err(), "a message that is not understood");
    }

    #[test]
    fn names_that_no_target_has_and_tests_that_were_not_built_are_refused() {
        let target = |name: &str| Target { name: name.into(), kind: vec!["test".into()] };
        let suite = |labs: &str, long: &str, optimised: &str| Suite {
            labs: vec![labs.into()],
            long: vec![long.into()],
            optimised: vec![optimised.into()],
        };
        let check = |suite| Packages::check_names("testudo-gateway", &suite, &[target("peers")]);
        assert!(check(suite("peers", "peers::rekeying::", "peers")).is_ok());
        assert!(check(suite("pears", "peers::", "peers")).is_err());
        assert!(check(suite("peers", "pears::rekeying::", "peers")).is_err());
        assert!(check(suite("peers", "peers::", "pears")).is_err());
        let built: Vec<Program> = ["peers"]
            .iter()
            .filter_map(|name| program(&artifact(name, true), &packages()).unwrap())
            .collect();
        assert!(packages().check_built(Which::Labs, &built).is_ok());
        assert!(packages().check_built(Which::All, &built).is_err(), "`it` is missing");
        let mut packages = packages();
        packages.integration_tests.push(("lab".to_owned(), "peers".to_owned()));
        let result = packages.check_built(Which::Labs, &built);
        assert!(result.is_err(), "another package has one of the same name");
    }
}
