/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The reason of each decision: each packet counts for exactly one of these. The order is part of
 * the layout: pass, then worker, then drop. src/filter/reason.rs has the same list with a
 * description of each.
 */
#ifndef TESTUDO_REASONS_H
#define TESTUDO_REASONS_H

enum reason {
	/* to the kernel */
	PASS_NOT_IP,
	PASS_VLAN,
	PASS_MULTICAST,
	PASS_IKE,
	PASS_NEIGHBOUR_DISCOVERY,
	PASS_ICMP_ERROR,
	PASS_LOCAL,
	PASS_OTHER,
	/* to a worker */
	WORKER_PROTECT,
	WORKER_PROTECT_FLOODED,
	WORKER_ESP,
	WORKER_ESP_IN_UDP,
	WORKER_AH,
	WORKER_FRAGMENT,
	WORKER_CLEAR,
	/* dropped */
	DROP_NO_SOCKET,
	DROP_QUEUE_RANGE,
	DROP_UNKNOWN_PORT,
	DROP_NO_METADATA,
	DROP_OTHER_HOST,
	DROP_MALFORMED,
	DROP_NOT_LINEAR,
	DROP_KEEPALIVE,
	DROP_NATT_SHORT,
	DROP_ESP_SHORT,
	DROP_AH_SHORT,
	DROP_FRAGMENT_SHORT,
	DROP_EXTENSION_HEADERS,
	DROP_ROUTING_HEADER,
	DROP_CLEAR_INBOUND,
	DROP_OTHER_NODE,
	DROP_FENCED,
	DROP_SOURCE,
	REASONS,
};

/* WORKER_PROTECT, with the lane that it has taken in turn in the lowest octet. */
#define REASON_IN_TURN 0x10000

#endif
