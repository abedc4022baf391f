//! `testudo alarms`: what the watch has found, and whose packets are dropped because of it.

use crate::daemon::{self, DaemonArgs};
use serde::Serialize;
use std::fmt::Write;
use std::net::IpAddr;
use std::process::ExitCode;
use testudo_terminal::table::Align::{Left, Right};
use testudo_terminal::table::Table;
use testudo_vici::Error;
use testudo_vici::alarms::{AlarmPage, AlarmReport, DroppedSource};
use testudo_vici::client::Client;
use testudo_vici::message::Message;

/// Arguments of `testudo alarms`.
#[derive(Debug, clap::Args)]
pub(crate) struct AlarmsArgs {
    /// Only alarms with higher numbers.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    above: u64,
    /// Only alarms that are not over.
    #[arg(long)]
    lasting: bool,
    /// Lists nothing, but lets packets of this source in again.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["above", "lasting"])]
    accept: Option<IpAddr>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

/// The alarms.
#[derive(Debug, Default, Serialize)]
struct Alarms {
    /// False if nothing is watched for.
    watching: bool,
    /// The number of the latest alarm.
    last: u64,
    /// Sources whose packets are dropped.
    dropped: Vec<DroppedSource>,
    alarms: Vec<AlarmReport>,
}

/// The answer to `--accept`.
#[derive(Debug, Serialize)]
struct Accepted {
    accepted: IpAddr,
}

/// Lists the alarms, or lets a source in again; failures go to standard error.
pub(crate) fn run(args: &AlarmsArgs) -> ExitCode {
    match args.accept {
        None => daemon::show("alarms", &args.daemon, |client, _| ask(client, args), format),
        Some(source) => daemon::show(
            "alarms",
            &args.daemon,
            |client, _| accept(client, source),
            |answer| format!("Packets from {} are let in again.\n", answer.accepted),
        ),
    }
}

fn accept(client: &mut Client, source: IpAddr) -> Result<Accepted, Error> {
    let mut request = Message::new().with("source", source.to_string());
    if let Some(user) = daemon::user() {
        request.add("by", user);
    }
    client.command("testudo-accept", request)?;
    Ok(Accepted { accepted: source })
}

/// Asks for one page at a time.
fn ask(client: &mut Client, args: &AlarmsArgs) -> Result<Alarms, Error> {
    let mut all = Alarms::default();
    let mut above = args.above;
    loop {
        let request = Message::new().with("above", above.to_string());
        let page = AlarmPage::from_message(&client.request("testudo-alarms", request)?)?;
        let last = page.alarms.last().map(|alarm| alarm.number);
        (all.watching, all.last, all.dropped) = (page.watching, page.last, page.dropped);
        all.alarms.extend(page.alarms.into_iter().filter(|alarm| !args.lasting || alarm.ended.is_none()));
        match last.filter(|last| page.more && *last > above) {
            Some(last) => above = last,
            None => return Ok(all),
        }
    }
}

fn format(alarms: &Alarms) -> String {
    let Alarms { watching, alarms, dropped, .. } = alarms;
    if !watching {
        return "Nothing is watched for: [alarms] enabled = false in testudo.toml.\n".to_owned();
    }
    if alarms.is_empty() {
        return "No alarms.\n".to_owned();
    }
    let mut out = String::new();
    let columns = [
        ("ALARM", Right),
        ("SEVERITY", Left),
        ("KIND", Left),
        ("SUBJECT", Left),
        ("BEGAN", Left),
        ("STATE", Left),
        ("COUNT", Right),
        ("SOURCES", Left),
    ];
    let mut table = Table::new(&columns);
    alarms.iter().for_each(|alarm| table.row(row(alarm)));
    table.write(&mut out, "");
    out.push('\n');
    for alarm in alarms.iter().filter(|alarm| !alarm.evidence.is_empty()) {
        // A string takes all that is written to it.
        let _ = writeln!(out, "{}, the first: {}", alarm.number, alarm.evidence);
    }
    if !dropped.is_empty() {
        out.push('\n');
        let mut table = Table::new(&[("DROPPED SOURCE", Left), ("ALARM", Right), ("UNTIL", Left)]);
        let row =
            |entry: &DroppedSource| vec![entry.source.clone(), entry.alarm.to_string(), entry.until.clone()];
        dropped.iter().for_each(|entry| table.row(row(entry)));
        table.write(&mut out, "");
    }
    out
}

fn row(alarm: &AlarmReport) -> Vec<String> {
    let sources: Vec<&str> = alarm.sources.iter().map(|(address, _)| address.as_str()).collect();
    vec![
        alarm.number.to_string(),
        alarm.severity.clone(),
        alarm.kind.clone(),
        alarm.subject.clone(),
        alarm.begun.clone(),
        if alarm.ended.is_some() { "over" } else { "lasts" }.to_owned(),
        alarm.count.to_string(),
        if sources.is_empty() { "-".to_owned() } else { sources.join(", ") },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alarms_are_shown_with_their_evidence() {
        let alarm = AlarmReport {
            number: 3,
            kind: "replay-burst".into(),
            severity: "warning".into(),
            subject: "CHILD_SA #1".into(),
            begun: "2026-01-01T00:00:00Z".into(),
            count: 99,
            sources: vec![("192.0.2.1".into(), 99)],
            evidence: "ESP, SPI 0x01020304".into(),
            ..AlarmReport::default()
        };
        let shown = |dropped| {
            let alarms = vec![alarm.clone()];
            format(&Alarms { watching: true, last: 3, dropped, alarms })
        };
        let entry =
            DroppedSource { source: "192.0.2.1".into(), alarm: 3, until: "2026-01-01T00:10:00Z".into() };
        let with_one = shown(vec![entry]);
        assert!(with_one.ends_with("192.0.2.1           3  2026-01-01T00:10:00Z\n"), "{with_one}");
        let shown = shown(Vec::new());
        assert!(with_one.starts_with(&shown), "{shown}");
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].starts_with("ALARM"), "{shown}");
        for part in ["3", "warning", "replay-burst", "CHILD_SA #1", "lasts", "99", "192.0.2.1"] {
            assert!(lines[1].contains(part), "{part}: {shown}");
        }
        assert_eq!(*lines.last().unwrap(), "3, the first: ESP, SPI 0x01020304");
    }

    #[test]
    fn it_is_said_when_there_are_none_and_when_nobody_watches() {
        assert_eq!(format(&Alarms { watching: true, ..Alarms::default() }), "No alarms.\n");
        assert!(format(&Alarms::default()).contains("enabled = false"));
    }
}
