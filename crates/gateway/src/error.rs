//! What can go wrong in the daemon: at its start, while it runs, and when an operator asks for
//! something.

use crate::cluster::key::KeyError;
use crate::ike_sockets::{IKE_PORT, NAT_PORT};
use crate::reader::ConfigError;
use nix::errno::Errno;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use testudo_base::prefix::Prefix;
use testudo_base::spi::SenderId;
use testudo_cluster::member::{AskError, DrainError, NodesError};
use testudo_cluster::node::NodeId;
use testudo_crypto::CryptoError;
use testudo_fastpath::error::Error as FastpathError;
use testudo_fastpath::filter::{FilterError, MAX_DROPPED, MAX_QUEUES};
use testudo_fastpath::netlink::NetlinkError;
use testudo_fastpath::tun::TunError;
use testudo_ike::endpoint::LoadError;

/// Why the gateway does not start, cannot go on, or refuses what an operator asks for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    // The configuration and the rights of the process.
    /// `testudo.toml` is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file cannot be read.
    #[error("{}: {source}", .file.display())]
    Unreadable { file: PathBuf, source: io::Error },
    /// The kernel does not show the process's rights.
    #[error("/proc/self/status: found no CapEff line, expected one")]
    NoCapabilities,
    /// Rights that the process lacks, one line each.
    #[error("{}", .0.join("\n"))]
    Rights(Vec<String>),
    /// The secrets of the process cannot be protected.
    #[error("cannot {action}: {source}")]
    Protection { action: &'static str, source: Errno },

    // Sockets and threads.
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io { action: String, source: io::Error },
    /// A UDP socket of IKE cannot be opened.
    #[error("cannot open UDP {local}: {source}{}", port_hint(source))]
    IkePort { local: SocketAddr, source: io::Error },
    /// Another process answers at the VICI socket.
    #[error("the VICI socket {} is in use: another testudod runs here", .0.display())]
    ViciInUse(PathBuf),
    /// The file at the VICI socket's path is no such socket, or does not answer.
    #[error("the VICI socket {} cannot be used: {source}", .path.display())]
    ViciUnusable { path: PathBuf, source: io::Error },

    // The cluster: its key, this node's state on disk, and its links.
    /// The libraries of corosync cannot be loaded.
    #[error("[cluster]: {0}")]
    CorosyncLibraries(#[source] testudo_cluster::corosync::Error),
    /// The cluster's key cannot be used; `place` is where `testudo.toml` names its file.
    #[error("{place}: {}: {source}", .file.display())]
    Key { place: String, file: PathBuf, source: KeyError },
    /// The directory of the node's state cannot be made.
    #[error("{}: cannot make the directory of the cluster's state: {source}", .directory.display())]
    NoStateDirectory { directory: PathBuf, source: io::Error },
    /// The node's state is there and cannot be read: it is not taken for none.
    #[error("{}: cannot read this node's state: {source}", .file.display())]
    StateUnreadable { file: PathBuf, source: io::Error },
    /// The file of the node's state holds something else.
    #[error(
        "{}: found {found:?}, expected the number of this node's last incarnation, 0 to {last}, \
         and the epoch, ring and members of its last view, then the nodes of the cluster if they were changed",
        .file.display(),
        last = SenderId::LAST_INCARNATION
    )]
    StateMalformed { file: PathBuf, found: String },
    /// The node's state is not on disk.
    #[error("{}: cannot write this node's state: {source}", .file.display())]
    StateUnwritten { file: PathBuf, source: io::Error },
    /// Nothing writes the node's state any more.
    #[error("the thread that writes this node's state has ended")]
    StateWriterEnded,
    /// A UDP socket of heartbeats cannot be opened.
    #[error("cannot open UDP {local} for heartbeats: {source}{}", address_hint(source))]
    HeartbeatPort { local: SocketAddr, source: io::Error },
    /// What `cluster.generation` names does not tell the generation of the machine.
    #[error("{}: cannot watch the generation of this machine: {source}", .path.display())]
    NoGeneration { path: PathBuf, source: io::Error },

    // The data path.
    /// Ports, TUN, filter or routes.
    #[error(transparent)]
    Fastpath(#[from] FastpathError),
    /// A Child SA or its policy cannot be built.
    #[error(transparent)]
    Ipsec(#[from] testudo_ipsec::Error),
    /// The cipher library.
    #[error(transparent)]
    Crypto(#[from] CryptoError),
    /// Something is wrong with an interface; `place` is where `testudo.toml` names it.
    #[error("{place}: {source}")]
    Port { place: String, source: Box<Error> },
    /// A signal asks for the end before the start is done.
    #[error("a signal asked for the end")]
    CalledOff,
    /// The interface was there when its queues were counted, and is gone.
    #[error("{place}: interface \"{interface}\" has just gone")]
    InterfaceGone { place: String, interface: String },
    /// The interface has more queues than the filter has numbers for.
    #[error(
        "\"{interface}\" has {found} receive queues, expected at most {MAX_QUEUES}: \
         ethtool -L {interface} combined {MAX_QUEUES}, or rx {MAX_QUEUES} where the driver counts them apart"
    )]
    TooManyQueues { interface: String, found: u32 },
    /// Every worker that has ports must have a queue of the interface to send by.
    #[error(
        "{receive} queues to receive by and {send} to send by, expected at least {workers} of each, \
         one for each worker with ports: ethtool -L {interface} combined {workers}, or restart testudod"
    )]
    TooFewQueues { interface: String, receive: u32, send: u32, workers: usize },
    /// The filter was attached to another interface of that name.
    #[error("another interface has just taken its name")]
    InterfaceReplaced,
    /// No port has the interface.
    #[error("no port has the interface")]
    NoPort,
    /// The port has no socket that the filter could send packets to.
    #[error("an AF_XDP port has no descriptor")]
    NoSocket,
    /// A worker has not taken earlier changes of its ports yet.
    #[error("a worker does not take changes of its ports")]
    WorkerBusy,
    /// There are more workers than numbers for them.
    #[error("too many workers: their numbers are below 64")]
    WorkerNumber,
    /// A worker has ended by itself.
    #[error("worker {0} has ended: see the log above")]
    WorkerEnded(u8),
    /// At the end no worker and no ring had these frames.
    #[error("{0} frames were lost while the workers ran")]
    FramesLost(usize),
    /// The data path did not start, and its parts could not be taken away again.
    #[error("{start}\nand what had been set up stays behind: {cleanup}")]
    LeftBehind { start: Box<Error>, cleanup: Box<Error> },

    // What an operator asks for.
    /// The end has begun, and nothing is loaded any more.
    #[error("testudod is ending")]
    Ending,
    /// The start is not over.
    #[error("testudod is still starting")]
    Starting,
    /// The connection cannot be used.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The gateway does not listen on the connection's port.
    #[error(
        "{connection}.local_port: found {found}, expected {IKE_PORT} or {NAT_PORT}, where testudod listens"
    )]
    LocalPort { connection: String, found: u16 },
    /// No such connection is loaded.
    #[error("no connection is named {0}")]
    UnknownConnection(String),
    /// No Child SA sends to this peer.
    #[error("no Child SA goes to {0}")]
    NoSaTowards(IpAddr),
    /// Clients have said too much of paths.
    #[error("too many path MTUs are held: release some, or wait until they are forgotten")]
    TooManyPathMtus,
    /// No connection, or not the one that is named, has such a child.
    #[error("no child is named {child}{}", in_connection(.connection))]
    UnknownChild { child: String, connection: Option<String> },
    /// The child has no policy to be uninstalled.
    #[error("policy '{0}' not found: it is not installed")]
    NotInstalled(String),
    /// There are no other nodes.
    #[error("this gateway stands alone: there is no [cluster] in its testudo.toml")]
    Alone,
    /// No node can have the number.
    #[error("node: found {0}, expected a number from 1 to {max}", max = NodeId::MAX)]
    NodeNumber(u32),
    /// The node is not drained.
    #[error(transparent)]
    Drain(#[from] DrainError),
    /// The nodes of the cluster are not changed.
    #[error(transparent)]
    Nodes(#[from] NodesError),
    /// A node has an address on each link.
    #[error(
        "addresses: found {}, expected {expected}, as many as the other nodes have: on the cluster link first, then on \
         each [[port]] in its order",
        addresses(found)
    )]
    NodeAddressCount { found: Vec<IpAddr>, expected: usize },
    /// No two nodes have one address.
    #[error("addresses: found {address}, which {user} has, expected addresses of the new node alone")]
    NodeAddressInUse { address: IpAddr, user: String },
    /// The owner of an SA cannot be asked.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The addresses to be released are no prefix.
    #[error("found {first} to {last}, expected the addresses of one prefix")]
    NoPrefix { first: IpAddr, last: IpAddr },
    /// Connections or SAs hold the prefix back.
    #[error(
        "{prefix} is protected by {}: unload that first, and terminate its SAs, \
         or let the prefix pass by a child with mode = pass",
        .protectors.join(", ")
    )]
    Protected { prefix: Prefix, protectors: Vec<String> },
    /// A tunnel for everything has the prefix on our side.
    #[error("{0} is our side of a tunnel for everything: unload its connection first, and terminate its SAs")]
    Selected(Prefix),
    /// A wider prefix stays shut.
    #[error("{prefix} lies in {around}, which stays shut: release that prefix first")]
    Enclosed { prefix: Prefix, around: Prefix },
    /// The prefix does not stay shut.
    #[error("{0} is not shut: `testudo shut` lists the prefixes that are")]
    NotShut(Prefix),
    /// The prefix does not stay shut any more.
    #[error("{0} is not shut")]
    NoLongerShut(Prefix),
    /// No more sources can be dropped.
    #[error("those from {MAX_DROPPED} sources are dropped already")]
    ManyDropped,
    /// The packets of the source are not dropped.
    #[error("packets from {0} are not dropped: `testudo alarms` lists the sources whose are")]
    NotDropped(IpAddr),
    /// The data path did not open the prefix.
    #[error("cannot open {prefix}: {source}; it stays shut")]
    NotOpened { prefix: Prefix, source: Box<Error> },
}

