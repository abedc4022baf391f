//! Bugs on purpose. Checks that never fail prove nothing, so the simulator plants one bug after the
//! other and must find each.
//!
//! A place that can be planted asks [`planted`]. In a build for use the answer is a constant
//! `false` and the place vanishes. With debug assertions a switch of the thread decides, which only
//! the simulator sets: so that the tests need no build of their own. A gateway without debug
//! assertions refuses to compile with a switch.
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
    /// The end of one block of sequence numbers and the beginning of the next are taken for one
    /// block.
    BlockGap = "block-gap",
    /// Who takes an SA over begins with an empty replay window.
    NoFloor = "no-floor",
    /// A node sends and accepts however long nobody has heard it.
    NoFence = "no-fence",
    /// An owner does not hear that its standby has sent for it, and goes on with lower numbers.
    OwnerNotTold = "owner-not-told",
    /// A node carries the packets of shards that are not its own.
    ShardNotChecked = "shard-not-checked",
    /// A message counts as stable once it is delivered to its sender.
    CommitOnSelfDelivery = "commit-on-self-delivery",
    /// A sender ID is granted once the request for it is delivered to its node.
    LeaseWithoutMajority = "lease-without-majority",
    /// Shards are taken over at once, while their old owner may still rely on having been heard.
    PromiseIgnored = "promise-ignored",
    /// Each node takes the members of a view in the order in which its engine tells them.
    UnsortedView = "unsorted-view",
    /// An IKE message leaves before anybody else holds what it depends on.
    AnswerBeforeStable = "answer-before-stable",
    /// An IKE SA is told to the others once, and not what changes in it: who takes it over encrypts
    /// answers again.
    UpdatesNotReplicated = "updates-not-replicated",
    /// A block of sequence numbers is used before all know that it was granted.
    BlockBeforeStable = "block-before-stable",
    /// Owner and standby are granted the same sequence numbers.
    SameBlock = "same-block",
    /// The standby is whoever comes next among those whom a node does not suspect.
    StandbyBySuspicion = "standby-by-suspicion",
    /// All nodes make IVs under the same sender ID.
    NoSenderId = "no-sender-id",
    /// The slot of an SPI does not rest after use.
    SpiReusedAtOnce = "spi-reused-at-once",
    /// Who gives a shard away does not tell up to where it took packets in last.
    LastEdgesNotTold = "last-edges-not-told",
    /// A node that hears what the others are configured with forgets what was changed meanwhile.
    CommandsMissed = "commands-missed",
    /// A fresh node counts what it is told beside the engine as heard when its place has come.
    RestNotAwaited = "rest-not-awaited",
    /// A peer that comes anew at one node keeps the IKE SAs that others have with it.
    OlderStay = "older-stay",
}

/// True while that bug is planted here.
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
