/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* From a reason to what is done with the packet, and to its count. */
#ifndef TESTUDO_VERDICT_H
#define TESTUDO_VERDICT_H

#include "headers.h"
#include "maps.h"
#include "reasons.h"

static __always_inline void count(const struct port *port, __u32 reason)
{
	__u32 key = port->index * MAX_REASONS + reason;
	__u64 *counter = bpf_map_lookup_elem(&counters, &key);

	if (counter)
		*counter += 1;
}

static __always_inline int drop(const struct port *port, __u32 reason)
{
	count(port, reason);
	return XDP_DROP;
}

static __always_inline int pass(const struct port *port, __u32 reason)
{
	count(port, reason);
	return XDP_PASS;
}

static __always_inline __u8 class_of(__u32 reason)
{
	if (reason == WORKER_ESP)
		return CLASS_ESP;
	return reason == WORKER_ESP_IN_UDP ? CLASS_ESP_IN_UDP : CLASS_PROTECT;
}

/*
 * The kernel would not forward a frame that was not for this port's own address: it was flooded by a switch, or is a
 * broadcast. Forwarding it here would double it.
 */
static __always_inline int is_for_port(struct xdp_md *ctx, const struct port *port)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	__u8 difference = 0;

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 0;
	for (unsigned int i = 0; i < sizeof(eth->dst); i++)
		difference |= eth->dst[i] ^ port->mac[i];
	return !difference;
}

/* Writes the stamp into the four octets before the packet, where the worker expects it. */
static __always_inline int stamp(struct xdp_md *ctx, const struct port *port, __u8 class)
{
	struct stamp *stamp;

	/* A driver that puts something there itself would move the stamp. */
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
	return 1;
}

/* Without a worker's socket the packet is dropped: the answer to a dead daemon. */
static __always_inline int to_worker(struct xdp_md *ctx, const struct port *port, __u32 reason)
{
	__u32 key = port->index * MAX_QUEUES + ctx->rx_queue_index;
	int action;

	if (port->index >= MAX_PORTS)
		return drop(port, DROP_UNKNOWN_PORT);
	if (ctx->rx_queue_index >= MAX_QUEUES)
		return drop(port, DROP_QUEUE_RANGE);
	if (!is_for_port(ctx, port))
		return drop(port, DROP_OTHER_HOST);
	if (!stamp(ctx, port, class_of(reason)))
		return drop(port, DROP_NO_METADATA);
	action = bpf_redirect_map(&xsks, key, XDP_DROP);
	count(port, action == XDP_REDIRECT ? reason : DROP_NO_SOCKET);
	return action;
}

static __always_inline int act(struct xdp_md *ctx, const struct port *port, __u32 reason)
{
	if (reason < WORKER_PROTECT)
		return pass(port, reason);
	if (reason < DROP_NO_SOCKET)
		return to_worker(ctx, port, reason);
	return drop(port, reason);
}

#endif
