/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* How a frame arrived: by which port, to which MAC address, and whether a cluster decides on it. */
#ifndef TESTUDO_ARRIVAL_H
#define TESTUDO_ARRIVAL_H

#include "headers.h"
#include "maps.h"

enum way {
	/*
	 * The kernel would not forward a frame that is not for this port's own address: a switch
	 * flooded it, or it is a broadcast. Forwarding it here would duplicate it.
	 */
	TO_OTHERS,
	TO_PORT,
	TO_CLUSTER, /* all nodes get it */
};

struct arrival {
	const struct port *port;
	const struct cluster *cluster; /* NULL without a cluster */
	__u8 way;                      /* enum way */
};

static __always_inline int is_to(const struct ethernet *eth, const __u8 mac[6])
{
	__u32 first[2];
	__u16 last[2];

	__builtin_memcpy(&first[0], eth->dst, sizeof(first[0]));
	__builtin_memcpy(&first[1], mac, sizeof(first[1]));
	__builtin_memcpy(&last[0], eth->dst + sizeof(first[0]), sizeof(last[0]));
	__builtin_memcpy(&last[1], mac + sizeof(first[0]), sizeof(last[1]));
	return first[0] == first[1] && last[0] == last[1];
}

/*
 * Returns enum way. A function that the kernel verifies once. Inlined, each way would be one more
 * state in which it verifies all that follows, and loading the filter would take half as long again.
 */
__noinline int way_of(struct xdp_md *ctx, const struct port *port, int clustered)
{
	const struct ethernet *eth = (void *)(long)ctx->data;

	if (!port || (void *)(eth + 1) > (void *)(long)ctx->data_end)
		return TO_OTHERS;
	if (is_to(eth, port->mac))
		return TO_PORT;
	if (clustered && (port->flags & PORT_FLOODED) && is_to(eth, port->cluster_mac))
		return TO_CLUSTER;
	return TO_OTHERS;
}

/* The one entry of its map; NULL never occurs, but the kernel does not know that. */
static __always_inline const struct cluster *find_cluster(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&cluster, &first);
}

#endif
