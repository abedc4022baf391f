//! A burst of packets that any worker of a pool may take through its pipeline.

use super::classify::{Direction, Rules};
use super::drops::WorkerDrop;
use super::origin::{Context, Copies, Source};
use crate::port::{BURST, FrameBurst};
use arrayvec::ArrayVec;
use testudo_crypto::{prefetch, prefetch_slice};
use testudo_ipsec::dataplane::{Sources, Verdict};

/// Octets of each packet that a worker prefetches before it works on a stolen task.
const PREFETCHED_OCTETS: usize = 128;

/// One burst, and the results for its packets.
pub(super) struct Task {
    /// Its place in the order in which its owner has queued tasks.
    pub(super) number: u64,
    pub(super) frames: FrameBurst,
    pub(super) input: TaskInput,
    /// Sources of ICMP errors about its packets.
    pub(super) sources: Sources,
    /// The result for each packet.
    pub(super) fates: ArrayVec<Fate, BURST>,
    /// A worker other than its owner has done it.
    pub(super) stolen: bool,
}

/// What the frames of a task are.
#[derive(Clone, Copy, Debug)]
pub(super) enum TaskInput {
    /// Frames as received by the port at this place among its owner's ports.
    Received { place: u8, rules: Rules },
    /// IP packets.
    Packets { source: Source, direction: Direction },
}

impl TaskInput {
    /// The source of its packets; `copies` is decided for each frame.
    pub(super) fn source(self) -> Source {
        match self {
            Self::Received { place, .. } => Source::Port { place, copies: Copies::Here, joined: false },
            Self::Packets { source, .. } => source,
        }
    }
}

/// The result for one packet.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fate {
    /// The packet did not reach the pipeline.
    Lost(WorkerDrop),
    /// The pipeline has decided.
    Decided { verdict: Verdict, context: Context },
}

impl Task {
    /// A task without packets.
    pub(super) fn empty() -> Box<Self> {
        Box::new(Self {
            number: 0,
            frames: FrameBurst::new(),
            input: TaskInput::Packets { source: Source::Again, direction: Direction::Inbound },
            sources: Sources { v4: None, v6: None },
            fates: ArrayVec::new(),
            stolen: false,
        })
    }

    /// Prefetches the task and the beginnings of its packets, which are in another worker's caches.
    pub(super) fn prefetch(&self) {
        prefetch(self, size_of::<Self>());
        for frame in &self.frames {
            prefetch_slice(frame.data().get(..PREFETCHED_OCTETS).unwrap_or(frame.data()));
        }
    }
}
