//! Searches the memory of a process, and the files that it shares with others.

use crate::{Error, Result};
use memchr::memmem::Finder;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Octets read at a time.
const PART: usize = 1 << 20;

/// Octets to look for.
#[derive(Clone)]
pub struct Needle {
    /// Their name.
    pub name: String,
    /// At least [`Needle::SHORTEST`] octets: fewer would be found by chance.
    pub octets: Vec<u8>,
}

impl Needle {
    /// See [`Needle::octets`].
    pub const SHORTEST: usize = 8;

    /// A needle with that name. Fails if it is too short.
    pub fn new(name: impl Into<String>, octets: impl Into<Vec<u8>>) -> Result<Self> {
        let needle = Self { name: name.into(), octets: octets.into() };
        let length = needle.octets.len();
        if length < Self::SHORTEST {
            return Err(Error::unexpected(
                needle.name,
                "octets that nothing has by chance",
                length.to_string(),
            ));
        }
        Ok(needle)
    }
}

impl std::fmt::Debug for Needle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} octets)", self.name, self.octets.len())
    }
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Names of needles and where they were found; each place once.
    pub places: Vec<(String, String)>,
    /// Number of octets searched.
    pub octets: u64,
    /// Mappings that could not be read.
    pub unread: Vec<String>,
}

impl Found {
    /// Whether that needle was found.
    pub fn has(&self, needle: &str) -> bool {
        self.places.iter().any(|(name, _)| name == needle)
    }

    fn note(&mut self, needle: &Needle, place: &str) {
        let found = (needle.name.clone(), place.to_owned());
        if !self.places.contains(&found) {
            self.places.push(found);
        }
    }
}

/// Searches all mappings of a process, whether or not it may read them itself: more than a core
/// dump contains.
pub fn of_process(pid: u32, needles: &[Needle]) -> Result<Found> {
    let failed = |what: &str| Error::io(format!("read /proc/{pid}/{what}"));
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).map_err(failed("maps"))?;
    let memory = File::open(format!("/proc/{pid}/mem")).map_err(failed("mem"))?;
    let mut found = Found::default();
    for line in maps.lines() {
        let mapping = Mapping::parse(line)
            .ok_or_else(|| Error::unexpected("a line of /proc/PID/maps", "a mapping", line))?;
        // Parts of the kernel: they hold no keys, and cannot be read this way.
        if mapping.name.starts_with("[v") {
            continue;
        }
        let read = |at: u64, part: &mut [u8]| {
            let left = mapping.end.saturating_sub(mapping.start + at);
            let most = part.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            memory.read_at(&mut part[..most], mapping.start + at)
        };
        if search(needles, &mut found, mapping.name, read).is_err() {
            found.unread.push(line.to_owned());
        }
    }
    Ok(found)
}

/// Searches a file, or all files below a directory, in the mount namespace of that process.
pub fn of_files(pid: u32, path: &Path, needles: &[Needle]) -> Result<Found> {
    let mut found = Found::default();
    let inside = path.strip_prefix("/").unwrap_or(path);
    files(&Path::new(&format!("/proc/{pid}/root")).join(inside), needles, &mut found)?;
    Ok(found)
}

