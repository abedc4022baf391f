//! The key that all nodes share, from its file.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Octets of the key.
const KEY_OCTETS: usize = 32;
/// Its digits in the file.
const KEY_DIGITS: usize = 2 * KEY_OCTETS;
/// The digits, and room for a line's end or two.
const MAX_FILE_OCTETS: usize = KEY_DIGITS + 4;

/// Why a file gives no key. What the file holds is never shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the cluster's key: {0}")]
    Unreadable(#[from] io::Error),
    /// Other users may read or write the file.
    #[error(
        "found mode {mode:o}, which lets other users in, expected a file for its owner alone (chmod 600)"
    )]
    Exposed { mode: u32 },
    /// The file is longer than a key.
    #[error(
        "found more than {MAX_FILE_OCTETS} octets, \
         expected {KEY_DIGITS} hexadecimal digits (openssl rand -hex {KEY_OCTETS})"
    )]
    TooLong,
    /// The file holds something else than a key.
    #[error(
        "found {octets} octets that are no key, \
         expected {KEY_DIGITS} hexadecimal digits (openssl rand -hex {KEY_OCTETS})"
    )]
    Malformed { octets: usize },
}

/// Reads the key. `place` is where the configuration names the file.
pub(crate) fn load(place: &str, file: &Path) -> Result<Zeroizing<[u8; KEY_OCTETS]>> {
    read(file).map_err(|source| Error::Key { place: place.to_owned(), file: file.to_owned(), source })
}

fn read(file: &Path) -> std::result::Result<Zeroizing<[u8; KEY_OCTETS]>, KeyError> {
    let file = File::open(file)?;
    let mode = file.metadata()?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(KeyError::Exposed { mode });
    }
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_FILE_OCTETS + 1));
    file.take(MAX_FILE_OCTETS as u64 + 1).read_to_end(&mut text)?;
    if text.len() > MAX_FILE_OCTETS {
        return Err(KeyError::TooLong);
    }
    let digits = text.trim_ascii();
    decode(digits).ok_or(KeyError::Malformed { octets: digits.len() })
}

fn decode(digits: &[u8]) -> Option<Zeroizing<[u8; KEY_OCTETS]>> {
    let mut key = Zeroizing::new([0; KEY_OCTETS]);
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    if pairs.len() != KEY_OCTETS {
        return None;
    }
    let digit = |octet: u8| char::from(octet).to_digit(16);
    for (octet, [high, low]) in key.iter_mut().zip(pairs) {
        *octet = (digit(*high)? << 4 | digit(*low)?) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn key_of(text: &str, mode: u32) -> std::result::Result<Zeroizing<[u8; KEY_OCTETS]>, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        load("t.toml:3: cluster.key", &file).map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_is_64_digits() {
        let text = "00ff".repeat(16);
        for text in [text.clone(), format!("{text}\n"), text.to_uppercase()] {
            assert_eq!(key_of(&text, 0o600).unwrap()[..4], [0, 255, 0, 255]);
        }
    }

    #[test]
    fn anything_else_is_refused_and_not_shown() {
        let secret = "5ec2e7";
        for text in ["", secret, &secret.repeat(11), &secret.repeat(99), &"zz".repeat(32), &"é".repeat(32)] {
            let error = key_of(text, 0o600).unwrap_err();
            assert!(error.starts_with("t.toml:3: cluster.key: /"), "{error}");
            assert!(error.contains("expected 64 hexadecimal digits"), "{error}");
            assert!(!error.contains(secret), "{error}");
        }
        let error = key_of(&"00".repeat(32), 0o640).unwrap_err();
        assert!(error.contains("found mode 640, which lets other users in"), "{error}");
        let error = load("t.toml:3: cluster.key", Path::new("/nonexistent/key")).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/key: cannot read the cluster's key: No such file"), "{error}");
    }
}
