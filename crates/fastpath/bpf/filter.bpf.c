// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * The XDP filter: every frame that a port receives goes to the kernel, to a worker, or is dropped,
 * and is counted.
 *
 * It fails closed. A worker's packets are redirected to its AF_XDP socket; without a socket the
 * redirect drops them. The program and its maps are pinned, so that this continues after the
 * daemon's death.
 */
#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "claim.h"
#include "classify.h"
#include "nothing.h"
#include "source.h"
#include "verdict.h"

/*
 * The kernel handles a frame with VLAN number 0 (a priority tag) like one without a tag, so it must
 * not bypass the filter: removes the tag. Returns 0 if that failed.
 */
static __always_inline int strip_priority_tag(struct xdp_md *ctx)
{
	struct ethernet *eth = (void *)(long)ctx->data;
	struct vlan_tag *tag = (void *)(eth + 1);
	struct ethernet untagged;

	if ((void *)(tag + 1) > (void *)(long)ctx->data_end)
		return 1;
	if (eth->type != bpf_htons(ETHERTYPE_VLAN) && eth->type != bpf_htons(ETHERTYPE_QINQ))
		return 1;
	if (tag->control & bpf_htons(VLAN_ID_MASK))
		return 1;
	untagged = *eth;
	untagged.type = tag->type;
	if (bpf_xdp_adjust_head(ctx, sizeof(*tag)))
		return 0;
	eth = (void *)(long)ctx->data;
	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return 0;
	*eth = untagged;
	return 1;
}

/* True if the tag after the Ethernet header has VLAN number 0, or is truncated. */
static __always_inline int is_priority_tag(struct ethernet *eth, void *end)
{
	struct vlan_tag *tag = (void *)(eth + 1);

	return (void *)(tag + 1) > end || !(tag->control & bpf_htons(VLAN_ID_MASK));
}

static __always_inline __u32 classify(struct xdp_md *ctx, const struct arrival *arrival)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *eth = (void *)(long)ctx->data;
	__u32 frame = bpf_xdp_get_buff_len(ctx) - sizeof(*eth);

	if ((void *)(eth + 1) > end)
		return DROP_MALFORMED;
	switch (eth->type) {
	case bpf_htons(ETHERTYPE_IPV4):
		return classify_ipv4(ctx, arrival, frame);
	case bpf_htons(ETHERTYPE_IPV6):
		return classify_ipv6(ctx, arrival, frame);
	case bpf_htons(ETHERTYPE_VLAN):
	case bpf_htons(ETHERTYPE_QINQ):
		/*
		 * The kernel would ignore a second priority tag like the first; nobody sends two.
		 */
		return is_priority_tag(eth, end) ? DROP_MALFORMED : PASS_VLAN;
	}
	return PASS_NOT_IP;
}

SEC("xdp.frags")
int testudo_filter(struct xdp_md *ctx)
{
	const struct port *found = find_port(ctx->ingress_ifindex);
	const struct cluster *node = find_cluster();
	struct port port = {};
	struct arrival arrival = {};
	__u32 reason;

	if (found) {
		port = *found;
	} else {
		/* Unknown to the daemon: it has no workers, and all checks are on. */
		port.index = MAX_PORTS;
		port.flags = PORT_CHECK_SOURCE;
	}
	if (!strip_priority_tag(ctx))
		return drop(&port, DROP_MALFORMED);
	arrival.port = &port;
	arrival.cluster = node && (node->flags & CLUSTER_ON) ? node : 0;
	arrival.way = way_of(ctx, &port, arrival.cluster != 0);
	reason = classify(ctx, &arrival);
	/* After it: in a cluster it records numbers and counts packets, whoever gets them. */
	if (node && (node->flags & CLUSTER_DROPS_SOURCES) && is_from_dropped_source(ctx))
		reason = DROP_SOURCE;
	return act(ctx, &arrival, reason);
}

/* The licence for the kernel, whose list has no entry for the choice above. */
char LICENSE[] SEC("license") = "GPL";
