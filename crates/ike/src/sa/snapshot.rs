//! IKE SAs as octets, preceded by the version of the format.
//!
//! No two nodes have the same clock. The times in a snapshot are on a clock of its own, which stood
//! at [`TAKEN`] when the snapshot was made.

use super::{Anchor, CounterSync, EarlierRounds, Ends, IkeSa, Proofs, Resources, Synced};
use crate::endpoint::SnapshotError;
use crate::output::Time;
use std::time::Duration;
use zeroize::Zeroizing;

/// The versions of the format that are read and written. A new one comes with every change of a
/// serialised type, and with every addition at the end: nodes of several versions may form one
/// cluster. A phase of an IKE SA after all others needs none: an older build refuses the
/// connections that lead there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SnapshotVersion {
    /// It ends with the IKE SA.
    V26,
    /// With the state of counter synchronisation (RFC 6311) after that.
    V27,
    /// With a moved peer's first address and its trust anchor after that.
    V28,
    /// With the peer's rounds of authentication before its last (RFC 4739) after that.
    V29,
    /// With the Child SAs that are for one worker each (RFC 9611) after that.
    V30,
    /// With marks of the shared keys on which it rests after that.
    V31,
}

impl SnapshotVersion {
    /// Everything that this build writes.
    pub const NEWEST: Self = Self::V31;

    fn number(self) -> u16 {
        match self {
            Self::V26 => 26,
            Self::V27 => 27,
            Self::V28 => 28,
            Self::V29 => 29,
            Self::V30 => 30,
            Self::V31 => 31,
        }
    }

    fn of(number: u16) -> Option<Self> {
        let all = [Self::V26, Self::V27, Self::V28, Self::V29, Self::V30, Self::V31];
        all.into_iter().find(|version| version.number() == number)
    }
}

/// Longer than any IKE SA's age, so that none of its past is cut off.
const TAKEN: Time = Time(Duration::from_secs(1 << 32));
const FIRST_GUESS: usize = 4096;
/// Bound on the octets, far above any IKE SA: the stored messages are bounded, and so are the
/// children.
const LIMIT: usize = 1 << 20;

/// What [`SnapshotVersion::V27`] has after the IKE SA.
type Counters = (CounterSync, Option<Box<Synced>>);
/// What [`SnapshotVersion::V28`] has after that.
type Origin = (Option<Box<Ends>>, Option<Box<Anchor>>);
/// What [`SnapshotVersion::V29`] has after that.
type Rounds = Option<Box<EarlierRounds>>;

/// Encodes the SA in this version, including keys; `now` is the time. `None` if it is larger than
/// an SA can be.
pub(crate) fn encode(sa: &IkeSa, now: Time, version: SnapshotVersion) -> Option<Zeroizing<Vec<u8>>> {
    let mut sa = sa.clone();
    sa.for_each_time(|time| *time = moved(*time, now, TAKEN));
    let counters: Counters = (sa.extensions.counter_sync, sa.incoming.sync.take());
    let origin: Origin = (sa.began_at.take(), sa.anchor.take());
    let rounds: Rounds = sa.earlier_rounds.take();
    let resources: Resources = std::mem::take(&mut sa.resources);
    let proofs: Option<Box<Proofs>> = sa.proofs.take();
    let mut size = FIRST_GUESS;
    while size <= LIMIT {
        // A new buffer each time, so that no reallocation leaves keys behind.
        let mut buffer = Zeroizing::new(vec![0; size]);
        let (head, body) = buffer.split_first_chunk_mut::<2>()?;
        *head = version.number().to_be_bytes();
        let written = match version {
            SnapshotVersion::V26 => postcard::to_slice(&sa, body).map(|used| used.len()),
            SnapshotVersion::V27 => postcard::to_slice(&(&sa, &counters), body).map(|used| used.len()),
            SnapshotVersion::V28 => {
                postcard::to_slice(&(&sa, &counters, &origin), body).map(|used| used.len())
            }
            SnapshotVersion::V29 => {
                postcard::to_slice(&(&sa, &counters, &origin, &rounds), body).map(|used| used.len())
            }
            SnapshotVersion::V30 => {
                let whole = (&sa, &counters, &origin, &rounds, &resources);
                postcard::to_slice(&whole, body).map(|used| used.len())
            }
            SnapshotVersion::V31 => {
                let whole = (&sa, &counters, &origin, &rounds, &resources, &proofs);
                postcard::to_slice(&whole, body).map(|used| used.len())
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

/// The SA from [`encode`], which was called at `taken` on our clock.
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
    if version >= SnapshotVersion::V29 {
        let Ok((rounds, behind)) = postcard::take_from_bytes::<Rounds>(rest) else { return Err(damaged) };
        sa.earlier_rounds = rounds;
        rest = behind;
    }
    if version >= SnapshotVersion::V30 {
        let Ok((resources, behind)) = postcard::take_from_bytes::<Resources>(rest) else {
            return Err(damaged);
        };
        sa.resources = resources;
        rest = behind;
    }
    if version >= SnapshotVersion::V31 {
        let Ok((proofs, behind)) = postcard::take_from_bytes::<Option<Box<Proofs>>>(rest) else {
            return Err(damaged);
        };
        sa.proofs = proofs;
        rest = behind;
    }
    if rest.is_empty() { Ok(timed(sa, taken)) } else { Err(damaged) }
}

/// With times on our clock.
fn timed(mut sa: IkeSa, taken: Time) -> IkeSa {
    sa.for_each_time(|time| *time = moved(*time, TAKEN, taken));
    sa
}

/// The state in this version, if it is in another.
pub(crate) fn translated(bytes: &[u8], version: SnapshotVersion) -> Option<Zeroizing<Vec<u8>>> {
    if bytes.starts_with(&version.number().to_be_bytes()) {
        return None;
    }
    encode(&decode(bytes, TAKEN).ok()?, TAKEN, version)
}

/// Converts a time to another clock: when one stands at `from`, the other stands at `to`. A time
/// before the other clock began becomes its beginning.
fn moved(time: Time, from: Time, to: Time) -> Time {
    if time >= from { to.plus(time.since(from)) } else { Time(to.since(Time(from.since(time)))) }
}
