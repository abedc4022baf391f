//! The configuration of the endpoint under test, in the words of `swanctl.conf`.

use crate::vici::text;
use std::sync::OnceLock;
use std::time::Duration;
use testudo_ike::config::{Connection, Identity, SharedSecret};
use testudo_ike::endpoint::EndpointConfig;
use testudo_vici::schema;

/// The pre-shared key shared with the peer.
pub(super) const PSK: &[u8] = b"known to both";
/// The peer's identity.
pub(super) const PEER: &str = "sun";

/// One known peer, and any other.
const CONNECTIONS: [&str; 2] = [
    ">site
local_addrs:192.0.2.1
remote_addrs:192.0.2.2
proposals:aes128gcm16-prfsha256-x25519-ecp256
dpd_delay=30s
>local
auth=psk
id=moon
<
>remote
auth=psk
id=sun
<
>children
>net
local_ts:10.1.0.0/16,2001:db8:1::/48
remote_ts:10.2.0.0/16,2001:db8:2::/48
esp_proposals:aes128gcm16-esn-noesn,aes256gcm16,aes128-null-sha256-sha1
<
>web
local_ts:10.3.0.0/16[tcp/80]
remote_ts:dynamic
esp_proposals:aes128gcm16
<
<
<
",
    ">any
local_addrs:192.0.2.1
proposals:aes256gcm16-prfsha384-ecp256-ke1_mlkem512-ke1_none-ke3_x25519-ke3_mlkem512-ke3_none
dpd_delay=30s
>local
auth=psk
<
>remote
auth=psk
<
>children
>all
local_ts:0.0.0.0/0
remote_ts:dynamic
<
<
<
",
];

/// One side of a conversation; `$` is its own number, `%` the other's. SAs are rekeyed in the calm
/// phase, on both sides at the same time.
const SIDE: &str = ">site
local_addrs:192.0.2.$
remote_addrs:192.0.2.%
proposals:aes128gcm16-prfsha256-x25519-ke1_ecp256
dpd_delay=30s
rekey_time=500s
over_time=100s
rand_time=0
>local
auth=psk
id=~
<
>remote
auth=psk
id=^
<
>children
>net
local_ts:10.$.0.0/16
remote_ts:10.%.0.0/16
esp_proposals:aes128gcm16-x25519-ke1_ecp256-esn
rekey_time=300s
life_time=400s
rand_time=0
<
>web
local_ts:192.0.2.$/32
remote_ts:192.0.2.%/32
esp_proposals:aes256gcm16
rekey_time=200s
life_time=300s
rand_time=0
<
<
<
";

/// The connections of two endpoints to each other.
pub(super) fn pair() -> &'static [Connection; 2] {
    static PAIR: OnceLock<[Connection; 2]> = OnceLock::new();
    PAIR.get_or_init(|| [side(SIDE, 0, ["moon", PEER]), side(SIDE, 1, [PEER, "moon"])])
}

/// Replaces the numbers of both sides, and `~` and `^` by `words`, in a text.
pub(super) fn side(text: &str, number: usize, words: [&str; 2]) -> Connection {
    let numbers = ["1", "2"];
    let text = text.replace('$', numbers[number]).replace('%', numbers[1 - number]);
    let text = text.replace('~', words[0]).replace('^', words[1]);
    schema::connection(&text::message(text.as_bytes()), schema::Policy::Modern).expect("a connection")
}

/// The connections.
pub(super) fn connections() -> &'static [Connection] {
    static ALL: OnceLock<Vec<Connection>> = OnceLock::new();
    let read = |text: &&str| {
        schema::connection(&text::message(text.as_bytes()), schema::Policy::Modern).expect("a connection")
    };
    ALL.get_or_init(|| CONNECTIONS.iter().map(read).collect())
}

pub(super) fn secret() -> SharedSecret {
    let owners = [PEER, "moon"].map(|name| Identity::Fqdn(name.to_owned())).to_vec();
    SharedSecret { name: "psk".to_owned(), kind: Default::default(), owners, secret: PSK.to_vec() }
}

/// Limits low enough for a short input to reach them.
pub(super) fn limits() -> EndpointConfig {
    EndpointConfig {
        cookie_threshold: 4,
        source_cookie_threshold: 3,
        source_half_open_limit: 2,
        half_open_limit: 6,
        start_retry: Duration::from_secs(5),
        ..EndpointConfig::default()
    }
}
