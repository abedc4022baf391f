//! Files to download: generated fast, with their digest.

use crate::{Error, Result};
use aws_lc_rs::digest::{Context, SHA256};
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

const CHUNK: usize = 1 << 20;

/// A SHA-256 digest in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sha256(pub String);

impl Sha256 {
    /// The digest of everything that the context has processed.
    pub(crate) fn of(digest: Context) -> Self {
        Self(digest.finish().as_ref().iter().map(|octet| format!("{octet:02x}")).collect())
    }
}

/// Writes `length` pseudo-random octets, which no link can compress, and returns their digest.
pub fn write_random(path: &Path, length: u64, seed: u64) -> Result<Sha256> {
    let mut file = File::create(path).map_err(Error::io(format!("make {}", path.display())))?;
    let mut state = seed;
    let mut chunk = vec![0; CHUNK];
    let mut digest = Context::new(&SHA256);
    let mut left = length;
    while left > 0 {
        for word in chunk.chunks_exact_mut(8) {
            word.copy_from_slice(&splitmix64(&mut state).to_le_bytes());
        }
        let part = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        digest.update(&chunk[..part]);
        file.write_all(&chunk[..part]).map_err(Error::io(format!("write {}", path.display())))?;
        left -= part as u64;
    }
    Ok(Sha256::of(digest))
}

/// The digest of a file.
pub fn sha256(path: &Path) -> Result<Sha256> {
    let action = || Error::io(format!("read {}", path.display()));
    let mut file = File::open(path).map_err(action())?;
    let mut digest = Context::new(&SHA256);
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk).map_err(action())? {
            0 => return Ok(Sha256::of(digest)),
            n => digest.update(&chunk[..n]),
        }
    }
}

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (2014).
fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Cmd;

    #[test]
    fn length_and_digest_are_those_of_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let length = (CHUNK + 12_345) as u64;
        let written = write_random(&path, length, 7).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), length);
        assert_eq!(sha256(&path).unwrap(), written);
        let shown = Cmd::new("sha256sum").arg(&path).run().unwrap().stdout;
        assert_eq!(shown.split_ascii_whitespace().next(), Some(written.0.as_str()));
        let other = write_random(&path, length, 8).unwrap();
        assert_ne!(other, written);
    }
}
