//! `connections.<conn>.children.<child>`.

use super::algorithm::Policy;
use super::connection::or_default;
use super::fields::Fields;
use super::keys::CHILD;
use super::refusal::{Refusal, Why, because, expected};
use super::{lifetime, proposal, selector, updown, value};
use crate::message::Message;
use std::num::{NonZeroU16, NonZeroU32};
use testudo_ike::config::{Child, ChildMode, EspEncryption, EspProposal, StartAction, TsSpec};
use testudo_ipsec::sa::{Cipher, HeaderCopy, Mss};

/// Default anti-replay window, in packets. strongSwan's 32 are too few for many queues and
/// processors.
const REPLAY_WINDOW: u32 = 1024;
/// Largest anti-replay window, in packets.
const MAX_REPLAY_WINDOW: u32 = 8192;

pub(super) fn child(name: &str, section: Fields<'_>, policy: Policy) -> Result<Child, Refusal> {
    let mut section = section.known(CHILD)?;
    let mode = section.parsed("mode", mode)?.unwrap_or(ChildMode::Tunnel);
    let start_action = start_action(&mut section, mode)?;
    let proposals = proposals(&mut section, mode, policy)?;
    let small_blocks = proposals.iter().any(has_small_blocks);
    let child = Child {
        name: name.to_owned(),
        local_ts: selectors(&mut section, "local_ts", mode)?,
        remote_ts: selectors(&mut section, "remote_ts", mode)?,
        proposals,
        mode,
        start_action,
        dpd_action: loss_action(&mut section, "dpd_action", mode)?,
        close_action: loss_action(&mut section, "close_action", mode)?,
        lifetime: lifetime::child(&mut section, small_blocks)?,
        replay_window: section.parsed("replay_window", replay_window)?.unwrap_or(REPLAY_WINDOW),
        copy: header_copy(&mut section)?,
        priority: section.parsed("priority", value::number32)?.unwrap_or(0),
        reqid: section.parsed("reqid", value::number32)?.and_then(NonZeroU32::new),
        updown: updown::script(&mut section)?.filter(|_| mode.is_negotiated()),
        per_cpu_sas: section.parsed("per_cpu_sas", per_cpu_sas)?.unwrap_or(false) && mode.is_negotiated(),
        mss: section.parsed("mss", mss)?.unwrap_or_default(),
        icmp: section.parsed("icmp", value::boolean)?.unwrap_or(false),
    };
    section.finish_with(CHILD)?;
    Ok(child)
}

/// `encap` would vary the source port of UDP, which no receiver of this gateway's packets needs.
fn per_cpu_sas(text: &str) -> Result<bool, Why> {
    if text.eq_ignore_ascii_case("encap") {
        return Ok(true);
    }
    value::boolean(text).map_err(|_| expected("yes, no or encap"))
}

/// True if one of the proposal's ciphers has blocks of 64 bits.
fn has_small_blocks(proposal: &EspProposal) -> bool {
    proposal.encryption.contains(&EspEncryption::Separate(Cipher::TripleDesCbc))
}

fn mode(text: &str) -> Result<ChildMode, Why> {
    match text.to_ascii_lowercase().as_str() {
        "tunnel" => Ok(ChildMode::Tunnel),
        "transport" => Ok(ChildMode::Transport),
        "pass" => Ok(ChildMode::Pass),
        "drop" => Ok(ChildMode::Drop),
        "transport_proxy" | "beet" | "iptfs" => Err(because(
            "but this mode is not supported; expected tunnel, transport, pass or drop".to_owned(),
        )),
        _ => Err(expected("tunnel, transport, pass or drop")),
    }
}

/// Parses strongSwan's words for actions.
fn action(text: &str) -> Result<StartAction, Why> {
    match text.to_ascii_lowercase().as_str() {
        "none" | "clear" => Ok(StartAction::None),
        "start" | "restart" => Ok(StartAction::Start),
        "trap" | "route" => Ok(StartAction::Trap),
        "trap|start" => Ok(StartAction::TrapStart),
        _ => Err(expected("none, trap, start or trap|start")),
    }
}

/// The start action. A pass or drop policy can only be installed, or wait for `install`: nothing is
/// negotiated.
fn start_action(section: &mut Fields<'_>, mode: ChildMode) -> Result<StartAction, Refusal> {
    let found = section.parsed("start_action", |text| match action(text)? {
        action if action.starts() && !mode.is_negotiated() => {
            Err(expected("trap, which installs a pass or drop policy, or none"))
        }
        action => Ok(action),
    })?;
    Ok(found.unwrap_or(StartAction::None))
}

