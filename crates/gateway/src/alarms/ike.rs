//! Sightings of IKE: from the counters of what it refuses.

use std::net::IpAddr;
use testudo_alarms::{Kind, Sighting, Subject};
use testudo_ike::endpoint::{Discard, Stats};

/// IKE, as the watch sees it.
pub(crate) trait IkeSource {
    /// Datagrams that were refused for a reason so far.
    fn discarded(&self, reason: Discard) -> u64;
    /// Takes the sources of some of them, with the number of each.
    fn take_sources(&mut self, reason: Discard) -> Vec<(IpAddr, u64)>;
    /// Initiators that were asked for a cookie so far.
    fn cookies_demanded(&self) -> u64;
}

impl IkeSource for Stats {
    fn discarded(&self, reason: Discard) -> u64 {
        Self::discarded(self, reason)
    }

    fn take_sources(&mut self, reason: Discard) -> Vec<(IpAddr, u64)> {
        Self::take_sources(self, reason)
    }

    fn cookies_demanded(&self) -> u64 {
        self.cookies_demanded
    }
}

/// What each reason of a refusal tells, and whether its source has done it: of a flood, the datagram
/// that is refused or displaces another may be an honest initiator's.
const REFUSALS: [(Discard, Kind, bool, &str); 7] = [
    (Discard::Refused, Kind::IkeBruteForce, true, "IKE_AUTH was refused: the log says why"),
    (Discard::Integrity, Kind::IkeBruteForce, true, "the integrity check of an IKE message failed"),
    (Discard::HalfOpenLimit, Kind::HalfOpenFlood, false, "too many half-open IKE SAs in total"),
    (Discard::SourceLimit, Kind::HalfOpenFlood, true, "too many half-open IKE SAs of one source"),
    (Discard::HalfOpenEvicted, Kind::HalfOpenFlood, false, "a half-open IKE SA was displaced"),
    (Discard::HalfOpenExpired, Kind::HalfOpenFlood, false, "IKE_AUTH did not come in time"),
    (Discard::BadCookie, Kind::HalfOpenFlood, false, "a cookie that was not issued here"),
];

/// The counters of the last look. `None` before the first one.
#[derive(Default)]
pub(super) struct IkeCounts(Option<Counted>);

#[derive(Clone, Copy)]
struct Counted {
    refusals: [u64; REFUSALS.len()],
    cookies: u64,
}

impl IkeCounts {
    pub(super) fn look(&mut self, ike: &mut dyn IkeSource) -> Vec<Sighting> {
        let refusals = REFUSALS.map(|(reason, ..)| ike.discarded(reason));
        let now = Counted { refusals, cookies: ike.cookies_demanded() };
        let mut sources = REFUSALS.map(|(reason, ..)| ike.take_sources(reason));
        let Some(before) = self.0.replace(now) else { return Vec::new() };
        let mut seen = Vec::new();
        let counts = now.refusals.into_iter().zip(before.refusals);
        for ((what, sources), (now, before)) in REFUSALS.into_iter().zip(&mut sources).zip(counts) {
            let (_, kind, names, evidence) = what;
            let mut left = now.saturating_sub(before);
            for (source, count) in sources.drain(..).filter(|_| names) {
                let count = count.min(left);
                left -= count;
                let of_source = kind == Kind::IkeBruteForce;
                let subject = if of_source { Subject::Address(source) } else { Subject::Gateway };
                let sighting = Sighting::of(kind, subject, count);
                seen.push(Sighting { source: Some(source), evidence: evidence.to_owned(), ..sighting });
            }
            let sighting = Sighting::of(kind, Subject::Gateway, left);
            seen.push(Sighting { evidence: evidence.to_owned(), ..sighting });
        }
        // Initiators that exist come back with their cookie, and are then counted as what becomes of
        // them. A flood from forged addresses ends here.
        let cookies = now.cookies.saturating_sub(before.cookies);
        let sighting = Sighting::of(Kind::HalfOpenFlood, Subject::Gateway, cookies);
        seen.push(Sighting { evidence: "a cookie was demanded".to_owned(), ..sighting });
        seen
    }
}
