//! `testudo NAME` for separate programs, as with `git` and `cargo`: `testudo-NAME`, from the
//! directory of this program or from PATH.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// A shell's exit code for a command that it has found and cannot run.
const CANNOT_RUN: u8 = 126;
/// A shell's exit code for a command that it has not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// Executes the program. The first word is the name of the command.
pub(crate) fn run(words: &[OsString]) -> ExitCode {
    let Some((name, arguments)) = words.split_first() else { return ExitCode::from(NOT_FOUND) };
    let Some(program) = find(name) else {
        eprintln!("testudo: {}", missing(&name.to_string_lossy()));
        return ExitCode::from(NOT_FOUND);
    };
    become_program("testudo", Command::new(&program).args(arguments))
}

/// Executes a program in place of this one. Returns only if that fails, and `caller` says so.
pub(crate) fn become_program(caller: &str, command: &mut Command) -> ExitCode {
    let error = command.exec();
    eprintln!("{caller}: cannot run {}: {error}", Path::new(command.get_program()).display());
    ExitCode::from(CANNOT_RUN)
}

fn find(name: &OsStr) -> Option<PathBuf> {
    // A name with a slash would lead out of the directories.
    if name.as_bytes().contains(&b'/') {
        return None;
    }
    let mut program = OsString::from("testudo-");
    program.push(name);
    let own = env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    own.map(|directory| directory.join(&program))
        .filter(|path| is_executable(path))
        .or_else(|| in_path(&program))
}

/// The program of that name in a directory of PATH.
pub(crate) fn in_path(program: &OsStr) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    // An empty entry of PATH means the working directory, where another user may have put a
    // program.
    let absolute = env::split_paths(&path).filter(|directory| directory.is_absolute());
    absolute.map(|directory| directory.join(program)).find(|path| is_executable(path))
}

fn is_executable(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

fn missing(name: &str) -> String {
    let advice = match name {
        "bench" => {
            "\nThe benchmarks are not installed with a gateway. In a checkout of Testudo, \
             `cargo build --release --package testudo-bench` builds target/release/testudo-bench; \
             put it beside testudo."
        }
        _ => " `testudo --help` lists the commands.",
    };
    format!("there is no command {name}, and no program testudo-{name} beside testudo or in PATH.{advice}")
}
