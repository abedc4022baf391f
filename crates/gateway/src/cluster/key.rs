//! The key that all nodes share, from its file.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use zeroize::Zeroizing;

/// Octets of the key.
const KEY_OCTETS: usize = 32;
/// Its digits, and room for a line's end or two.
const MAX_FILE_OCTETS: u64 = 2 * KEY_OCTETS as u64 + 4;
const EXPECTED: &str = "64 hexadecimal digits (openssl rand -hex 32)";

/// Reads the key. `place` begins the complaints: where the file is named. What stands in the file
/// is never shown.
pub(crate) fn load(place: &str, file: &Path) -> Result<Zeroizing<[u8; KEY_OCTETS]>, String> {
    let complain = |found: &str, expected: &str| {
        Err(format!("{place}: {}: found {found}, expected {expected}", file.display()))
    };
    let opened = File::open(file).and_then(|opened| Ok((opened.metadata()?, opened)));
    let (metadata, opened) = match opened {
        Ok(opened) => opened,
        Err(error) => return complain(&error.to_string(), "a file with the cluster's key"),
    };
    if metadata.mode() & 0o077 != 0 {
        let found = format!("a file that others may use (mode {:o})", metadata.mode() & 0o777);
        return complain(&found, "one that its owner alone may read (chmod 600)");
    }
    let mut text = Zeroizing::new(Vec::with_capacity(MAX_FILE_OCTETS as usize + 1));
    if let Err(error) = opened.take(MAX_FILE_OCTETS + 1).read_to_end(&mut text) {
        return complain(&error.to_string(), EXPECTED);
    }
    let digits = text.trim_ascii();
    match decode(digits) {
        Some(key) => Ok(key),
        None if text.len() as u64 > MAX_FILE_OCTETS => complain("more than that", EXPECTED),
        None => complain(&format!("{} octets that are not", digits.len()), EXPECTED),
    }
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

    fn key_of(text: &str, mode: u32) -> Result<Zeroizing<[u8; KEY_OCTETS]>, String> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        load("t.toml:3: cluster.key", &file)
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
        assert!(error.contains("others may use (mode 640)"), "{error}");
        let error = load("t.toml:3: cluster.key", Path::new("/nonexistent/key")).unwrap_err();
        assert!(error.contains("/nonexistent/key: found No such file"), "{error}");
    }
}
