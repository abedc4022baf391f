//! The kernel's settings for the TUN, made before it is up.

use super::error::{Result, TunError};
use std::path::PathBuf;
use std::{fs, io};

/// Packets from the TUN were received by a worker on another interface, so the reverse path differs
/// and the source may be one of our own addresses. A reply through the TUN is no reason for a
/// redirect.
const IPV4: &[(&str, &str)] = &[("rp_filter", "0"), ("accept_local", "1"), ("send_redirects", "0")];

/// The link has no other host: no address of its own, no solicitation, nothing to learn.
const IPV6: &[(&str, &str)] = &[
    ("addr_gen_mode", "1"),
    ("accept_ra", "0"),
    ("autoconf", "0"),
    ("accept_dad", "0"),
    ("dad_transmits", "0"),
    ("router_solicitations", "0"),
];

pub(super) fn apply(name: &str) -> Result<()> {
    for (setting, value) in IPV4 {
        set(name, "ipv4", setting, value)?;
    }
    // Without IPv6 in the kernel there is nothing to set.
    if !path(name, "ipv6", "").exists() {
        return Ok(());
    }
    IPV6.iter().try_for_each(|(setting, value)| set(name, "ipv6", setting, value))
}

/// The kernel takes the larger value of the interface's and of `all`, so the TUN's own is not
/// enough. On an interface without addresses even the loose check (2) is a strict one. Other
/// interfaces depend on `all`, so the operator must change it.
pub(super) fn check_reverse_path() -> Result<()> {
    let setting = path("all", "ipv4", "rp_filter");
    match fs::read_to_string(&setting) {
        Ok(found) if found.trim() != "0" => Err(TunError::ReversePath { found: found.trim().to_owned() }),
        _ => Ok(()),
    }
}

fn path(interface: &str, family: &str, setting: &str) -> PathBuf {
    ["/proc/sys/net", family, "conf", interface, setting].iter().collect()
}

fn set(name: &str, family: &str, setting: &str, value: &'static str) -> Result<()> {
    let path = path(name, family, setting);
    // Containers often have /proc/sys read-only; if the value is already right, that is no reason
    // to fail.
    if fs::read_to_string(&path).is_ok_and(|v| v.trim() == value) {
        return Ok(());
    }
    fs::write(&path, value).map_err(|source: io::Error| TunError::Setting {
        name: name.to_owned(),
        setting: format!("net.{family}.conf.{name}.{setting}"),
        value,
        source,
    })
}
