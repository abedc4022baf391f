//! Which VICI job waits for which SA.

use std::collections::BTreeSet;
use testudo_ike::endpoint::Terminating;
use testudo_ike::output::{ChildSaId, IkeSaId};
use testudo_vici::control::JobId;

/// Commands that are not over.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    initiations: Vec<Initiation>,
    terminations: Vec<Termination>,
}

#[derive(Debug)]
struct Initiation {
    job: JobId,
    ike: IkeSaId,
    /// Empty: for the IKE SA alone.
    child: String,
}

#[derive(Debug)]
struct Termination {
    job: JobId,
    ikes: BTreeSet<IkeSaId>,
    children: BTreeSet<ChildSaId>,
    gone: u32,
}

impl Jobs {
    /// A client waits for a child of this IKE SA.
    pub(crate) fn initiating(&mut self, job: JobId, ike: IkeSaId, child: &str) {
        self.initiations.push(Initiation { job, ike, child: child.to_owned() });
    }

    /// A client waits for these SAs to be gone.
    pub(crate) fn terminating(&mut self, job: JobId, targets: &Terminating) {
        self.terminations.push(Termination {
            job,
            ikes: targets.ikes.iter().copied().collect(),
            children: targets.children.iter().copied().collect(),
            gone: 0,
        });
    }

    /// The jobs that want the log lines of this IKE SA.
    pub(crate) fn listeners(&self, ike: IkeSaId) -> Vec<JobId> {
        let initiations = self.initiations.iter().filter(|i| i.ike == ike).map(|i| i.job);
        let terminations = self.terminations.iter().filter(|t| t.ikes.contains(&ike)).map(|t| t.job);
        initiations.chain(terminations).collect()
    }

    /// An initiation goes on with another IKE SA.
    pub(crate) fn moved(&mut self, from: IkeSaId, to: IkeSaId, child: &str) {
        for initiation in self.initiations.iter_mut().filter(|i| i.ike == from && i.child == child) {
            initiation.ike = to;
        }
    }

    /// An initiation is over: the jobs that have waited for it.
    pub(crate) fn initiated(&mut self, ike: IkeSaId, child: &str) -> Vec<JobId> {
        let done = self.initiations.extract_if(.., |i| i.ike == ike && i.child == child);
        done.map(|i| i.job).collect()
    }

    /// An IKE SA is gone: the jobs that are complete by that, and how many SAs each has seen go.
    pub(crate) fn ike_gone(&mut self, ike: IkeSaId) -> Vec<(JobId, u32)> {
        for termination in &mut self.terminations {
            termination.gone += u32::from(termination.ikes.remove(&ike));
        }
        self.complete()
    }

    /// The same for a Child SA.
    pub(crate) fn child_gone(&mut self, child: ChildSaId) -> Vec<(JobId, u32)> {
        for termination in &mut self.terminations {
            termination.gone += u32::from(termination.children.remove(&child));
        }
        self.complete()
    }

    fn complete(&mut self) -> Vec<(JobId, u32)> {
        let complete = |t: &mut Termination| t.ikes.is_empty() && t.children.is_empty();
        self.terminations.extract_if(.., complete).map(|t| (t.job, t.gone)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initiation_ends_for_everybody_who_waits_for_it() {
        let mut jobs = Jobs::default();
        jobs.initiating(JobId(1), IkeSaId(7), "net");
        jobs.initiating(JobId(2), IkeSaId(7), "net");
        jobs.initiating(JobId(3), IkeSaId(8), "net");
        assert_eq!(jobs.listeners(IkeSaId(7)), [JobId(1), JobId(2)]);
        assert_eq!(jobs.initiated(IkeSaId(7), "other"), []);
        assert_eq!(jobs.initiated(IkeSaId(7), "net"), [JobId(1), JobId(2)]);
        assert_eq!(jobs.initiated(IkeSaId(7), "net"), []);
        jobs.moved(IkeSaId(8), IkeSaId(9), "net");
        assert_eq!(jobs.initiated(IkeSaId(8), "net"), []);
        jobs.initiating(JobId(3), IkeSaId(8), "net");
        assert_eq!(jobs.listeners(IkeSaId(8)), [JobId(3)]);
    }

    #[test]
    fn a_termination_is_complete_when_its_last_sa_is_gone() {
        let mut jobs = Jobs::default();
        let targets = Terminating { ikes: vec![IkeSaId(1), IkeSaId(2)], children: vec![ChildSaId(9)] };
        jobs.terminating(JobId(5), &targets);
        assert_eq!(jobs.ike_gone(IkeSaId(1)), []);
        assert_eq!(jobs.ike_gone(IkeSaId(1)), []);
        assert_eq!(jobs.child_gone(ChildSaId(9)), []);
        assert_eq!(jobs.ike_gone(IkeSaId(2)), [(JobId(5), 3)]);
    }
}
