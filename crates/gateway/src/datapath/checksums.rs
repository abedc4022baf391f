//! On which ports workers fill in checksums that neighbours have left open.

use crate::config::{Checksum, Config, PortConfig};
use crate::error::{Error, Result};
use crate::queue_assignment::is_there;
use testudo_fastpath::fib::PortIndex;
use testudo_fastpath::port::{driver_of, leaves_checksums_open};

/// The ports as they are configured, by their numbers.
pub(super) struct Checksums(Vec<PortConfig>);

impl Checksums {
    pub(super) fn of(config: &Config) -> Self {
        Self(config.ports.clone())
    }

    /// [`are_filled`] for a port by its number.
    pub(super) fn are_filled(&self, index: PortIndex) -> Result<bool> {
        self.0.get(usize::from(index.0)).map_or(Ok(false), are_filled)
    }
}

/// What is decided about a port, and why.
#[derive(Debug, PartialEq, Eq)]
enum Decision {
    /// The configuration says so.
    Configured { fills: bool },
    /// The driver hands over packets whose checksum the sender has left open.
    Virtual { driver: String, sender: &'static str },
    /// The driver does not do so, as far as we know.
    Wire,
}

/// True if open checksums of packets that come by this port are filled in. Logs it where the driver
/// has decided it. For a missing interface, whose driver is not known, they are: where none is
/// open, that costs a comparison and changes nothing.
fn are_filled(port: &PortConfig) -> Result<bool> {
    if port.checksum == Checksum::Auto && !is_there(&port.interface) {
        tracing::info!(
            "port {}: fills in checksums that its neighbours leave open (no driver is known while it is missing)",
            port.interface
        );
        return Ok(true);
    }
    let decision = decide(port.checksum, || driver_of(&port.interface).map_err(Error::at(&port.place)))?;
    if let Decision::Virtual { driver, sender } = &decision {
        tracing::info!(
            "port {}: fills in checksums that its neighbours leave open (driver {driver}: {sender})",
            port.interface
        );
    }
    Ok(!matches!(decision, Decision::Configured { fills: false } | Decision::Wire))
}

/// What a check of the host says about it; `None` if no checksum is filled in.
pub(crate) fn plan(port: &PortConfig, driver: Option<&str>) -> Option<String> {
    let driver = || Ok::<_, std::convert::Infallible>(driver.map(str::to_owned));
    let why = match decide(port.checksum, driver) {
        Ok(Decision::Virtual { driver, sender }) => format!("driver {driver}: {sender}"),
        Ok(Decision::Configured { fills: true }) => "as configured".to_owned(),
        Ok(Decision::Configured { fills: false } | Decision::Wire) => return None,
        Err(never) => match never {},
    };
    Some(format!("fill in checksums that neighbours of {} leave open ({why})", port.interface))
}

fn decide<E>(
    wanted: Checksum,
    driver: impl FnOnce() -> std::result::Result<Option<String>, E>,
) -> std::result::Result<Decision, E> {
    let driver = match wanted {
        Checksum::Fill => return Ok(Decision::Configured { fills: true }),
        Checksum::Trust => return Ok(Decision::Configured { fills: false }),
        Checksum::Auto => driver()?.unwrap_or_default(),
    };
    Ok(match leaves_checksums_open(&driver) {
        Some(sender) => Decision::Virtual { driver, sender },
        None => Decision::Wire,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(wanted: Checksum, driver: Option<&str>) -> Decision {
        decide(wanted, || Ok::<_, Error>(driver.map(str::to_owned))).unwrap()
    }

    #[test]
    fn the_driver_decides_where_nobody_has() {
        let decision = decided(Checksum::Auto, Some("veth"));
        assert!(matches!(decision, Decision::Virtual { driver, .. } if driver == "veth"));
        for driver in [Some("ixgbe"), None] {
            assert_eq!(decided(Checksum::Auto, driver), Decision::Wire, "{driver:?}");
        }
    }

    #[test]
    fn whoever_has_decided_is_not_asked_for_the_driver() {
        for (wanted, fills) in [(Checksum::Fill, true), (Checksum::Trust, false)] {
            let decision = decide(wanted, || Err("asked"));
            assert_eq!(decision, Ok(Decision::Configured { fills }));
        }
        assert_eq!(decide(Checksum::Auto, || Err("asked")), Err("asked"));
    }
}
