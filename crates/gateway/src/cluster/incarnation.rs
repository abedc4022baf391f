//! The number of this node's incarnation, on disk: no sender ID (RFC 6054) may be used again under keys that still live,
//! whatever the rest of the cluster remembers.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Where the number is kept.
#[derive(Debug)]
pub(crate) struct Incarnation {
    file: PathBuf,
}

impl Incarnation {
    /// Of the instance, below that directory, which is made if it is not there.
    pub(crate) fn open(directory: &Path, instance: &str) -> Result<Self, String> {
        let failed =
            |e| format!("{}: cannot make the directory of the cluster's state: {e}", directory.display());
        fs::create_dir_all(directory).map_err(failed)?;
        Ok(Self { file: directory.join(format!("incarnation-{instance}")) })
    }

    /// The last number that was written; 0 if none ever was. What cannot be read is no 0: numbers would begin again.
    pub(crate) fn last(&self) -> Result<u16, String> {
        let complain = |found: String| {
            let file = self.file.display();
            format!("{file}: found {found}, expected the number of this node's last incarnation, 0 to 2047")
        };
        match fs::read_to_string(&self.file) {
            Ok(text) => text
                .trim_ascii()
                .parse()
                .ok()
                .filter(|number| *number < 1 << 11)
                .ok_or_else(|| complain(format!("{text:.20?}"))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(complain(error.to_string())),
        }
    }

    /// Writes a number so that it is there after a loss of power too.
    pub(crate) fn write(&self, number: u16) -> Result<(), String> {
        self.replace(number)
            .map_err(|e| format!("{}: cannot write incarnation {number}: {e}", self.file.display()))
    }

    fn replace(&self, number: u16) -> io::Result<()> {
        let new = self.file.with_extension("new");
        let mut file = File::create(&new)?;
        writeln!(file, "{number}")?;
        file.sync_all()?;
        fs::rename(&new, &self.file)?;
        // The name too must be on the disk.
        self.file.parent().map_or(Ok(()), |directory| File::open(directory)?.sync_all())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("not/there/yet");
        let incarnation = Incarnation::open(&state, "gw").unwrap();
        assert_eq!(incarnation.last(), Ok(0));
        for number in [1, 9, 2047] {
            incarnation.write(number).unwrap();
            assert_eq!(Incarnation::open(&state, "gw").unwrap().last(), Ok(number));
        }
        assert_eq!(Incarnation::open(&state, "other").unwrap().last(), Ok(0));
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let incarnation = Incarnation::open(dir.path(), "gw").unwrap();
        for text in ["", "x", "-1", "2048", "99999999999999999999"] {
            fs::write(&incarnation.file, text).unwrap();
            let error = incarnation.last().unwrap_err();
            assert!(error.contains("expected the number of this node's last incarnation"), "{error}");
        }
    }
}
