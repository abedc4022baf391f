//! The ways in which the packets of a tunnel are dealt out to the nodes.

use crate::esp::gateway::Membership;
use serde::Serialize;
use testudo_base::lane::Spread;

/// A scheme, by the name that `[[spread]]` has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scheme {
    /// The tunnel is not spread: it has one home.
    None,
    /// The packets of a session stay on one node.
    SessionHash,
    /// Sessions take turns.
    SessionRr,
    /// Sessions go where few octets went lately.
    SessionSqf,
    /// Each packet goes by itself.
    PacketHash,
    /// Packets take turns.
    PacketRr,
    /// Packets go where few octets went lately.
    PacketSqf,
}

impl Scheme {
    pub(super) const ALL: [Self; 7] = [
        Self::None,
        Self::SessionHash,
        Self::SessionRr,
        Self::SessionSqf,
        Self::PacketHash,
        Self::PacketRr,
        Self::PacketSqf,
    ];
    /// Those of a spread tunnel.
    pub(super) const SPREAD: [Self; 6] = [
        Self::SessionHash,
        Self::SessionRr,
        Self::SessionSqf,
        Self::PacketHash,
        Self::PacketRr,
        Self::PacketSqf,
    ];

    pub(super) fn name(self) -> &'static str {
        self.spread().map_or("none", Spread::name)
    }

    pub(super) fn spread(self) -> Option<Spread> {
        match self {
            Self::None => None,
            Self::SessionHash => Some(Spread::SessionHash),
            Self::SessionRr => Some(Spread::SessionRr),
            Self::SessionSqf => Some(Spread::SessionSqf),
            Self::PacketHash => Some(Spread::PacketHash),
            Self::PacketRr => Some(Spread::PacketRr),
            Self::PacketSqf => Some(Spread::PacketSqf),
        }
    }

    /// A node that works on every packet of the tunnel.
    pub(super) fn membership(self) -> Membership {
        self.spread().map_or(Membership::Home, Membership::Spread)
    }

    /// The section of testudo.toml that spreads a connection in this way; empty if it has one home.
    pub(super) fn section(self, connection: &str) -> String {
        match self {
            Self::None => String::new(),
            _ => format!("[[spread]]\nconnection = \"{connection}\"\nscheme = \"{}\"\n\n", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum as _;

    #[test]
    fn a_scheme_has_the_same_name_everywhere() {
        for scheme in Scheme::ALL {
            let option = scheme.to_possible_value().expect("it is not hidden");
            let json = serde_json::to_value(scheme).expect("it serialises");
            assert_eq!((option.get_name(), json.as_str()), (scheme.name(), Some(scheme.name())));
            let section = scheme.section("site-b");
            assert_eq!(section.contains(&format!("scheme = \"{}\"", scheme.name())), scheme != Scheme::None);
        }
    }
}
