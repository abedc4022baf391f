//! What commands do to the configuration, for gateways whose other nodes are to have the same.

/// What an item of the configuration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigItemKind {
    /// An authority by name, which stays when credentials are cleared.
    Authority,
    /// A secret, private key, certificate or list of revoked ones.
    Credential,
    /// A pool of virtual addresses.
    Pool,
    /// A connection.
    Connection,
}

/// Names an item of the configuration: a later one with the same name takes its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConfigItem {
    /// What it is.
    pub kind: ConfigItemKind,
    /// As operators know it: "connection gw".
    pub name: String,
}

impl ConfigItem {
    /// A connection's.
    pub fn connection(name: &str) -> Self {
        Self { kind: ConfigItemKind::Connection, name: format!("connection {name}") }
    }
}

/// What a command does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// The item is there from now on, as the command says.
    Set(ConfigItem),
    /// It is there no more.
    Unset(ConfigItem),
    /// No credential is there any more.
    ClearCredentials,
}
