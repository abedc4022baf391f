//! Writing lengths that may not fit.

use super::error::EncodeError;

/// `found` as an octet.
pub(super) fn narrow_u8(what: &'static str, found: usize) -> Result<u8, EncodeError> {
    u8::try_from(found).map_err(|_| EncodeError { what, found, limit: usize::from(u8::MAX) })
}

/// `found` as two octets.
pub(super) fn narrow_u16(what: &'static str, found: usize) -> Result<u16, EncodeError> {
    u16::try_from(found).map_err(|_| EncodeError { what, found, limit: usize::from(u16::MAX) })
}

/// Writes a structure whose octets 2 and 3 are its own length: `head` holds the two octets before.
pub(super) fn with_length(
    out: &mut Vec<u8>,
    head: [u8; 2],
    what: &'static str,
    body: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    out.extend_from_slice(&head);
    out.extend_from_slice(&[0, 0]);
    body(out)?;
    let length = narrow_u16(what, out.len().saturating_sub(start))?;
    if let Some(field) = out.get_mut(start..).and_then(|structure| structure.get_mut(2..4)) {
        field.copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}
