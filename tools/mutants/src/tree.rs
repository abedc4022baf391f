//! A copy of the workspace in which mutants are planted.

use crate::error::{Error, Result};
use crate::find;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the switch of all mutants goes: a crate that all others use.
const SWITCH: &str = "crates/base/src/mutant.rs";
const SWITCH_SOURCE: &str = include_str!("switch.rs");
const BASE: &str = "crates/base/src/lib.rs";

/// The copy, in `target/mutants/tree`.
#[derive(Debug)]
pub(crate) struct Tree {
    original: PathBuf,
    copy: PathBuf,
    /// The build of the copy.
    pub(crate) target: PathBuf,
}

impl Tree {
    /// Copies the workspace, without what git ignores. What an earlier run has left is kept where it
    /// is the same, so that cargo does not build it again.
    pub(crate) fn copy() -> Result<Self> {
        let original = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let original = original.canonicalize().map_err(Error::io("find the workspace"))?;
        let own = original.join("target/mutants");
        let tree = Self { copy: own.join("tree"), target: own.join("target"), original };
        let files: BTreeSet<PathBuf> = tree.files()?.into_iter().collect();
        tree.remove_others(&tree.copy, &files)?;
        for file in &files {
            let from = tree.original.join(file);
            // Listed, but deleted.
            if !from.is_file() {
                continue;
            }
            let mut text = fs::read(&from).map_err(Error::io(format!("read {}", from.display())))?;
            if file == Path::new(BASE) {
                text.extend_from_slice(b"\npub mod mutant;\n");
            }
            tree.replace(file, &text)?;
        }
        tree.replace(Path::new(SWITCH), SWITCH_SOURCE.as_bytes())?;
        Ok(tree)
    }

    /// Removes the files below a directory of the copy that the workspace does not have.
    fn remove_others(&self, directory: &Path, files: &BTreeSet<PathBuf>) -> Result<()> {
        let failed = || Error::io(format!("clear {}", directory.display()));
        if !directory.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(directory).map_err(failed())? {
            let path = entry.map_err(failed())?.path();
            if path.is_dir() {
                self.remove_others(&path, files)?;
            } else if !path.strip_prefix(&self.copy).is_ok_and(|file| files.contains(file)) {
                fs::remove_file(&path).map_err(failed())?;
            }
        }
        Ok(())
    }

    fn files(&self) -> Result<Vec<PathBuf>> {
        let mut command = Command::new("git");
        command.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let output = command.current_dir(&self.original).output().map_err(Error::io("start git"))?;
        let listed = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::Command { command: "git ls-files".to_owned(), said });
        }
        Ok(listed.split_terminator('\0').map(PathBuf::from).collect())
    }

    /// The root of the copy.
    pub(crate) fn root(&self) -> &Path {
        &self.copy
    }

    /// A path that the user has given, from the root of the workspace.
    pub(crate) fn place_of(&self, path: &Path) -> Result<PathBuf> {
        let outside = || Error::NoCrate { path: path.to_owned() };
        let whole = path.canonicalize().map_err(Error::io(format!("find {}", path.display())))?;
        whole.strip_prefix(&self.original).map(Path::to_owned).map_err(|_| outside())
    }

    /// The source files below the paths, from the root of the workspace, without those of tests.
    pub(crate) fn sources(&self, paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
        let wanted = paths.iter().map(|path| self.place_of(path)).collect::<Result<Vec<_>>>()?;
        let mut sources = Vec::new();
        for file in self.files()? {
            let is_rust = file.extension().is_some_and(|ending| ending == "rs");
            let is_wanted = is_rust && wanted.iter().any(|path| file.starts_with(path));
            if is_wanted && !self.is_for_tests(&file)? {
                sources.push(file);
            }
        }
        sources.sort();
        Ok(sources)
    }

    /// True for the file of a module that is declared for tests alone, or that is within such a one.
    fn is_for_tests(&self, file: &Path) -> Result<bool> {
        let (Some(directory), Some(name)) = (file.parent(), file.file_stem()) else { return Ok(false) };
        if file.components().any(|part| part.as_os_str() == "tests") {
            return Ok(true);
        }
        let above = directory.with_extension("rs");
        for parent in [above.clone(), directory.join("lib.rs"), directory.join("main.rs")] {
            if parent == file || !self.original.join(&parent).is_file() {
                continue;
            }
            let modules = find::test_modules(&self.original(&parent)?);
            let modules = modules.map_err(|error| Error::source(&parent, &error))?;
            if modules.iter().any(|module| module.as_str() == name) {
                return Ok(true);
            }
        }
        Ok(self.original.join(&above).is_file() && self.is_for_tests(&above)?)
    }

    /// The text of a file of the workspace.
    pub(crate) fn original(&self, file: &Path) -> Result<String> {
        let file = self.original.join(file);
        fs::read_to_string(&file).map_err(Error::io(format!("read {}", file.display())))
    }

    /// Makes this the content of a file of the copy.
    pub(crate) fn replace(&self, file: &Path, text: &[u8]) -> Result<()> {
        let file = self.copy.join(file);
        if fs::read(&file).is_ok_and(|now| now == text) {
            return Ok(());
        }
        let written =
            fs::create_dir_all(file.parent().unwrap_or(&file)).and_then(|()| fs::write(&file, text));
        written.map_err(Error::io(format!("write {}", file.display())))
    }
}
