//! Planted bugs. Checks that never fail prove nothing, so the simulator plants one bug after the
//! other and must find each.
//!
//! Code that can contain a bug asks [`planted`]. In a production build the answer is the constant
//! `false` and the code vanishes. With debug assertions a thread-local switch decides, which only
//! the simulator sets, so that the tests need no build of their own. A gateway without debug
//! assertions refuses to compile with the switch.
#![forbid(unsafe_code)]

/// True if bugs are compiled in.
pub const COMPILED: bool = cfg!(debug_assertions);

macro_rules! plants {
    ($($(#[doc = $doc:literal])+ $variant:ident = $name:literal,)+) => {
        /// A bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Plant {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl Plant {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

plants! {
    /// The end of one block of sequence numbers and the beginning of the next are treated as one
    /// block.
    BlockGap = "block-gap",
    /// A node that takes an SA over begins with an empty replay window.
    NoFloor = "no-floor",
    /// A node sends and accepts however long no other node has heard it.
    NoFence = "no-fence",
    /// An owner does not learn that its standby has sent for it, and goes on with lower numbers.
    OwnerNotTold = "owner-not-told",
    /// A node carries the packets of shards that are not its own.
    ShardNotChecked = "shard-not-checked",
    /// A message counts as stable once it is delivered to its sender.
    CommitOnSelfDelivery = "commit-on-self-delivery",
    /// A sender ID is granted once the request for it is delivered to its node.
    LeaseWithoutMajority = "lease-without-majority",
    /// Shards are taken over at once, while their old owner may still rely on having been heard.
    PromiseIgnored = "promise-ignored",
    /// Each node uses the members of a view in the order in which its engine reports them.
    UnsortedView = "unsorted-view",
    /// An IKE message leaves before any other node holds the state that it depends on.
    AnswerBeforeStable = "answer-before-stable",
    /// An IKE SA is published once, and its changes are not: the node that takes it over encrypts
    /// answers again.
    UpdatesNotReplicated = "updates-not-replicated",
    /// A block of sequence numbers is used before all know that it was granted.
    BlockBeforeStable = "block-before-stable",
    /// Owner and standby are granted the same sequence numbers.
    SameBlock = "same-block",
    /// All nodes have the same numbers of a row.
    SameStripe = "same-stripe",
    /// A node that takes lanes over knows nothing of the numbers accepted in them.
    NoLaneFloor = "no-lane-floor",
    /// A node accepts numbers of lanes that another node carries.
    LaneOwnedTwice = "lane-owned-twice",
    /// A node that has missed a packet counts on through all marks, and is one behind the others.
    MarkIgnored = "mark-ignored",
    /// A node tells no other of the sessions for which it is the authority.
    SessionsNotTold = "sessions-not-told",
    /// The standby is the next rank among the nodes that this node does not suspect.
    StandbyBySuspicion = "standby-by-suspicion",
    /// All nodes make IVs under the same sender ID.
    NoSenderId = "no-sender-id",
    /// The slot of an SPI does not rest after use.
    SpiReusedAtOnce = "spi-reused-at-once",
    /// A node that gives a shard away does not publish its last high-water marks.
    LastEdgesNotTold = "last-edges-not-told",
    /// A node that receives the others' configuration forgets changes made meanwhile.
    CommandsMissed = "commands-missed",
    /// A fresh node counts a bulk transfer as received when its position in the order has come.
    RestNotAwaited = "rest-not-awaited",
    /// The last nodes go on wherever the engine calls them quorate.
    VotesNotCounted = "votes-not-counted",
    /// A node that takes an SA over counts on having seen its packets, although routers gave them
    /// to another node.
    FloorAsSeen = "floor-as-seen",
    /// A node tells no other how far its rows have come.
    RowsNotTold = "rows-not-told",
    /// A node that takes lanes over does not say that the peer may be below their floors.
    LaneFloorsNotTold = "lane-floors-not-told",
    /// What was relayed to a node and is not for it is relayed again.
    RelayedTwice = "relayed-twice",
    /// A node does not tell the others how many packets it relays.
    RelayedNotTold = "relayed-not-told",
    /// A node that joins does not learn which shards have moved to where their packets go.
    PreferencesNotTold = "preferences-not-told",
    /// Rings are judged by the nodes of testudo.toml, whatever operators have changed.
    RosterIgnored = "roster-ignored",
    /// A peer that connects again to one node keeps its IKE SAs on others.
    OlderStay = "older-stay",
}

/// True while this bug is planted here.
#[inline(always)]
pub fn planted(plant: Plant) -> bool {
    switch::is_on(plant)
}

#[cfg(debug_assertions)]
mod switch {
    use super::Plant;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
    }

    pub(super) fn is_on(plant: Plant) -> bool {
        PLANTED.get() == Some(plant)
    }

    /// Plants one bug in this thread, or none.
    pub fn plant(plant: Option<Plant>) {
        PLANTED.set(plant);
    }
}

#[cfg(debug_assertions)]
pub use switch::plant;

#[cfg(not(debug_assertions))]
mod switch {
    #[inline(always)]
    pub(super) fn is_on(_plant: super::Plant) -> bool {
        false
    }
}
