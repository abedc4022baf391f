//! What an earlier run left: taking it over, or taking it away.

use super::bpffs::{Instance, PinDir};
use super::error::{FilterError, Result};
use super::layout::{LAYOUT_VERSION, read_layout};
use super::{FIRST, ports};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

/// What [`cleanup`] removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Interfaces that had the filter.
    pub ports: Vec<String>,
    /// True if there were pins.
    pub pins: bool,
}

/// Takes the filter of an instance away, whatever version made it. Refuses while a daemon runs. Nothing to do is no
/// error.
pub fn cleanup(instance: &Instance) -> Result<Cleaned> {
    let Some(pins) = PinDir::open(instance)? else { return Ok(Cleaned::default()) };
    let ports = remove_links(&pins)?;
    pins.remove_maps()?;
    pins.remove()?;
    Ok(Cleaned { ports, pins: true })
}

fn remove_links(pins: &PinDir) -> Result<Vec<String>> {
    let linked = pins.linked()?;
    linked.iter().try_for_each(|ifindex| ports::remove_link(*ifindex, &pins.link(*ifindex)))?;
    Ok(linked.into_iter().map(ports::interface_name).collect())
}

/// True if the pinned maps are ours to go on with. Sweeps those of a run that died before it had attached anything,
/// or whose network namespace is gone.
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
    if map.key_size() as usize != FIRST.len() {
        return Ok(None);
    }
    let value = map.lookup(&FIRST, MapFlags::ANY).map_err(failed)?;
    Ok(value.as_deref().and_then(read_layout))
}

fn any_attached(pins: &PinDir) -> Result<bool> {
    for ifindex in pins.linked()? {
        if ports::is_attached(ifindex, &pins.link(ifindex))? {
            return Ok(true);
        }
    }
    Ok(false)
}
