//! The four requirements of a migration, each examined before anything changes.

use super::MigrateArgs;
use super::audit;
use super::caller::Caller;
use super::channel::{self, ChildSa, Flow};
use super::clear::{self, Clear};
use super::identity;
use super::meter::Meter;
use super::policy::{Action, Policy, PolicyError, Request};
use super::probe;
use super::requirement::{Refusal, Requirement};
use super::vm::Side;
use super::watch::{CancelOn, Watch};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use testudo_vici::client::Client;

const DAEMON_LIMIT: Duration = Duration::from_secs(10);
const AUTHENTICATED: &str = "both platforms authenticated";
const AUTHORISED: &str = "caller authorised";
const PROTECTED: &str = "path confidential and intact";
const WATCHED: &str = "attacks are watched for";

/// What was found.
pub(super) struct Examined {
    pub(super) requirements: Vec<Requirement>,
    /// None if nobody has to watch.
    pub(super) watch: Option<Watch>,
    /// None if there is no Child SA.
    pub(super) meter: Option<Meter>,
}

impl Examined {
    pub(super) fn is_met(&self) -> bool {
        self.requirements.iter().all(|requirement| requirement.ok)
    }
}

/// Examines all four, whatever comes of the ones before.
pub(super) fn requirements(args: &MigrateArgs, vm: &str, to: SocketAddr) -> Examined {
    let policy = Policy::read(&args.policy);
    let (first, mut meter) = match authenticated(args, &policy, to) {
        Ok((found, meter)) => (Ok(found), Some(meter)),
        Err(refusal) => (Err(refusal), None),
    };
    let authorised = authorised(args, &policy, vm, Action::Migrate);
    let (watched, watch) = match watched(args) {
        Ok((found, watch)) => (Ok(found), watch),
        Err(refusal) => (Err(refusal), None),
    };
    // Nobody else may have clear text sent, which is an alarm if it is much.
    let in_clear = authorised.is_ok() && watched.is_ok();
    let protected = match &mut meter {
        Some(meter) => protected(args, meter, to, in_clear),
        None => Err(Refusal::new("not examined", "requirement 1 comes first")),
    };
    let requirements = vec![
        Requirement::of(1, AUTHENTICATED, first),
        Requirement::of(2, AUTHORISED, authorised),
        Requirement::of(3, PROTECTED, protected),
        Requirement::of(4, WATCHED, watched),
    ];
    Examined { requirements, watch, meter }
}

/// Finds the Child SA, as the source's daemon counts it, between the identities that the policy
/// expects.
fn authenticated(
    args: &MigrateArgs,
    policy: &Result<Policy, PolicyError>,
    to: SocketAddr,
) -> Result<(String, Meter), Refusal> {
    let from = probe::local_address(to).map_err(|error| {
        Refusal::new(format!("no route to {}: {error}", to.ip()), "check the routes of the source")
    })?;
    let (ours, client) = sas(Side::Source, &args.source_vici)?;
    let (theirs, _) = sas(Side::Destination, &args.destination_vici)?;
    let flow = Flow { from, to };
    let (sa, other_end) = channel::find(&ours, &theirs, flow)?;
    let hosts = identity::expected(policy, &args.policy, flow, &sa, &other_end)?;
    Ok((format!("{hosts}, child {} in transport mode", sa.name), Meter::new(client, sa)))
}

fn sas(side: Side, socket: &Path) -> Result<(Vec<ChildSa>, Client), Refusal> {
    let ask = || {
        let mut client = Client::connect_within(socket, DAEMON_LIMIT)?;
        Ok((channel::list(&mut client)?, client))
    };
    ask().map_err(|error: testudo_vici::Error| {
        let found = format!("testudod of the {side} at {}: {error}", socket.display());
        Refusal::new(found, format!("name its socket with --{side}-vici"))
    })
}

/// Whether the policy allows it. The decision is recorded.
pub(super) fn authorised(
    args: &MigrateArgs,
    policy: &Result<Policy, PolicyError>,
    vm: &str,
    action: Action,
) -> Result<String, Refusal> {
    let caller = Caller::find().map_err(|error| Refusal::new(error.to_string(), "call it by sudo"))?;
    let request = Request { caller: &caller, vm, action, to: args.to };
    let file = args.policy.display();
    let allowed = match policy {
        Ok(policy) => policy
            .line_that_allows(request)
            .map(|line| format!("{file}:{line}"))
            .ok_or_else(|| format!("no rule of {file} allows it")),
        Err(error) => Err(error.to_string()),
    };
    let why = allowed.as_ref().unwrap_or_else(|why| why);
    audit::record(request, allowed.is_ok(), why);
    match allowed {
        Ok(rule) => Ok(format!("{caller} by {rule}")),
        Err(why) => Err(Refusal::new(
            format!("{caller}: {why}"),
            format!("[[allow]] there needs user, vm, to, and actions with \"{}\"", action.name()),
        )),
    }
}

/// `in_clear`: whether a packet is sent around the Child SA.
fn protected(
    args: &MigrateArgs,
    meter: &mut Meter,
    to: SocketAddr,
    in_clear: bool,
) -> Result<String, Refusal> {
    let (sa, suite) = (&meter.sa, meter.sa.suite());
    if !sa.is_strong() {
        return Err(Refusal::new(
            format!("child {} has {suite}", sa.name),
            "use an AEAD, or encryption with HMAC-SHA-2, in esp_proposals of both hosts",
        ));
    }
    let flow = Flow { from: sa.local.address, to };
    let crossed = probe::cross(meter, to).map_err(|error| {
        Refusal::new(
            error.to_string(),
            "check that nothing uses the port at the destination, and that no firewall drops it",
        )
    })?;
    let clear = match in_clear {
        false => Clear::Untried("requirements 2 and 4 come first".to_owned()),
        true => clear::attempt(args.daemons(), flow).map_err(|error| {
            Refusal::new(
                error.to_string(),
                "check the policies of the destination (swanctl --list-pols), its ports (testudo status), \
                 and at the source that packets with testudod's mark are not routed into the TUN (ip rule)",
            )
        })?,
    };
    Ok(format!(
        "{suite}; a probe of port {} crossed the SA ({} out, {} in), and {}",
        to.port(),
        crossed.outbound,
        crossed.inbound,
        clear.words()
    ))
}

fn watched(args: &MigrateArgs) -> Result<(String, Option<Watch>), Refusal> {
    if args.cancel_on == CancelOn::Never {
        return Ok(("not asked for (--cancel-on never)".to_owned(), None));
    }
    let mut watch = Watch::new(args.cancel_on);
    for (side, socket) in args.daemons() {
        watch.add(side, socket).map_err(|end| Refusal::new(end.to_string(), end.remedy()))?;
    }
    Ok((watch.words(), Some(watch)))
}
