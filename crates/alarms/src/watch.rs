//! From sightings to alarms.

use crate::alarm::{Alarm, Subject};
use crate::kind::Kind;
use crate::rate::Rate;
use crate::rules::Rules;
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// An alarm ends after this time without so many sightings as raise one.
const QUIET: Duration = Duration::from_secs(10);
/// News about an alarm that lasts come this often.
const NEWS_INTERVAL: Duration = Duration::from_secs(60);
/// Subjects that are watched separately. An attacker may choose them: further ones count for the
/// gateway as a whole.
const MAX_SUBJECTS: usize = 4096;
/// Alarms of one kind at the same time. Further subjects count for the gateway as a whole.
const MAX_ALARMS_PER_KIND: usize = 64;
/// Sources of one second that are remembered in case an alarm is raised in it.
const MAX_RECENT: usize = 64;
/// Alarms that are remembered after their end.
const MAX_ENDED: usize = 256;

/// Something that was refused, or is odd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sighting {
    /// What it is.
    pub kind: Kind,
    /// Whom it concerns.
    pub subject: Subject,
    /// How many there were since the last sighting of this kind and subject.
    pub count: u64,
    /// Where it came from, as far as its packets say so.
    pub source: Option<IpAddr>,
    /// One of them, for people.
    pub evidence: String,
    /// It raises an alarm by itself, whatever the threshold.
    pub decisive: bool,
}

impl Sighting {
    /// One from nowhere known and without evidence, which is not decisive.
    pub fn of(kind: Kind, subject: Subject, count: u64) -> Self {
        Self { kind, subject, count, source: None, evidence: String::new(), decisive: false }
    }
}

/// What has happened to an alarm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It was raised.
    Raised(Alarm),
    /// It lasts. Told once a minute.
    Lasts(Alarm),
    /// It is over.
    Ended(Alarm),
    /// The packets of one of its sources are to be dropped for this time.
    Drop(Alarm, IpAddr, Duration),
}

/// What is known of one kind and subject.
#[derive(Debug)]
struct Track {
    rate: Rate,
    /// The first sighting since the subject was quiet.
    first: Option<First>,
    alarm: Option<Lasting>,
}

#[derive(Debug)]
struct First {
    at: Duration,
    evidence: String,
    /// The sources of about the last second.
    recent: VecDeque<(Duration, IpAddr, u64)>,
}

impl First {
    fn note_source(&mut self, now: Duration, source: Option<(IpAddr, u64)>) {
        let is_old = |(at, ..): &(Duration, IpAddr, u64)| now.saturating_sub(*at) >= Duration::from_secs(1);
        while self.recent.len() >= MAX_RECENT || self.recent.front().is_some_and(is_old) {
            self.recent.pop_front();
        }
        self.recent.extend(source.map(|(address, count)| (now, address, count)));
    }
}

#[derive(Debug)]
struct Lasting {
    alarm: Alarm,
    /// When there were last as many sightings as raise an alarm.
    above: Duration,
    told: Duration,
}

/// The watch over one gateway.
#[derive(Debug, Default)]
pub struct Watch {
    rules: Rules,
    tracks: BTreeMap<(Kind, Subject), Track>,
    ended: VecDeque<Alarm>,
    news: VecDeque<News>,
    /// Alarms that were raised, by kind.
    raised: [u64; Kind::COUNT],
    /// Of these, those that last.
    lasting: [usize; Kind::COUNT],
    last: u64,
}

impl Watch {
    /// A watch that has seen nothing.
    pub fn new(rules: Rules) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Takes other rules. Alarms that last are judged by them from now on.
    pub fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Counts a sighting.
    pub fn see(&mut self, now: Duration, sighting: Sighting) {
        let Sighting { kind, subject, count, source, evidence, decisive } = sighting;
        let rule = self.rules.of(kind);
        let Some(severity) = rule.severity.filter(|_| count > 0) else { return };
        let (threshold, time) = (rule.threshold, rule.drop_source);
        let subject = self.room_for(kind, subject);
        let track = self.tracks.entry((kind, subject.clone())).or_insert_with(|| Track::new(now));
        track.rate.advance(now, track.alarm.is_none());
        if track.rate.of_last_second() == 0 && track.alarm.is_none() {
            track.first = None;
        }
        track.rate.add(count);
        let second = track.rate.of_last_second();
        let is_above = decisive || track.rate.is_above(threshold);
        if let Some(lasting) = &mut track.alarm {
            lasting.grow(now, count, second, source, is_above);
            self.news.extend(lasting.drop_source(now, threshold, time, &self.rules));
            return;
        }
        let first = track.first.get_or_insert(First { at: now, evidence, recent: VecDeque::new() });
        first.note_source(now, source.map(|address| (address, count)));
        if !is_above {
            return;
        }
        self.last += 1;
        let counts = self.raised.get_mut(kind as usize).zip(self.lasting.get_mut(kind as usize));
        if let Some((raised, lasting)) = counts {
            (*raised, *lasting) = (*raised + 1, *lasting + 1);
        }
        let mut alarm = Alarm {
            number: self.last,
            kind,
            severity,
            subject,
            begun: first.at,
            latest: now,
            ended: None,
            count: second,
            peak: second,
            sources: Vec::new(),
            evidence: std::mem::take(&mut first.evidence),
        };
        for (at, address, count) in first.recent.drain(..) {
            alarm.note_source(at, address, count);
        }
        self.news.push_back(News::Raised(alarm.clone()));
        let lasting = track.alarm.insert(Lasting { alarm, above: now, told: now });
        self.news.extend(lasting.drop_source(now, threshold, time, &self.rules));
    }

