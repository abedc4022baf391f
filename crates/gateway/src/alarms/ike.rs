//! Sightings of IKE: from the counters of what it refuses.

use testudo_alarms::{Kind, Sighting, Subject};
use testudo_ike::endpoint::{Discard, Stats};

/// What each reason of a refusal tells.
const REFUSALS: [(Discard, Kind, &str); 7] = [
    (Discard::Refused, Kind::IkeBruteForce, "IKE_AUTH was refused: the log says why"),
    (Discard::Integrity, Kind::IkeBruteForce, "the integrity check of an IKE message failed"),
    (Discard::HalfOpenLimit, Kind::HalfOpenFlood, "too many half-open IKE SAs in total"),
    (Discard::SourceLimit, Kind::HalfOpenFlood, "too many half-open IKE SAs of one source"),
    (Discard::HalfOpenEvicted, Kind::HalfOpenFlood, "a half-open IKE SA was displaced"),
    (Discard::HalfOpenExpired, Kind::HalfOpenFlood, "IKE_AUTH did not come in time"),
    (Discard::BadCookie, Kind::HalfOpenFlood, "a cookie that was not issued here"),
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
    pub(super) fn look(&mut self, stats: &Stats) -> Vec<Sighting> {
        let refusals = REFUSALS.map(|(reason, ..)| stats.discarded(reason));
        let now = Counted { refusals, cookies: stats.cookies_demanded };
        let Some(before) = self.0.replace(now) else { return Vec::new() };
        let mut seen = Vec::new();
        for ((reason, kind, evidence), (now, before)) in
            REFUSALS.into_iter().zip(now.refusals.into_iter().zip(before.refusals))
        {
            let source = stats.latest_source(reason);
            let guesser = source.filter(|_| kind == Kind::IkeBruteForce);
            let subject = guesser.map_or(Subject::Gateway, Subject::Address);
            let sighting = Sighting::of(kind, subject, now.saturating_sub(before));
            seen.push(Sighting { source, evidence: evidence.to_owned(), ..sighting });
        }
        // Initiators that exist come back with their cookie, and are then counted as what becomes of
        // them. A flood from forged addresses ends here.
        let cookies = now.cookies.saturating_sub(before.cookies);
        let sighting = Sighting::of(Kind::HalfOpenFlood, Subject::Gateway, cookies);
        seen.push(Sighting { evidence: "a cookie was demanded".to_owned(), ..sighting });
        seen
    }
}
