//! Two sides with certificates, ML-KEM and virtual addresses; each reauthenticates the other.

use super::config::side;
use std::net::IpAddr;
use testudo_ike::cert::{Certificate, PrivateKey};
use testudo_ike::config::{Connection, Pool};
use testudo_ike::endpoint::Endpoint;
use testudo_ike::output::{Time, UnixTime};
use testudo_ipsec::selector::AddrRange;

/// Side 0 is a client, side 1 has the addresses; `!` is replaced by the setting of the side.
const SIDE: &str = ">site
local_addrs:192.0.2.$
remote_addrs:192.0.2.%
proposals:aes128gcm16-prfsha256-x25519-ke1_mlkem512
dpd_delay=30s
!
rekey_time=400s
reauth_time=500s
over_time=100s
rand_time=0
>local
auth=pubkey
<
>remote
auth=pubkey
<
>children
>net
local_ts:~
remote_ts:^
esp_proposals:aes128gcm16-x25519-ke1_mlkem512-esn
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
/// A date on which the certificates of the tests are valid: 2026-11-20.
const NOVEMBER_2026: UnixTime = UnixTime(1_795_132_800);

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!("../../../../crates/ike/tests/fixtures/pki/", $name, ".pem")).as_slice()
    };
}

/// Ed25519 signatures are deterministic, so that every run is the same.
const FILES: [(&[u8], &[u8]); 2] =
    [(file!("moon-ed25519"), file!("moon-ed25519.key")), (file!("sun-ed25519"), file!("sun-ed25519.key"))];

/// Loads everything that this side needs into an endpoint.
pub(super) fn load(endpoint: &mut Endpoint, now: Time, number: usize) {
    let (certificate, key) = FILES[number];
    endpoint.set_unix_time(now, NOVEMBER_2026);
    let credentials = endpoint.credentials_mut();
    let read = |pem| Certificate::parse(pem).expect("a certificate");
    credentials.load_certificate(read(file!("root")), true).expect("a CA");
    credentials.load_key(PrivateKey::parse(key).expect("a key"));
    let base = IpAddr::from([10, 9, 0, 1]);
    let addrs = AddrRange::new(base, IpAddr::from([10, 9, 0, 6])).expect("a range");
    let pool = Pool { name: "clients".into(), base, addrs, dns: vec![base], subnets: Vec::new() };
    if number == 1 {
        endpoint.load_pool(pool).expect("a pool");
    }
    endpoint.load_connection(now, connection(number, read(certificate))).expect("a connection");
}

fn connection(number: usize, certificate: Certificate) -> Connection {
    let behind = "10.2.0.0/16";
    let (given, local, remote) = match number {
        0 => ("vips:0.0.0.0", "dynamic", behind),
        _ => ("pools:clients", behind, "dynamic"),
    };
    let mut connection = side(&SIDE.replace('!', given), number, [local, remote]);
    connection.local.certs = vec![certificate];
    connection
}
