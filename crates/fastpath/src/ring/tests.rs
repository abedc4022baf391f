//! The rings against a queue as their model, over plain memory.

use super::*;
use proptest::prelude::*;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::Arc;

/// The memory that the kernel would map, without a kernel.
struct Plain {
    producer: AtomicU32,
    consumer: AtomicU32,
    flags: AtomicU32,
    entries: Box<[UnsafeCell<u64>]>,
}

// SAFETY: entries are touched only by the half of the ring that the indices give them to.
unsafe impl Sync for Plain {}

impl Plain {
    fn new(size: u32, first_index: u32) -> Arc<Self> {
        Arc::new(Self {
            producer: AtomicU32::new(first_index),
            consumer: AtomicU32::new(first_index),
            flags: AtomicU32::new(0),
            entries: (0..size).map(|_| UnsafeCell::new(u64::MAX)).collect(),
        })
    }

    fn half(self: &Arc<Self>) -> Ring<u64> {
        Ring {
            producer: NonNull::from(&self.producer),
            consumer: NonNull::from(&self.consumer),
            flags: NonNull::from(&self.flags),
            entries: NonNull::from(&self.entries[..]).cast(),
            size: self.entries.len() as u32,
            _memory: Box::new(Arc::clone(self)),
        }
    }
}

fn pair(size: u32, first_index: u32) -> (Producer<u64>, Consumer<u64>) {
    let plain = Plain::new(size, first_index);
    (Producer::new(plain.half()), Consumer::new(plain.half()))
}

#[derive(Clone, Debug)]
enum Step {
    Stage(u8),
    Publish,
    Take(u8),
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1..20u8).prop_map(Step::Stage),
        Just(Step::Publish),
        (1..20u8).prop_map(Step::Take),
        Just(Step::Release),
    ]
}

/// The ring as plain queues: staged, visible, and the number of places taken but not given back.
#[derive(Default)]
struct Model {
    staged: VecDeque<u64>,
    visible: VecDeque<u64>,
    unreleased: usize,
}

impl Model {
    fn used(&self) -> usize {
        self.staged.len() + self.visible.len() + self.unreleased
    }
}

proptest! {
    #[test]
    fn ring_behaves_like_a_bounded_queue(
        order in 0..7u32,
        first_index in prop_oneof![any::<u32>(), (u32::MAX - 40)..=u32::MAX],
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let size = 1u32 << order;
        let (mut producer, mut consumer) = pair(size, first_index);
        let mut model = Model::default();
        let mut value = 0u64;
        for step in steps {
            match step {
                Step::Stage(count) => for _ in 0..count {
                    value += 1;
                    let fits = model.used() < size as usize;
                    prop_assert_eq!(producer.stage(value), if fits { Ok(()) } else { Err(value) });
                    if fits { model.staged.push_back(value) }
                },
                Step::Publish => {
                    producer.publish();
                    model.visible.append(&mut model.staged);
                }
                Step::Take(count) => for _ in 0..count {
                    let expected = model.visible.pop_front();
                    model.unreleased += usize::from(expected.is_some());
                    prop_assert_eq!(consumer.take(), expected);
                },
                Step::Release => {
                    consumer.release();
                    model.unreleased = 0;
                }
            }
            prop_assert_eq!(producer.room(size) as usize, size as usize - model.used());
            prop_assert_eq!(producer.outstanding() as usize, model.visible.len() + model.unreleased);
        }
    }
}

#[test]
fn indices_wrap_around() {
    let (mut producer, mut consumer) = pair(4, u32::MAX - 1);
    for round in 0..3u64 {
        for entry in 0..4 {
            producer.stage(round * 4 + entry).unwrap();
        }
        assert_eq!(producer.stage(99), Err(99), "a full ring takes nothing");
        assert_eq!(consumer.take(), None, "staged entries are not visible");
        producer.publish();
        for entry in 0..4 {
            assert_eq!(consumer.take(), Some(round * 4 + entry));
        }
        assert_eq!(consumer.take(), None);
        assert_eq!(producer.stage(99), Err(99), "places come back only when released");
        consumer.release();
    }
}

#[test]
fn a_mad_peer_index_is_bounded() {
    let plain = Plain::new(8, 0);
    let (mut producer, mut consumer) = (Producer::new(plain.half()), Consumer::new(plain.half()));
    plain.consumer.store(1000, Ordering::Release);
    assert!(producer.room(8) <= 8);
    plain.producer.store(5000, Ordering::Release);
    assert!(consumer.ready() <= 8);
}

#[test]
fn wakeup_follows_the_flag() {
    let plain = Plain::new(2, 0);
    let producer = Producer::new(plain.half());
    assert!(!producer.needs_wakeup());
    plain.flags.store(libc::XDP_RING_NEED_WAKEUP, Ordering::Relaxed);
    assert!(producer.needs_wakeup());
}

#[test]
fn two_threads_lose_and_reorder_nothing() {
    const COUNT: u64 = 200_000;
    let (mut producer, mut consumer) = pair(64, u32::MAX - 1000);
    let writer = std::thread::spawn(move || {
        let mut value = 0;
        while value < COUNT {
            while value < COUNT && producer.stage(value).is_ok() {
                value += 1;
            }
            producer.publish();
            std::thread::yield_now();
        }
    });
    let mut expected = 0;
    while expected < COUNT {
        while let Some(value) = consumer.take() {
            assert_eq!(value, expected);
            expected += 1;
        }
        consumer.release();
        std::thread::yield_now();
    }
    writer.join().unwrap();
}

#[test]
fn offsets_outside_the_mapping_make_no_ring() {
    let at = |entries| Offsets { producer: 0, consumer: 64, flags: 128, entries };
    let make = |at, size| {
        let (mapping, _) = Mapping::anonymous(4096).unwrap();
        // SAFETY: zeroed private memory is a valid empty ring of numbers, and is not used
        // elsewhere.
        unsafe { Producer::<u64>::in_mapping(mapping, at, size) }
    };
    assert!(make(at(192), 64).is_some());
    assert!(make(at(192), 512).is_none(), "entries beyond the end");
    assert!(make(at(192), 48).is_none(), "not a power of two");
    assert!(make(at(196), 64).is_none(), "misaligned");
    assert!(make(at(usize::MAX), 64).is_none(), "overflow");
}
