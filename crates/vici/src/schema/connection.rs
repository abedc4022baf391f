//! `connections.<conn>`.

use super::algorithm::Policy;
use super::fields::Fields;
use super::keys::{self, CONNECTION};
use super::refusal::{Refusal, Why, expected};
use super::{addr, auth, child, identity, lifetime, proposal, updown, value};
use crate::message::{Element, Message};
use crate::trust::Untrusted;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use testudo_ike::config::{
    Child, Childless, Connection, Fragmentation, FurtherRounds, HostNames, IkeProposal, PpkPolicy, SendCert,
    Unique,
};
use testudo_ipsec::selector::AddrRange;

/// The port of IKE, from which NAT detection may change to 4500.
const IKE_PORT: u16 = 500;
/// The port of IKE and ESP with NAT traversal.
const NAT_PORT: u16 = 4500;
/// Longest name in octets, so that `<child>-<number>` still fits the length field of a name.
const MAX_NAME_OCTETS: usize = 200;

/// Decodes the argument of `load-conn`: one section, named like the connection.
pub fn connection(message: &Message, policy: Policy) -> Result<Connection, Refusal> {
    let [Element::Section(name, content)] = message.elements() else {
        return Err(Refusal::Missing { path: "connections".to_owned(), expected: "exactly one connection" });
    };
    check_name(name, "connections")?;
    let mut conn = Fields::new(&format!("connections.{name}"), content)?.known(CONNECTION)?;
    let (local_addrs, local) = addr::endpoints(conn.list("local_addrs", addr::endpoint)?);
    let (remote_addrs, remote) = addr::endpoints(conn.list("remote_addrs", addr::endpoint)?);
    let names = HostNames { local, remote };
    let local_port = conn.parsed("local_port", local_port)?.unwrap_or(IKE_PORT);
    let remote_port = conn.parsed("remote_port", value::udp_port)?.unwrap_or(IKE_PORT);
    let children = children(&mut conn, policy)?;
    let peers = children.is_empty() || children.iter().any(|child| child.mode.is_negotiated());
    // These take every section whose name begins with theirs.
    let (local, locals) = auth::locals(&mut conn, peers)?;
    let (remote, remotes) = auth::remotes(&mut conn, peers)?;
    let connection = Connection {
        name: name.clone(),
        local_addrs,
        remote_addrs,
        names,
        local_port,
        remote_port,
        proposals: ike_proposals(&mut conn, policy)?,
        encap: conn.parsed("encap", value::boolean)?.unwrap_or(false),
        fragmentation: conn.parsed("fragmentation", fragmentation)?.unwrap_or_default(),
        childless: conn.parsed("childless", childless)?.unwrap_or_default(),
        dpd_delay: conn.parsed("dpd_delay", value::seconds)?.unwrap_or_default(),
        lifetime: lifetime::ike(&mut conn)?,
        keyingtries: conn.parsed("keyingtries", value::number32)?.unwrap_or(1),
        send_cert: conn.parsed("send_cert", send_cert)?.unwrap_or_default(),
        send_certreq: conn.parsed("send_certreq", value::boolean)?.unwrap_or(true),
        unique: conn.parsed("unique", unique)?.unwrap_or_default(),
        vips: virtual_ips(&mut conn)?,
        vips_within: conn.parsed("vips_within", ranges)?.unwrap_or_default(),
        pools: conn.list("pools", |name| Ok(name.to_owned()))?.unwrap_or_default(),
        ppk: PpkPolicy {
            id: conn.parsed("ppk_id", identity::parse)?.flatten(),
            required: conn.parsed("ppk_required", value::boolean)?.unwrap_or(false),
        },
        local,
        remote,
        rounds: FurtherRounds { local: locals, remote: remotes },
        children,
    };
    conn.finish_with(CONNECTION)?;
    Ok(connection)
}

/// Settings of an accepted connection that have no effect, for the log: each line begins with the
/// path of a key.
pub fn without_effect(message: &Message) -> Vec<String> {
    let connections = message.sections();
    let children = connections.flat_map(|(connection, content)| {
        let children = content.section("children").into_iter().flat_map(Message::sections);
        children.map(move |(child, content)| (format!("connections.{connection}.children.{child}"), content))
    });
    let of_child = |(path, content): (String, &Message)| {
        let lines = keys::without_effect(&path, content).into_iter();
        lines.chain(child::not_installed(&path, content)).chain(updown::not_run(&path, content))
    };
    children.flat_map(of_child).collect()
}

/// Warnings about the scripts of a connection that are not run because `check` refuses the program.
pub fn scripts_not_run(
    connection: &Connection,
    check: impl Fn(&str) -> Result<(), Untrusted>,
) -> Vec<String> {
    let scripts = connection.children.iter().filter_map(|child| Some((child, child.updown.as_ref()?)));
    let refused = scripts.filter_map(|(child, script)| {
        let path = format!("connections.{}.children.{}", connection.name, child.name);
        Some(updown::warning(&path, &check(&script.program).err()?.to_string()))
    });
    refused.collect()
}