/// The result of most of the daemon's functions.
pub(crate) type Result<T> = std::result::Result<T, Error>;

/// Why a name has no address. Several connections may be told, so it can be cloned.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum LookupError {
    /// The system's resolver has failed.
    #[error("{0}")]
    System(String),
    /// Too many names wait for a thread.
    #[error("{limit} other names wait to be resolved")]
    Busy { limit: usize },
    /// A thread to resolve it could not be started.
    #[error("cannot start a thread that resolves names: {0}")]
    NoThread(String),
    /// No thread was started.
    #[error("there is no thread that resolves names")]
    NoPool,
    /// The resolver has not answered in time.
    #[error("no answer within {seconds} seconds")]
    TimedOut { seconds: u64 },
}

impl Error {
    /// For `map_err`: `action` says what the system call was for, behind "cannot".
    pub(crate) fn io(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action: action.into(), source }
    }

    /// For `map_err`: `place` says where the configuration names the interface.
    pub(crate) fn at<E: Into<Self>>(place: &str) -> impl FnOnce(E) -> Self {
        move |error| Self::Port { place: place.to_owned(), source: Box::new(error.into()) }
    }
}

impl From<FilterError> for Error {
    fn from(error: FilterError) -> Self {
        Self::Fastpath(error.into())
    }
}

impl From<TunError> for Error {
    fn from(error: TunError) -> Self {
        Self::Fastpath(error.into())
    }
}

impl From<NetlinkError> for Error {
    fn from(error: NetlinkError) -> Self {
        Self::Fastpath(error.into())
    }
}

fn port_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => " (is another IKE daemon running here?)",
        _ => "",
    }
}

fn addresses(found: &[IpAddr]) -> String {
    found.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn address_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrNotAvailable => " (is it an address of this host?)",
        _ => "",
    }
}

fn in_connection(connection: &Option<String>) -> String {
    connection.as_ref().map(|name| format!(" in connection {name}")).unwrap_or_default()
}
