/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The node of a packet, if all nodes get all packets. If routers bring each packet to one node
 * alone, that node keeps it. crates/cluster/src/dispatch.rs does the same, with the reasons; a test
 * compares the two.
 */
#ifndef TESTUDO_HOME_H
#define TESTUDO_HOME_H

#include "arrival.h"
#include "lane.h"
#include "packet.h"
#include "siphash.h"

/* A home is a kind and a shard; it is larger than any reason. */
#define HOME(kind, shard) ((kind) << 8 | (shard))

enum home_kind {
	HOME_OWN = 1,
	HOME_EVERYBODY,
	HOME_DEFAULT_HOST,
	HOME_PACKETS,
	HOME_IN_TURN,
	HOME_PAIR,
	HOME_IKE,
};

static __always_inline int has_shard(const __u64 shards[4], __u8 shard)
{
	return shards[shard >> 6] >> (shard & 63) & 1;
}

/* True if this node keeps packets of this home. */
static __always_inline int keeps(const struct cluster *cluster, __u32 home)
{
	/* Nobody else has the packet: the worker relays it, and IKE the daemon. */
	if (cluster->flags & CLUSTER_ROUTED)
		return 1;
	switch (home >> 8) {
	case HOME_DEFAULT_HOST:
		return cluster->flags & CLUSTER_DEFAULT_HOST;
	case HOME_PACKETS:
	case HOME_IN_TURN:
		return has_shard(cluster->packets, home) || has_shard(cluster->held, home);
	case HOME_PAIR:
		/* Mostly for the kernel, which cannot keep packets back. */
		return has_shard(cluster->packets, home);
	case HOME_IKE:
		return has_shard(cluster->ike, home);
	}
	return 1;
}

/*
 * Returns `reason` if this node keeps packets of this home, otherwise the reason against it; `home`
 * may itself be a reason to drop the packet.
 *
 * A living daemon extends the deadline of its table. After the deadline another node may have its
 * shards, and the kernel, which does not know that, must not answer or forward too. A worker checks
 * the clock itself, once per burst, and without a daemon it has no socket: its packets need no
 * check here.
 */
static __always_inline int at_home(const struct cluster *cluster, __u32 home, int reason)
{
	if (home < REASONS)
		return home;
	if (home >> 8 == HOME_OWN)
		return reason;
	if (!keeps(cluster, home))
		return DROP_OTHER_NODE;
	if (home >> 8 == HOME_IN_TURN && reason == WORKER_PROTECT)
		return REASON_IN_TURN | (home & 0xff);
	if (reason >= WORKER_PROTECT)
		return reason;
	return bpf_ktime_get_boot_ns() < cluster->deadline ? reason : DROP_FENCED;
}

struct pair6 {
	__u64 words[4];
};

/*
 * Shards by hash. Functions that the kernel verifies once: inlined, their rounds would be verified
 * in every state that comes to them.
 */
__noinline int shard_of_word(const struct cluster *cluster, __u64 word)
{
	return cluster ? siphash(cluster->key, &word, 1) & 0xff : 0;
}

__noinline int shard_of_pair6(const struct cluster *cluster, const struct pair6 *pair)
{
	return cluster && pair ? siphash(cluster->key, pair->words, 4) & 0xff : 0;
}

static __always_inline __u32 home_of_pair4(const struct cluster *cluster, const struct ipv4 *ip)
{
	union {
		__be32 addresses[2];
		__u64 word;
	} pair;
	__be32 src, dst;
	int swapped;

	__builtin_memcpy(&src, &ip->src, sizeof(src));
	__builtin_memcpy(&dst, &ip->dst, sizeof(dst));
	swapped = bpf_ntohl(src) > bpf_ntohl(dst);
	pair.addresses[0] = swapped ? dst : src;
	pair.addresses[1] = swapped ? src : dst;
	return HOME(HOME_PAIR, shard_of_word(cluster, pair.word) & 0xff);
}

static __always_inline __u32 home_of_pair6(const struct cluster *cluster, const struct ipv6 *ip)
{
	__u64 src[2], dst[2];
	struct pair6 pair;
	int swapped;

	__builtin_memcpy(src, &ip->src, sizeof(src));
	__builtin_memcpy(dst, &ip->dst, sizeof(dst));
	swapped = src[0] == dst[0] ? bpf_be64_to_cpu(src[1]) > bpf_be64_to_cpu(dst[1]) :
				     bpf_be64_to_cpu(src[0]) > bpf_be64_to_cpu(dst[0]);
	pair.words[0] = swapped ? dst[0] : src[0];
	pair.words[1] = swapped ? dst[1] : src[1];
	pair.words[2] = swapped ? src[0] : dst[0];
	pair.words[3] = swapped ? src[1] : dst[1];
	return HOME(HOME_PAIR, shard_of_pair6(cluster, &pair) & 0xff);
}

