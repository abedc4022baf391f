//! The faults that there are.

use crate::random::Random;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A node dies with all its memory, and starts again after a while.
    Crash,
    /// A whole machine stands still, and goes on as if nothing had been.
    PauseHost,
    /// The daemon stands still: the kernel and the engine go on.
    PauseProcess,
    /// A machine is set back to an earlier state.
    Rollback,
    /// The engine's daemon dies, and starts again.
    EngineCrash,
    /// Messages of the engine come late.
    EngineSlow,
    /// The engine forms rings anew, again and again.
    ViewStorm,
    /// The nodes fall into two parts that hear nothing of each other on any network.
    Partition,
    /// The same, on the cluster link alone.
    ClusterLink,
    /// What one node sends does not reach another: one way, on all networks.
    OneWay,
    /// The same, one way, on the cluster link alone.
    OneWayCluster,
    /// One port of one node is dead; the node may see that or not.
    Port,
    /// The engine's messages alone do not pass, all else does.
    EngineOnly,
    /// The weather changes.
    Weather,
    /// Two nodes die at once.
    DoubleCrash,
    /// A node is cut off on every network, its peers' too.
    Isolate,
    /// A node needs another sender ID while its engine is cut off; then its machine is set back,
    /// with its disk, to before that.
    Renewal,
    /// An operator has a node give its shards away, and lets it own again: no fault, but what comes
    /// with it may be.
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

    /// One of them, out of `among` if that is not empty.
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
