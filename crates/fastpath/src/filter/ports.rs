//! Attaching the filter to ports, and detaching it.

use super::bpffs::remove_pin;
use super::error::{FilterError, Result};
use super::layout::{MAX_PORTS, port_index, port_value};
use super::link::{self, ClaimLink, XdpLink, XdpMode};
use super::{Filter, bpffs};
use crate::fib::PortIndex;
use crate::mac::MacAddr;
use std::io;
use std::path::Path;

/// A port, as the filter knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterPort {
    /// Number of the port, below [`super::MAX_PORTS`]; it is part of the stamp.
    pub index: PortIndex,
    /// Name of the interface.
    pub name: String,
    /// Number of the interface in the kernel.
    pub ifindex: u32,
    /// Its address: frames to others do not go to a worker.
    pub mac: MacAddr,
    /// The cluster's address on this link: a locally administered group address, or a unicast
    /// address that no frame ever comes from. Frames to it are for every node.
    pub cluster_mac: Option<MacAddr>,
    /// Drop packets that come in clear from a protected prefix. On by default, on every port: on
    /// the inner side, too, such a packet is forged or has taken a way around the tunnel. Off only
    /// where hosts of the remote prefix are also reached in clear, behind this port.
    pub check_source: bool,
    /// Attach in generic mode if the driver has no native XDP.
    pub allow_generic: bool,
}

impl Filter {
    /// Attaches the filter to a port, or replaces the program of an earlier run without a gap, and
    /// pins the link.
    pub fn attach(&mut self, port: &FilterPort) -> Result<XdpMode> {
        self.set_port(port)?;
        let pin = self.pins.link(port.ifindex);
        let mode = match self.replace(port, &pin)? {
            Some(mode) => mode,
            None => self.attach_new(port, &pin)?,
        };
        self.forget_others(port)?;
        self.claim(port)?;
        Ok(mode)
    }

    /// Marks the frames that the filter passes up as sent to this host. Not pinned: the filter of a
    /// dead daemon passes no flooded packets up.
    fn claim(&mut self, port: &FilterPort) -> Result<()> {
        if port.cluster_mac.is_none() {
            self.claims.remove(&port.ifindex);
        } else if !self.claims.contains_key(&port.ifindex) {
            let link = self.loaded.with_claim(|program| ClaimLink::attach(program, port.ifindex))?;
            let operation = "cannot attach a program behind the filter (tcx: Linux 6.6 or later)";
            self.claims.insert(port.ifindex, link.map_err(failed(&port.name, operation))?);
        }
        Ok(())
    }

    /// Tells the filter about a change of a port: its addresses or its flags.
    pub fn set_port(&mut self, port: &FilterPort) -> Result<()> {
        check_index(port.index)?;
        let value = port_value(port);
        self.loaded.ports.set(port.ifindex, &value, &port.name)
    }

    /// Numbers of the interfaces that have the filter, including those of an earlier run.
    pub fn attached(&self) -> Result<Vec<u32>> {
        let mut attached = Vec::new();
        for ifindex in self.pins.linked()? {
            if is_attached(ifindex, &self.pins.link(ifindex))? {
                attached.push(ifindex);
            }
        }
        Ok(attached)
    }

    /// The mode in which the filter runs on a port now. `None` if it is not attached there, because
    /// another interface has the port's name or number by now.
    pub fn mode(&self, port: &FilterPort) -> Result<Option<XdpMode>> {
        if !is_attached(port.ifindex, &self.pins.link(port.ifindex))? {
            return Ok(None);
        }
        attached_mode(&port.name, port.ifindex).map(Some)
    }

    /// Removes the entries and links of interfaces that are gone. The filter stays on an interface
    /// that was renamed: it drops the packets for a worker there.
    pub fn forget_gone(&mut self) -> Result<()> {
        for ifindex in self.pins.linked()? {
            if !is_attached(ifindex, &self.pins.link(ifindex))? {
                self.detach(ifindex)?;
            }
        }
        Ok(())
    }

    /// Detaches the filter from an interface. After that only the routes protect what it protected
    /// there.
    pub fn detach(&mut self, ifindex: u32) -> Result<()> {
        self.claims.remove(&ifindex);
        remove_link(ifindex, &self.pins.link(ifindex))?;
        self.loaded.ports.remove(ifindex, &interface_name(ifindex))
    }

