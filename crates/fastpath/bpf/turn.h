/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Lanes by counting. crates/base/src/turn.rs does the same, with the reasons; a test compares the
 * two.
 *
 * Written without a lock: packets that take turns must arrive in one queue, and so on one
 * processor, or the nodes see them in different orders.
 */
#ifndef TESTUDO_TURN_H
#define TESTUDO_TURN_H

#include "maps.h"

/* One packet in 64 is a mark. A power of two. */
#define MARK_ONE_IN 64
/* Packets after a mark that take turns. */
#define LONGEST_COUNT 1024

/* What all nodes find alike in a clear packet. */
struct looks {
	__u64 hash;
	__u32 octets;
	int is_whole;
};

static __always_inline void look_for_mark(struct turn *turn, __u64 hash)
{
	__u32 mark = hash >> 32;

	if ((hash >> 24 & (MARK_ONE_IN - 1)) || mark == turn->mark)
		return;
	__builtin_memset(turn, 0, sizeof(*turn));
	turn->mark = mark;
	turn->next = mark >> 16;
	turn->base = mark >> 24;
}

static __always_inline __u32 shortest_queue(const struct turn *turn)
{
	__u32 shortest = 0, least = turn->queues[0];

#pragma unroll
	for (int i = 1; i < TURN_QUEUES; i++) {
		if (turn->queues[i] < least) {
			least = turn->queues[i];
			shortest = i;
		}
	}
	return shortest;
}

static __always_inline __u8 take_turn(struct turn *turn, __u32 flags, __u32 octets)
{
	__u32 next = turn->next++, queue;

	if (!(flags & PREFIX_SHORTEST_QUEUE))
		return next;
	queue = shortest_queue(turn) % TURN_QUEUES;
	turn->queues[queue] += octets;
	return turn->base + (queue << 4 | (next & 15));
}

/* Beside a lane: what was counted decided, so nobody can find the lane again. */
#define LANE_IN_TURN 0x100

/*
 * The lane of a whole packet for a prefix with these flags, whose home is the shard in their second
 * octet; with LANE_IN_TURN if it takes a turn.
 */
static __always_inline __u32 lane_in_turn(__u32 flags, const struct looks *looks)
{
	__u32 shard = flags >> PREFIX_SHARD_SHIFT & 0xff;
	struct turn *turn = bpf_map_lookup_elem(&turns, &shard);
	__u8 lane;

	if (!turn)
		return looks->hash & 0xff;
	look_for_mark(turn, looks->hash);
	lane = take_turn(turn, flags, looks->octets);
	if (turn->next - (turn->mark >> 16) > LONGEST_COUNT)
		return looks->hash & 0xff;
	return LANE_IN_TURN | lane;
}

#endif
