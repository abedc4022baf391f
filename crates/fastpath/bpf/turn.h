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
/* One new session in 16. */
#define MARK_ONE_SESSION_IN 16
/* Packets after a mark that take turns. */
#define LONGEST_COUNT 1024

/* What all nodes find alike in a clear packet. */
struct looks {
	__u64 hash;
	__u32 octets;
	int is_whole;
};

/* Begins again if a packet with this hash is a mark. Returns whether it is. */
static __always_inline int look_for_mark(struct turn *turn, __u32 flags, __u64 hash)
{
	__u32 mark = hash >> 32;

	if (flags & PREFIX_SPREAD_SESSION) {
		if (hash >> 24 & (MARK_ONE_SESSION_IN - 1))
			return 0;
	} else if ((hash >> 24 & (MARK_ONE_IN - 1)) || mark == turn->mark) {
		return 0;
	}
	__builtin_memset(turn, 0, sizeof(*turn));
	turn->mark = mark;
	turn->next = mark >> 16;
	turn->base = mark >> 24;
	return 1;
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

/* The lane of a packet whose turn it is, or that of its hash. */
static __always_inline __u32 next_turn(struct turn *turn, __u32 flags, const struct looks *looks)
{
	__u8 lane;

	look_for_mark(turn, flags, looks->hash);
	lane = take_turn(turn, flags, looks->octets);
	if (turn->next - (turn->mark >> 16) > LONGEST_COUNT)
		return looks->hash & 0xff;
	return LANE_IN_TURN | lane;
}

/* Of the four lanes that the hash of a new session names, that with the fewest octets. */
static __always_inline __u8 shortest_of_four(const struct lane_queues *queues, __u64 hash)
{
	__u32 least = ~0U;
	__u8 shortest = hash >> 32;

#pragma unroll
	for (int i = 32; i < 64; i += 8) {
		__u8 lane = hash >> i;
		__u32 octets = queues->octets[lane];

		if (octets < least) {
			least = octets;
			shortest = lane;
		}
	}
	return shortest;
}

static __always_inline __u32 lane_of_new_session(__u32 flags, const struct looks *looks)
{
	__u32 shard = flags >> PREFIX_SHARD_SHIFT & 0xff;
	struct turn *turn = bpf_map_lookup_elem(&turns, &shard);
	struct lane_queues *queues;

	if (!turn)
		return looks->hash & 0xff;
	if (!(flags & PREFIX_SHORTEST_QUEUE))
		return next_turn(turn, flags, looks);
	queues = bpf_map_lookup_elem(&lane_queues, &shard);
	if (!queues)
		return looks->hash & 0xff;
	if (look_for_mark(turn, flags, looks->hash))
		__builtin_memset(queues, 0, sizeof(*queues));
	return LANE_IN_TURN | shortest_of_four(queues, looks->hash);
}

static __always_inline void add_octets(__u32 flags, __u8 lane, __u32 octets)
{
	__u32 shard = flags >> PREFIX_SHARD_SHIFT & 0xff, sum;
	struct lane_queues *queues = bpf_map_lookup_elem(&lane_queues, &shard);

	if (!queues)
		return;
	sum = queues->octets[lane] + octets;
	queues->octets[lane] = sum < octets ? ~0U : sum;
}

/*
 * The lane of the packet's session. A new one enters the table, if its slot is free there.
 * crates/base/src/session.rs does the same, with the reasons. A write of the daemon's between the
 * two accesses to the word is lost; it writes again.
 */
static __always_inline __u32 lane_of_session(__u32 flags, const struct looks *looks)
{
	__u32 slot = looks->hash >> 8 & (SESSION_SLOTS - 1), lane = looks->hash & 0xff;
	volatile __u64 *entry = bpf_map_lookup_elem(&sessions, &slot);
	__u64 session;

	if (!entry)
		return lane;
	session = *entry;
	if (!(session & SESSION_TAKEN)) {
		lane = lane_of_new_session(flags, looks);
		if (lane & LANE_IN_TURN)
			*entry = looks->hash >> 32 << 32 | SESSION_TAKEN | SESSION_SEEN |
				 SESSION_NEW | (lane & 0xff);
	} else if (session >> 32 == looks->hash >> 32) {
		lane = LANE_IN_TURN | (session & 0xff);
		if (!(session & SESSION_SEEN))
			*entry = session | SESSION_SEEN;
	}
	if (flags & PREFIX_SHORTEST_QUEUE)
		add_octets(flags, lane, looks->octets);
	return lane;
}

/*
 * The lane of a whole packet for a prefix with these flags, whose home is the shard in their second
 * octet; with LANE_IN_TURN if it takes a turn.
 */
static __always_inline __u32 lane_in_turn(__u32 flags, const struct looks *looks)
{
	__u32 shard = flags >> PREFIX_SHARD_SHIFT & 0xff;
	struct turn *turn;

	if (flags & PREFIX_SPREAD_SESSION)
		return lane_of_session(flags, looks);
	turn = bpf_map_lookup_elem(&turns, &shard);
	return turn ? next_turn(turn, flags, looks) : looks->hash & 0xff;
}

#endif
