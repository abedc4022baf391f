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
    let sources: Vec<u64> = alarm.sources.iter().map(|source| source.count).collect();
    assert_eq!(sources, [20]);
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
    assert_eq!(alarm.sources[0].count, 64, "not what was usual before");
}

fn dropped(watch: &mut Watch) -> Vec<IpAddr> {
    let source = |news| match news {
        News::Drop(_, source, time) => {
            assert_eq!(time, Duration::from_secs(60));
            Some(source)
        }
        _ => None,
    };
    news(watch).into_iter().filter_map(source).collect()
}

#[test]
fn a_source_that_raises_an_alarm_by_itself_is_dropped_and_others_are_not() {
    let mut rules = Rules::default();
    rules.of_mut(Kind::SpiScan).unwrap().drop_source = Some(Duration::from_secs(60));
    let mut watch = Watch::new(rules);
    let scan = |host: u8, count| Sighting {
        source: Some([198, 51, 100, host].into()),
        ..Sighting::of(Kind::SpiScan, Subject::Gateway, count)
    };
    let address = |host: u8| IpAddr::from([198, 51, 100, host]);
    watch.see(at(0), scan(1, 10));
    watch.see(at(1), scan(2, 15));
    assert!(dropped(&mut watch).is_empty(), "neither alone");
    watch.see(at(2), scan(2, 1));
    assert_eq!(dropped(&mut watch), [address(2)]);
    watch.see(at(3), scan(1, 5));
    watch.see(at(4), scan(2, 100));
    assert!(dropped(&mut watch).is_empty(), "it is dropped already, and what comes was under way");
    watch.see(at(5), scan(1, 1));
    assert_eq!(dropped(&mut watch), [address(1)]);
    // Others keep the alarm up. Nobody is dropped again for what was before.
    for n in 1..13 {
        watch.see(at(5000 * n), scan(3, 16));
        watch.tick(at(5000 * n));
    }
    assert_eq!(dropped(&mut watch), [address(3)]);
    watch.see(at(60_100), scan(1, 15));
    assert!(dropped(&mut watch).is_empty());
    watch.see(at(60_200), scan(1, 1));
    assert_eq!(dropped(&mut watch), [address(1)]);
    watch.see(at(60_300), replays(1, 1000));
    assert!(dropped(&mut watch).is_empty(), "no rule says so for this kind");
}

/// Whoever connects in a long flood may be refused now and then.
#[test]
fn a_source_that_is_seen_now_and_then_is_not_dropped() {
    let mut rules = Rules::default();
    rules.of_mut(Kind::HalfOpenFlood).unwrap().drop_source = Some(Duration::from_secs(60));
    let mut watch = Watch::new(rules);
    let flood = |source: Option<u8>, count| Sighting {
        source: source.map(|host| [198, 51, 100, host].into()),
        ..Sighting::of(Kind::HalfOpenFlood, Subject::Gateway, count)
    };
    for second in 0..600 {
        watch.see(at(1000 * second), flood(None, 1000));
        watch.see(at(1000 * second + 10), flood(Some(1), 31));
        watch.tick(at(1000 * second + 10));
    }
    assert!(dropped(&mut watch).is_empty());
    watch.see(at(600_000), flood(Some(1), 32));
    assert_eq!(dropped(&mut watch), [IpAddr::from([198, 51, 100, 1])]);
}

#[test]
fn a_source_that_is_never_to_be_dropped_is_not() {
    let mut rules = Rules::default();
    rules.of_mut(Kind::ReplayBurst).unwrap().drop_source = Some(Duration::from_secs(60));
    rules.never_drop = vec!["192.0.2.0/30".parse().unwrap()];
    let mut watch = Watch::new(rules);
    watch.see(at(0), replays(3, 100));
    watch.see(at(0), replays(4, 100));
    assert_eq!(dropped(&mut watch), [IpAddr::from([192, 0, 2, 4])]);
}

#[test]
fn an_alarm_names_the_sources_with_most_sightings() {
    let mut watch = Watch::default();
    for host in 0..20 {
        let source = Some([192, 0, 2, host].into());
        watch.see(at(0), Sighting { source, count: 20 + u64::from(host), ..replays(1, 1) });
    }
    let alarms = watch.alarms(0);
    let mut named: Vec<u64> = alarms[0].sources.iter().map(|source| source.count).collect();
    named.sort_unstable();
    assert_eq!(named, (32..40).collect::<Vec<_>>());
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
                News::Drop(..) => prop_assert!(false, "no rule says so"),
            }
        }
        prop_assert!(under_way.is_empty());
    }
}
