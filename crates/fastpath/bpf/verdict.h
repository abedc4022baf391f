/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* From a reason to the action on the packet, and its counter. */
#ifndef TESTUDO_VERDICT_H
#define TESTUDO_VERDICT_H

#include "arrival.h"
#include "reasons.h"

static __always_inline void count(const struct port *port, __u32 reason)
{
	__u32 key = port->index * MAX_REASONS + reason;
	__u64 *counter = bpf_map_lookup_elem(&counters, &key);

	if (counter)
		*counter += 1;
}

/*
 * Keeps the beginning of a clear packet that must be protected, as evidence. The length is written
 * last: the daemon reads a whole entry.
 */
__noinline int keep_head(struct xdp_md *ctx, __u32 port)
{
	struct clear_head *kept = bpf_map_lookup_elem(&clear_heads, &port);
	__u32 length = bpf_xdp_get_buff_len(ctx) - sizeof(struct ethernet), octets = length;

	if (!kept || kept->length)
		return 0;
	if (octets >= sizeof(kept->octets))
		octets = sizeof(kept->octets);
	/* The kernel does not see the bound through the compiler's conversions. */
	barrier_var(octets);
	octets = (octets - 1) & (sizeof(kept->octets) - 1);
	if (bpf_xdp_load_bytes(ctx, sizeof(struct ethernet), kept->octets, octets + 1))
		return 0;
	kept->length = length;
	return 0;
}

static __always_inline int drop(const struct port *port, __u32 reason)
{
	count(port, reason);
	return XDP_DROP;
}

/*
 * Changes the destination of a frame from the cluster's MAC address to the port's own: with a group
 * address the kernel would accept it but never forward it, and with a foreign unicast address it
 * would not accept it.
 */
static __always_inline int pass(struct xdp_md *ctx, const struct arrival *arrival, __u32 reason)
{
	struct ethernet *eth = (void *)(long)ctx->data;

	if (arrival->way == TO_CLUSTER) {
		if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
			return drop(arrival->port, DROP_MALFORMED);
		__builtin_memcpy(eth->dst, arrival->port->mac, sizeof(eth->dst));
	}
	count(arrival->port, reason);
	return XDP_PASS;
}

static __always_inline __u8 class_of(__u32 reason)
{
	if (reason == WORKER_ESP || reason == WORKER_FRAGMENT || reason == WORKER_AH)
		return CLASS_ESP;
	if (reason == WORKER_PROTECT_FLOODED)
		return CLASS_PROTECT_FLOODED;
	if (reason == WORKER_CLEAR)
		return CLASS_CLEAR;
	return reason == WORKER_ESP_IN_UDP ? CLASS_ESP_IN_UDP : CLASS_PROTECT;
}

/* Writes the stamp into the four octets before the packet, where the worker expects it. */
static __always_inline int stamp(struct xdp_md *ctx, const struct port *port, __u8 class,
				 __u8 lane)
{
	struct stamp *stamp;

	/* If a driver uses this room itself, the stamp would move. */
	if ((void *)(long)ctx->data_meta != (void *)(long)ctx->data)
		return 0;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*stamp)))
		return 0;
	stamp = (void *)(long)ctx->data_meta;
	if ((void *)(stamp + 1) > (void *)(long)ctx->data)
		return 0;
	stamp->magic = STAMP_MAGIC;
	stamp->class = class;
	stamp->port = port->index;
	stamp->lane = lane;
	return 1;
}

/* Without a worker's socket the packet is dropped: fail closed after the daemon's death. */
static __always_inline int to_worker(struct xdp_md *ctx, const struct arrival *arrival,
				     __u32 reason, __u8 class, __u8 lane)
{
	const struct port *port = arrival->port;
	__u32 key = port->index * MAX_QUEUES + ctx->rx_queue_index;
	int action;

	if (port->index >= MAX_PORTS)
		return drop(port, DROP_UNKNOWN_PORT);
	if (ctx->rx_queue_index >= MAX_QUEUES)
		return drop(port, DROP_QUEUE_RANGE);
	if (arrival->way == TO_OTHERS)
		return drop(port, DROP_OTHER_HOST);
	if (!stamp(ctx, port, class, lane))
		return drop(port, DROP_NO_METADATA);
	action = bpf_redirect_map(&xsks, key, XDP_DROP);
	count(port, action == XDP_REDIRECT ? reason : DROP_NO_SOCKET);
	return action;
}

/*
 * True for a frame to the unicast address of another host, which a switch has flooded. The host that
 * it is for judges the packet: it may be what another node of the cluster has just decrypted for it.
 */
static __always_inline int is_for_another_host(struct xdp_md *ctx, const struct arrival *arrival)
{
	const struct ethernet *eth = (void *)(long)ctx->data;

	/* The address of an unknown port is not known either. */
	return arrival->way == TO_OTHERS && arrival->port->index < MAX_PORTS &&
	       (void *)(eth + 1) <= (void *)(long)ctx->data_end && !(eth->dst[0] & 1);
}

static __always_inline int act(struct xdp_md *ctx, const struct arrival *arrival, __u32 reason)
{
	if (reason < WORKER_PROTECT)
		return pass(ctx, arrival, reason);
	if (reason < DROP_NO_SOCKET)
		return to_worker(ctx, arrival, reason, class_of(reason), 0);
	if (reason >= REASON_IN_TURN)
		return to_worker(ctx, arrival, WORKER_PROTECT, CLASS_PROTECT_IN_TURN, reason);
	if (reason == DROP_CLEAR_INBOUND) {
		if (is_for_another_host(ctx, arrival))
			return drop(arrival->port, DROP_OTHER_HOST);
		keep_head(ctx, arrival->port->index);
	}
	return drop(arrival->port, reason);
}

#endif
