//! Whether a program in the configuration may be run as root, and whether only root can change a
//! file.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a script is not run, or a file not obeyed: another user who can change it would become root.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// It does not exist, or cannot be examined.
    #[error("{}: {error}", .path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A directory, or something else that is not a file.
    #[error("{}: found something else, expected a file", .0.display())]
    NoFile(PathBuf),
    /// No execute permission.
    #[error("{}: found mode {mode:o}, expected an executable file", .path.display())]
    NotExecutable {
        /// The script.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The owner of the script or of a directory above it is not root.
    #[error("{}: found owner with UID {uid}, expected root", .path.display())]
    Owner {
        /// The path.
        path: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// Others can write to the script or to a directory above it.
    #[error("{}: found mode {mode:o}, expected no write permission for group and others", .path.display())]
    Writable {
        /// The path.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// Checks that only root can change or replace the script. Returns the path to run: the script
/// itself, with all symbolic links resolved.
pub fn check(program: &Path) -> Result<PathBuf, Untrusted> {
    let metadata = program.metadata().map_err(unreadable(program))?;
    if !metadata.is_file() {
        return Err(Untrusted::NoFile(program.to_owned()));
    }
    if metadata.mode() & 0o111 == 0 {
        return Err(Untrusted::NotExecutable { path: program.to_owned(), mode: metadata.mode() & 0o7777 });
    }
    check_file(program)
}

/// Checks that only root can change or replace the file. Returns its path with all symbolic links
/// resolved.
pub fn check_file(file: &Path) -> Result<PathBuf, Untrusted> {
    if !file.metadata().map_err(unreadable(file))?.is_file() {
        return Err(Untrusted::NoFile(file.to_owned()));
    }
    // With a symbolic link two paths count: that of the link, and that of its target.
    let target = file.canonicalize().map_err(unreadable(file))?;
    for path in file.ancestors().chain(target.ancestors()) {
        let metadata = path.metadata().map_err(unreadable(path))?;
        if metadata.uid() != 0 {
            return Err(Untrusted::Owner { path: path.to_owned(), uid: metadata.uid() });
        }
        // In a directory such as /tmp nobody can replace a file that root owns.
        let sticky = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
        if metadata.mode() & 0o022 != 0 && !sticky {
            return Err(Untrusted::Writable { path: path.to_owned(), mode: metadata.mode() & 0o7777 });
        }
    }
    Ok(target)
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Untrusted {
    let path = path.to_owned();
    move |error| Untrusted::Unreadable { path, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn executable(dir: &Path) -> PathBuf {
        let path = dir.join("updown");
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        set_mode(&path, 0o755);
        path
    }

    #[test]
    fn a_script_that_others_than_root_can_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let program = executable(dir.path());
        check(&program).unwrap();
        for mode in [0o775, 0o757, 0o777] {
            set_mode(&program, mode);
            assert!(matches!(check(&program), Err(Untrusted::Writable { .. })), "{mode:o}");
            assert!(matches!(check_file(&program), Err(Untrusted::Writable { .. })), "{mode:o}");
        }
        set_mode(&program, 0o644);
        assert!(matches!(check(&program), Err(Untrusted::NotExecutable { .. })));
        check_file(&program).unwrap();
        set_mode(&program, 0o755);
        chown(&program, Some(1000), None).unwrap();
        assert!(matches!(check(&program), Err(Untrusted::Owner { uid: 1000, .. })));
        chown(&program, Some(0), None).unwrap();
        set_mode(dir.path(), 0o777);
        assert!(
            matches!(check(&program), Err(Untrusted::Writable { .. })),
            "another could be put in its place"
        );
        set_mode(dir.path(), 0o1777);
        check(&program).unwrap();
        assert!(matches!(check(dir.path()), Err(Untrusted::NoFile(_))));
        assert!(matches!(check(Path::new("/etc/testudo/nowhere")), Err(Untrusted::Unreadable { .. })));
    }

    #[test]
    fn both_paths_of_a_symbolic_link_are_checked() {
        let (safe, open) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let program = executable(safe.path());
        let link = open.path().join("link");
        symlink(&program, &link).unwrap();
        check(&link).unwrap();
        set_mode(open.path(), 0o777);
        assert!(
            matches!(check(&link), Err(Untrusted::Writable { .. })),
            "the link could name something else"
        );
        set_mode(open.path(), 0o700);
        set_mode(safe.path(), 0o777);
        assert!(matches!(check(&link), Err(Untrusted::Writable { .. })), "what it names could be replaced");
    }
}
