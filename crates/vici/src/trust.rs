//! Whether a program that the configuration names may be run as root.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Why a script is not run: whoever else can change it would be root.
#[derive(Debug, thiserror::Error)]
pub enum Untrusted {
    /// It is not there, or cannot be looked at.
    #[error("{}: {error}", .path.display())]
    Unreadable {
        /// What cannot be looked at.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A directory, or another thing that is no program.
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
    /// The script, or a directory above it.
    #[error("{}: found owner with UID {uid}, expected root", .path.display())]
    Owner {
        /// Of what.
        path: PathBuf,
        /// Who owns it.
        uid: u32,
    },
    /// The script, or a directory above it.
    #[error("{}: found mode {mode:o}, expected no write permission for group and others", .path.display())]
    Writable {
        /// Of what.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
}

/// Checks that nobody but root can change the script, or put another in its place. Returns what is
/// to be run: the script itself, whatever symbolic links lead to it.
pub fn check(program: &Path) -> Result<PathBuf, Untrusted> {
    let unreadable = |path: &Path| {
        let path = path.to_owned();
        move |error| Untrusted::Unreadable { path, error }
    };
    let metadata = program.metadata().map_err(unreadable(program))?;
    if !metadata.is_file() {
        return Err(Untrusted::NoFile(program.to_owned()));
    }
    if metadata.mode() & 0o111 == 0 {
        return Err(Untrusted::NotExecutable { path: program.to_owned(), mode: metadata.mode() & 0o7777 });
    }
    // Of a symbolic link both ways count: that to the link, and that to what it names.
    let target = program.canonicalize().map_err(unreadable(program))?;
    for path in program.ancestors().chain(target.ancestors()) {
        let metadata = path.metadata().map_err(unreadable(path))?;
        if metadata.uid() != 0 {
            return Err(Untrusted::Owner { path: path.to_owned(), uid: metadata.uid() });
        }
        // In a directory such as /tmp nobody can replace what root owns.
        let sticky = metadata.is_dir() && metadata.mode() & 0o1000 != 0;
        if metadata.mode() & 0o022 != 0 && !sticky {
            return Err(Untrusted::Writable { path: path.to_owned(), mode: metadata.mode() & 0o7777 });
        }
    }
    Ok(target)
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
    fn what_others_than_root_can_change_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let program = executable(dir.path());
        check(&program).unwrap();
        for mode in [0o775, 0o757, 0o777] {
            set_mode(&program, mode);
            assert!(matches!(check(&program), Err(Untrusted::Writable { .. })), "{mode:o}");
        }
        set_mode(&program, 0o644);
        assert!(matches!(check(&program), Err(Untrusted::NotExecutable { .. })));
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
    fn of_a_link_both_ways_count() {
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
