/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Sources that an alarm has shut out for a time. */
#ifndef TESTUDO_SOURCE_H
#define TESTUDO_SOURCE_H

#include <bpf/bpf_endian.h>

#include "headers.h"
#include "maps.h"

/*
 * True if packets from the source of this frame are dropped at present. A function that the kernel
 * verifies once, and that no packet enters while no source is dropped.
 */
__noinline int is_from_dropped_source(struct xdp_md *ctx)
{
	const struct ethernet *eth = (void *)(long)ctx->data;
	const void *end = (void *)(long)ctx->data_end;
	struct address6 source = {};
	const __u64 *until;

	if ((void *)(eth + 1) > end)
		return 0;
	if (eth->type == bpf_htons(ETHERTYPE_IPV4)) {
		const struct ipv4 *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) > end)
			return 0;
		source.words[2] = bpf_htonl(0xffff);
		source.words[3] = ip->src.word;
	} else if (eth->type == bpf_htons(ETHERTYPE_IPV6)) {
		const struct ipv6 *ip = (void *)(eth + 1);

		if ((void *)(ip + 1) > end)
			return 0;
		source = ip->src;
		/* No host has such an address, and it is the key of another one's. */
		if (!source.words[0] && !source.words[1] && source.words[2] == bpf_htonl(0xffff))
			return 0;
	} else {
		return 0;
	}
	until = bpf_map_lookup_elem(&dropped, &source);
	return until && bpf_ktime_get_boot_ns() < *until;
}

#endif
