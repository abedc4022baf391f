//! Replays the corpus of every target, and mutations of it.

mod mutate;

use mutate::Mutator;
use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use testudo_fuzz::{TARGETS, Target, seeds};

/// Maximum size of a corpus, so that it stays cheap to store and to replay.
const MOST_FILES: usize = 300;
const MOST_OCTETS: usize = 200 * 1024;
/// Changed inputs for each target.
const MUTATIONS: usize = 2000;

/// The same where an input is a whole conversation of two gateways: `make test-all` asks for more.
fn conversations() -> usize {
    if std::env::var_os("TESTUDO_THOROUGH").is_some() { MUTATIONS } else { 500 }
}

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

/// All files of a corpus, by name.
fn corpus(target: &Target) -> Vec<(String, Vec<u8>)> {
    let dir = fuzz_dir().join("corpus").join(target.name);
    let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let mut files: Vec<_> = entries
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

/// Runs an input; a panic prints its name and octets, so that it can be saved.
fn run(target: &Target, what: &str, input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let hex: String = input.iter().map(|octet| format!("{octet:02x}")).collect();
        let mut message = format!("{}: {what} fails: {hex}", target.name);
        if let Some(text) = panic.downcast_ref::<String>() {
            message = format!("{message}: {text}");
        }
        resume_unwind(Box::new(message));
    }
}

fn replay(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let files = corpus(target);
    assert!(!files.is_empty(), "the corpus of {name} is empty");
    assert!(files.len() <= MOST_FILES, "{name}: {} files; run cargo fuzz cmin", files.len());
    let octets: usize = files.iter().map(|(_, input)| input.len()).sum();
    assert!(octets <= MOST_OCTETS, "{name}: {octets} octets; run cargo fuzz cmin");
    for (seed, input) in seeds::of(name) {
        let file = files.iter().find(|(file, _)| *file == format!("seed-{seed}"));
        assert!(file.is_some_and(|(_, found)| *found == input), "{name}: seed-{seed} is not up to date");
    }
    run(target, "the empty input", &[]);
    for (file, input) in &files {
        run(target, file, input);
    }
    let mut mutator = Mutator::new(name);
    let mutations = if name == "ike_conversation" { conversations() } else { MUTATIONS };
    for number in 0..mutations {
        let input = mutator.next(&files);
        run(target, &format!("mutation {number}"), &input);
    }
}

/// A test for each target, and a test that there is one for each.
macro_rules! replay {
    ($($target:ident),+ $(,)?) => {
        $(#[test]
        fn $target() {
            replay(stringify!($target));
        })+

        #[test]
        fn every_target_is_replayed_and_has_a_binary() {
            let targets: BTreeSet<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
            assert_eq!(targets, [$(stringify!($target).to_owned()),+].into());
            let names = |dir: &str| -> BTreeSet<String> {
                let entries = fs::read_dir(fuzz_dir().join(dir)).unwrap();
                let name = |path: PathBuf| path.file_stem().unwrap().to_str().unwrap().to_owned();
                entries.map(|entry| name(entry.unwrap().path())).collect()
            };
            assert_eq!(targets, names("fuzz_targets"));
            assert_eq!(targets, names("corpus"));
        }
    };
}

replay!(
    wire_headers,
    wire_fragment,
    wire_icmp,
    wire_offload,
    ipsec_outbound,
    ipsec_inbound,
    ipsec_reassembly,
    ipsec_transport,
    ipsec_ah,
    ike_message,
    ike_endpoint,
    ike_conversation,
    ike_cert,
    vici_codec,
    vici_schema,
    vici_server,
);
