//! Child SAs whose configuration has changed. A rekeyed SA carries what the old one does (RFC 7296
//! §2.9.2), and strongSwan rekeys by the configuration of before: so the new one is a further Child
//! SA for the peer, and the old one goes as soon as it is there.

use crate::config::{Child, IkeChange, TsSpec};
use crate::environment::report::{FAILURE, ORDINARY};
use crate::exchange::change;
use crate::exchange::create_child::initiator;
use crate::exchange::create_child::replace;
use crate::exchange::narrow::Selectors;
use crate::exchange::session::Session;
use crate::message::Nonce;
use crate::output::{ChildSaId, Reason};
use crate::sa::{ChildSa, Creating, Outdated, OutdatedIke, Rival, RivalSa, lowest};
use crate::suite::Nonces;

/// Asks for a Child SA by the configuration as it is now. False: there is nothing to ask.
pub(crate) fn ask_replacement(session: &mut Session<'_>, id: ChildSaId) -> Result<bool, Reason> {
    let Some(child) = session.sa.child(id).filter(|child| child.is_installed() && child.outdated.is_some())
    else {
        return Ok(false);
    };
    let name = child.name.clone();
    let there = up_to_date(session, child).map(|new| (new.id, new.is_proven()));
    let awaited = session.sa.followup.as_ref().map(|followup| &followup.sa);
    if awaited.is_some_and(|awaited| awaited.is_ike() || awaited.renews() == Some(id)) {
        // The peer is at it, or will have the child moved.
        replace_later(session, id);
        return Ok(false);
    }
    match there {
        Some((new, true)) => {
            replace::displace(session, id, new);
            return Ok(false);
        }
        // The peer has made it, and may not know yet that it has.
        Some((_, false)) => {
            replace_later(session, id);
            return Ok(false);
        }
        None => {}
    }
    let line = format!("replacing CHILD_SA {name}{{{}}}: its configuration has changed", id.0);
    session.log(ORDINARY, line);
    let asked = initiator::begin_child(session, &name, Some(id), true, 1);
    if let Err(reason) = &asked {
        replacement_failed(session, id, &reason.to_string());
    }
    Ok(asked.is_ok())
}

fn replace_later(session: &mut Session<'_>, id: ChildSaId) {
    let at = Some(session.env.retry_at(session.now));
    if let Some(outdated) = session.sa.child_mut(id).and_then(|child| child.outdated.as_mut()) {
        outdated.at = at;
    }
}

/// There is none by the new configuration: tried again for a while.
pub(super) fn replacement_failed(session: &mut Session<'_>, id: ChildSaId, why: &str) {
    let retry = session.now.plus(session.env.config.start_retry);
    let Some(child) = session.sa.child(id).filter(|child| child.is_installed()) else { return };
    let (name, missed) = (child.name.clone(), child.is_missed());
    if up_to_date(session, child).is_some() {
        return replace_later(session, id);
    }
    let Some(child) = session.sa.child_mut(id) else { return };
    let again = child.outdated.as_mut().is_some_and(|outdated| outdated.failed(retry));
    session.env.effects.stats.failed += 1;
    let then = match (missed, again) {
        (true, _) => "what is left of it goes, and it is begun anew",
        (false, true) => "it stays for now, and another is asked for again",
        (false, false) => "it stays until its time is over",
    };
    let line = format!("CHILD_SA {name}{{{}}} cannot be made as it is configured now: {why}; {then}", id.0);
    session.log(FAILURE, line);
    if missed {
        // The peer would go on sending into what we do not have any more, and nothing would bring
        // the child back.
        initiator::make_anew(session, id, name);
    }
}

/// The peer has no time for it now, which says nothing about the change.
pub(super) fn replacement_put_off(session: &mut Session<'_>, id: ChildSaId, why: &str) {
    if session.sa.child(id).is_some_and(ChildSa::is_missed) {
        return replacement_failed(session, id, why);
    }
    session.log(ORDINARY, format!("{why}: CHILD_SA {{{}}} is replaced later", id.0));
    replace_later(session, id);
}

