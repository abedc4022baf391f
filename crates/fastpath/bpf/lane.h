/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The lane of a packet of a spread tunnel: the shard by which it finds its node.
 * crates/base/src/lane.rs computes the same, with the reasons; a test compares the two.
 *
 * What follows the IP header is read up to its 16th octet, so up to octet 94 of a frame. Octets
 * beyond the linear part of a multi-buffer frame count as missing, here only. No driver leaves
 * fewer than 128 octets there.
 */
#ifndef TESTUDO_LANE_H
#define TESTUDO_LANE_H

#include "packet.h"
#include "siphash.h"
#include "turn.h"

/* Odd and close to 2^32 divided by the golden ratio. */
#define GOLDEN 0x9e3779b1U

/*
 * What a packet shows of its session, and of itself: two words of what is hashed. The second is
 * hashed only where each packet goes by itself.
 */
struct shown {
	__be32 ports;
	__be32 identification;
	__u64 own;
};

/* Eight octets of a payload. For TCP, UDP and SCTP the first four are the ports. */
struct head {
	__be32 ports;
	__be32 rest;
};

static __always_inline __u8 lane_of_number(__u32 spi, __u32 number)
{
	return (number * GOLDEN + spi) >> 24;
}

static __always_inline int has_ports(__u8 proto)
{
	return proto == PROTO_TCP || proto == PROTO_UDP || proto == PROTO_SCTP;
}

/* `flags` are those of the prefix, `length` is the payload's according to the IP header. */
static __always_inline void show(struct shown *shown, __u32 flags, __u8 proto,
				 const struct head *head, __u32 length, void *end)
{
	if (length < sizeof(*head) || (void *)(head + 1) > end)
		return;
	if (has_ports(proto))
		shown->ports = head->ports;
	if (!(flags & PREFIX_SPREAD_PACKET))
		return;
	/* The checksum of UDP may still be filled in on the way, so its data counts. */
	if (proto == PROTO_UDP) {
		head++;
		if (length < 2 * sizeof(*head) || (void *)(head + 1) > end)
			return;
	}
	__builtin_memcpy(&shown->own, head, sizeof(shown->own));
}

static __always_inline void look_at_ipv4(struct looks *looks, struct xdp_md *ctx,
					 const __u64 key[2], __u32 flags)
{
	struct ipv4 *ip = octets_at(ctx, sizeof(struct ethernet));
	void *end = (void *)(long)ctx->data_end;
	struct shown shown = {};
	__u32 header;
	__u64 words[3];
	int is_fragment;

	if ((void *)(ip + 1) > end)
		return;
	header = (ip->version_length & 0x0f) * 4;
	is_fragment = (ip->fragment & bpf_htons(IPV4_MORE_FRAGMENTS | IPV4_OFFSET_MASK)) != 0;
	if (is_fragment || (flags & PREFIX_SPREAD_PACKET))
		__builtin_memcpy(&shown.identification, &ip->id, sizeof(ip->id));
	if (!is_fragment)
		show(&shown, flags, ip->proto, octets_at(ctx, sizeof(struct ethernet) + header),
		     bpf_ntohs(ip->total_length) - header, end);
	__builtin_memcpy(&words[0], &ip->src, sizeof(words[0]));
	__builtin_memcpy(&words[1], &shown, sizeof(shown));
	looks->hash = short_siphash(key, words, 2, !!(flags & PREFIX_SPREAD_PACKET));
	looks->octets = bpf_ntohs(ip->total_length);
	looks->is_whole = !is_fragment;
}

static __always_inline void look_at_ipv6(struct looks *looks, struct xdp_md *ctx,
					 const __u64 key[2], __u32 flags)
{
	struct ipv6 *ip = octets_at(ctx, sizeof(struct ethernet));
	void *end = (void *)(long)ctx->data_end;
	struct fragment6 *fragment = (void *)(ip + 1);
	struct shown shown = {};
	__u32 length;
	__u64 words[6];

	if ((void *)(ip + 1) > end)
		return;
	length = bpf_ntohs(ip->payload_length);
	if (ip->next != PROTO_FRAGMENT)
		show(&shown, flags, ip->next, (void *)fragment, length, end);
	else if (length >= sizeof(*fragment) && (void *)(fragment + 1) <= end)
		shown.identification = fragment->id;
	__builtin_memcpy(&words[0], &ip->src, 4 * sizeof(words[0]));
	__builtin_memcpy(&words[4], &shown, sizeof(shown));
	looks->hash = short_siphash(key, words, 5, !!(flags & PREFIX_SPREAD_PACKET));
	looks->octets = length + sizeof(*ip);
	/* Which of them is a fragment shows only behind the last of these. */
	looks->is_whole = !is_extension(ip->next);
}

/*
 * The lane of a clear packet for a prefix with these flags, whose IP header is consistent. A
 * function that the kernel verifies once. Fragments of a datagram must meet: none takes a turn.
 */
__noinline int lane_of_packet(struct xdp_md *ctx, const struct cluster *cluster, __u32 flags)
{
	const __u8 *first = octets_at(ctx, sizeof(struct ethernet));
	struct looks looks = {};

	if (!cluster || (void *)(first + 1) > (void *)(long)ctx->data_end)
		return 0;
	if (*first >> 4 == 4)
		look_at_ipv4(&looks, ctx, cluster->key, flags);
	else
		look_at_ipv6(&looks, ctx, cluster->key, flags);
	if (looks.is_whole && (flags & (PREFIX_ROUND_ROBIN | PREFIX_SHORTEST_QUEUE)))
		return lane_in_turn(flags, &looks);
	return looks.hash & 0xff;
}

#endif
