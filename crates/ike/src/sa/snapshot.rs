//! IKE SAs as octets, with the version of the format in front.
//!
//! No two nodes have the same clock. The times in a snapshot are on a clock of its own, which stood at [`TAKEN`] when the
//! snapshot was made.

use super::IkeSa;
use crate::endpoint::SnapshotError;
use crate::output::Time;
use std::time::Duration;
use zeroize::Zeroizing;

/// Raised with every change of a serialised type.
const VERSION: u16 = 27;
/// Later than any IKE SA is old, so that none of its past is cut off.
const TAKEN: Time = Time(Duration::from_secs(1 << 32));
const FIRST_GUESS: usize = 4096;
/// Far above any IKE SA: the stored messages are bounded, and so are the children.
const LIMIT: usize = 1 << 20;

/// The SA as octets, keys included, `now` being the time. `None` if it is larger than an SA can be.
pub(crate) fn encode(sa: &IkeSa, now: Time) -> Option<Zeroizing<Vec<u8>>> {
    let mut sa = sa.clone();
    sa.for_each_time(|time| *time = moved(*time, now, TAKEN));
    let mut size = FIRST_GUESS;
    while size <= LIMIT {
        // A fresh buffer each time, so that nothing is reallocated and left behind with keys in it.
        let mut buffer = Zeroizing::new(vec![0; size]);
        let (head, body) = buffer.split_first_chunk_mut::<2>()?;
        *head = VERSION.to_be_bytes();
        match postcard::to_slice(&sa, body) {
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

/// The SA from [`encode`], which was called at `taken` of our clock.
pub(crate) fn decode(bytes: &[u8], taken: Time) -> Result<IkeSa, SnapshotError> {
    let damaged = SnapshotError::Damaged(bytes.len());
    let (head, body) = bytes.split_first_chunk::<2>().ok_or(damaged.clone())?;
    let found = u16::from_be_bytes(*head);
    if found != VERSION {
        return Err(SnapshotError::Version { found, expected: VERSION });
    }
    let mut sa = match postcard::take_from_bytes::<IkeSa>(body) {
        Ok((sa, [])) => sa,
        _ => return Err(damaged),
    };
    sa.for_each_time(|time| *time = moved(*time, TAKEN, taken));
    Ok(sa)
}

/// The same moment on another clock: where one stands at `from`, the other stands at `to`. What lies before the other
/// clock began is its beginning.
fn moved(time: Time, from: Time, to: Time) -> Time {
    if time >= from { to.plus(time.since(from)) } else { Time(to.since(Time(from.since(time)))) }
}
