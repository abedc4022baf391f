//! What has come of a migration, for people and as JSON.

use super::channel::Packets;
use super::load::HostLoad;
use super::multifd::Choice;
use super::path::Path;
use super::requirement::Requirement;
use super::settle::Settled;
use super::transfer::End;
use super::vm::{Migration, Side};
use serde::Serialize;
use testudo_terminal::units::bytes;

/// Everything.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) vm: String,
    /// Empty with `--verify`.
    pub(super) requirements: Vec<Requirement>,
    /// What the path takes; null if it was not searched.
    pub(super) path: Option<Path>,
    /// By how many further connections memory goes; null if none was begun.
    pub(super) multifd: Option<Choice>,
    /// `refused`, `completed`, `failed`, `cancelled`, `source-gone`, `undecided`, or null if there
    /// was no migration.
    pub(super) result: Option<&'static str>,
    pub(super) reason: Option<String>,
    pub(super) figures: Option<Figures>,
    /// Packets of the Child SA from the begin to the end, at the source; null if it was replaced
    /// meanwhile, or could not be asked for.
    pub(super) packets: Option<Packets>,
    /// The processors of the hosts whose testudods have told, from the begin to the end.
    pub(super) loads: Vec<HostLoad>,
    /// Where exactly one runs; null if that is not known.
    pub(super) runs_at: Option<Side>,
    /// Why that is not known.
    pub(super) unsettled: Option<String>,
    /// What was done so that exactly one runs.
    pub(super) actions: Vec<String>,
}

/// The figures of a completed migration.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Figures {
    pub(super) total_ms: u64,
    pub(super) downtime_ms: u64,
    pub(super) octets: u64,
    pub(super) rounds: u64,
}

impl From<&Migration> for Figures {
    fn from(migration: &Migration) -> Self {
        Self {
            total_ms: migration.number("/total-time"),
            downtime_ms: migration.number("/downtime"),
            octets: migration.number("/ram/transferred"),
            rounds: migration.number("/ram/dirty-sync-count"),
        }
    }
}

impl Report {
    pub(super) fn end(&mut self, end: &End) {
        self.result = Some(end.word());
        self.reason = end.reason();
        if let End::Completed(migration) = end {
            self.figures = Some(migration.into());
        }
    }

    pub(super) fn settle(&mut self, settled: Settled) {
        self.actions = settled.actions;
        match settled.runs {
            Ok(side) => self.runs_at = Some(side),
            Err(unsettled) => self.unsettled = Some(unsettled.to_string()),
        }
    }

    /// The lines behind those of the requirements.
    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        lines.extend(self.path.as_ref().map(Path::line));
        lines.extend(self.multifd.as_ref().map(Choice::line));
        if let Some(result) = self.result {
            let reason = self.reason.iter().map(|reason| format!(": {reason}"));
            lines.push(format!("Migration {result}{}", reason.collect::<String>()));
        }
        if let Some(Figures { total_ms, downtime_ms, octets, rounds }) = &self.figures {
            lines.push(format!(
                "{} in {total_ms} ms and {rounds} rounds; the virtual machine paused for {downtime_ms} ms",
                bytes(*octets)
            ));
        }
        if let Some(Packets { inbound, outbound }) = self.packets {
            lines.push(format!("{outbound} packets out through the SA, {inbound} in"));
        }
        for HostLoad { side, processors, peak, .. } in &self.loads {
            lines.push(format!("{processors} processors at the {side}, {peak} % busy in the worst second"));
        }
        lines.extend(self.actions.iter().map(|action| format!("For exactly one to run: {action}")));
        let vm = self.vm.escape_debug();
        match (self.runs_at, &self.unsettled) {
            (Some(side), _) => lines.push(format!("\"{vm}\" runs at the {side}, and there alone")),
            (None, Some(unsettled)) => {
                lines.push(format!("\"{vm}\" is not known to run exactly once: {unsettled}"))
            }
            (None, None) => {}
        }
        lines.into_iter().map(|line| line + "\n").collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_read_where_it_runs_and_what_it_took() {
        let mut report = Report { vm: "web1".to_owned(), result: Some("completed"), ..Report::default() };
        report.figures = Some(Figures { total_ms: 1200, downtime_ms: 30, octets: 300_000_000, rounds: 4 });
        report.packets = Some(Packets { inbound: 900, outbound: 210_000 });
        report.loads =
            vec![HostLoad { side: Side::Source, processors: 8, peak: 93, each_second: vec![40, 93] }];
        report.settle(Settled { runs: Ok(Side::Destination), actions: vec!["continued it".to_owned()] });
        assert_eq!(
            report.text(),
            "\
Migration completed
300.0 MB in 1200 ms and 4 rounds; the virtual machine paused for 30 ms
210000 packets out through the SA, 900 in
8 processors at the source, 93 % busy in the worst second
For exactly one to run: continued it
\"web1\" runs at the destination, and there alone
"
        );
        let failed =
            Report { result: Some("failed"), reason: Some("no route".to_owned()), ..Report::default() };
        assert_eq!(failed.text(), "Migration failed: no route\n");
    }
}
