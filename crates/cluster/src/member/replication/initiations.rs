//! Initiations for other nodes: their results go to the nodes that asked.

use crate::node::NodeId;
use crate::update::{Answer, Answered, InitiationOutcome, Op};
use testudo_ike::output::{Event, IkeSaId, LogLevel};

/// An initiation for another node.
#[derive(Debug)]
struct Initiation {
    from: NodeId,
    job: u64,
    ike: IkeSaId,
    /// Name of the child. Empty: for the IKE SA alone.
    child: String,
}

/// Initiations for other nodes that have not ended.
#[derive(Debug, Default)]
pub(in crate::member) struct Initiations(Vec<Initiation>);

impl Initiations {
    /// An initiation for node `from` has begun.
    pub(in crate::member) fn begun(&mut self, from: NodeId, job: u64, ike: IkeSaId, child: String) {
        self.0.push(Initiation { from, job, ike, child });
    }

    /// This node has lost its SAs.
    pub(in crate::member) fn clear(&mut self) {
        self.0.clear();
    }

    /// An event may end an initiation for which another node waits.
    pub(in crate::member) fn told(&mut self, event: &Event, ops: &mut Vec<Op>) {
        let initiations = &mut self.0;
        match event {
            Event::Log { ike: Some(ike), connection, level, message } if *level <= LogLevel::Info => {
                let waits = initiations.iter().filter(|initiation| initiation.ike == *ike);
                ops.extend(waits.map(|Initiation { from, job, .. }| {
                    let (level, message, connection) = (level.charon(), message.clone(), connection.clone());
                    let what = Answered::Line { connection, level, message };
                    Op::Answer(Answer { to: *from, job: *job, what })
                }));
            }
            // Ends the initiations that wait for the IKE SA alone.
            Event::IkeUp(ike) => ops.extend(ended(initiations, *ike, "", &InitiationOutcome::Up)),
            Event::IkeDown(ike, reason) => {
                let outcome = InitiationOutcome::Failed { reason: reason.to_string() };
                ops.extend(ended(initiations, *ike, "", &outcome));
            }
            Event::InitiateMoved { from, to, child } => {
                let moved = initiations.iter_mut().filter(|i| i.ike == *from && i.child == *child);
                moved.for_each(|initiation| initiation.ike = *to);
            }
            Event::InitiateDone { ike, child, result } => {
                let outcome = match result {
                    Ok(_) => InitiationOutcome::Up,
                    Err(reason) => InitiationOutcome::Failed { reason: reason.to_string() },
                };
                ops.extend(ended(initiations, *ike, child, &outcome));
            }
            _ => {}
        }
    }
}

/// The answers to all nodes that wait for this child of an IKE SA, or, with an empty name, for the
/// IKE SA alone.
fn ended(
    initiations: &mut Vec<Initiation>,
    ike: IkeSaId,
    child: &str,
    outcome: &InitiationOutcome,
) -> Vec<Op> {
    let done = initiations.extract_if(.., |i| i.ike == ike && i.child == child);
    let answer = |Initiation { from, job, .. }| {
        Op::Answer(Answer { to: from, job, what: Answered::Initiated(outcome.clone()) })
    };
    done.map(answer).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::samples::id;
    use testudo_ike::output::Reason;

    /// The jobs that this event ends.
    fn ended_by(initiations: &mut Initiations, event: &Event) -> Vec<u64> {
        let mut ops = Vec::new();
        initiations.told(event, &mut ops);
        let job = |op: Op| match op {
            Op::Answer(Answer { job, what: Answered::Initiated(_), .. }) => Some(job),
            _ => None,
        };
        ops.into_iter().filter_map(job).collect()
    }

    fn done(ike: u64, child: &str) -> Event {
        Event::InitiateDone { ike: IkeSaId(ike), child: child.into(), result: Err(Reason::Requested) }
    }

    /// The peer makes no further Child SA on the first one.
    #[test]
    fn an_initiation_that_goes_on_with_another_ike_sa_ends_with_that_one() {
        let mut initiations = Initiations::default();
        for (job, ike, child) in [(1, 10, "net"), (2, 10, "more"), (3, 11, "net"), (4, 10, ""), (5, 11, "")] {
            initiations.begun(id(2), job, IkeSaId(ike), child.into());
        }
        let moved = Event::InitiateMoved { from: IkeSaId(10), to: IkeSaId(12), child: "net".into() };
        assert_eq!(ended_by(&mut initiations, &moved), vec![]);
        for (event, jobs) in [
            (done(10, "net"), vec![]),
            (done(12, "more"), vec![]),
            (done(12, "net"), vec![1]),
            (done(10, "more"), vec![2]),
            (done(11, "net"), vec![3]),
            (Event::IkeUp(IkeSaId(10)), vec![4]),
            (Event::IkeDown(IkeSaId(11), Reason::Requested), vec![5]),
        ] {
            assert_eq!(ended_by(&mut initiations, &event), jobs, "{event:?}");
        }
        assert!(initiations.0.is_empty());
    }

    /// What the owner logs of it up to the ordinary course, a user sees on the node that asked.
    #[test]
    fn its_lines_go_to_the_node_that_asked_until_this_node_has_lost_its_sas() {
        let mut initiations = Initiations::default();
        initiations.begun(id(2), 1, IkeSaId(10), "net".into());
        let told = |initiations: &mut Initiations, ike, level| {
            let (ike, message) = (Some(IkeSaId(ike)), String::new());
            let mut ops = Vec::new();
            initiations.told(&Event::Log { ike, connection: None, level, message }, &mut ops);
            ops.len()
        };
        let levels = [LogLevel::Error, LogLevel::Notice, LogLevel::Info, LogLevel::Detail];
        assert_eq!(levels.map(|level| told(&mut initiations, 10, level)), [1, 1, 1, 0]);
        assert_eq!(told(&mut initiations, 11, LogLevel::Error), 0);
        initiations.clear();
        assert_eq!(told(&mut initiations, 10, LogLevel::Error), 0);
    }
}
