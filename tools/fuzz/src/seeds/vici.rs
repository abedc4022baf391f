//! Seeds of the VICI targets: swanctl's requests.

use super::{Seed, chunk};
use crate::vici::server::{COMMANDS, EVENTS};
use crate::vici::text;
use testudo_vici::codec::Packet;
use testudo_vici::message::Message;

/// A connection with most of the possible keys.
const CONNECTION: &str = "\
>gw
version=2
local_addrs:192.0.2.1
remote_addrs:192.0.2.2,198.51.100.0/24,2001:db8::1-2001:db8::9
local_port=500
remote_port=4500
proposals:aes128gcm16-prfsha256-x25519-ecp256,default
encap=yes
mobike=no
dpd_delay=30s
keyingtries=0
>local-1
auth=psk
id=moon.example.org
<
>remote-1
auth=psk
id=keyid:#0102ff
<
>children
>net
local_ts:10.1.0.0/16,2001:db8:1::/48[tcp/80]
remote_ts:10.2.0.1-10.2.0.9[udp/1000-2000],dynamic[icmp/8]
esp_proposals:aes256gcm16-esn-noesn,aes128gcm16-x25519
mode=tunnel
start_action=trap
dpd_action=trap
replay_window=100
copy_df=yes
copy_ecn=no
copy_dscp=in
priority=7
rekey_time=0s
policies=yes
<
>bypass
local_ts:10.1.0.0/16
remote_ts:0.0.0.0/0[17/opaque]
mode=pass
start_action=trap
<
<
<
";
/// The minimum of a connection.
const LEAST: &str = ">gw\n>local\nauth=psk\n<\n>remote\nauth=psk\n<\n>children\n>net\n<\n<\n<\n";
const SECRET: &str = "id=ike-1\ntype=IKE\ndata=correct horse battery staple\nowners:moon.example.org,user@example.org,192.0.2.1\n";

/// Lines of text.
pub(super) fn schema() -> Vec<Seed> {
    let refused = [
        ("unknown-key", LEAST.replace("auth=psk", "auth=psk\nauht=psk")),
        ("unsupported", LEAST.replace(">gw\n", ">gw\nversion=1\nvips:0.0.0.0\n")),
        ("twice", LEAST.replace(">gw\n", ">gw\nencap=no\nencap=no\n")),
        ("anybody", SECRET.replace("192.0.2.1", "%any")),
        ("identities", SECRET.replace("192.0.2.1", "@@a@b,@#0102,fqdn:gw,email:a@b,ipv6:#00,C=CH,{5}:a,*.b")),
    ];
    let taken = [("full", CONNECTION), ("least", LEAST), ("secret", SECRET)];
    let texts = taken.map(|(name, text)| (name, text.to_owned())).into_iter().chain(refused);
    texts.map(|(name, text)| (name.to_owned(), text.into_bytes())).collect()
}

fn framed(packet: &Packet) -> Vec<u8> {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes).expect("a packet");
    bytes
}

/// `cut:8 | octets`.
pub(super) fn codec() -> Vec<Seed> {
    let load = Packet::CmdRequest("load-conn".to_owned(), text::message(CONNECTION.as_bytes()));
    let other = [
        ("response", Packet::CmdResponse(Message::new().with("success", "yes"))),
        ("unknown", Packet::CmdUnknown),
        ("register", Packet::EventRegister("list-sa".to_owned())),
        ("event", Packet::Event("log".to_owned(), text::message(SECRET.as_bytes()))),
    ];
    let whole = framed(&load);
    let mut seeds: Vec<Seed> = other
        .iter()
        .map(|(name, packet)| ((*name).to_owned(), [&[0], &framed(packet)[4..]].concat()))
        .collect();
    seeds
        .push(("stream".to_owned(), [&[9][..], &whole, &framed(&other[2].1), &framed(&other[1].1)].concat()));
    seeds.push(("request".to_owned(), [&[0], &whole[4..]].concat()));
    // After type and name only the message remains.
    seeds.push(("message".to_owned(), [&[0], &whole[4 + 2 + "load-conn".len()..]].concat()));
    seeds
}

fn ask(command: &str, arguments: &str) -> Vec<u8> {
    let number = COMMANDS.iter().position(|known| *known == command).expect("a command");
    [&[1, number as u8][..], &chunk(arguments.as_bytes())].concat()
}

/// Reads all waiting octets.
const READ: [u8; 3] = [3, 0xff, 0xff];

/// Steps.
pub(super) fn server() -> Vec<Seed> {
    let register: Vec<u8> = (0..EVENTS.len() as u8).flat_map(|event| [2, event]).collect();
    let load = [ask("load-conn", LEAST), ask("load-shared", SECRET), READ.to_vec()].concat();
    let queries: Vec<u8> = COMMANDS
        .iter()
        .filter(|command| !command.is_empty())
        .flat_map(|command| [ask(command, ""), READ.to_vec()].concat())
        .collect();
    let initiate = ask("initiate", "child=net\nike=gw\ntimeout=100\nloglevel=2\n");
    let terminate = ask("terminate", "ike=gw\nforce=yes\ntimeout=-1\n");
    let log = [&[6][..], &chunk(b"a line")].concat();
    let raw = [&[0][..], &chunk(&framed(&Packet::EventRegister("log".to_owned())))].concat();
    let seeds = [
        ("queries", vec![register.clone(), load.clone(), queries]),
        (
            "initiate",
            vec![register.clone(), load.clone(), initiate.clone(), log.clone(), vec![4, 0], READ.to_vec()],
        ),
        ("initiate-fails", vec![load.clone(), initiate.clone(), vec![0x14, 0], READ.to_vec()]),
        ("timeout", vec![load.clone(), initiate, vec![5, 1, 0], READ.to_vec()]),
        ("terminate", vec![load.clone(), terminate, vec![0xc, 0, 1], READ.to_vec()]),
        (
            "unload",
            vec![load, ask("unload-conn", "name=gw\n"), ask("unload-shared", "id=ike-1\n"), READ.to_vec()],
        ),
        ("raw", vec![raw.clone(), log, READ.to_vec(), vec![7], raw]),
        ("leave", vec![register, vec![7, 0x87, 0x8a, 1]]),
    ];
    seeds.map(|(name, steps)| (name.to_owned(), steps.concat())).to_vec()
}
