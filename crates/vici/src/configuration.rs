//! What commands do to the configuration, for gateways whose other nodes are to have the same.

/// What a piece of configuration is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PieceKind {
    /// An authority by name, which stays when credentials are cleared.
    Authority,
    /// A secret, private key, certificate or list of revoked ones.
    Credential,
    /// A pool of virtual addresses.
    Pool,
    /// A connection.
    Connection,
}

/// Names a piece of configuration: a later one with the same name takes its place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Piece {
    /// What it is of.
    pub kind: PieceKind,
    /// As operators know it: "connection gw".
    pub name: String,
}

/// What a command does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The piece is there from now on, as the command says.
    Set(Piece),
    /// It is there no more.
    Unset(Piece),
    /// No credential is there any more.
    ClearCredentials,
}
