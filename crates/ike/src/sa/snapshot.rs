//! IKE SAs as octets, with the version of the format in front.
//!
//! No two nodes have the same clock. The times in a snapshot are on a clock of its own, which stood at [`TAKEN`] when the
//! snapshot was made.

use super::{CounterSync, IkeSa, Synced};
use crate::endpoint::SnapshotError;
use crate::output::Time;
use std::time::Duration;
use zeroize::Zeroizing;

/// Raised with every change of a serialised type, or when something is added behind: nodes of two versions may have one cluster.
pub(crate) const NEWEST: u16 = 27;
/// Still read and written. It ends with the IKE SA.
pub(crate) const OLDEST: u16 = 26;
/// Later than any IKE SA is old, so that none of its past is cut off.
const TAKEN: Time = Time(Duration::from_secs(1 << 32));
const FIRST_GUESS: usize = 4096;
/// Far above any IKE SA: the stored messages are bounded, and so are the children.
const LIMIT: usize = 1 << 20;

/// What is behind the IKE SA since version 27.
type Added = (CounterSync, Option<Box<Synced>>);

/// The SA as octets of that version, keys included, `now` being the time. `None` if it is larger than an SA can be.
pub(crate) fn encode(sa: &IkeSa, now: Time, version: u16) -> Option<Zeroizing<Vec<u8>>> {
    let mut sa = sa.clone();
    sa.for_each_time(|time| *time = moved(*time, now, TAKEN));
    let added: Option<Added> =
        (version > OLDEST).then(|| (sa.extensions.counter_sync, sa.incoming.sync.take()));
    let mut size = FIRST_GUESS;
    while size <= LIMIT {
        // A fresh buffer each time, so that nothing is reallocated and left behind with keys in it.
        let mut buffer = Zeroizing::new(vec![0; size]);
        let (head, body) = buffer.split_first_chunk_mut::<2>()?;
        *head = version.to_be_bytes();
        let written = match &added {
            None => postcard::to_slice(&sa, body).map(|used| used.len()),
            Some(added) => postcard::to_slice(&(&sa, added), body).map(|used| used.len()),
        };
        match written {
            Ok(used) => {
                let length = used.saturating_add(2);
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
    if !(OLDEST..=NEWEST).contains(&found) {
        return Err(SnapshotError::Version { found, expected: NEWEST });
    }
    let Ok((mut sa, rest)) = postcard::take_from_bytes::<IkeSa>(body) else { return Err(damaged) };
    if found == OLDEST {
        return if rest.is_empty() { Ok(timed(sa, taken)) } else { Err(damaged) };
    }
    let Ok((added, [])) = postcard::take_from_bytes::<Added>(rest) else { return Err(damaged) };
    (sa.extensions.counter_sync, sa.incoming.sync) = added;
    Ok(timed(sa, taken))
}

/// With times on our clock.
fn timed(mut sa: IkeSa, taken: Time) -> IkeSa {
    sa.for_each_time(|time| *time = moved(*time, TAKEN, taken));
    sa
}

/// The same state, if it is not in that version already.
pub(crate) fn translated(bytes: &[u8], version: u16) -> Option<Zeroizing<Vec<u8>>> {
    if bytes.starts_with(&version.to_be_bytes()) {
        return None;
    }
    encode(&decode(bytes, TAKEN).ok()?, TAKEN, version)
}

/// The same moment on another clock: where one stands at `from`, the other stands at `to`. What lies before the other
/// clock began is its beginning.
fn moved(time: Time, from: Time, to: Time) -> Time {
    if time >= from { to.plus(time.since(from)) } else { Time(to.since(Time(from.since(time)))) }
}
