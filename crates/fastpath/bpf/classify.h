/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* From a frame to a reason. */
#ifndef TESTUDO_CLASSIFY_H
#define TESTUDO_CLASSIFY_H

#include "find.h"
#include "home.h"
#include "local.h"
#include "policy.h"

/*
 * RFC 4861: a message with another hop limit has crossed a router and does not belong to Neighbour
 * Discovery.
 */
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

/*
 * Class D, or the limited broadcast address. Subnet broadcasts are exceptions among the prefixes.
 */
static __always_inline int is_group4(const struct address4 *addr)
{
	const __u8 *o = addr->octets;

	return o[0] >> 4 == 0xe || (o[0] & o[1] & o[2] & o[3]) == 0xff;
}

static __always_inline int classify_local4(struct xdp_md *ctx, const struct arrival *arrival,
					   struct ipv4 *ip, __u32 local,
					   const struct payload *payload)
{
	struct datagram datagram = {};
	int reason, home;

	__builtin_memcpy(&datagram.src, &ip->src, sizeof(ip->src));
	__builtin_memcpy(&datagram.dst, &ip->dst, sizeof(ip->dst));
	datagram.id = payload->id;
	datagram.proto = payload->proto;
	reason = classify_local(ctx, payload, &datagram, PROTO_ICMP);
	if (reason == UNDECIDED)
		reason = classify_ordinary(arrival->port, flags4(&ip->src), local);
	if (!needs_home(arrival, reason))
		return reason;
	home = local & LOCAL_VIP ? home_at_vip(ctx, arrival, payload, reason)
				 : home_elsewhere4(arrival, ip);
	return at_home(arrival->cluster, home, reason);
}

/*
 * The home of a packet between other hosts by its destination; 0 if that is not protected, and
 * without a cluster.
 */
static __always_inline __u32 home_of_transit(struct xdp_md *ctx, const struct arrival *arrival,
					     __u32 to)
{
	return arrival->cluster && (to & PREFIX_PROTECT_TO) ? home_of_prefix(ctx, arrival, to) : 0;
}

/*
 * True if another node has the packet. Asked before the source is looked up, because in a cluster
 * most packets are another node's.
 */
static __always_inline int is_elsewhere(const struct arrival *arrival, __u32 home)
{
	return home && arrival->way == TO_CLUSTER && !keeps(arrival->cluster, home);
}

/*
 * True if the home by the destination counts: for each packet to protect, and for each that was
 * only kept because of it.
 */
static __always_inline int is_by_destination(const struct arrival *arrival, __u32 home, int reason)
{
	if (reason == WORKER_PROTECT)
		return 1;
	return arrival->way == TO_CLUSTER &&
	       (home >> 8 == HOME_PACKETS || home >> 8 == HOME_IN_TURN);
}

static __always_inline int classify_transit4(struct xdp_md *ctx, const struct arrival *arrival,
					     const struct ipv4 *ip)
{
	__u32 to = flags4(&ip->dst), home = home_of_transit(ctx, arrival, to);
	int reason;

	if (is_elsewhere(arrival, home))
		return DROP_OTHER_NODE;
	reason = classify_transit(arrival->port, flags4(&ip->src), to);
	if (!needs_home(arrival, reason))
		return reason;
	if (is_by_destination(arrival, home, reason))
		return at_home(arrival->cluster, home, reason_at(arrival, to, reason));
	return at_home(arrival->cluster, home_elsewhere4(arrival, ip), reason);
}

static __always_inline int classify_ipv4(struct xdp_md *ctx, const struct arrival *arrival,
					 __u32 frame)
{
	struct ipv4 *ip = octets_at(ctx, sizeof(struct ethernet));
	void *end = (void *)(long)ctx->data_end;
	struct payload payload = {};
	__u32 local;
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
	local = local_flags4(&ip->dst);
	return local ? classify_local4(ctx, arrival, ip, local, &payload)
		     : classify_transit4(ctx, arrival, ip);
}

/*
 * A packet to one of the gateway's addresses. Only here the content after the extension headers
 * matters.
 */
static __always_inline int classify_local6(struct xdp_md *ctx, const struct arrival *arrival,
					   struct ipv6 *ip, __u32 local)
{
	struct payload payload = {};
	struct datagram datagram = {};
	int reason, home;

	payload.offset = sizeof(struct ethernet) + sizeof(*ip);
	payload.length = bpf_ntohs(ip->payload_length);
	payload.proto = ip->next;
	if (is_extension(payload.proto)) {
		reason = skip_extensions(ctx, &payload);
		if (reason != PARSED)
			return reason;
	}
	datagram.src = ip->src;
	datagram.dst = ip->dst;
	datagram.id = payload.id;
	reason = classify_local(ctx, &payload, &datagram, PROTO_ICMPV6);
	if (reason == UNDECIDED)
		reason = classify_ordinary(arrival->port,
					   is_link_local(&ip->src) ? 0 : flags6(&ip->src), local);
	if (!needs_home(arrival, reason))
		return reason;
	home = local & LOCAL_VIP ? home_at_vip(ctx, arrival, &payload, reason)
				 : home_elsewhere6(arrival, ip);
	return at_home(arrival->cluster, home, reason);
}

static __always_inline int classify_transit6(struct xdp_md *ctx, const struct arrival *arrival,
					     const struct ipv6 *ip, __u32 to)
{
	__u32 home = home_of_transit(ctx, arrival, to);
	int reason;

	if (is_elsewhere(arrival, home))
		return DROP_OTHER_NODE;
	reason = classify_transit(arrival->port, is_link_local(&ip->src) ? 0 : flags6(&ip->src), to);
	if (!needs_home(arrival, reason))
		return reason;
	if (is_by_destination(arrival, home, reason))
		return at_home(arrival->cluster, home, reason_at(arrival, to, reason));
	return at_home(arrival->cluster, home_elsewhere6(arrival, ip), reason);
}

static __always_inline int classify_neighbour_discovery(const struct arrival *arrival,
							const struct ipv6 *ip, __u32 local)
{
	if (!arrival->cluster)
		return PASS_NEIGHBOUR_DISCOVERY;
	return at_home(arrival->cluster,
		       local & LOCAL_VIP ? HOME(HOME_DEFAULT_HOST, 0)
					 : home_elsewhere6(arrival, ip),
		       PASS_NEIGHBOUR_DISCOVERY);
}

static __always_inline int classify_ipv6(struct xdp_md *ctx, const struct arrival *arrival,
					 __u32 frame)
{
	struct ipv6 *ip = octets_at(ctx, sizeof(struct ethernet));
	void *end = (void *)(long)ctx->data_end;
	__u32 local, to = 0;

	if (frame < sizeof(*ip))
		return DROP_MALFORMED;
	if ((void *)(ip + 1) > end)
		return DROP_NOT_LINEAR;
	if (ip->version_class >> 4 != 6 || bpf_ntohs(ip->payload_length) > frame - sizeof(*ip))
		return DROP_MALFORMED;
	if (ip->dst.octets[0] == 0xff)
		return PASS_MULTICAST;
	/*
	 * Link-local addresses are never forwarded and lie in no protected prefix, not even in
	 * ::/0.
	 */
	local = local_flags6(&ip->dst);
	if (!local && !is_link_local(&ip->dst))
		to = flags6(&ip->dst);
	if (!(to & PREFIX_PROTECT_TO) && is_neighbour_discovery(ip, end))
		return classify_neighbour_discovery(arrival, ip, local);
	return local ? classify_local6(ctx, arrival, ip, local)
		     : classify_transit6(ctx, arrival, ip, to);
}

#endif
