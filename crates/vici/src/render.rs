//! Answers and events with charon's field names and structure, so that `swanctl` prints them as it
//! prints charon's.

mod cert;
mod conn;
mod daemon;
mod pool;
mod rekey;
mod sa;
mod text;

pub use cert::{list_authority, list_cert};
pub use conn::{has_policy, list_conn, list_policy};
pub use daemon::{algorithms, log_line, stats, version};
pub use pool::pools;
pub use rekey::{child_rekey, ike_rekey};
pub use sa::{child_updown, ike_updown, list_sa};
pub(crate) use text::{exact_identity, sentence, spec};
pub use text::{identity, selector};

use crate::codec::{MAX_PACKET, encoded_len};
use crate::message::Message;

/// Octets that the children of one event may take: the rest is for the head of the event and the
/// packet.
const MAX_CHILDREN_OCTETS: usize = MAX_PACKET / 2;

/// Splits sections of children into as many events as the length of a packet requires, at least
/// one, each with the same head.
pub(crate) fn split_events(
    children: impl IntoIterator<Item = (String, Message)>,
    wrap: impl Fn(Message) -> Message,
) -> Vec<Message> {
    let mut events = Vec::new();
    let mut current = Message::new();
    let mut len = 0;
    for (name, child) in children {
        let more = encoded_len(&child);
        if len > 0 && len + more > MAX_CHILDREN_OCTETS {
            events.push(wrap(std::mem::take(&mut current)));
            len = 0;
        }
        len += more;
        current.add_section(&name, child);
    }
    events.push(wrap(current));
    events
}
