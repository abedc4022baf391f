//! Traffic selectors: `10.1.0.0/16`, `10.0.0.1-10.0.0.9[tcp/80]`, `dynamic[udp/1000-2000]`.

use super::addr;
use super::refusal::{Why, because, expected};
use testudo_ike::config::TsSpec;
use testudo_ipsec::selector::TrafficSelector;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// Names of protocols that `getprotobyname` knows on any system.
const PROTOCOLS: [(&str, u8); 18] = [
    ("any", 0),
    ("icmp", ICMP),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", ICMPV6),
    ("icmpv6", ICMPV6),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("sctp", 132),
    ("udplite", 136),
];

/// Names of services: those that both TCP and UDP have, or that selectors use. It is shorter than
/// /etc/services, because this crate reads no files.
const SERVICES: [(&str, u16); 48] = [
    ("bgp", 179),
    ("bootpc", 68),
    ("bootps", 67),
    ("domain", 53),
    ("echo", 7),
    ("ftp", 21),
    ("ftp-data", 20),
    ("http", 80),
    ("http-alt", 8080),
    ("https", 443),
    ("imap", 143),
    ("imap2", 143),
    ("imaps", 993),
    ("ipsec-nat-t", 4500),
    ("isakmp", 500),
    ("kerberos", 88),
    ("l2tp", 1701),
    ("l2f", 1701),
    ("ldap", 389),
    ("ldaps", 636),
    ("microsoft-ds", 445),
    ("ms-sql-s", 1433),
    ("mysql", 3306),
    ("netbios-dgm", 138),
    ("netbios-ns", 137),
    ("netbios-ssn", 139),
    ("nfs", 2049),
    ("ntp", 123),
    ("pop3", 110),
    ("pop3s", 995),
    ("postgresql", 5432),
    ("radius", 1812),
    ("radius-acct", 1813),
    ("rsync", 873),
    ("sip", 5060),
    ("sip-tls", 5061),
    ("smtp", 25),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("snmptrap", 162),
    ("ssh", 22),
    ("submission", 587),
    ("submissions", 465),
    ("sunrpc", 111),
    ("syslog", 514),
    ("telnet", 23),
    ("tftp", 69),
    ("www", 80),
];

/// Name of a protocol, for display.
pub(crate) fn protocol_name(protocol: u8) -> Option<&'static str> {
    PROTOCOLS.iter().find(|(_, number)| *number == protocol).map(|(name, _)| *name)
}

/// All traffic of the outer address.
pub(super) const DYNAMIC: TsSpec = TsSpec::Dynamic { protocol: 0, port_start: 0, port_end: u16::MAX };

/// One item of `local_ts` or `remote_ts`.
pub(super) fn selector(text: &str) -> Result<TsSpec, Why> {
    let (address, limit) = match text.split_once('[') {
        None => (text, None),
        Some((address, rest)) => {
            let limit = rest.strip_suffix(']').ok_or_else(|| expected("a closing ] at the end"))?;
            (address, Some(limit))
        }
    };
    let (protocol, (port_start, port_end)) = match limit {
        None => (0, (0, u16::MAX)),
        Some(limit) => protocol_and_ports(limit)?,
    };
    if address == "dynamic" {
        return Ok(TsSpec::Dynamic { protocol, port_start, port_end });
    }
    let expectation = "a subnet, an address, a range or dynamic, optionally with [protocol/port]";
    let addrs = addr::range(address).ok_or_else(|| expected(expectation))?;
    if matches!((protocol, addrs.start().is_ipv4()), (ICMP, false) | (ICMPV6, true)) {
        return Err(because("this kind of ICMP does not belong to the addresses' family".to_owned()));
    }
    Ok(TsSpec::Fixed(TrafficSelector { addrs, protocol, port_start, port_end }))
}

fn protocol_and_ports(limit: &str) -> Result<(u8, (u16, u16)), Why> {
    let (protocol, port) = limit.split_once('/').unwrap_or((limit, ""));
    let by_name = PROTOCOLS.iter().find(|(name, _)| *name == protocol).map(|(_, number)| *number);
    let number = by_name.or_else(|| if protocol.is_empty() { Some(0) } else { number8(protocol) });
    let protocol =
        number.ok_or_else(|| expected("the protocol as a number of at most 255, or a name such as tcp"))?;
    let why =
        || expected("the port as a number, the name of a service such as http, a range n-m, opaque or any");
    let (start, end) = ports(port).ok_or_else(why)?;
    // RFC 4301 §4.4.1.1: for ICMP the port is type and code; a number below 256 is a type alone,
    // as in strongSwan.
    let icmp = |port: u16| if matches!(protocol, ICMP | ICMPV6) && port < 256 { port << 8 } else { port };
    let any = (start, end) == (0, u16::MAX);
    Ok((protocol, if any || start > end { (start, end) } else { (icmp(start), icmp(end)) }))
}

fn number8(text: &str) -> Option<u8> {
    if text.bytes().all(|c| c.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn ports(text: &str) -> Option<(u16, u16)> {
    let port = |text: &str| {
        if text.bytes().all(|c| c.is_ascii_digit()) { text.parse::<u16>().ok() } else { None }
    };
    match text {
        "" | "any" => Some((0, u16::MAX)),
        // RFC 7296 §3.13.1: start above end stands for OPAQUE.
        "opaque" => Some((u16::MAX, 0)),
        _ => {
            // Names may contain hyphens, so they are tried before ranges.
            if let Some((_, port)) = SERVICES.iter().find(|(name, _)| *name == text) {
                return Some((*port, *port));
            }
            let (start, end) = text.split_once('-').unwrap_or((text, text));
            Some((port(start)?, port(end)?)).filter(|(start, end)| start <= end)
        }
    }
}