    /// Puts the program into the pinned link of an earlier run. `None` if the interface has none.
    fn replace(&mut self, port: &FilterPort, pin: &Path) -> Result<Option<XdpMode>> {
        let Some(link) = open_link(port.ifindex, pin)? else { return Ok(None) };
        if link.ifindex().map_err(failed(&port.name, "cannot read the link"))?.is_none() {
            // Interface numbers are not reused, but an interface can leave the namespace and come
            // back without its link.
            return remove_pin(pin).map(|()| None);
        }
        let updated = self.loaded.with_program(|program| link.update(program))?;
        updated.map_err(failed(&port.name, "cannot replace the program of the pinned link"))?;
        attached_mode(&port.name, port.ifindex).map(Some)
    }

    fn attach_new(&mut self, port: &FilterPort, pin: &Path) -> Result<XdpMode> {
        let try_mode = |mode| self.loaded.with_program(|p| XdpLink::attach(p, port.ifindex, mode));
        let (link, mode) = match try_mode(XdpMode::Native)? {
            Ok(link) => (link, XdpMode::Native),
            Err(e) if port.allow_generic && e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                let link = try_mode(XdpMode::Generic)?;
                (link.map_err(failed(&port.name, "cannot attach in generic mode"))?, XdpMode::Generic)
            }
            Err(e) => return Err(failed(&port.name, "cannot attach in native mode")(e)),
        };
        link.pin(pin).map_err(bpffs::failed(pin, "cannot pin the link"))?;
        Ok(mode)
    }

    /// Removes entries of the port's number that belong to interfaces that are gone.
    fn forget_others(&self, port: &FilterPort) -> Result<()> {
        let ports = &self.loaded.ports;
        for ifindex in ports.interfaces().filter(|ifindex| *ifindex != port.ifindex) {
            let value = ports.get(ifindex, &port.name)?;
            if value.as_deref().and_then(port_index) == Some(port.index) {
                ports.remove(ifindex, &port.name)?;
            }
        }
        Ok(())
    }
}

pub(super) fn check_index(port: PortIndex) -> Result<()> {
    if port.0 < MAX_PORTS {
        return Ok(());
    }
    Err(FilterError::Range { what: "port index", found: port.0, limit: MAX_PORTS - 1 })
}

/// True if the pinned link is on an interface that still exists, in any network namespace.
pub(super) fn is_attached(ifindex: u32, pin: &Path) -> Result<bool> {
    let Some(link) = open_link(ifindex, pin)? else { return Ok(false) };
    let found = link.ifindex().map_err(failed(&interface_name(ifindex), "cannot read the link"))?;
    Ok(found.is_some())
}

/// Detaches a link and removes its pin. The link of a vanished interface is detached already.
pub(super) fn remove_link(ifindex: u32, pin: &Path) -> Result<()> {
    if let Some(link) = open_link(ifindex, pin)? {
        match link.detach() {
            Err(e) if e.raw_os_error() != Some(libc::ENOLINK) => {
                return Err(failed(&interface_name(ifindex), "cannot detach")(e));
            }
            _ => {}
        }
    }
    remove_pin(pin)
}

/// The interface's name, or its number if it has no name in this namespace.
pub(super) fn interface_name(ifindex: u32) -> String {
    nix::net::if_::if_indextoname(ifindex)
        .map_or_else(|_| format!("with number {ifindex}"), |n| n.to_string_lossy().into_owned())
}

/// Opens a pinned link; `None` if there is no pin.
fn open_link(ifindex: u32, pin: &Path) -> Result<Option<XdpLink>> {
    match XdpLink::open(pin) {
        Ok(link) => Ok(Some(link)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed(&interface_name(ifindex), "cannot open the pinned link")(e)),
    }
}

/// The mode in which an interface runs its program.
fn attached_mode(name: &str, ifindex: u32) -> Result<XdpMode> {
    link::attached_mode(ifindex).map_err(failed(name, "cannot ask for the XDP mode"))
}

fn failed(port: &str, operation: &'static str) -> impl FnOnce(io::Error) -> FilterError {
    let port = port.to_owned();
    move |source| FilterError::Port { port, operation, source }
}
