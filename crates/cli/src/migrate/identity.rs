//! The identities of both hosts: those that they have proven, and those that the policy expects.

use super::channel::{ChildSa, Flow};
use super::policy::{Policy, PolicyError};
use super::requirement::Refusal;
use std::net::IpAddr;
use std::path::Path;

/// Both ends of the Child SA, if they have the identities that the policy expects. The other end
/// has verified the identity of each: a host says anything of itself.
pub(super) fn expected(
    policy: &Result<Policy, PolicyError>,
    file: &Path,
    flow: Flow,
    source: &ChildSa,
    destination: &ChildSa,
) -> Result<String, Refusal> {
    let hosts = [(flow.from, &destination.remote.identity), (flow.to.ip(), &source.remote.identity)];
    let policy = policy.as_ref().map_err(|error| {
        let [source, destination] = hosts.map(|(address, found)| format!("{found} ({address})"));
        Refusal::new(
            format!("{source} and {destination}, and whom the policy expects is not known: {error}"),
            "see requirement 2",
        )
    })?;
    let [source, destination] = hosts.map(|(address, found)| examine(policy, file, address, found));
    match (source, destination) {
        (Ok(source), Ok(destination)) => Ok(format!("{source} and {destination}")),
        (source, destination) => {
            let differ: Vec<String> = [source, destination].into_iter().filter_map(Result::err).collect();
            Err(Refusal::new(
                differ.join("; "),
                "find out who has that address, or list the identity there if it is right",
            ))
        }
    }
}

fn examine(policy: &Policy, file: &Path, address: IpAddr, found: &String) -> Result<String, String> {
    match policy.host(address) {
        None => Ok(format!("{found} ({address}, the policy expects none)")),
        Some(host) if host.identities.contains(found) => {
            Ok(format!("{found} ({address}, as the policy expects)"))
        }
        Some(host) => Err(format!(
            "{address} has authenticated as {found:?}, {}:{} expects {}",
            file.display(),
            host.line,
            either(&host.identities)
        )),
    }
}

/// `"a" or "b"`.
fn either(identities: &[String]) -> String {
    identities.iter().map(|one| format!("{one:?}")).collect::<Vec<_>>().join(" or ")
}

#[cfg(test)]
mod tests;
