//! Replacing Child SAs whose configuration has changed. A rekeyed SA has the old one's traffic (RFC
//! 7296 §2.9.2), and strongSwan rekeys by the old configuration. So the new one is an additional
//! Child SA for the peer, and the old one is deleted as soon as it exists.

use crate::config::{Child, IkeChange, TsSpec};
use crate::environment::report::{FAILURE, ORDINARY};
use crate::exchange::change;
use crate::exchange::create_child::initiator;
use crate::exchange::create_child::own_sa::NOT_ADMITTED;
use crate::exchange::create_child::replace;
use crate::exchange::narrow::Selectors;
use crate::exchange::session::Session;
use crate::message::Nonce;
use crate::output::{ChildSaId, Reason};
use crate::sa::{ChildSa, Creating, Outdated, OutdatedIke, Rival, RivalSa, lowest};
use crate::suite::Nonces;

/// Requests a Child SA by the new configuration. Returns false if there is nothing to request.
pub(crate) fn ask_replacement(session: &mut Session<'_>, id: ChildSaId) -> Result<bool, Reason> {
    let Some(child) = session.sa.child(id).filter(|child| child.is_installed() && child.outdated.is_some())
    else {
        return Ok(false);
    };
    if session.sa.is_additional(child) {
        // With the new fallback SA, others are made.
        let spi_in = child.params.spi_in;
        session.delete_child(spi_in)?;
        return Ok(true);
    }
    let (name, missed) = (child.name.clone(), child.is_missed());
    if session.env.loaded.is_revoked(session.sa) {
        leave_as_it_is(session, id, name, missed);
        return Ok(false);
    }
    let there = up_to_date(session, child).map(|new| (new.id, new.is_proven()));
    let awaited = session.sa.followup.as_ref().map(|followup| &followup.sa);
    if awaited.is_some_and(|awaited| awaited.is_ike() || awaited.renews() == Some(id)) {
        // The peer is making it, or will have the child moved.
        replace_later(session, id);
        return Ok(false);
    }
    match there {
        Some((new, true)) => {
            replace::displace(session, id, new);
            return Ok(false);
        }
        // The peer has made it, and may not know yet that it is the replacement.
        Some((_, false)) => {
            replace_later(session, id);
            return Ok(false);
        }
        None => {}
    }
    let line = format!("replacing CHILD_SA {name}{{{}}}: its configuration has changed", id.0);
    session.log(ORDINARY, line);
    let asked = initiator::begin_child(session, &name, Some(id), true, 1, None);
    if let Err(reason) = &asked {
        replacement_failed(session, id, &reason.to_string());
    }
    Ok(asked.is_ok())
}

/// The peer would not be admitted any more: what is configured now is not for it. The Child SA stays
/// until its end, and then the child is made on another IKE SA.
fn leave_as_it_is(session: &mut Session<'_>, id: ChildSaId, name: String, missed: bool) {
    let now = session.now;
    if let Some(child) = session.sa.child_mut(id) {
        child.outdated.iter_mut().for_each(|outdated| outdated.give_up());
        child.limits.times.end = Some(child.limits.times.end_of_outdated(now));
    }
    if missed {
        initiator::make_anew(session, id, name);
    } else {
        let line = format!("CHILD_SA {name}{{{}}} stays until its time is over: {NOT_ADMITTED}", id.0);
        session.log(FAILURE, line);
    }
}

fn replace_later(session: &mut Session<'_>, id: ChildSaId) {
    let at = Some(session.env.retry_at(session.now));
    if let Some(outdated) = session.sa.child_mut(id).and_then(|child| child.outdated.as_mut()) {
        outdated.at = at;
    }
}

/// There is no Child SA by the new configuration: it is tried again for a while.
pub(super) fn replacement_failed(session: &mut Session<'_>, id: ChildSaId, why: &str) {
    let (now, retry) = (session.now, session.now.plus(session.env.config.start_retry));
    let Some(child) = session.sa.child(id).filter(|child| child.is_installed()) else { return };
    let (name, missed) = (child.name.clone(), child.is_missed());
    if up_to_date(session, child).is_some() {
        return replace_later(session, id);
    }
    let Some(child) = session.sa.child_mut(id) else { return };
    let again = child.outdated.as_mut().is_some_and(|outdated| outdated.failed(retry));
    if !again {
        child.limits.times.end = Some(child.limits.times.end_of_outdated(now));
    }
    session.env.effects.stats.failed += 1;
    let then = match (missed, again) {
        (true, _) => "the old one is removed, and a new one is initiated",
        (false, true) => "it stays for now, and the request is repeated",
        (false, false) => "it stays until its time is over",
    };
    let line = format!("no CHILD_SA {name}{{{}}} by the new configuration: {why}; {then}", id.0);
    session.log(FAILURE, line);
    if missed {
        // The peer would continue to send into a deleted SA, and nothing would bring the child
        // back.
        initiator::make_anew(session, id, name);
    }
}

/// The peer is busy, which says nothing about the change.
pub(super) fn replacement_put_off(session: &mut Session<'_>, id: ChildSaId, why: &str) {
    if session.sa.child(id).is_some_and(ChildSa::is_missed) {
        return replacement_failed(session, id, why);
    }
    session.log(ORDINARY, format!("{why}: CHILD_SA {{{}}} is replaced later", id.0));
    replace_later(session, id);
}

