//! The kinds of faults.

use crate::random::Random;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A node dies, loses its memory, and starts again after a while.
    Crash,
    /// A whole machine stops, and continues later.
    PauseHost,
    /// The daemon stops; the kernel and the engine continue.
    PauseProcess,
    /// A machine is restored to an earlier state.
    Rollback,
    /// The engine's daemon dies, and starts again.
    EngineCrash,
    /// Messages of the engine are delayed.
    EngineSlow,
    /// The engine forms rings again and again.
    ViewStorm,
    /// The nodes split into two parts that cannot hear each other on any network.
    Partition,
    /// The same on the cluster link only.
    ClusterLink,
    /// Packets of one node do not reach another: in one direction, on all networks.
    OneWay,
    /// The same on the cluster link only.
    OneWayCluster,
    /// One port of one node fails; the node may notice it or not.
    Port,
    /// Only the engine's messages are lost.
    EngineOnly,
    /// Loss, delay and duplication of the networks change.
    Weather,
    /// Two nodes die at once.
    DoubleCrash,
    /// A node is cut off from every network, including its peers'.
    Isolate,
    /// A node needs another sender ID while its engine is cut off; then its machine and disk are
    /// restored to before that.
    Renewal,
    /// An operator drains a node, and ends the drain: not a fault itself, but combined with faults
    /// it may cause one.
    Drain,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::Crash,
        Self::PauseHost,
        Self::PauseProcess,
        Self::Rollback,
        Self::EngineCrash,
        Self::EngineSlow,
        Self::ViewStorm,
        Self::Partition,
        Self::ClusterLink,
        Self::OneWay,
        Self::OneWayCluster,
        Self::Port,
        Self::EngineOnly,
        Self::Weather,
        Self::DoubleCrash,
        Self::Isolate,
        Self::Renewal,
        Self::Drain,
    ];

    /// A random one, out of `among` unless that is empty.
    pub fn random(random: &mut Random, among: &[Self]) -> Self {
        let among = if among.is_empty() { &Self::ALL } else { among };
        *random.pick(among).unwrap_or(&Self::Crash)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::PauseHost => "pause of a host",
            Self::PauseProcess => "pause of a process",
            Self::Rollback => "rollback",
            Self::EngineCrash => "engine crash",
            Self::EngineSlow => "slow engine",
            Self::ViewStorm => "view storm",
            Self::Partition => "partition",
            Self::ClusterLink => "cluster link",
            Self::OneWay => "one way",
            Self::OneWayCluster => "cluster link one way",
            Self::Port => "port",
            Self::EngineOnly => "engine only",
            Self::Weather => "weather",
            Self::DoubleCrash => "two crashes",
            Self::Isolate => "isolation",
            Self::Renewal => "renewal set back",
            Self::Drain => "drain",
        }
    }
}