/*
 * Counts a clear packet for a spread prefix, whichever node works on it: all nodes count the same
 * packets. The packets of a shard may arrive on several processors.
 *
 * Where routers choose the node, each node would count others: its worker counts the rows that it
 * uses instead, and works on the packet whatever its lane.
 */
static __always_inline void advance_clock(const struct arrival *arrival, __u32 shard)
{
	__u64 *clock = bpf_map_lookup_elem(&clocks, &shard);

	if (clock && arrival->way != TO_OTHERS)
		__sync_fetch_and_add(clock, 1);
}

/* The flag of a cluster that lets lanes take turns as this prefix does. */
static __always_inline __u32 in_turn_for(__u32 flags)
{
	return flags & PREFIX_SPREAD_SESSION ? CLUSTER_SESSIONS_IN_TURN : CLUSTER_IN_TURN;
}

/* Clear traffic for a protected prefix with these flags. */
static __always_inline __u32 home_of_prefix(struct xdp_md *ctx, const struct arrival *arrival,
					    __u32 flags)
{
	__u32 shard = flags >> PREFIX_SHARD_SHIFT & 0xff;
	int lane;

	if (!(flags & PREFIX_HOMED))
		return HOME(HOME_EVERYBODY, 0);
	if (flags & (PREFIX_SPREAD_SESSION | PREFIX_SPREAD_PACKET) &&
	    !(arrival->cluster->flags & CLUSTER_ROUTED)) {
		advance_clock(arrival, shard);
		/* The others do not count what came here alone. */
		if (arrival->way != TO_CLUSTER ||
		    !(arrival->cluster->flags & in_turn_for(flags)))
			flags &= ~(PREFIX_ROUND_ROBIN | PREFIX_SHORTEST_QUEUE);
		lane = lane_of_packet(ctx, arrival->cluster, flags);
		return HOME(lane & LANE_IN_TURN ? HOME_IN_TURN : HOME_PACKETS, lane & 0xff);
	}
	return HOME(HOME_PACKETS, shard);
}

/*
 * The worker must know that other nodes have the packet too: what it lets pass without an SA would
 * leave once for each.
 */
static __always_inline int reason_at(const struct arrival *arrival, __u32 flags, int reason)
{
	return reason == WORKER_PROTECT && arrival->way == TO_CLUSTER && !(flags & PREFIX_HOMED) ?
		       WORKER_PROTECT_FLOODED :
		       reason;
}

/*
 * Records the highest sequence number seen, so that a node that takes an SA or a lane over knows
 * which numbers may have been accepted. The node that carries the SA has its replay window, and
 * needs no record; of a spread SA no node carries all numbers. Only the daemon adds SPIs, so a
 * stranger's need no memory.
 *
 * Written without a lock: packets of an SA arrive in one queue and so on one processor, except for
 * a moment when its peer's path changes; a number lost then is exceeded by the next packet.
 *
 * Numbers wrap with ESN. The record never falls: forged ones that lead it round the circle of 32
 * bits only raise it, and a floor is bounded from above.
 */
static __always_inline void note_seen(struct seen *seen, __u32 number)
{
	__s32 ahead = number - (__u32)seen->number;

	if (ahead > 0)
		seen->number += ahead;
}

/* The shard of an ESP or AH packet; its number is recorded where that is needed. */
static __always_inline __u8 shard_of_esp(const struct arrival *arrival, const struct esp *esp)
{
	const struct cluster *cluster = arrival->cluster;
	__u32 spi = bpf_ntohl(esp->spi), number = bpf_ntohl(esp->number);
	__u8 shard = spi >> 24;
	int carried = has_shard(cluster->packets, shard);
	struct seen *found;

	if (arrival->way == TO_OTHERS || (carried && !(cluster->flags & CLUSTER_SPREAD)))
		return shard;
	found = bpf_map_lookup_elem(&seen, &spi);
	if (!found)
		return shard;
	if (found->flags & SEEN_SPREAD) {
		note_seen(found, number);
		return lane_of_number(spi, number);
	}
	if (!carried)
		note_seen(found, number);
	return shard;
}

static __always_inline int home_of_esp(const struct arrival *arrival, const struct esp *esp,
				       void *end)
{
	if ((void *)(esp + 1) > end)
		return DROP_NOT_LINEAR;
	return HOME(HOME_PACKETS, shard_of_esp(arrival, esp));
}

