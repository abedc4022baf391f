//! The tasks of an IKE SA, in charon's names.

use crate::sa::{IkeSa, RequestKind, Task, What};

/// Tasks of the request under way, and tasks that wait for their turn.
pub(super) fn of(sa: &IkeSa) -> (Vec<&'static str>, Vec<&'static str>) {
    let active = sa.outgoing.pending.as_ref().map(|pending| active(sa, pending.kind)).unwrap_or_default();
    let later = sa.outgoing.later.iter().map(|delayed| &delayed.task);
    (active.to_vec(), sa.outgoing.tasks.iter().chain(later).map(queued).collect())
}

fn active(sa: &IkeSa, kind: RequestKind) -> &'static [&'static str] {
    match kind {
        RequestKind::Init => &["IKE_INIT", "IKE_NATD", "IKE_AUTH", "CHILD_CREATE"],
        RequestKind::Intermediate => &["IKE_INIT", "IKE_AUTH", "CHILD_CREATE"],
        RequestKind::Auth => &["IKE_AUTH", "CHILD_CREATE"],
        RequestKind::Liveness => &["IKE_DPD"],
        RequestKind::DeleteIke | RequestKind::AuthFailed => &["IKE_DELETE"],
        RequestKind::DeleteSpi(_) => &["CHILD_DELETE"],
        RequestKind::SyncMessageIds { .. } => &["IKE_MID_SYNC"],
        // charon has no such task.
        RequestKind::SyncReplayCounters(_) => &["CHILD_SYNC"],
        RequestKind::CreateChild => match sa.creating.as_ref().map(|creating| &creating.what) {
            Some(What::Ike(_)) => &["IKE_REKEY"],
            Some(What::Child { replaces: Some(_), .. }) if !is_anew(sa) => &["CHILD_REKEY"],
            _ => &["CHILD_CREATE"],
        },
    }
}

fn is_anew(sa: &IkeSa) -> bool {
    sa.creating.as_ref().is_some_and(|creating| creating.anew)
}

fn queued(task: &Task) -> &'static str {
    match task {
        Task::DeleteIke => "IKE_DELETE",
        Task::DeleteSpi(_) => "CHILD_DELETE",
        Task::NewChild { .. } | Task::NewResource { .. } | Task::ReplaceChild(_) => "CHILD_CREATE",
        Task::RekeyChild(_) => "CHILD_REKEY",
        Task::RekeyIke => "IKE_REKEY",
        Task::SyncMessageIds => "IKE_MID_SYNC",
        Task::SyncReplayCounters(_) => "CHILD_SYNC",
    }
}
