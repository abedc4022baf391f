//! Sightings of IKE: from the counters of what it refuses.

use std::net::IpAddr;
use testudo_alarms::{Kind, Sighting, Subject};
use testudo_ike::endpoint::{Discard, Stats};

/// What tells of guessed keys and identities.
const BRUTE_FORCE: [Discard; 2] = [Discard::Refused, Discard::Integrity];
/// What tells of IKE_SA_INIT requests that nobody goes on with.
const FLOOD: [Discard; 5] = [
    Discard::HalfOpenLimit,
    Discard::SourceLimit,
    Discard::HalfOpenEvicted,
    Discard::HalfOpenExpired,
    Discard::BadCookie,
];

/// The counters of the last look. `None` before the first one.
#[derive(Default)]
pub(super) struct IkeCounts(Option<Counted>);

struct Counted {
    brute_force: [u64; BRUTE_FORCE.len()],
    flood: [u64; FLOOD.len()],
    cookies: u64,
}

impl IkeCounts {
    pub(super) fn look(&mut self, stats: &Stats) -> Vec<Sighting> {
        let counted = Counted {
            brute_force: BRUTE_FORCE.map(|reason| stats.discarded(reason)),
            flood: FLOOD.map(|reason| stats.discarded(reason)),
            cookies: stats.cookies_demanded,
        };
        let Some(before) = self.0.replace(Counted { ..counted }) else { return Vec::new() };
        let mut seen = Vec::new();
        for ((reason, now), before) in
            BRUTE_FORCE.into_iter().zip(counted.brute_force).zip(before.brute_force)
        {
            let source = stats.latest_source(reason);
            let subject = source.map_or(Subject::Gateway, Subject::Address);
            let text = match reason {
                Discard::Refused => "IKE_AUTH was refused: the log says why",
                _ => "the integrity check of an IKE message failed",
            };
            seen.push(sighting(Kind::IkeBruteForce, subject, now - before.min(now), source, text));
        }
        for ((reason, now), before) in FLOOD.into_iter().zip(counted.flood).zip(before.flood) {
            let source = stats.latest_source(reason);
            let text = match reason {
                Discard::HalfOpenLimit => "too many half-open IKE SAs in total",
                Discard::SourceLimit => "too many half-open IKE SAs of one source",
                Discard::HalfOpenEvicted => "a half-open IKE SA was displaced",
                Discard::BadCookie => "a cookie that was not issued here",
                _ => "IKE_AUTH did not come in time",
            };
            seen.push(sighting(Kind::HalfOpenFlood, Subject::Gateway, now - before.min(now), source, text));
        }
        // Initiators that exist come back with their cookie, and are then counted as what becomes of
        // them. A flood from forged addresses ends here.
        let cookies = counted.cookies - before.cookies.min(counted.cookies);
        seen.push(sighting(Kind::HalfOpenFlood, Subject::Gateway, cookies, None, "a cookie was demanded"));
        seen
    }
}

fn sighting(kind: Kind, subject: Subject, count: u64, source: Option<IpAddr>, text: &str) -> Sighting {
    Sighting { kind, subject, count, source, evidence: text.to_owned(), decisive: false }
}