/// A local port: the gateway listens on these two only (RFC 7296 §2).
fn local_port(text: &str) -> Result<u16, Why> {
    value::udp_port(text)
        .ok()
        .filter(|port| [IKE_PORT, NAT_PORT].contains(port))
        .ok_or_else(|| expected("500 or 4500"))
}

fn unique(text: &str) -> Result<Unique, Why> {
    match text.to_ascii_lowercase().as_str() {
        "never" => Ok(Unique::Never),
        "no" => Ok(Unique::No),
        "replace" | "yes" => Ok(Unique::Replace),
        "keep" => Ok(Unique::Keep),
        _ => Err(expected("never, no, replace or keep")),
    }
}

/// The virtual addresses to request: an IKE SA has at most one of each family.
fn virtual_ips(conn: &mut Fields<'_>) -> Result<Vec<IpAddr>, Refusal> {
    let (mut v4, mut v6) = (false, false);
    let one_of_each = |text| {
        let vip = virtual_ip(text)?;
        let seen = if vip.is_ipv4() { &mut v4 } else { &mut v6 };
        let again = std::mem::replace(seen, true);
        if again { Err(expected("one address of each family at most")) } else { Ok(vip) }
    };
    Ok(conn.list("vips", one_of_each)?.unwrap_or_default())
}

/// A virtual address to request; `0.0.0.0` or `::` for any.
fn virtual_ip(text: &str) -> Result<IpAddr, Why> {
    match text {
        "%config" | "%config4" => Ok(Ipv4Addr::UNSPECIFIED.into()),
        "%config6" => Ok(Ipv6Addr::UNSPECIFIED.into()),
        text => text.parse().map_err(|_| expected("an address, or 0.0.0.0 or :: for any")),
    }
}

/// A list of ranges. `swanctl` does not know this list, and sends the text as it is.
fn ranges(text: &str) -> Result<Vec<AddrRange>, Why> {
    let why = || expected("addresses, subnets or ranges such as 10.3.0.0/24, separated by commas");
    text.split(',').map(|item| addr::range(item.trim()).ok_or_else(why)).collect()
}

fn fragmentation(text: &str) -> Result<Fragmentation, Why> {
    match text.to_ascii_lowercase().as_str() {
        // With IKEv2 both mean the same, in strongSwan too.
        "yes" | "force" => Ok(Fragmentation::Yes),
        "accept" => Ok(Fragmentation::Accept),
        "no" => Ok(Fragmentation::No),
        _ => Err(expected("yes, accept, no or force")),
    }
}

fn childless(text: &str) -> Result<Childless, Why> {
    match text.to_ascii_lowercase().as_str() {
        "allow" => Ok(Childless::Allow),
        "prefer" => Ok(Childless::Prefer),
        "force" => Ok(Childless::Force),
        "never" => Ok(Childless::Never),
        _ => Err(expected("allow, prefer, force or never")),
    }
}

fn send_cert(text: &str) -> Result<SendCert, Why> {
    match text.to_ascii_lowercase().as_str() {
        "ifasked" | "yes" => Ok(SendCert::IfAsked),
        "always" => Ok(SendCert::Always),
        "never" | "no" => Ok(SendCert::Never),
        _ => Err(expected("ifasked, always or never")),
    }
}

fn ike_proposals(conn: &mut Fields<'_>, policy: Policy) -> Result<Vec<IkeProposal>, Refusal> {
    let lists =
        or_default(conn.list("proposals", |text| proposal::ike(text, policy))?, proposal::default_ike);
    Ok(lists.into_iter().flatten().collect())
}

fn children(conn: &mut Fields<'_>, policy: Policy) -> Result<Vec<Child>, Refusal> {
    let Some(mut section) = conn.section("children")? else { return Ok(Vec::new()) };
    let sections = section.sections("")?;
    let path = conn.path("children");
    section.finish()?;
    let decode = |(name, fields)| {
        check_name(name, &path)?;
        child::child(name, fields, policy)
    };
    sections.into_iter().map(decode).collect()
}

/// The list, or the default if it is missing or empty.
pub(super) fn or_default<T>(list: Option<Vec<T>>, default: impl FnOnce() -> T) -> Vec<T> {
    list.filter(|list| !list.is_empty()).unwrap_or_else(|| vec![default()])
}

/// Checks a name, which appears in logs, lists and errors.
pub(super) fn check_name(name: &str, section: &str) -> Result<(), Refusal> {
    if (1..=MAX_NAME_OCTETS).contains(&name.len()) && !name.contains(char::is_control) {
        return Ok(());
    }
    let why = format!("expected a printable name of 1 to {MAX_NAME_OCTETS} octets");
    Err(Refusal::Bad { path: section.to_owned(), found: super::refusal::quote(name.as_bytes()), why })
}
