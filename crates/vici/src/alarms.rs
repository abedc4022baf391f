//! `testudo-alarms` and `testudo-accept`, commands that strongSwan does not have: what the watch has
//! found, and an end to the dropping of a source; and the event `testudo-alarm`.
//!
//! ```text
//! testudo-alarms { above = <number: alarms after this one> } => {
//!     watching = <yes or no>
//!     last = <number of the latest alarm>
//!     more = <yes: ask again, above the last of these>
//!     kinds = {
//!         <kind> = <severity of its alarms, or off: it is not watched for>
//!     }
//!     dropped = {
//!         <address> = {
//!             alarm = <number of the alarm because of which its packets are dropped>
//!             until = <time (RFC 3339)>
//!         }
//!     }
//!     alarms = {
//!         <number> = {
//!             kind = <name>
//!             severity = <notice, warning or critical>
//!             subject = <Child SA, address, port or identity, for people>
//!             sa = <number of the Child SA, if it is about one>
//!             begun = <time (RFC 3339)>
//!             latest = <time of the latest sighting (RFC 3339)>
//!             ended = <time (RFC 3339), if it is over>
//!             count = <sightings>
//!             peak = <sightings in the worst second>
//!             evidence = <the first sighting, for people>
//!             sources = {
//!                 <address> = <sightings>
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! ```text
//! testudo-accept {
//!     source = <address: its packets are let in again>
//!     by = <user, for the log>
//! } => {
//!     success = yes
//! }
//! ```
//!
//! The event has `state` (`raised`, `lasts` or `ended`), and one such alarm, by its number.

use crate::Error;
use crate::answer::{
    Named, add_optional, answer_error, as_map, boolean, named, number, optional, read_boolean, read_named,
    section, text,
};
use crate::message::Message;
use serde::Serialize;

/// The most alarms in one answer.
pub const MAX_ALARMS_PER_PAGE: usize = 200;

/// An alarm.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AlarmReport {
    /// Its number.
    pub number: u64,
    /// Its kind.
    pub kind: String,
    /// `notice`, `warning` or `critical`.
    pub severity: String,
    /// What it is about, for people.
    pub subject: String,
    /// The Child SA that it is about.
    pub sa: Option<u64>,
    /// When it began (RFC 3339).
    pub begun: String,
    /// When its latest sighting came (RFC 3339).
    pub latest: String,
    /// When it was over (RFC 3339).
    pub ended: Option<String>,
    /// Sightings.
    pub count: u64,
    /// The most sightings in one second.
    pub peak: u64,
    /// Addresses that the sightings name as their sources, and how many name each.
    #[serde(serialize_with = "as_map")]
    pub sources: Named,
    /// The first sighting, for people.
    pub evidence: String,
}

/// A source whose packets are dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DroppedSource {
    /// Its address.
    pub source: String,
    /// The alarm because of which they are dropped.
    pub alarm: u64,
    /// Until when (RFC 3339).
    pub until: String,
}

/// How serious the alarms of a kind are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchedKind {
    /// The kind.
    pub kind: String,
    /// `notice`, `warning`, `critical`, or `off`: it is not watched for.
    pub severity: String,
}

/// Some of the alarms, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlarmPage {
    /// False if nothing is watched for.
    pub watching: bool,
    /// The number of the latest alarm.
    pub last: u64,
    /// There are more after the last of these.
    pub more: bool,
    /// All kinds. Empty if nothing is watched for, and from a daemon of an earlier version.
    pub kinds: Vec<WatchedKind>,
    /// All sources whose packets are dropped.
    pub dropped: Vec<DroppedSource>,
    /// The alarms.
    pub alarms: Vec<AlarmReport>,
}

impl AlarmPage {
    /// The answer to `testudo-alarms`.
    pub fn to_message(&self) -> Message {
        let mut alarms = Message::new();
        for alarm in &self.alarms {
            alarms.add_section(&alarm.number.to_string(), alarm.to_message());
        }
        let mut dropped = Message::new();
        for DroppedSource { source, alarm, until } in &self.dropped {
            let mut entry = Message::new().with("until", until.as_str());
            entry.add_text("alarm", alarm);
            dropped.add_section(source, entry);
        }
        let mut page = Message::new().with("watching", boolean(self.watching));
        page.add_text("last", self.last);
        let mut kinds = Message::new();
        for WatchedKind { kind, severity } in &self.kinds {
            kinds.add(kind, severity.as_str());
        }
        let page = page.with("more", boolean(self.more)).with_section("kinds", kinds);
        page.with_section("dropped", dropped).with_section("alarms", alarms)
    }

