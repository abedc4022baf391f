/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Records the packets whose first fragment went to a worker, so that later fragments follow it:
 * those of a datagram to port 4500 have no port, and those of ESP or AH after extension headers may
 * name one of these instead. Fragments of entries evicted too early, or arriving before the first
 * one, go to the kernel and expire there.
 */
#ifndef TESTUDO_FRAGMENTS_H
#define TESTUDO_FRAGMENTS_H

#include "maps.h"

/*
 * A receiver gives up after 60 seconds (RFC 8200 4.5); after that the identification belongs to
 * another datagram.
 */
#define REASSEMBLY_NS 60000000000ULL

static __always_inline void remember_datagram(const struct datagram *datagram)
{
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&fragments, datagram, &now, BPF_ANY);
}

static __always_inline void forget_datagram(const struct datagram *datagram)
{
	bpf_map_delete_elem(&fragments, datagram);
}

static __always_inline int is_remembered(const struct datagram *datagram)
{
	const __u64 *since = bpf_map_lookup_elem(&fragments, datagram);

	return since && bpf_ktime_get_ns() - *since < REASSEMBLY_NS;
}

#endif
