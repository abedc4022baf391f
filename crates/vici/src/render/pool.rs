//! Pools and their leases: the answer to `get-pools`.

use super::text;
use crate::codec::{MAX_PACKET, encoded_len};
use crate::message::Message;
use testudo_ike::endpoint::{LeaseStatus, PoolStatus};

/// Octets that pools may take in the answer, which is one packet.
const MAX_POOLS_OCTETS: usize = MAX_PACKET - 1024;

/// The pools, with their leases where given. All pools come first; leases are cut to what the
/// packet holds.
pub fn pools(pools: impl IntoIterator<Item = (PoolStatus, Option<Vec<LeaseStatus>>)>) -> Message {
    let pools: Vec<_> =
        pools.into_iter().map(|(pool, leases)| (pool_section(&pool), pool.name, leases)).collect();
    // Besides its content, a section has a type, the length of its name, and an end; "leases" is
    // one of them.
    let mut len: usize = pools.iter().map(|(section, name, _)| encoded_len(section) + name.len() + 12).sum();
    let mut message = Message::new();
    for (mut section, name, leases) in pools {
        if let Some(leases) = leases {
            let mut list = Message::new();
            for (index, lease) in leases.iter().enumerate() {
                let one = lease_section(lease);
                len += encoded_len(&one) + 16;
                if len > MAX_POOLS_OCTETS {
                    break;
                }
                list.add_section(&index.to_string(), one);
            }
            section.add_section("leases", list);
        }
        message.add_section(&name, section);
    }
    message
}

fn pool_section(pool: &PoolStatus) -> Message {
    let mut section = Message::new();
    section.add_text("base", pool.base);
    section.add_text("size", pool.size);
    section.add_text("online", pool.online);
    section.add_text("offline", pool.offline);
    section
}

fn lease_section(lease: &LeaseStatus) -> Message {
    let mut section = Message::new();
    section.add_text("address", lease.addr);
    section.add("identity", text::identity(&lease.identity));
    section.add("status", if lease.online { "online" } else { "offline" });
    section
}
