/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Packets between other hosts, and ordinary ones to the gateway, by their addresses only: no inner
 * header can change the verdict, so nothing can hide in extension headers or fragments. If a policy
 * depends on more than a prefix, a worker applies it.
 */
#ifndef TESTUDO_POLICY_H
#define TESTUDO_POLICY_H

#include "maps.h"
#include "reasons.h"

/* PREFIX_ flags of the longest match; none if there is no match. */
static __always_inline __u32 flags4(const struct address4 *addr)
{
	struct prefix4 key = { .length = 32, .addr = *addr };
	const __u32 *flags = bpf_map_lookup_elem(&prefixes4, &key);

	return flags ? *flags : 0;
}

static __always_inline __u32 flags6(const struct address6 *addr)
{
	struct prefix6 key = { .length = 128, .addr = *addr };
	const __u32 *flags = bpf_map_lookup_elem(&prefixes6, &key);

	return flags ? *flags : 0;
}

/*
 * `from` are the flags of the source, `to` those of the destination. A clear packet from a prefix
 * whose traffic must be protected is discarded (RFC 4301 5.2): it is forged, or was routed wrongly.
 * A packet from any other prefix may be on its way into a tunnel: the outbound policies decide.
 */
static __always_inline int classify_transit(const struct port *port, __u32 from, __u32 to)
{
	if (port->flags & PORT_CHECK_SOURCE) {
		if ((from & PREFIX_JUDGE_FROM) &&
		    ((from & PREFIX_REFUSE_FROM) || !(to & PREFIX_PROTECT_TO)))
			return WORKER_CLEAR;
		if (from & PREFIX_REFUSE_FROM)
			return DROP_CLEAR_INBOUND;
	}
	return to & PREFIX_PROTECT_TO ? WORKER_PROTECT : PASS_OTHER;
}

/*
 * `from` are the flags of the source, `local` those of the gateway's address. Packets that a policy
 * selects, by both of its sides, are dropped. The kernel gets the others through the port they came
 * in by, where its own firewall sees them.
 */
static __always_inline int classify_ordinary(const struct port *port, __u32 from, __u32 local)
{
	if (port->flags & PORT_CHECK_SOURCE) {
		if ((from & PREFIX_OPEN_TO_HOST) && (local & LOCAL_UNSELECTED))
			return PASS_LOCAL;
		if (from & PREFIX_JUDGE_FROM)
			return WORKER_CLEAR;
		if (from & PREFIX_REFUSE_FROM)
			return DROP_CLEAR_INBOUND;
	}
	return PASS_LOCAL;
}

#endif