/*
 * A fragment of ESP or AH: only the whole packet shows its home, so all nodes reassemble it. The
 * first one has the sequence number.
 */
static __always_inline int home_of_fragment(const struct arrival *arrival,
					    const struct payload *payload, void *start,
					    void *end)
{
	const struct esp *esp = start;

	if (payload->proto == PROTO_UDP)
		esp = start + sizeof(struct udp);
	if (payload->proto == PROTO_AH)
		esp = start + offsetof(struct ah, numbers);
	if (payload->fragment == FIRST_FRAGMENT && (void *)(esp + 1) <= end)
		shard_of_esp(arrival, esp);
	return HOME(HOME_EVERYBODY, 0);
}

/* By the gateway's SPI; before there is one, by a hash of the peer's. */
static __always_inline int home_of_ike(const struct cluster *cluster, const struct ike *ike,
				       void *end)
{
	if ((void *)(ike + 1) > end)
		return DROP_NOT_LINEAR;
	if (!(ike->flags & IKE_INITIATOR))
		return HOME(HOME_IKE, ike->initiator[0]);
	if (!ike->responder_word)
		return HOME(HOME_IKE, shard_of_word(cluster, ike->initiator_word) & 0xff);
	return HOME(HOME_IKE, ike->responder[0]);
}

/* A datagram with IKE, or its first fragment. */
static __always_inline int home_of_ike_datagram(const struct cluster *cluster,
						const struct payload *payload, void *start,
						void *end)
{
	const struct udp *udp = start;
	__u32 length = payload->length, before = sizeof(*udp);

	if ((void *)(udp + 1) > end)
		return payload->fragment == WHOLE ? DROP_NOT_LINEAR : DROP_FRAGMENT_SHORT;
	if (payload->fragment == WHOLE)
		length = bpf_ntohs(udp->length);
	if (udp->dst == bpf_htons(UDP_PORT_NATT)) {
		before += sizeof(__be32);
		if (length < before + sizeof(struct ike))
			return payload->fragment == WHOLE ? HOME(HOME_DEFAULT_HOST, 0)
							  : DROP_FRAGMENT_SHORT;
		return home_of_ike(cluster, (void *)(udp + 1) + sizeof(__be32), end);
	}
	if (length < before + sizeof(struct ike))
		return payload->fragment == WHOLE ? HOME(HOME_DEFAULT_HOST, 0)
						  : DROP_FRAGMENT_SHORT;
	return home_of_ike(cluster, (void *)(udp + 1), end);
}

/*
 * The home of a packet to a VIP that would pass for this reason, or the reason to drop it after
 * all.
 */
static __always_inline int home_at_vip(const struct xdp_md *ctx, const struct arrival *arrival,
				       const struct payload *payload, int reason)
{
	void *start = octets_at(ctx, payload->offset), *end = (void *)(long)ctx->data_end;

	switch (reason) {
	case WORKER_ESP:
		return home_of_esp(arrival, start, end);
	case WORKER_ESP_IN_UDP:
		return home_of_esp(arrival, start + sizeof(struct udp), end);
	case WORKER_AH:
		return home_of_esp(arrival, start + offsetof(struct ah, numbers), end);
	case WORKER_FRAGMENT:
		return home_of_fragment(arrival, payload, start, end);
	case PASS_IKE:
		return home_of_ike_datagram(arrival->cluster, payload, start, end);
	case PASS_ICMP_ERROR:
		return HOME(HOME_EVERYBODY, 0);
	}
	return HOME(payload->fragment == LATER_FRAGMENT ? HOME_EVERYBODY : HOME_DEFAULT_HOST, 0);
}

/*
 * The home of a packet between other hosts, or to an address of this node only: for all other nodes
 * it is one between other hosts.
 */
static __always_inline int home_elsewhere4(const struct arrival *arrival, const struct ipv4 *ip)
{
	return arrival->way == TO_CLUSTER ? home_of_pair4(arrival->cluster, ip) : HOME(HOME_OWN, 0);
}

static __always_inline int home_elsewhere6(const struct arrival *arrival, const struct ipv6 *ip)
{
	return arrival->way == TO_CLUSTER ? home_of_pair6(arrival->cluster, ip) : HOME(HOME_OWN, 0);
}

/* True if a cluster also decides on packets with this reason. */
static __always_inline int needs_home(const struct arrival *arrival, int reason)
{
	return arrival->cluster && reason < DROP_NO_SOCKET;
}

#endif