    /// Reads the answer to `testudo-alarms`.
    pub fn from_message(message: &Message) -> Result<Self, Error> {
        let alarms = section(message, "alarms")?.sections();
        // A daemon of an earlier version drops none.
        let dropped = message.section("dropped").into_iter().flat_map(Message::sections);
        let dropped = dropped.map(|(source, entry)| {
            let until = text(entry, "until")?.to_owned();
            Ok(DroppedSource { source: source.to_owned(), alarm: number(entry, "alarm")?, until })
        });
        let kinds = message.section("kinds").into_iter();
        let kinds = kinds.flat_map(|kinds| kinds.elements().iter().map(move |kind| (kinds, kind.name())));
        let kinds = kinds.map(|(kinds, kind)| {
            Ok(WatchedKind { kind: kind.to_owned(), severity: text(kinds, kind)?.to_owned() })
        });
        Ok(Self {
            watching: read_boolean(message, "watching")?,
            last: number(message, "last")?,
            more: read_boolean(message, "more")?,
            kinds: kinds.collect::<Result<_, Error>>()?,
            dropped: dropped.collect::<Result<_, Error>>()?,
            alarms: alarms
                .map(|(number, alarm)| AlarmReport::from_message(number, alarm))
                .collect::<Result<_, _>>()?,
        })
    }
}

impl AlarmReport {
    /// As a section.
    pub fn to_message(&self) -> Message {
        let mut message = Message::new()
            .with("kind", self.kind.as_str())
            .with("severity", self.severity.as_str())
            .with("subject", self.subject.as_str());
        add_optional(&mut message, "sa", self.sa);
        message.add("begun", self.begun.as_str());
        message.add("latest", self.latest.as_str());
        if let Some(ended) = &self.ended {
            message.add("ended", ended.as_str());
        }
        message.add_text("count", self.count);
        message.add_text("peak", self.peak);
        message.add("evidence", self.evidence.as_str());
        message.with_section("sources", named(&self.sources))
    }

    fn from_message(name: &str, message: &Message) -> Result<Self, Error> {
        let text_of = |key| text(message, key).map(str::to_owned);
        Ok(Self {
            number: name.parse().map_err(|_| answer_error("alarms", name, "an alarm's number"))?,
            kind: text_of("kind")?,
            severity: text_of("severity")?,
            subject: text_of("subject")?,
            sa: optional(message, "sa")?,
            begun: text_of("begun")?,
            latest: text_of("latest")?,
            ended: message.text("ended").map(str::to_owned),
            count: number(message, "count")?,
            peak: number(message, "peak")?,
            sources: read_named(message, "sources")?,
            evidence: text_of("evidence")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_back_as_it_was() {
        let alarm = AlarmReport {
            number: 7,
            kind: "replay-burst".into(),
            severity: "warning".into(),
            subject: "CHILD_SA #3".into(),
            sa: Some(3),
            begun: "2026-01-01T00:00:00Z".into(),
            latest: "2026-01-01T00:00:01Z".into(),
            ended: None,
            count: 20,
            peak: 16,
            sources: vec![("192.0.2.1".into(), 18), ("2001:db8::1".into(), 2)],
            evidence: "ESP, SPI 0x01020304".into(),
        };
        let over = AlarmReport { number: 8, ended: Some("2026-01-01T00:00:09Z".into()), ..alarm.clone() };
        let over = AlarmReport { sa: None, sources: Vec::new(), ..over };
        let until = "2026-01-01T00:10:00Z".to_owned();
        let dropped = vec![DroppedSource { source: "2001:db8::1".into(), alarm: 7, until }];
        let kind = |kind: &str, severity: &str| WatchedKind { kind: kind.into(), severity: severity.into() };
        let kinds = vec![kind("replay-burst", "warning"), kind("spi-scan", "off")];
        let alarms = vec![alarm, over];
        let page = AlarmPage { watching: true, last: 8, more: false, kinds, dropped, alarms };
        assert_eq!(AlarmPage::from_message(&page.to_message()).unwrap(), page);
        assert_eq!(
            AlarmPage::from_message(&AlarmPage::default().to_message()).unwrap(),
            AlarmPage::default()
        );
    }

    #[test]
    fn an_answer_that_lacks_something_is_refused() {
        let page = AlarmPage { alarms: vec![AlarmReport::default()], ..AlarmPage::default() };
        let whole = page.to_message();
        assert!(AlarmPage::from_message(&whole).is_ok());
        assert!(AlarmPage::from_message(&Message::new()).is_err());
        let empty = Message::new().with_section("1", Message::new());
        let message = || Message::new().with("watching", "yes").with("last", "1").with("more", "no");
        let page = |alarms: &Message, dropped: &Message| {
            let message = message().with_section("alarms", alarms.clone());
            AlarmPage::from_message(&message.with_section("dropped", dropped.clone()))
        };
        assert!(page(&Message::new(), &Message::new()).is_ok());
        let earlier = AlarmPage::from_message(&message().with_section("alarms", Message::new()));
        let earlier = earlier.unwrap();
        assert_eq!((earlier.dropped, earlier.kinds), (vec![], vec![]));
        assert!(page(&empty, &Message::new()).is_err());
        assert!(page(&Message::new(), &empty).is_err());
    }
}
