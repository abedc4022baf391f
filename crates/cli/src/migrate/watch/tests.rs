use super::*;
use crate::migrate::scripted;
use std::path::PathBuf;

fn daemon(answers: Vec<Option<Message>>) -> (tempfile::TempDir, PathBuf) {
    scripted::daemon(COMMAND, answers, |arguments| assert!(arguments.text("above").is_some()))
}

fn page(watching: &str, last: u64, alarms: &[(u64, &str)]) -> Message {
    let alarm = |(number, severity): &(u64, &str)| AlarmReport {
        number: *number,
        kind: "forged-packets".to_owned(),
        severity: (*severity).to_owned(),
        subject: "child lab-1".to_owned(),
        evidence: "30 packets failed authentication".to_owned(),
        ..AlarmReport::default()
    };
    let alarms = alarms.iter().map(alarm).collect();
    AlarmPage { watching: watching == "yes", last, alarms, ..AlarmPage::default() }.to_message()
}

/// What a daemon answers before an attack, or when it knows of no further one.
pub(in crate::migrate) fn calm() -> Message {
    page("yes", 1, &[])
}

/// A critical alarm.
pub(in crate::migrate) fn attack() -> Message {
    page("yes", 2, &[(2, "critical")])
}

fn watch(answers: Vec<Option<Message>>, cancel_on: CancelOn) -> (tempfile::TempDir, Watch) {
    let (dir, socket) = daemon(answers);
    let mut watch = Watch::new(cancel_on);
    watch.add(Side::Source, &socket).unwrap();
    (dir, watch)
}

#[test]
fn an_alarm_of_the_configured_severity_ends_it() {
    let answers = || {
        let alarms = [&[][..], &[(4, "notice"), (5, "warning")], &[(6, "critical")]];
        alarms.into_iter().zip([3, 5, 6]).map(|(alarms, last)| Some(page("yes", last, alarms))).collect()
    };
    let (_dir, mut critical) = watch(answers(), CancelOn::Critical);
    critical.look().unwrap();
    let end = critical.look().unwrap_err();
    assert_eq!(
        end.to_string(),
        "alarm at the source: forged-packets, child lab-1: 30 packets failed authentication"
    );
    let (_dir, mut warning) = watch(answers(), CancelOn::Warning);
    assert!(matches!(warning.look(), Err(WatchEnd::Alarm { .. })));
    let (_dir, mut never) = watch(answers(), CancelOn::Never);
    never.look().unwrap();
    never.look().unwrap();
    assert_eq!(never.posts[0].last, 6);
}

/// testudod raises it once, before the migration here, and not again while the attack lasts.
#[test]
fn an_alarm_that_goes_on_is_refused_at_the_start() {
    let over = |page: Message| {
        let mut page = AlarmPage::from_message(&page).unwrap();
        page.alarms.iter_mut().for_each(|alarm| alarm.ended = Some("2026-01-01T00:00:09Z".to_owned()));
        page.to_message()
    };
    let first = |more| {
        let page = AlarmPage::from_message(&over(page("yes", 3, &[(1, "critical"), (2, "warning")])));
        Some(AlarmPage { more, ..page.unwrap() }.to_message())
    };
    let add = |cancel_on, second| {
        let (_dir, socket) = daemon(vec![first(true), Some(second)]);
        Watch::new(cancel_on).add(Side::Destination, &socket)
    };
    let goes_on = |severity| page("yes", 3, &[(3, severity)]);
    assert_eq!(
        add(CancelOn::Critical, goes_on("critical")).unwrap_err().to_string(),
        "an alarm goes on at the destination: forged-packets, child lab-1: 30 packets failed authentication"
    );
    let refused = add(CancelOn::Warning, goes_on("warning"));
    assert!(matches!(refused, Err(WatchEnd::GoesOn { side: Side::Destination, .. })), "{refused:?}");
    add(CancelOn::Critical, goes_on("warning")).unwrap();
    add(CancelOn::Critical, over(goes_on("critical"))).unwrap();
}

#[test]
fn a_daemon_that_does_not_watch_is_told_from_one_that_does() {
    for (answer, reason) in [
        (None, "the destination's testudod does not watch"),
        (Some(page("no", 0, &[])), "the destination's testudod does not watch"),
        (Some(Message::new()), "the destination's testudod cannot be asked for alarms"),
    ] {
        let (_dir, socket) = daemon(vec![answer]);
        let refused = Watch::new(CancelOn::Critical).add(Side::Destination, &socket).unwrap_err();
        assert!(refused.to_string().starts_with(reason), "{refused}");
    }
}

#[test]
fn the_end_of_the_watch_is_noticed() {
    let (_dir, mut off) =
        watch(vec![Some(page("yes", 0, &[])), Some(page("no", 0, &[]))], CancelOn::Critical);
    assert!(matches!(off.look(), Err(WatchEnd::Off(Side::Source))));
    let (_dir, mut gone) = watch(vec![Some(page("yes", 0, &[]))], CancelOn::Critical);
    assert!(matches!(gone.look(), Err(WatchEnd::Silent { .. })));
}

fn with_kinds(kinds: &[(&str, &str)]) -> Option<Message> {
    let kind = |(kind, severity): &(&str, &str)| WatchedKind {
        kind: (*kind).to_owned(),
        severity: (*severity).to_owned(),
    };
    let kinds = kinds.iter().map(kind).collect();
    Some(AlarmPage { watching: true, kinds, ..AlarmPage::default() }.to_message())
}

/// What the report says of two daemons with these kinds.
fn words(one: &[(&str, &str)], other: &[(&str, &str)]) -> String {
    let [(_one, ours), (_other, theirs)] = [one, other].map(|kinds| daemon(vec![with_kinds(kinds)]));
    let mut watch = Watch::new(CancelOn::Critical);
    watch.add(Side::Source, &ours).unwrap();
    watch.add(Side::Destination, &theirs).unwrap();
    watch.words()
}

#[test]
fn kinds_that_do_not_cancel_are_named() {
    let (critical, less) = (("clear-text", "critical"), ("path-mtu", "warning"));
    assert_eq!(words(&[critical], &[]), "by both testudods, from now on");
    let expected = "by both testudods, from now on; alarms that do not cancel: path-mtu (warning)";
    assert_eq!(words(&[critical, less], &[critical, less]), expected);
    let expected = "by both testudods, from now on; alarms of the destination that do not cancel: \
                 path-mtu (warning), spi-scan (off)";
    assert_eq!(words(&[critical], &[less, critical, ("spi-scan", "off")]), expected);
}

#[test]
fn a_daemon_none_of_whose_alarms_can_cancel_is_no_watch() {
    let (_dir, socket) = daemon(vec![with_kinds(&[("clear-text", "off"), ("path-mtu", "warning")])]);
    let refused = Watch::new(CancelOn::Critical).add(Side::Source, &socket);
    assert!(matches!(refused, Err(WatchEnd::Powerless(Side::Source))), "{refused:?}");
    let (_dir, socket) = daemon(vec![with_kinds(&[("clear-text", "off"), ("path-mtu", "warning")])]);
    Watch::new(CancelOn::Warning).add(Side::Source, &socket).unwrap();
}
