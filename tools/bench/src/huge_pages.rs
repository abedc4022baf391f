//! Huge pages for the C library's allocator, as `testudod.service` requests them: the library reads
//! the setting once, before `main`.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

const VARIABLE: &str = "GLIBC_TUNABLES";
const WANTED: &str = "glibc.malloc.hugetlb=1";

/// Restarts the program with them, unless the variable is set to any value. If that fails, the
/// program continues without.
pub(crate) fn ask() {
    if env::var_os(VARIABLE).is_none() {
        let error = Command::new("/proc/self/exe").args(env::args_os().skip(1)).env(VARIABLE, WANTED).exec();
        eprintln!("no huge pages: {error}");
    }
}
