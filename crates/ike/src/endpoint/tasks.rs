//! What an IKE SA is busy with, in charon's names of tasks.

use crate::sa::{IkeSa, RequestKind, Task};

/// Tasks of the request under way, and tasks that wait for their turn.
pub(super) fn of(sa: &IkeSa) -> (Vec<&'static str>, Vec<&'static str>) {
    let active = sa.outgoing.pending.as_ref().map(|pending| active(pending.kind)).unwrap_or_default();
    (active.to_vec(), sa.outgoing.tasks.iter().map(queued).collect())
}

fn active(kind: RequestKind) -> &'static [&'static str] {
    match kind {
        RequestKind::Init => &["IKE_INIT", "IKE_NATD", "IKE_AUTH", "CHILD_CREATE"],
        RequestKind::Auth => &["IKE_AUTH", "CHILD_CREATE"],
        RequestKind::Liveness => &["IKE_DPD"],
        RequestKind::DeleteIke | RequestKind::AuthFailed => &["IKE_DELETE"],
        RequestKind::DeleteSpi(_) => &["CHILD_DELETE"],
    }
}

fn queued(task: &Task) -> &'static str {
    match task {
        Task::DeleteIke => "IKE_DELETE",
        Task::DeleteSpi(_) => "CHILD_DELETE",
    }
}
