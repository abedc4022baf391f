//! A virtual machine as a host of the lab.

use super::links::Link;
use super::{control_link, power_on, shell};
use crate::process::Process;
use crate::topology::HOST;
use crate::{Namespace, Result};

/// The link that it sends by, as virtual machines do by default.
const CARD: &str = "eth3";

/// A running virtual machine. It replaces a host, whose namespace becomes a switch in front of it.
#[derive(Debug)]
pub struct VirtualMachine {
    namespace: Namespace,
    /// It ends when this is dropped.
    _process: Process,
}

impl VirtualMachine {
    /// Starts it in place of a host's namespace.
    pub fn start(namespace: &Namespace) -> Result<Self> {
        let link = Link::take(namespace, HOST, CARD)?;
        control_link(namespace)?;
        let machine = Self { namespace: namespace.clone(), _process: power_on(namespace)? };
        machine.run(&link.configuration())?;
        Ok(machine)
    }

    /// Runs a script in its shell and returns its output. Fails unless it succeeds.
    pub fn run(&self, script: &str) -> Result<String> {
        shell::run(&self.namespace, script)
    }
}
