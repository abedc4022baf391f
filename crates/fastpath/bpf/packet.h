/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Parsing: from an IP header to its payload, independent of addresses. */
#ifndef TESTUDO_PACKET_H
#define TESTUDO_PACKET_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "headers.h"
#include "reasons.h"

/* Extension headers before the filter gives up. Real packets have one or two. */
#define MAX_EXTENSIONS 8

enum fragment {
	WHOLE,
	FIRST_FRAGMENT,
	LATER_FRAGMENT,
};

/* The payload of an IP packet. */
struct payload {
	__u32 offset; /* from the start of the frame */
	__u32 length; /* octets according to the IP header, all of them in the frame */
	__u32 id;     /* of the datagram, if this is a fragment */
	__u8 proto;
	__u8 fragment; /* enum fragment */
};

#define PARSED (-1)

/* More than all headers that the filter skips. The kernel wants a bound on each offset. */
#define OFFSET_MASK 0x7fff

/* The octets at this offset in the frame; the caller checks how many there are. */
static __always_inline void *octets_at(const struct xdp_md *ctx, __u32 offset)
{
	return (void *)(long)ctx->data + (offset & OFFSET_MASK);
}

/*
 * Finds the payload of an IPv4 packet. `frame` is the length of the frame after the Ethernet
 * header, padding included. Returns PARSED, or the reason to drop the packet.
 */
static __always_inline int parse_ipv4(const struct ipv4 *ip, __u32 frame, struct payload *payload)
{
	__u32 header = (ip->version_length & 0x0f) * 4;
	__u32 total = bpf_ntohs(ip->total_length);
	__u16 fragment = bpf_ntohs(ip->fragment);

	if (ip->version_length >> 4 != 4 || header < sizeof(*ip) || total < header || total > frame)
		return DROP_MALFORMED;
	payload->offset = sizeof(struct ethernet) + header;
	payload->length = total - header;
	payload->proto = ip->proto;
	payload->id = ip->id;
	if (fragment & IPV4_OFFSET_MASK)
		payload->fragment = LATER_FRAGMENT;
	else if (fragment & IPV4_MORE_FRAGMENTS)
		payload->fragment = FIRST_FRAGMENT;
	else
		payload->fragment = WHOLE;
	return PARSED;
}

/* Reads a fragment header. An atomic fragment (RFC 6946) counts as a first fragment. */
static __always_inline void parse_fragment6(const struct fragment6 *header, struct payload *payload)
{
	payload->id = header->id;
	payload->fragment =
		bpf_ntohs(header->offset) & IPV6_OFFSET_MASK ? LATER_FRAGMENT : FIRST_FRAGMENT;
}

static __always_inline int is_extension(__u8 proto)
{
	return proto == PROTO_HOP_BY_HOP || proto == PROTO_ROUTING || proto == PROTO_FRAGMENT ||
	       proto == PROTO_DESTINATION;
}

/*
 * Skips one extension header. Returns PARSED if the upper layer is reached, the reason to drop the
 * packet, or REASONS if there are more.
 */
static __always_inline int walk_extension(struct xdp_md *ctx, struct payload *payload)
{
	struct extension *header = octets_at(ctx, payload->offset);
	__u32 size;

	if (!is_extension(payload->proto))
		return PARSED;
	if (payload->length < sizeof(*header))
		return payload->fragment == WHOLE ? DROP_MALFORMED : DROP_FRAGMENT_SHORT;
	if ((void *)(header + 1) > (void *)(long)ctx->data_end)
		return DROP_NOT_LINEAR;
	if (payload->proto == PROTO_ROUTING && header->segments_left)
		return DROP_ROUTING_HEADER;
	if (payload->proto == PROTO_FRAGMENT) {
		if (payload->fragment != WHOLE)
			return DROP_MALFORMED;
		parse_fragment6((void *)header, payload);
		size = sizeof(struct fragment6);
	} else {
		size = (header->length + 1) * 8;
	}
	if (payload->length < size)
		return payload->fragment == WHOLE ? DROP_MALFORMED : DROP_FRAGMENT_SHORT;
	payload->proto = header->next;
	payload->offset += size;
	payload->length -= size;
	return payload->fragment == LATER_FRAGMENT ? PARSED : REASONS;
}

/*
 * Skips the extension headers of an IPv6 packet, whose length has been checked. In a later
 * fragment, the protocol is that of the first header of the fragmentable part (RFC 8200 4.5).
 * Returns PARSED, or the reason to drop the packet.
 *
 * A function that the kernel verifies once. Inlined, each number of headers would be one more state
 * in which it verifies all that follows, and loading the filter would take five times as long.
 */
__noinline int skip_extensions(struct xdp_md *ctx, struct payload *payload)
{
	if (!payload)
		return DROP_MALFORMED;
#pragma unroll
	for (int i = 0; i <= MAX_EXTENSIONS; i++) {
		int result = walk_extension(ctx, payload);

		if (result != REASONS)
			return result;
	}
	return DROP_EXTENSION_HEADERS;
}

#endif
