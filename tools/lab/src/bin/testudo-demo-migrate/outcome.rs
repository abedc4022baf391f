//! What has been seen of each migration: the table, and what must not be.

use serde::Serialize;
use std::fmt::Write;

/// A migration.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Move {
    pub(crate) way: Way,
    /// Octets that the source has put on the wire, by seconds since the begin.
    pub(crate) octets: Vec<(f64, u64)>,
    /// From the begin until the command or QEMU reports the end.
    pub(crate) seconds: f64,
    /// As QEMU has it, if the virtual machine has moved.
    #[serde(flatten)]
    pub(crate) moved: Option<Moved>,
    /// Somebody on the wire has found the secret.
    pub(crate) secret_found: bool,
    /// Packets on the wire that nobody has looked at.
    pub(crate) unseen: u64,
    /// Seconds from the begin to the first packet of the attacker.
    pub(crate) attack: Option<f64>,
    /// Why it was cancelled.
    pub(crate) cancelled: Option<String>,
    /// Where the virtual machine goes on to count.
    pub(crate) counts_at: Vec<&'static str>,
}

/// What QEMU reports of a migration.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Moved {
    /// The whole migration, without what was examined before.
    pub(crate) total_ms: u64,
    /// The pause of the virtual machine.
    pub(crate) downtime_ms: u64,
}

/// How the virtual machine moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    /// By QEMU alone, over TCP in clear.
    Plain,
    /// By `testudo migrate`.
    Protected,
    /// The same, with an attacker on the wire.
    Attacked,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Protected => "protected",
            Self::Attacked => "attacked",
        }
    }

    /// Where the virtual machine must run behind it.
    fn end(self) -> &'static str {
        match self {
            Self::Plain | Self::Protected => "destination",
            Self::Attacked => "source",
        }
    }
}

/// A table, and the reason of the cancellation.
pub(crate) fn text(moves: &[Move]) -> String {
    let mut text = format!(
        "{:<11}{:>9}{:>10}{:>12}{:>10}  {:<12}runs at\n",
        "", "in all", "QEMU", "on the wire", "pause", "the secret"
    );
    for one in moves {
        let octets = one.octets.last().map_or(0, |(_, octets)| *octets) as f64 / 1e6;
        let [qemu, pause] = match one.moved {
            Some(Moved { total_ms, downtime_ms }) => {
                [format!("{:.2} s", total_ms as f64 / 1e3), format!("{downtime_ms} ms")]
            }
            None => ["-".to_owned(), "-".to_owned()],
        };
        let secret = if one.secret_found { "FOUND" } else { "not found" };
        let _infallible = writeln!(
            text,
            "{:<11}{:>7.2} s{qemu:>10}{octets:>9.1} MB{pause:>10}  {secret:<12}{}",
            one.way.name(),
            one.seconds,
            one.counts_at.join(" and ")
        );
    }
    text.push_str("in all: with what testudo migrate examines before\n");
    for why in moves.iter().filter_map(|one| one.cancelled.as_ref()) {
        let _infallible = writeln!(text, "cancelled: {why}");
    }
    text
}

/// What is not as it must be.
pub(crate) fn problems(moves: &[Move]) -> Vec<String> {
    let mut problems = Vec::new();
    for one in moves {
        let name = one.way.name();
        match (one.way, one.secret_found) {
            (Way::Plain, false) => {
                problems.push("the secret is not found in a migration in clear".to_owned())
            }
            (Way::Protected | Way::Attacked, true) => {
                problems.push(format!("{name}: the secret is on the wire"));
            }
            _ => {}
        }
        if one.unseen > 0 && !one.secret_found {
            problems.push(format!("{name}: {} packets have not been looked at", one.unseen));
        }
        if one.counts_at != [one.way.end()] {
            let found = one.counts_at.join(" and ");
            problems.push(format!("{name}: runs at {found:?}, expected {}", one.way.end()));
        }
        if one.cancelled.is_some() != (one.way == Way::Attacked) {
            problems.push(format!("{name}: cancelled: {:?}", one.cancelled));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(way: Way) -> Move {
        let attacked = way == Way::Attacked;
        Move {
            way,
            octets: vec![(0.0, 0), (1.5, 70_000_000)],
            seconds: 1.5,
            moved: (!attacked).then_some(Moved { total_ms: 1250, downtime_ms: 900 }),
            secret_found: way == Way::Plain,
            unseen: 0,
            attack: attacked.then_some(0.4),
            cancelled: attacked.then(|| "alarm at the destination".to_owned()),
            counts_at: vec![way.end()],
        }
    }

    #[test]
    fn what_must_not_be_is_told() {
        let good = [Way::Plain, Way::Protected, Way::Attacked].map(one);
        assert_eq!(problems(&good), Vec::<String>::new());
        let bad = [
            Move { secret_found: false, ..one(Way::Plain) },
            Move { secret_found: true, counts_at: vec!["source", "destination"], ..one(Way::Protected) },
            Move { cancelled: None, unseen: 3, ..one(Way::Attacked) },
        ];
        assert_eq!(problems(&bad).len(), 5, "{:?}", problems(&bad));
    }

    #[test]
    fn the_table_names_the_secret_and_the_reason() {
        let text = text(&[Way::Plain, Way::Attacked].map(one));
        for shown in
            ["plain", "1.50 s", "1.25 s", "70.0 MB", "900 ms", "FOUND", "not found", "cancelled: alarm at"]
        {
            assert!(text.contains(shown), "{shown}: {text}");
        }
    }
}
