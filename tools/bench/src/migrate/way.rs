//! What protects a migration on its way.

/// The protection of the memory of a virtual machine that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// Nothing: QEMU's TCP, in clear.
    None,
    /// testudod on both hosts: ESP in transport mode (AES-128-GCM).
    Esp,
    /// The same inside of AH (HMAC-SHA-256), as [MIG] has it.
    AhEsp,
    /// QEMU's own TLS, with certificates of both hosts (AES-128-GCM).
    Tls,
    /// A connection that ssh forwards, with its fastest cipher (AES-128-GCM).
    Ssh,
}

impl Way {
    pub(super) const ALL: [Self; 5] = [Self::None, Self::Esp, Self::AhEsp, Self::Tls, Self::Ssh];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Esp => "esp",
            Self::AhEsp => "ah-esp",
            Self::Tls => "tls",
            Self::Ssh => "ssh",
        }
    }

    /// A letter for the names of machines, which must be short.
    pub(super) fn letter(self) -> char {
        match self {
            Self::None => 'n',
            Self::Esp => 'e',
            Self::AhEsp => 'a',
            Self::Tls => 't',
            Self::Ssh => 's',
        }
    }

    /// Packets of all kinds take it, not only those of the migration.
    pub(super) fn takes_pings(self) -> bool {
        matches!(self, Self::None | Self::Esp | Self::AhEsp)
    }
}
