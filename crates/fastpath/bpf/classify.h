/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* From a frame to a reason. */
#ifndef TESTUDO_CLASSIFY_H
#define TESTUDO_CLASSIFY_H

#include "local.h"
#include "policy.h"

/* RFC 4861: a message with another hop limit has crossed a router and is none of Neighbour Discovery. */
static __always_inline int is_neighbour_discovery(const struct ipv6 *ip, void *end)
{
	const __u8 *type = (void *)(ip + 1);

	if (ip->next != PROTO_ICMPV6 || ip->hop_limit != 255 || (void *)(type + 1) > end)
		return 0;
	return *type >= 133 && *type <= 137;
}

static __always_inline int is_link_local(const struct address6 *addr)
{
	return addr->octets[0] == 0xfe && (addr->octets[1] & 0xc0) == 0x80;
}

/* Class D, or the limited broadcast address. Those of a subnet are exceptions among the prefixes. */
static __always_inline int is_group4(const struct address4 *addr)
{
	const __u8 *o = addr->octets;

	return o[0] >> 4 == 0xe || (o[0] & o[1] & o[2] & o[3]) == 0xff;
}

static __always_inline int classify_ipv4(const struct port *port, void *start, void *end, __u32 frame)
{
	struct ipv4 *ip = start;
	struct payload payload = {};
	struct datagram datagram = {};
	int result;

	if (frame < sizeof(*ip))
		return DROP_MALFORMED;
	if ((void *)(ip + 1) > end)
		return DROP_NOT_LINEAR;
	result = parse_ipv4(ip, frame, &payload);
	if (result != PARSED)
		return result;
	if (is_group4(&ip->dst))
		return PASS_MULTICAST;
	if (!bpf_map_lookup_elem(&local4, &ip->dst))
		return classify_transit(port, flags4(&ip->src), flags4(&ip->dst));

	__builtin_memcpy(&datagram.src, &ip->src, sizeof(ip->src));
	__builtin_memcpy(&datagram.dst, &ip->dst, sizeof(ip->dst));
	datagram.id = payload.id;
	datagram.proto = payload.proto;
	result = classify_local(&payload, &datagram, PROTO_ICMP, end);
	return result == UNDECIDED ? classify_ordinary(port, flags4(&ip->src)) : result;
}

/* A packet to one of our addresses; only here does it matter what stands behind the extension headers. */
static __always_inline int classify_local6(const struct port *port, struct ipv6 *ip, void *end)
{
	struct payload payload = {};
	struct datagram datagram = {};
	int result;

	result = parse_ipv6(ip, end, &payload);
	if (result != PARSED)
		return result;
	datagram.src = ip->src;
	datagram.dst = ip->dst;
	datagram.id = payload.id;
	result = classify_local(&payload, &datagram, PROTO_ICMPV6, end);
	if (result != UNDECIDED)
		return result;
	return classify_ordinary(port, is_link_local(&ip->src) ? 0 : flags6(&ip->src));
}

static __always_inline int classify_ipv6(const struct port *port, void *start, void *end, __u32 frame)
{
	struct ipv6 *ip = start;
	int local;
	__u32 from = 0, to = 0;

	if (frame < sizeof(*ip))
		return DROP_MALFORMED;
	if ((void *)(ip + 1) > end)
		return DROP_NOT_LINEAR;
	if (ip->version_class >> 4 != 6 || bpf_ntohs(ip->payload_length) > frame - sizeof(*ip))
		return DROP_MALFORMED;
	if (ip->dst.octets[0] == 0xff)
		return PASS_MULTICAST;
	/* Link-local addresses are never forwarded and lie in no protected prefix, not even in ::/0. */
	local = bpf_map_lookup_elem(&local6, &ip->dst) != 0;
	if (!local && !is_link_local(&ip->dst))
		to = flags6(&ip->dst);
	if (!(to & PREFIX_PROTECT_TO) && is_neighbour_discovery(ip, end))
		return PASS_NEIGHBOUR_DISCOVERY;
	if (local)
		return classify_local6(port, ip, end);
	if (!is_link_local(&ip->src))
		from = flags6(&ip->src);
	return classify_transit(port, from, to);
}

#endif
