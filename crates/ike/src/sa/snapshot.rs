//! IKE SAs as octets, with the version of the format in front.
//!
//! No two nodes have the same clock. The times in a snapshot are on a clock of its own, which stood
//! at [`TAKEN`] when the snapshot was made.

use super::{Anchor, CounterSync, Ends, IkeSa, Synced};
use crate::endpoint::SnapshotError;
use crate::output::Time;
use std::time::Duration;
use zeroize::Zeroizing;

/// The versions of the format that are read and written. A new one comes with every change of a
/// serialised type, and when something is added behind: nodes of several versions may have one
/// cluster. A stage of an IKE SA that stands behind all others needs none: an older build refuses
/// the connections that lead there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SnapshotVersion {
    /// It ends with the IKE SA.
    V26,
    /// Behind that stands what synchronizes counters (RFC 6311).
    V27,
    /// Behind that stands where a peer was that has moved, and what vouched for it.
    V28,
}

impl SnapshotVersion {
    /// All that this build has to say.
    pub const NEWEST: Self = Self::V28;

    fn number(self) -> u16 {
        match self {
            Self::V26 => 26,
            Self::V27 => 27,
            Self::V28 => 28,
        }
    }

    fn of(number: u16) -> Option<Self> {
        [Self::V26, Self::V27, Self::V28].into_iter().find(|version| version.number() == number)
    }
}

/// Later than any IKE SA is old, so that none of its past is cut off.
const TAKEN: Time = Time(Duration::from_secs(1 << 32));
const FIRST_GUESS: usize = 4096;
/// Far above any IKE SA: the stored messages are bounded, and so are the children.
const LIMIT: usize = 1 << 20;

/// What [`SnapshotVersion::V27`] has behind the IKE SA.
type Counters = (CounterSync, Option<Box<Synced>>);
/// What [`SnapshotVersion::V28`] has behind that.
type Origin = (Option<Box<Ends>>, Option<Box<Anchor>>);

/// The SA as octets of that version, keys included, `now` being the time. `None` if it is larger
/// than an SA can be.
pub(crate) fn encode(sa: &IkeSa, now: Time, version: SnapshotVersion) -> Option<Zeroizing<Vec<u8>>> {
    let mut sa = sa.clone();
    sa.for_each_time(|time| *time = moved(*time, now, TAKEN));
    let counters: Counters = (sa.extensions.counter_sync, sa.incoming.sync.take());
    let origin: Origin = (sa.began_at.take(), sa.anchor.take());
    let mut size = FIRST_GUESS;
    while size <= LIMIT {
        // A fresh buffer each time, so that nothing is reallocated and left behind with keys in it.
        let mut buffer = Zeroizing::new(vec![0; size]);
        let (head, body) = buffer.split_first_chunk_mut::<2>()?;
        *head = version.number().to_be_bytes();
        let written = match version {
            SnapshotVersion::V26 => postcard::to_slice(&sa, body).map(|used| used.len()),
            SnapshotVersion::V27 => postcard::to_slice(&(&sa, &counters), body).map(|used| used.len()),
            SnapshotVersion::V28 => {
                postcard::to_slice(&(&sa, &counters, &origin), body).map(|used| used.len())
            }
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
    let Some(version) = SnapshotVersion::of(found) else {
        return Err(SnapshotError::Version { found, expected: SnapshotVersion::NEWEST.number() });
    };
    let Ok((mut sa, mut rest)) = postcard::take_from_bytes::<IkeSa>(body) else { return Err(damaged) };
    if version >= SnapshotVersion::V27 {
        let Ok((counters, behind)) = postcard::take_from_bytes::<Counters>(rest) else { return Err(damaged) };
        (sa.extensions.counter_sync, sa.incoming.sync) = counters;
        rest = behind;
    }
    if version >= SnapshotVersion::V28 {
        let Ok((origin, behind)) = postcard::take_from_bytes::<Origin>(rest) else { return Err(damaged) };
        (sa.began_at, sa.anchor) = origin;
        rest = behind;
    } else {
        sa.forget_first_ends();
    }
    if rest.is_empty() { Ok(timed(sa, taken)) } else { Err(damaged) }
}

/// With times on our clock.
fn timed(mut sa: IkeSa, taken: Time) -> IkeSa {
    sa.for_each_time(|time| *time = moved(*time, TAKEN, taken));
    sa
}

/// The same state, if it is not in that version already.
pub(crate) fn translated(bytes: &[u8], version: SnapshotVersion) -> Option<Zeroizing<Vec<u8>>> {
    if bytes.starts_with(&version.number().to_be_bytes()) {
        return None;
    }
    encode(&decode(bytes, TAKEN).ok()?, TAKEN, version)
}

/// The same moment on another clock: where one stands at `from`, the other stands at `to`. What
/// lies before the other clock began is its beginning.
fn moved(time: Time, from: Time, to: Time) -> Time {
    if time >= from { to.plus(time.since(from)) } else { Time(to.since(Time(from.since(time)))) }
}