/// What is to be said of a child whose pass or drop policy waits for `install`, for the log.
pub(super) fn not_installed(path: &str, child: &Message) -> Option<String> {
    let shunt = child.text("mode").filter(|text| mode(text).is_ok_and(|mode| !mode.is_negotiated()))?;
    let traps = |text| action(text).is_ok_and(|action| action.traps());
    if child.text("start_action").is_some_and(traps) {
        return None;
    }
    Some(format!("{path}.mode: the {shunt} policy waits for swanctl --install, without start_action = trap"))
}

/// The action after a loss. A child without negotiation needs none, but may name one, because
/// templates apply to all children.
fn loss_action(section: &mut Fields<'_>, name: &str, mode: ChildMode) -> Result<StartAction, Refusal> {
    let found = section.parsed(name, action)?.unwrap_or(StartAction::None);
    Ok(if mode.is_negotiated() { found } else { StartAction::None })
}

fn selectors(section: &mut Fields<'_>, name: &str, mode: ChildMode) -> Result<Vec<TsSpec>, Refusal> {
    let selectors = or_default(section.list(name, selector::selector)?, || selector::DYNAMIC);
    let dynamic = selectors.iter().any(|selector| matches!(selector, TsSpec::Dynamic { .. }));
    if dynamic && !mode.is_negotiated() {
        let why =
            "which has no meaning without a peer; expected subnets such as 0.0.0.0/0 or ::/0".to_owned();
        return Err(Refusal::Bad { path: section.path(name), found: "dynamic, the default".to_owned(), why });
    }
    Ok(selectors)
}

fn proposals(section: &mut Fields<'_>, mode: ChildMode, policy: Policy) -> Result<Vec<EspProposal>, Refusal> {
    let ah = section.list("ah_proposals", |text| proposal::ah(text, policy))?.unwrap_or_default();
    let esp = section.list("esp_proposals", |text| proposal::esp(text, policy))?.unwrap_or_default();
    let named: Vec<EspProposal> = ah.into_iter().chain(esp.into_iter().flatten()).collect();
    let proposals = if named.is_empty() { proposal::default_esp() } else { named };
    // A child without negotiation has no proposals, but may name some, because templates apply to
    // all children.
    Ok(if mode.is_negotiated() { proposals } else { Vec::new() })
}

/// The anti-replay window in packets, rounded up, because the data plane's windows are whole words.
fn replay_window(text: &str) -> Result<u32, Why> {
    let window = value::number32(text).ok().filter(|window| *window <= MAX_REPLAY_WINDOW);
    let why = || expected("a number of packets up to 8192, or 0 for no anti-replay");
    window.map(|window| window.next_multiple_of(64)).ok_or_else(why)
}

fn mss(text: &str) -> Result<Mss, Why> {
    match text.to_ascii_lowercase().as_str() {
        "auto" => return Ok(Mss::Auto),
        "off" => return Ok(Mss::Off),
        _ => {}
    }
    let octets = value::number32(text).ok().and_then(|octets| u16::try_from(octets).ok());
    let octets = octets.filter(|octets| (Mss::MIN..=Mss::MAX).contains(octets)).and_then(NonZeroU16::new);
    octets.map(Mss::AtMost).ok_or_else(|| expected("auto, off, or a number of octets from 536 to 65495"))
}

fn header_copy(section: &mut Fields<'_>) -> Result<HeaderCopy, Refusal> {
    let default = HeaderCopy::default();
    let dscp = section.parsed("copy_dscp", |text| match text.to_ascii_lowercase().as_str() {
        "no" => Ok((false, false)),
        "in" => Ok((false, true)),
        "out" => Ok((true, false)),
        "yes" => Ok((true, true)),
        _ => Err(expected("out, in, yes or no")),
    })?;
    let (dscp_out, dscp_in) = dscp.unwrap_or((default.dscp_out, default.dscp_in));
    Ok(HeaderCopy {
        dscp_out,
        dscp_in,
        ecn: section.parsed("copy_ecn", value::boolean)?.unwrap_or(default.ecn),
        df: section.parsed("copy_df", value::boolean)?.unwrap_or(default.df),
    })
}
