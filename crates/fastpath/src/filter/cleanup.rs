//! What an earlier run left behind: taking it over, or removing it.

use super::bpffs::{Instance, PinDir};
use super::error::{FilterError, Result};
use super::layout::{LAYOUT_VERSION, VIP, read_address, read_layout};
use super::{FIRST_KEY, ports};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What [`cleanup`] removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Interfaces that had the filter.
    pub ports: Vec<String>,
    /// True if there were pins.
    pub pins: bool,
    /// The VIPs in its maps: they are still on this host.
    pub vips: BTreeSet<IpAddr>,
}

/// Removes the filter of an instance, whatever version made it. Fails while a daemon runs. If there
/// is nothing to remove, that is no error.
pub fn cleanup(instance: &Instance) -> Result<Cleaned> {
    let Some(pins) = PinDir::open(instance)? else { return Ok(Cleaned::default()) };
    let vips = pinned_vips(&pins)?;
    let ports = remove_links(&pins)?;
    pins.remove_maps()?;
    pins.remove()?;
    Ok(Cleaned { ports, pins: true, vips })
}

fn remove_links(pins: &PinDir) -> Result<Vec<String>> {
    let linked = pins.linked()?;
    linked.iter().try_for_each(|ifindex| ports::remove_link(*ifindex, &pins.link(*ifindex)))?;
    Ok(linked.into_iter().map(ports::interface_name).collect())
}

/// True if the pinned maps can be taken over. Removes those of a run that died before it had
/// attached anything, or whose network namespace is gone.
pub(super) fn take_over(instance: &Instance, pins: &PinDir, netns: u64) -> Result<bool> {
    let (version, owner) = pinned_layout(pins)?.unwrap_or((0, 0));
    if version == LAYOUT_VERSION && owner == netns {
        return Ok(true);
    }
    if !any_attached(pins)? {
        remove_links(pins)?;
        pins.remove_maps()?;
        return Ok(false);
    }
    let instance = instance.name().to_owned();
    if version != LAYOUT_VERSION {
        return Err(FilterError::Layout { instance, found: version });
    }
    Err(FilterError::OtherNetns { instance, found: owner, expected: netns })
}

fn pinned_layout(pins: &PinDir) -> Result<Option<(u32, u64)>> {
    let path = pins.map("layout");
    if !path.exists() {
        return Ok(None);
    }
    let failed = |source| FilterError::Map {
        map: "layout",
        operation: "cannot read",
        entry: path.display().to_string(),
        source,
    };
    let map = MapHandle::from_pinned_path(&path).map_err(failed)?;
    if map.key_size() as usize != FIRST_KEY.len() {
        return Ok(None);
    }
    let value = map.lookup(&FIRST_KEY, MapFlags::ANY).map_err(failed)?;
    Ok(value.as_deref().and_then(read_layout))
}

/// The VIPs in the pinned maps; none if another version has pinned them.
fn pinned_vips(pins: &PinDir) -> Result<BTreeSet<IpAddr>> {
    let mut vips = BTreeSet::new();
    if pinned_layout(pins)?.is_none_or(|(version, _)| version != LAYOUT_VERSION) {
        return Ok(vips);
    }
    for name in ["local4", "local6"] {
        let failed = |source| FilterError::Map {
            map: name,
            operation: "cannot read",
            entry: "of an address".to_owned(),
            source,
        };
        let map = MapHandle::from_pinned_path(pins.map(name)).map_err(failed)?;
        for key in map.keys() {
            let kind = map.lookup(&key, MapFlags::ANY).map_err(failed)?;
            let flags = kind.as_deref().and_then(<[u8]>::first_chunk).copied().map_or(0, u32::from_ne_bytes);
            vips.extend(read_address(&key).filter(|_| flags & VIP != 0));
        }
    }
    Ok(vips)
}

fn any_attached(pins: &PinDir) -> Result<bool> {
    for ifindex in pins.linked()? {
        if ports::is_attached(ifindex, &pins.link(ifindex))? {
            return Ok(true);
        }
    }
    Ok(false)
}
