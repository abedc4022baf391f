//! The changes that commands make to the configuration, for clusters that replicate them.

use zeroize::Zeroizing;

/// The kind of an item of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigItemKind {
    /// An authority by name, which remains when credentials are cleared.
    Authority,
    /// A secret, private key, certificate or CRL.
    Credential,
    /// A pool of virtual addresses.
    Pool,
    /// A connection.
    Connection,
}

/// Identifies an item of the configuration: a later one with the same kind and name replaces it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigItem {
    /// Its kind.
    pub kind: ConfigItemKind,
    /// Its name for operators, such as "connection gw".
    pub name: String,
}

impl ConfigItem {
    /// A connection's.
    pub fn connection(name: &str) -> Self {
        Self { kind: ConfigItemKind::Connection, name: format!("connection {name}") }
    }
}

/// The change that a command makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// The item is set as the command says.
    Set(ConfigItem),
    /// The item is removed.
    Unset(ConfigItem),
    /// All credentials are removed.
    ClearCredentials,
    /// The item is set as the command says, if it is still as another command has set it.
    Replace {
        /// The item.
        item: ConfigItem,
        /// Digest of the other command: see [`LoadedBy`].
        of: u64,
    },
}

/// The command that has loaded an item.
#[derive(Clone, Debug)]
pub struct LoadedBy {
    /// The command.
    pub command: Zeroizing<Vec<u8>>,
    /// Its digest, the same on all nodes.
    pub digest: u64,
}