fn files(path: &Path, needles: &[Needle], found: &mut Found) -> Result<()> {
    let failed = |error: io::Error| Error::io(format!("read {}", path.display()))(error);
    let kind = fs::symlink_metadata(path).map_err(failed)?.file_type();
    if kind.is_dir() {
        for entry in fs::read_dir(path).map_err(failed)? {
            match files(&entry.map_err(failed)?.path(), needles, found) {
                // Files may disappear meanwhile.
                Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
    } else if kind.is_file() {
        let file = File::open(path).map_err(failed)?;
        let name = path.display().to_string();
        search(needles, found, &name, |at, part| file.read_at(part, at)).map_err(failed)?;
    }
    Ok(())
}

/// Searches the octets that `read` returns from an offset on, until it returns none.
fn search(
    needles: &[Needle],
    found: &mut Found,
    place: &str,
    read: impl Fn(u64, &mut [u8]) -> io::Result<usize>,
) -> io::Result<()> {
    let finders: Vec<(&Needle, Finder<'_>)> =
        needles.iter().map(|needle| (needle, Finder::new(&needle.octets))).collect();
    let longest = needles.iter().map(|needle| needle.octets.len()).max().unwrap_or(0);
    let mut part = vec![0; PART + longest];
    // The end of a part may be the beginning of a needle, so it is kept for the next part.
    let (mut at, mut kept) = (0_u64, 0);
    loop {
        let read = read(at, &mut part[kept..kept + PART])?;
        if read == 0 {
            return Ok(());
        }
        (at, found.octets) = (at + read as u64, found.octets + read as u64);
        let filled = kept + read;
        for (needle, finder) in &finders {
            if finder.find(&part[..filled]).is_some() {
                found.note(needle, place);
            }
        }
        kept = longest.saturating_sub(1).min(filled);
        part.copy_within(filled - kept..filled, 0);
    }
}

/// A line of /proc/PID/maps.
struct Mapping<'a> {
    start: u64,
    end: u64,
    name: &'a str,
}

impl<'a> Mapping<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        // Permissions, offset, device, inode.
        let name = rest.splitn(5, ' ').nth(4).unwrap_or_default().trim();
        let hex = |text| u64::from_str_radix(text, 16).ok();
        Some(Self { start: hex(start)?, end: hex(end)?, name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Octets that the test's memory contains nowhere else.
    fn made(seed: u8) -> Vec<u8> {
        (0..32_u8).map(|n| n.wrapping_mul(37) ^ seed.rotate_left(u32::from(n % 8))).collect()
    }

    fn spread(needle: &Needle, at: usize, length: usize) -> Vec<u8> {
        let mut octets = vec![0x5a; length];
        octets[at..at + needle.octets.len()].copy_from_slice(&needle.octets);
        octets
    }

    fn searched(needles: &[Needle], octets: &[u8]) -> Found {
        let mut found = Found::default();
        search(needles, &mut found, "here", |at, part| octets.read_at(part, at)).unwrap();
        found
    }

    trait ReadAt {
        fn read_at(&self, part: &mut [u8], at: u64) -> io::Result<usize>;
    }

    impl ReadAt for [u8] {
        fn read_at(&self, part: &mut [u8], at: u64) -> io::Result<usize> {
            let rest = self.get(at as usize..).unwrap_or_default();
            let length = rest.len().min(part.len());
            part[..length].copy_from_slice(&rest[..length]);
            Ok(length)
        }
    }

    #[test]
    fn a_needle_is_found_wherever_it_is() {
        let (one, other) = (Needle::new("one", made(1)).unwrap(), Needle::new("other", made(2)).unwrap());
        let length = 2 * PART + 100;
        for at in [0, 1, PART - 32, PART - 31, PART - 16, PART - 1, PART, 2 * PART - 5, length - 32] {
            let found = searched(&[other.clone(), one.clone()], &spread(&one, at, length));
            assert_eq!(found.places, [("one".to_owned(), "here".to_owned())], "at {at}");
            assert_eq!(found.octets, length as u64);
        }
        assert_eq!(searched(&[one.clone(), other], &vec![0x5a; length]).places, []);
        assert_eq!(searched(&[one], &[]).places, []);
        assert!(Needle::new("too short", *b"1234567").is_err());
    }

    #[test]
    fn a_process_and_its_files_are_searched() {
        let there = Needle::new("there", b"a text that sleep is given to keep").unwrap();
        let not = Needle::new("not there", made(3)).unwrap();
        let text = String::from_utf8(there.octets.clone()).unwrap();
        let mut child = std::process::Command::new("sleep").arg("60").env("KEPT", text).spawn().unwrap();
        // Until it executes its program, its memory is a copy of this process's.
        let done =
            || fs::read_to_string(format!("/proc/{}/comm", child.id())).is_ok_and(|name| name == "sleep\n");
        while !done() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let found = of_process(child.id(), &[not.clone(), there.clone()]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found.places, [("there".to_owned(), "[stack]".to_owned())]);
        assert_eq!(found.unread, Vec::<String>::new());

        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/file"), spread(&not, 70, 200)).unwrap();
        let found = of_files(std::process::id(), dir.path(), &[not, there]).unwrap();
        assert!(found.has("not there") && !found.has("there"), "{found:?}");
    }
}
