//! IKE SAs as octets, with the version of the format in front.

use super::IkeSa;
use crate::endpoint::SnapshotError;
use zeroize::Zeroizing;

/// Raised with every change of a serialised type.
const VERSION: u16 = 1;
const FIRST_GUESS: usize = 4096;
/// Far above any IKE SA: the stored messages are bounded, and so are the children.
const LIMIT: usize = 1 << 20;

/// The SA as octets, keys included. `None` if it is larger than an SA can be.
pub(crate) fn encode(sa: &IkeSa) -> Option<Zeroizing<Vec<u8>>> {
    let mut size = FIRST_GUESS;
    while size <= LIMIT {
        // A fresh buffer each time, so that nothing is reallocated and left behind with keys in it.
        let mut buffer = Zeroizing::new(vec![0; size]);
        let (head, body) = buffer.split_first_chunk_mut::<2>()?;
        *head = VERSION.to_be_bytes();
        match postcard::to_slice(sa, body) {
            Ok(used) => {
                let length = used.len().saturating_add(2);
                buffer.truncate(length);
                return Some(buffer);
            }
            Err(_) => size = size.saturating_mul(2),
        }
    }
    None
}

/// The SA from [`encode`].
pub(crate) fn decode(bytes: &[u8]) -> Result<IkeSa, SnapshotError> {
    let damaged = SnapshotError::Damaged(bytes.len());
    let (head, body) = bytes.split_first_chunk::<2>().ok_or(damaged.clone())?;
    let found = u16::from_be_bytes(*head);
    if found != VERSION {
        return Err(SnapshotError::Version { found, expected: VERSION });
    }
    match postcard::take_from_bytes(body) {
        Ok((sa, [])) => Ok(sa),
        _ => Err(damaged),
    }
}
