//! Children that are made on another IKE SA: the peer makes no more on this one, or the
//! configuration has them for another peer now.

use crate::alloc::Home;
use crate::environment::begin::Beginning;
use crate::environment::report::ORDINARY;
use crate::exchange::create_child::initiator::{child_failed, configured_child, try_later, wanted};
use crate::exchange::session::Session;
use crate::output::{Event, Reason};
use crate::sa::{Reauth, Task};

/// Why a peer gets nothing new: for the log.
pub(super) const NOT_ADMITTED: &str = "the configuration does not admit the peer any more";

/// True if the configuration has the child for another peer than that of this IKE SA. What is not
/// configured at all fails later.
pub(super) fn is_for_another_peer(session: &Session<'_>, name: &str) -> bool {
    configured_child(session, name)
        .is_some_and(|child| !session.env.may_have(session.sa, name, &wanted(session.sa, &child, None)))
}

/// Such a child is made with that peer.
pub(super) fn move_child(session: &mut Session<'_>, name: String, tries: u8) {
    match session.sa.reauth {
        // The new IKE SA takes it over.
        Some(Reauth::Begun) => try_later(session, Task::NewChild { name, tries }),
        _ => on_its_own(session, &name, NOT_ADMITTED),
    }
}

/// No further child is made on the IKE SA, perhaps because the peer makes none (RFC 7296 §1.3): the
/// child gets an IKE SA of its own.
pub(super) fn on_its_own(session: &mut Session<'_>, child: &str, why: &str) {
    session.log(ORDINARY, format!("{why}: {child} gets an IKE_SA of its own"));
    let connection = session.env.loaded.connections.child(Some(&session.sa.connection), child);
    let home = Home::Renewing(session.sa.our_spi().shard());
    let begun = connection.and_then(|connection| {
        let path = session.env.loaded.path_again(&connection, session.sa)?;
        let beginning = Beginning { id: session.env.numbers.new_ike_id(), child, path, reauth: None, home };
        session.env.begin_ike_sa_at(session.now, &connection, beginning)
    });
    match begun {
        Ok(to) => session.env.effects.event(Event::InitiateMoved {
            from: session.sa.id,
            to,
            child: child.to_owned(),
        }),
        Err(error) => child_failed(session, child, Reason::Refused(error.to_string())),
    }
}