/// The peer makes no further Child SA on this IKE SA (RFC 7296 §1.3): it may on another.
pub(super) fn no_room_for_replacement(session: &mut Session<'_>, id: ChildSaId, why: &str) {
    let anew = |outdated: &OutdatedIke| outdated.change == IkeChange::Reauthenticate;
    if session.sa.outdated.as_deref().is_some_and(anew) {
        return replacement_failed(session, id, why);
    }
    session.log(ORDINARY, format!("{why}: CHILD_SA {{{}}} is replaced on another IKE_SA", id.0));
    let now = session.now;
    change::outdate_ike(session, now, IkeChange::Reauthenticate);
}

/// We have made a new Child SA, perhaps as a replacement: checks whether it matches the
/// configuration.
pub(super) fn pass_on_outdated(
    session: &mut Session<'_>,
    creating: &Creating,
    old: Option<ChildSaId>,
    new: ChildSaId,
) {
    let old = old.filter(|_| !creating.anew).and_then(|old| session.sa.child(old));
    let before = old.and_then(|old| old.outdated.as_ref());
    if before.is_some() || creating.outdated {
        note_outdated(session, new);
    }
}

/// If both sides have made one by the new configuration, the peer's is one too many. The peer may
/// not see the connection between the two, so we delete it too.
pub(super) fn displace_rival(session: &mut Session<'_>, creating: &Creating, new: ChildSaId) {
    let rival = creating.rival.as_ref().filter(|_| creating.anew).map(|rival| rival.sa);
    if let Some(RivalSa::Child(rival)) = rival {
        replace::displace(session, rival, new);
    }
}

/// A new Child SA does not match the configuration.
pub(crate) fn note_outdated(session: &mut Session<'_>, new: ChildSaId) {
    let at = Some(session.now).filter(|_| !session.sa.is_outdated());
    if let Some(child) = session.sa.child_mut(new) {
        child.outdated = Some(Box::new(Outdated::new(at)));
    }
}

/// The peer has made a child that we were about to replace, or have requested as a replacement. As
/// when both renew one, the exchange with the lowest nonce is void.
pub(super) fn note_rival(session: &mut Session<'_>, new: ChildSaId, nonces: &Nonces) {
    let Some(child) = session.sa.child(new) else { return };
    let (name, old) =
        (child.name.clone(), session.sa.creating.as_ref().and_then(|creating| creating.renews()));
    // Not if it is for another part.
    let same = old
        .and_then(|old| session.sa.child(old))
        .is_none_or(|old| session.env.loaded.is_displaced_by(session.sa, old, &child.params));
    let replaces = |creating: &&mut Box<Creating>| same && creating.replaces_anew(&name);
    if let Some(creating) = session.sa.creating.as_mut().filter(replaces) {
        let lowest: Nonce = lowest(nonces).clone();
        creating.rival = Some(Rival { lowest, sa: RivalSa::Child(new) });
    }
    // A peer that does not delete the SA that it has replaced leaves that to us.
    let at = Some(session.env.retry_at(session.now));
    for child in session.sa.children.iter_mut().filter(|child| child.name == name) {
        child.outdated.iter_mut().for_each(|outdated| outdated.at = at);
    }
}

/// The newest Child SA that matches the configuration and has the place of this one.
fn up_to_date<'a>(session: &'a Session<'_>, old: &ChildSa) -> Option<&'a ChildSa> {
    session.sa.children.iter().rfind(|child| {
        child.name == old.name
            && child.is_installed()
            && child.outdated.is_none()
            && !session.sa.is_additional(child)
            && session.env.loaded.is_displaced_by(session.sa, old, &child.params)
    })
}

/// A peer that has made several Child SAs of a child, each for a part, would answer any request for
/// the whole with the same part: each part is requested separately.
pub(super) fn part_of(session: &Session<'_>, old: ChildSaId, mut whole: Child) -> Child {
    let Some(old) = session.sa.child(old) else { return whole };
    let own = Selectors::of(&old.params);
    let another = |child: &ChildSa| {
        child.name == old.name && child.is_installed() && own.narrow(&Selectors::of(&child.params)).is_none()
    };
    if let Some(part) = session
        .env
        .loaded
        .still_configured(session.sa, old)
        .filter(|_| session.sa.children.iter().any(another))
    {
        whole.local_ts = part.local.into_iter().map(TsSpec::Fixed).collect();
        whole.remote_ts = part.remote.into_iter().map(TsSpec::Fixed).collect();
    }
    whole
}

/// The new Child SA exists, and the old one goes, unless the peer has given us another part than
/// the old one's.
pub(super) fn replace_by(session: &mut Session<'_>, old: ChildSaId, new: ChildSaId) {
    let Some(params) = session.sa.child(new).map(|child| child.params.clone()) else { return };
    if session.env.stays_beside(session.sa, old, &params) {
        replace::start_outbound(session, new);
        return replace_later(session, old);
    }
    replace::take_place(session, new);
    replace::displace(session, old, new);
}
