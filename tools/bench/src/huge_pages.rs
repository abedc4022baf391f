//! Huge pages for what the C library allocates, as `testudod.service` asks for them: it reads that
//! once, before `main`.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

const VARIABLE: &str = "GLIBC_TUNABLES";
const WANTED: &str = "glibc.malloc.hugetlb=1";

/// Begins the program anew with them, unless the variable is there, whatever it says. Where that
/// fails it goes on as it is.
pub(crate) fn ask() {
    if env::var_os(VARIABLE).is_none() {
        let error = Command::new("/proc/self/exe").args(env::args_os().skip(1)).env(VARIABLE, WANTED).exec();
        eprintln!("no huge pages: {error}");
    }
}
