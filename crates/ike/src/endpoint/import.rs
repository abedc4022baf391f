//! Import and export of IKE SAs.

use crate::endpoint::replication::pending_spis;
use crate::endpoint::{Endpoint, SnapshotError};
use crate::environment::Environment;
use crate::environment::pools::LeaseOwner;
use crate::environment::report::FAILURE;
use crate::output::{ChildSaId, IkeSaId, Time};
use crate::sa::{IkeSa, decode};
use std::collections::BTreeMap;
use testudo_base::spi::Spi;

/// Local numbers that were drawn for an IKE SA and its children before their state came.
#[derive(Clone, Copy)]
pub(super) struct DrawnNumbers<'a> {
    pub(super) ike: Option<IkeSaId>,
    pub(super) child: &'a dyn Fn(Spi) -> Option<ChildSaId>,
}

impl Endpoint {
    /// Imports an IKE SA from [`Endpoint::export_sa`] of this or another endpoint. `exported` is
    /// the time of the export on this clock; a host that stores the octets must store the time of
    /// their arrival too. Events before this clock began count as if they had happened then.
    ///
    /// An IKE SA is identified by its SPIs: the state replaces the present state of the same IKE
    /// SA, and must not be older. Local numbers stay, unless another SA here has them: then the
    /// imported one gets new ones. The host must prepare the data plane from [`Endpoint::sa`].
    pub fn import_sa(&mut self, exported: Time, bytes: &[u8]) -> Result<IkeSaId, SnapshotError> {
        take_over(&mut self.env, exported, bytes, None)
    }
}

/// See [`Endpoint::import_sa`] and [`ReplicationMut::import_sa_as`].
pub(super) fn take_over(
    env: &mut Environment,
    exported: Time,
    bytes: &[u8],
    known: Option<DrawnNumbers<'_>>,
) -> Result<IkeSaId, SnapshotError> {
    let mut sa = decode(bytes, exported)?;
    let here = env.table.by_spi(sa.our_spi());
    if let Some(here) = here {
        if !same_sa(here, &sa) {
            return Err(SnapshotError::SpiInUse(sa.our_spi()));
        }
        if here.commit > sa.commit {
            return Err(SnapshotError::Stale { found: sa.commit, current: here.commit });
        }
    }
    let here = here.map(|sa| sa.id);
    let replaced = here.and_then(|id| env.table.take(id));
    // Results of jobs for the former state may not fit the new one.
    here.into_iter().for_each(|id| env.forget_jobs(id));
    here.into_iter().for_each(|id| env.half_opens.leave(id));
    number(env, &mut sa, replaced.as_deref(), known);
    claim(env, &sa);
    claim_addresses(env, &mut sa, replaced.as_deref());
    if replaced.is_none() {
        env.loaded.connections.note_children_here(&sa);
    }
    if let Some(keys) = &mut sa.keys {
        // From now on this node makes the IVs.
        keys.sealer.set_sender(env.alloc.sender_id());
    }
    let id = sa.id;
    env.put(sa);
    Ok(id)
}

/// Every node numbers its SAs by itself: known SAs keep their numbers, others get free ones. If
/// numbers were drawn for SAs that are not in the table (`known`), a number that the table does
/// not have may be one of those.
fn number(env: &mut Environment, sa: &mut IkeSa, here: Option<&IkeSa>, known: Option<DrawnNumbers<'_>>) {
    let drawn = known.and_then(|numbers| numbers.ike).filter(|id| env.table.get(*id).is_none());
    sa.id = match here.map(|here| here.id).or(drawn) {
        Some(id) => id,
        None if known.is_none() && env.table.get(sa.id).is_none() => sa.id,
        None => env.numbers.new_ike_id(),
    };
    let mut numbers = BTreeMap::new();
    for child in &mut sa.children {
        let spi = child.params.spi_in;
        let of_table = here.and_then(|here| here.child_by_spi(spi)).map(|child| child.id);
        let drawn = known.and_then(|numbers| (numbers.child)(spi));
        let drawn = drawn.filter(|id| env.table.by_child(*id).is_none());
        let id = match of_table.or(drawn) {
            Some(id) => id,
            None if known.is_none() && env.table.by_child(child.id).is_none() => child.id,
            None => env.numbers.new_child_id(),
        };
        numbers.insert(child.id, id);
        child.id = id;
    }
    sa.for_each_child_number(|id| *id = numbers.get(id).copied().unwrap_or(*id));
}

/// Marks numbers and SPIs of the SA as used.
fn claim(env: &mut Environment, sa: &IkeSa) {
    env.numbers.last_ike = env.numbers.last_ike.max(sa.id.0);
    env.numbers.commit = env.numbers.commit.max(sa.commit);
    if let Some(source) = sa.phase.half_open_source() {
        let claimant = env.claimant(source);
        env.half_opens.enter(sa.id, claimant);
    }
    for spi in pending_spis(sa) {
        env.alloc.claim_esp_spi(spi);
    }
    for child in &sa.children {
        env.numbers.last_child = env.numbers.last_child.max(child.id.0);
        env.alloc.claim_esp_spi(child.params.spi_in);
        let config = env.loaded.connections.find(&sa.connection).and_then(|c| c.child(&child.name));
        if config.is_none_or(|config| config.reqid.is_none()) {
            env.numbers.keep_reqid(&sa.connection, &child.name, child.reqid);
        }
    }
}

/// The leases of the new state are its own, and those of the former state become free. An
/// address that another peer has got here meanwhile stays with that peer.
fn claim_addresses(env: &mut Environment, sa: &mut IkeSa, replaced: Option<&IkeSa>) {
    let gone = replaced.into_iter().flat_map(|old| &old.virtual_ips.remote);
    for lease in gone.filter(|lease| !sa.virtual_ips.remote.contains(lease)) {
        env.pools.release(lease, sa.id);
    }
    if let Some(identity) = sa.remote_id.clone() {
        let owner = LeaseOwner::new(&sa.connection, &identity);
        let mut leases = std::mem::take(&mut sa.virtual_ips.remote);
        leases.retain(|lease| {
            let claimed = env.pools.claim(lease, &owner, sa.id);
            if !claimed {
                let line = format!("virtual IP {} of {identity} has another owner now", lease.addr);
                env.effects.log(sa, FAILURE, line);
            }
            claimed
        });
        sa.virtual_ips.remote = leases;
    }
}

/// True for two states of one IKE SA. An initiator learns the responder's SPI on the way.
fn same_sa(a: &IkeSa, b: &IkeSa) -> bool {
    let unknown = a.peer_spi().is_zero() || b.peer_spi().is_zero();
    a.our_spi() == b.our_spi() && a.role == b.role && (unknown || a.peer_spi() == b.peer_spi())
}
