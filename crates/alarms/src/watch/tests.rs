use super::*;
use crate::kind::Severity;
use proptest::prelude::*;

fn at(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn replays(child: u64, count: u64) -> Sighting {
    Sighting {
        kind: Kind::ReplayBurst,
        subject: Subject::ChildSa(child),
        count,
        source: Some([192, 0, 2, child as u8].into()),
        evidence: format!("{count} at once"),
        decisive: false,
    }
}

fn news(watch: &mut Watch) -> Vec<News> {
    std::iter::from_fn(|| watch.next_news()).collect()
}

#[test]
fn an_alarm_is_raised_once_lasts_and_ends() {
    let mut watch = Watch::default();
    watch.see(at(0), replays(1, 10));
    assert_eq!(news(&mut watch), []);
    watch.see(at(250), replays(1, 10));
    let [News::Raised(alarm)] = &news(&mut watch)[..] else { panic!() };
    assert_eq!((alarm.number, alarm.count, alarm.severity), (1, 20, Severity::Warning));
    assert_eq!((alarm.begun, alarm.evidence.as_str()), (at(0), "10 at once"));
    assert_eq!(alarm.sources.len(), 1);
    for n in 1..=260 {
        watch.see(at(250 + n * 250), replays(1, 10));
        watch.tick(at(250 + n * 250));
    }
    let [News::Lasts(alarm)] = &news(&mut watch)[..] else { panic!() };
    assert!(alarm.count > 2000 && alarm.peak == 40, "{alarm:?}");
    watch.tick(at(75_100));
    assert_eq!(news(&mut watch), []);
    watch.tick(at(75_250));
    let [News::Ended(alarm)] = &news(&mut watch)[..] else { panic!() };
    assert_eq!((alarm.count, alarm.latest), (2620, at(65_250)));
    assert_eq!(watch.alarms(0), [alarm]);
    assert_eq!(watch.alarms(1), [] as [&Alarm; 0]);
}

#[test]
fn each_subject_has_its_own_alarm_and_the_first_sighting_is_the_evidence() {
    let mut watch = Watch::default();
    watch.see(at(0), replays(1, 20));
    watch.see(at(1), replays(2, 15));
    watch.see(at(900), replays(2, 1));
    let subjects: Vec<_> = watch.alarms(0).iter().map(|alarm| alarm.subject.clone()).collect();
    assert_eq!(subjects, [Subject::ChildSa(1), Subject::ChildSa(2)]);
    assert_eq!(watch.alarms(1)[0].evidence, "15 at once");
}

#[test]
fn what_is_usual_raises_no_alarm_and_evidence_of_long_ago_is_not_used() {
    let mut watch = Watch::default();
    watch.see(at(0), replays(1, 15));
    watch.tick(at(5000));
    for n in 0..2000 {
        watch.see(at(10_000 + n * 500), replays(1, 3));
        watch.tick(at(10_000 + n * 500));
    }
    assert_eq!(news(&mut watch), []);
    watch.tick(at(1_012_000));
    watch.see(at(1_012_100), replays(1, 64));
    let [News::Raised(alarm)] = &news(&mut watch)[..] else { panic!() };
    assert_eq!((alarm.evidence.as_str(), alarm.begun), ("64 at once", at(1_012_100)));
}

#[test]
fn a_decisive_sighting_needs_no_others() {
    let mut watch = Watch::default();
    watch.see(at(0), Sighting { decisive: true, ..replays(1, 1) });
    assert_eq!(watch.alarms(0)[0].count, 1);
}

#[test]
fn a_kind_that_is_not_watched_for_raises_none() {
    let mut rules = Rules::default();
    rules.of_mut(Kind::ReplayBurst).unwrap().severity = None;
    let mut watch = Watch::new(rules);
    watch.see(at(0), replays(1, 1000));
    assert!(!watch.is_awake() && watch.next_news().is_none());
}

#[test]
fn an_attacker_who_chooses_subjects_fills_no_memory() {
    let mut watch = Watch::default();
    for n in 0..100_000 {
        watch.see(at(0), replays(n, 20));
        watch.see(at(0), Sighting { kind: Kind::ForgedPackets, ..replays(n, 1) });
    }
    assert!(watch.tracks.len() <= MAX_SUBJECTS + Kind::COUNT);
    assert_eq!(watch.alarms(0).len(), MAX_ALARMS_PER_KIND + 2);
    let all: u64 = watch.alarms(0).iter().map(|alarm| alarm.count).sum();
    let forged = watch.alarms(0).iter().find(|alarm| alarm.kind == Kind::ForgedPackets).unwrap().count;
    assert_eq!((all - forged, forged > 90_000), (2_000_000, true));
    for second in 0..1000 {
        watch.tick(at(second * 1000));
    }
    assert!(!watch.is_awake());
    assert!(watch.alarms(0).len() <= MAX_ENDED);
}

#[test]
fn every_severity_and_kind_is_found_by_its_name() {
    for kind in Kind::ALL {
        assert_eq!(Kind::from_name(kind.name()), Some(kind));
    }
    for severity in Severity::ALL {
        assert_eq!(Severity::from_name(severity.name()), Some(severity));
    }
}

proptest! {
    /// Whatever is seen when: no sighting of an alarm is lost, there is one alarm for a subject at a
    /// time, and all end.
    #[test]
    fn alarms_are_raised_and_end(
        steps in proptest::collection::vec((0u64..3000, 0u64..3, 0u64..40), 1..200)
    ) {
        let mut watch = Watch::default();
        let mut now = 0;
        for (pause, child, count) in steps {
            now += pause;
            watch.tick(at(now));
            watch.see(at(now), replays(child, count));
        }
        for _ in 0..3000 {
            now += 1000;
            watch.tick(at(now));
        }
        prop_assert!(!watch.is_awake());
        let mut under_way = std::collections::BTreeSet::new();
        for news in news(&mut watch) {
            match news {
                News::Raised(alarm) => {
                    prop_assert!(alarm.count >= 16);
                    prop_assert!(under_way.insert(alarm.subject));
                }
                News::Lasts(alarm) => prop_assert!(under_way.contains(&alarm.subject)),
                News::Ended(alarm) => {
                    prop_assert!(alarm.peak <= alarm.count && alarm.begun <= alarm.latest);
                    prop_assert!(under_way.remove(&alarm.subject));
                }
            }
        }
        prop_assert!(under_way.is_empty());
    }
}
