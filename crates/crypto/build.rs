//! Looks for intel-ipsec-mb and, if it is there, compiles the glue and sets the cfg `ipsec_mb`.
//!
//! `TESTUDO_IPSEC_MB=no` leaves it out, `TESTUDO_IPSEC_MB=yes` makes its absence an error.

use std::path::PathBuf;

const SWITCH: &str = "TESTUDO_IPSEC_MB";
const PROBE: &str = "src/ipsec_mb_probe.c";
const GLUE: [&str; 2] = ["src/ipsec_mb.c", "src/ipsec_mb_multi.c"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(ipsec_mb)");
    println!("cargo::rerun-if-env-changed={SWITCH}");
    println!("cargo::rerun-if-changed={PROBE}");
    GLUE.iter().for_each(|file| println!("cargo::rerun-if-changed={file}"));

    let wish = std::env::var(SWITCH).unwrap_or_default();
    match (wish.as_str(), find()) {
        ("no", _) => {}
        (_, Ok(library)) => build(&library),
        ("yes", Err(reason)) => panic!("{SWITCH}=yes, but {reason}"),
        (_, Err(reason)) => println!("cargo::warning=built without intel-ipsec-mb: {reason}"),
    }
}

/// Where the library is, and how to link it.
struct Found {
    directory: PathBuf,
    kind: &'static str,
}

fn find() -> Result<Found, String> {
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    if arch != "x86_64" {
        return Err(format!("it exists for x86_64 only, this target is {arch}"));
    }
    let text = cc::Build::new().file(PROBE).cargo_warnings(false).try_expand();
    let text = text.map_err(|e| format!("the C compiler cannot preprocess {PROBE}: {e}"))?;
    if !String::from_utf8_lossy(&text).contains("testudo_ipsec_mb_found") {
        return Err("<intel-ipsec-mb.h> 1.0 or later is not there (Debian: libipsec-mb-dev)".into());
    }
    // Static is preferred: the daemon then runs on machines that lack the library.
    [("libIPSec_MB.a", "static:-bundle"), ("libIPSec_MB.so", "dylib")]
        .into_iter()
        .find_map(|(file, kind)| Some(Found { directory: directory_of(file)?, kind }))
        .ok_or_else(|| "the compiler finds neither libIPSec_MB.a nor libIPSec_MB.so".into())
}

/// The compiler knows the directories of the target; it answers with the bare name if no directory
/// has the file.
fn directory_of(file: &str) -> Option<PathBuf> {
    let mut command = cc::Build::new().get_compiler().to_command();
    let output = command.arg(format!("-print-file-name={file}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    let directory = path.canonicalize().ok()?.parent()?.to_path_buf();
    path.is_absolute().then_some(directory)
}

fn build(library: &Found) {
    cc::Build::new().files(GLUE).std("c11").warnings_into_errors(true).compile("testudo_ipsec_mb");
    println!("cargo::rustc-link-search=native={}", library.directory.display());
    println!("cargo::rustc-link-lib={}=IPSec_MB", library.kind);
    println!("cargo::rustc-cfg=ipsec_mb");
}
