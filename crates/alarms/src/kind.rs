//! What is watched for.

use std::fmt;

testudo_base::reasons! {
    /// What an alarm is about.
    pub enum Kind {
        /// Packets of an SA whose sequence numbers were accepted before, or are left of the window.
        ReplayBurst = "replay-burst",
        /// Packets of an SA whose ICV is wrong.
        ForgedPackets = "forged-packets",
        /// Packets with many different SPIs that no SA has.
        SpiScan = "spi-scan",
        /// Clear packets from where a policy demands protection.
        ClearText = "clear-text",
        /// IKE_AUTH exchanges that are refused, and IKE messages whose integrity check fails.
        IkeBruteForce = "ike-brute-force",
        /// IKE_SA_INIT requests that nobody goes on with.
        HalfOpenFlood = "half-open-flood",
        /// Fragments that overlap, or contradict each other.
        FragmentOverlap = "fragment-overlap",
        /// ARP or Neighbor Discovery gives an address to another MAC address.
        AddressSpoofing = "address-spoofing",
        /// An ICMP error lowers a path's MTU below what any real path has, or quotes a packet that was
        /// never sent.
        PathMtu = "path-mtu",
        /// A peer proved its identity by a certificate of another CA than before.
        Certificate = "certificate",
        /// A peer sends, and only old sequence numbers: it was set back to an earlier state, or
        /// everything that arrives is a recording.
        CounterReversal = "counter-reversal",
        /// Far more packets of an SA than usual overtake each other.
        Reordering = "reordering",
    }
}

/// How serious an alarm is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Worth knowing.
    Notice,
    /// Probably an attack or a fault; nothing was let through.
    Warning,
    /// Somebody is on the path, or traffic that must be protected is not.
    Critical,
}

impl Severity {
    /// All of them, from the least serious.
    pub const ALL: [Self; 3] = [Self::Notice, Self::Warning, Self::Critical];

    /// The stable name in output and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// The severity of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|severity| severity.name() == name)
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Kind {
    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// True if its sightings name the sources of packets from outside, each with its own count.
    pub fn names_sources(self) -> bool {
        match self {
            Self::ReplayBurst
            | Self::ForgedPackets
            | Self::CounterReversal
            | Self::SpiScan
            | Self::IkeBruteForce
            | Self::HalfOpenFlood => true,
            Self::ClearText
            | Self::FragmentOverlap
            | Self::AddressSpoofing
            | Self::PathMtu
            | Self::Certificate
            | Self::Reordering => false,
        }
    }

    /// What has been seen, for a sentence that begins with a number.
    pub fn what(self) -> &'static str {
        match self {
            Self::ReplayBurst => "replayed or late packets",
            Self::ForgedPackets => "packets with a wrong ICV",
            Self::SpiScan => "packets with unknown SPIs",
            Self::ClearText => "packets in clear that must be protected",
            Self::IkeBruteForce => "refused authentications or forged IKE messages",
            Self::HalfOpenFlood => "IKE_SA_INIT requests beyond the limits",
            Self::FragmentOverlap => "fragments that overlap",
            Self::AddressSpoofing => "claims of an address by another MAC address",
            Self::PathMtu => "ICMP errors with an implausible path MTU",
            Self::Certificate => "certificates of another CA than before",
            Self::CounterReversal => "old sequence numbers, and no new ones",
            Self::Reordering => "packets behind later ones",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