    /// Lets time pass: ends alarms whose subjects have been quiet, and forgets those of which
    /// nothing is left to know.
    pub fn tick(&mut self, now: Duration) {
        for track in self.tracks.values_mut() {
            track.rate.advance(now, track.alarm.is_none());
            let Some(lasting) = &mut track.alarm else { continue };
            if now.saturating_sub(lasting.above) >= QUIET {
                if let Some(lasting) = self.lasting.get_mut(lasting.alarm.kind as usize) {
                    *lasting = lasting.saturating_sub(1);
                }
                lasting.alarm.ended = Some(now);
                self.news.push_back(News::Ended(lasting.alarm.clone()));
                self.ended.push_back(lasting.alarm.clone());
                (track.alarm, track.first) = (None, None);
            } else if now.saturating_sub(lasting.told) >= NEWS_INTERVAL {
                lasting.told = now;
                self.news.push_back(News::Lasts(lasting.alarm.clone()));
            }
        }
        self.tracks.retain(|_, track| track.alarm.is_some() || !track.rate.is_blank());
        let surplus = self.ended.len().saturating_sub(MAX_ENDED);
        self.ended.drain(..surplus);
    }

    /// True if there is something that [`Self::tick`] has to look at.
    pub fn is_awake(&self) -> bool {
        !self.tracks.is_empty()
    }

    /// The next piece of news.
    pub fn next_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }

    /// Alarms with a number above this, in order: those that last, and the latest that are over.
    pub fn alarms(&self, above: u64) -> Vec<&Alarm> {
        let lasting = self.tracks.values().filter_map(|track| track.alarm.as_ref());
        let all = lasting.map(|lasting| &lasting.alarm).chain(&self.ended);
        let mut some: Vec<&Alarm> = all.filter(|alarm| alarm.number > above).collect();
        some.sort_by_key(|alarm| alarm.number);
        some
    }

    /// How many alarms each kind has raised.
    pub fn raised(&self) -> impl Iterator<Item = (Kind, u64)> + '_ {
        Kind::ALL.into_iter().zip(self.raised)
    }

    /// The number of the latest alarm.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// The subject itself, or the gateway if there are too many subjects or alarms.
    fn room_for(&self, kind: Kind, subject: Subject) -> Subject {
        let key = (kind, subject);
        if self.tracks.contains_key(&key) {
            return key.1;
        }
        let alarms = self.lasting.get(kind as usize).copied().unwrap_or_default();
        let is_full = self.tracks.len() >= MAX_SUBJECTS || alarms >= MAX_ALARMS_PER_KIND;
        if is_full { Subject::Gateway } else { key.1 }
    }
}

impl Track {
    fn new(now: Duration) -> Self {
        Self { rate: Rate::new(now), first: None, alarm: None }
    }
}

impl Lasting {
    fn grow(&mut self, now: Duration, count: u64, second: u64, source: Option<IpAddr>, is_above: bool) {
        self.alarm.count = self.alarm.count.saturating_add(count);
        self.alarm.peak = self.alarm.peak.max(second);
        self.alarm.latest = now;
        if let Some(address) = source {
            self.alarm.note_source(now, address, count);
        }
        if is_above {
            self.above = now;
        }
    }

    /// The source that has just reached the threshold, if there is a time to drop it for.
    fn drop_source(
        &mut self,
        now: Duration,
        threshold: u64,
        time: Option<Duration>,
        rules: &Rules,
    ) -> Option<News> {
        let time = time?;
        let source = self.alarm.drop_source(now, threshold, time).filter(|source| rules.may_drop(*source))?;
        Some(News::Drop(self.alarm.clone(), source, time))
    }
}

#[cfg(test)]
mod tests;