/// The peer makes no further Child SA on the IKE SA (RFC 7296 §1.3): it may on another.
pub(super) fn no_room_for_replacement(session: &mut Session<'_>, id: ChildSaId, why: &str) {
    let anew = |outdated: &OutdatedIke| outdated.change == IkeChange::Reauthenticate;
    if session.sa.outdated.as_deref().is_some_and(anew) {
        return replacement_failed(session, id, why);
    }
    session.log(ORDINARY, format!("{why}: CHILD_SA {{{}}} is replaced on another IKE_SA", id.0));
    let now = session.now;
    change::outdate_ike(session, now, IkeChange::Reauthenticate);
}

/// A new Child SA is there by our doing, perhaps in the place of another: is it what is configured?
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

/// Where we and the peer have both made one by the new configuration, the peer's is one too many.
/// It is not for the peer alone to delete it, which may have seen no connection between the two.
pub(super) fn displace_rival(session: &mut Session<'_>, creating: &Creating, new: ChildSaId) {
    let rival = creating.rival.as_ref().filter(|_| creating.anew).map(|rival| rival.sa);
    if let Some(RivalSa::Child(rival)) = rival {
        replace::displace(session, rival, new);
    }
}

/// A Child SA is not what is configured now, although it is new.
pub(crate) fn note_outdated(session: &mut Session<'_>, new: ChildSaId) {
    let at = Some(session.now).filter(|_| !session.sa.is_outdated());
    if let Some(child) = session.sa.child_mut(new) {
        child.outdated = Some(Box::new(Outdated::new(at)));
    }
}

/// The peer has made a child that we were to replace, or have asked it for in the place of another:
/// as where both renew one, the exchange with the lowest nonce was for nothing.
pub(super) fn note_rival(session: &mut Session<'_>, new: ChildSaId, nonces: &Nonces) {
    let Some(child) = session.sa.child(new) else { return };
    let (name, old) =
        (child.name.clone(), session.sa.creating.as_ref().and_then(|creating| creating.renews()));
    // Not where it is for another part.
    let same = old
        .and_then(|old| session.sa.child(old))
        .is_none_or(|old| session.env.loaded.is_displaced_by(session.sa, old, &child.params));
    let replaces = |creating: &&mut Box<Creating>| same && creating.replaces_anew(&name);
    if let Some(creating) = session.sa.creating.as_mut().filter(replaces) {
        let lowest: Nonce = lowest(nonces).clone();
        creating.rival = Some(Rival { lowest, sa: RivalSa::Child(new) });
    }
    // A peer that does not delete what it has replaced leaves that to us.
    let at = Some(session.env.retry_at(session.now));
    for child in session.sa.children.iter_mut().filter(|child| child.name == name) {
        child.outdated.iter_mut().for_each(|outdated| outdated.at = at);
    }
}

/// The newest Child SA that is what is configured now, and has the place of that one.
fn up_to_date<'a>(session: &'a Session<'_>, old: &ChildSa) -> Option<&'a ChildSa> {
    session.sa.children.iter().rfind(|child| {
        child.name == old.name
            && child.is_installed()
            && child.outdated.is_none()
            && session.env.loaded.is_displaced_by(session.sa, old, &child.params)
    })
}

/// A peer that has made several Child SAs of a child, each for a part, would answer any request for
/// the whole with the same part: each is asked for by itself.
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

/// The new Child SA is there; what had its place goes. Unless the peer has given us another part
/// than that one carries.
pub(super) fn replace_by(session: &mut Session<'_>, old: ChildSaId, new: ChildSaId) {
    let Some(params) = session.sa.child(new).map(|child| child.params.clone()) else { return };
    if session.env.stays_beside(session.sa, old, &params) {
        replace::start_outbound(session, new);
        return replace_later(session, old);
    }
    replace::take_place(session, new);
    replace::displace(session, old, new);
}
