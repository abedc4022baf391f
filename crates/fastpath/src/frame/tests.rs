//! Frames and their pool.

use super::*;
use std::collections::HashSet;
use std::sync::Arc;

#[test]
fn every_frame_is_another_chunk_and_comes_home() {
    let mut pool = FramePool::new(100, ChunkSize::K2).unwrap();
    let mut frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(frames.len(), 100);
    assert_eq!(pool.available(), 0);
    let starts: HashSet<usize> = frames.iter().map(|f| f.bytes().as_ptr() as usize).collect();
    assert_eq!(starts.len(), 100);
    for (number, frame) in frames.iter_mut().enumerate() {
        frame.bytes_mut().fill(number as u8);
    }
    for (number, frame) in frames.iter().enumerate() {
        assert!(frame.bytes().iter().all(|&octet| octet == number as u8), "chunks overlap");
    }
    for frame in frames {
        pool.give(frame);
    }
    assert_eq!(pool.available(), pool.total());
}

/// The configured limits must work if ports need jumbo frames too.
#[test]
fn the_most_frames_leave_room_for_jumbo_frames() {
    for mtu in [1500, 9000] {
        let mut pool = FramePool::for_mtu(mtu, FrameMemory::MAX_FRAMES, 2560).unwrap();
        let frame = pool.take_jumbo().expect("a jumbo frame");
        pool.give(frame);
        assert!(pool.total() > FrameMemory::MAX_FRAMES);
    }
    let refused = FramePool::for_mtu(1500, FrameMemory::MAX_FRAMES + 1, 0).unwrap_err().to_string();
    assert!(refused.contains("1048577 frames, expected 1 to 1048576"), "{refused}");
}

#[test]
fn a_pool_that_misses_a_frame_keeps_the_region() {
    let mut pool = FramePool::new(2, ChunkSize::K2).unwrap();
    let memory = Arc::downgrade(pool.memory());
    let mut frame = pool.take().unwrap();
    drop(pool);
    frame.bytes_mut().fill(7);
    assert_eq!(frame.bytes()[2047], 7);
    assert_eq!(memory.strong_count(), 1);

    let pool = FramePool::new(2, ChunkSize::K2).unwrap();
    let memory = Arc::downgrade(pool.memory());
    drop(pool);
    assert_eq!(memory.strong_count(), 0, "a whole pool must free its region");
}

#[test]
#[should_panic(expected = "another pool")]
fn a_pool_refuses_a_foreign_frame() {
    let mut ours = FramePool::new(2, ChunkSize::K2).unwrap();
    let mut theirs = FramePool::new(2, ChunkSize::K2).unwrap();
    ours.give(theirs.take().unwrap());
}

#[test]
fn an_extent_outside_the_chunk_is_refused() {
    let mut pool = FramePool::new(1, ChunkSize::K2).unwrap();
    let mut frame = pool.take().unwrap();
    assert!(frame.set_extent(0, 2048));
    assert!(!frame.set_extent(1, 2048));
    assert!(!frame.set_extent(usize::MAX, 2));
    assert_eq!((frame.start(), frame.len()), (0, 2048), "a refused extent must change nothing");
    assert!(!frame.fill(&[0; 1665]));
    assert!(frame.fill(&[9; 1664]));
    assert_eq!(frame.data(), [9; 1664]);
    let mut packet = frame.packet();
    assert_eq!(packet.headroom(), usize::from(HEADROOM));
    assert!(packet.grow_front(usize::from(HEADROOM)));
    pool.give(frame);
}

#[test]
fn given_frames_start_empty_behind_the_headroom() {
    let mut pool = FramePool::new(1, ChunkSize::K4).unwrap();
    let mut frame = pool.take().unwrap();
    assert!(frame.set_extent(3, 1000));
    pool.give(frame);
    let frame = pool.take().unwrap();
    assert_eq!((frame.start(), frame.len(), frame.capacity()), (HEADROOM, 0, 4096));
    pool.give(frame);
}

#[test]
fn chunk_size_follows_the_mtu() {
    assert_eq!(ChunkSize::for_mtu(1500), Some(ChunkSize::K2));
    assert_eq!(ChunkSize::for_mtu(1600), Some(ChunkSize::K2));
    assert_eq!(ChunkSize::for_mtu(1601), Some(ChunkSize::K4));
    assert_eq!(ChunkSize::for_mtu(3498), Some(ChunkSize::K4));
    assert_eq!(ChunkSize::for_mtu(9000), None);
}

#[test]
fn a_pool_has_many_jumbo_frames_only_where_a_chunk_is_too_small() {
    assert_eq!(FramePool::new(100, ChunkSize::K2).unwrap().memory().largest_mtu(), 1600);
    for (mtu, chunk) in [(1500, 2048), (3648, 4096)] {
        let pool = FramePool::for_mtu(mtu, 100, 10).unwrap();
        assert_eq!((pool.total(), pool.memory().chunk_size().octets()), (132, chunk));
    }
    let pool = FramePool::for_mtu(9000, 100, 10).unwrap();
    assert_eq!((pool.total(), pool.memory().largest_mtu(), pool.memory().chunks()), (110, 15_936, 140));
}

#[test]
fn frames_of_both_kinds_do_not_overlap_and_come_home() {
    for size in [ChunkSize::K2, ChunkSize::K4] {
        let mut pool = FramePool::with_jumbo(50, 20, size).unwrap();
        let mut frames: Vec<Frame> = std::iter::from_fn(|| pool.take()).collect();
        frames.extend(std::iter::from_fn(|| pool.take_jumbo()));
        assert_eq!((frames.len(), pool.available()), (70, 0));
        for (number, frame) in frames.iter_mut().enumerate() {
            frame.bytes_mut().fill(number as u8);
        }
        for (number, frame) in frames.iter().enumerate() {
            assert_eq!(frame.capacity(), if number < 50 { size.octets() } else { JUMBO });
            assert!(frame.bytes().iter().all(|&octet| octet == number as u8), "frames overlap");
        }
        frames.into_iter().for_each(|frame| pool.give(frame));
        assert_eq!((pool.available(), pool.total()), (70, 70));
    }
}

#[test]
fn a_frame_is_as_large_as_its_packet_needs() {
    let mut pool = FramePool::with_jumbo(10, 1, ChunkSize::K2).unwrap();
    for (packet, capacity) in [(0, 2048), (1600, 2048), (1601, JUMBO), (15_936, JUMBO)] {
        let frame = pool.take_for(packet).unwrap();
        assert_eq!(frame.capacity(), capacity, "{packet}");
        pool.give(frame);
    }
    assert!(pool.take_for(15_937).is_none());
    let last = pool.take_for(9000).unwrap();
    assert!(pool.take_for(9000).is_none());
    pool.give(last);
    assert!(FramePool::new(10, ChunkSize::K2).unwrap().take_for(1601).is_none());
}

#[test]
fn a_pool_needs_a_possible_number_of_frames() {
    assert!(FramePool::new(0, ChunkSize::K2).is_err());
    assert!(FramePool::new(FrameMemory::MAX_FRAMES + 1, ChunkSize::K2).is_err());
}
