/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Runs after the XDP filter, on the kernel's packets: marks a frame to the port's own address as
 * being for this host.
 *
 * Most drivers create the kernel's packet after the filter. A veth creates it before, and has
 * already classified a frame to the cluster's MAC address as another host's or a group's; it does
 * not check again. The kernel forwards neither.
 */
#ifndef TESTUDO_CLAIM_H
#define TESTUDO_CLAIM_H

#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

#include "arrival.h"
#include "find.h"

SEC("tcx/ingress")
int testudo_claim(struct __sk_buff *skb)
{
	const struct port *port = find_port(skb->ifindex);
	const struct ethernet *eth = (void *)(long)skb->data;
	const void *end = (void *)(long)skb->data_end;

	if (!port || skb->pkt_type == PACKET_HOST || (void *)(eth + 1) > end)
		return TC_ACT_UNSPEC;
	if (is_to(eth, port->mac))
		bpf_skb_change_type(skb, PACKET_HOST);
	return TC_ACT_UNSPEC;
}

#endif
