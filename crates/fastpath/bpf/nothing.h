/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What a test run costs without the filter. The question mark keeps libbpf from loading it with the
 * filter.
 */
#ifndef TESTUDO_NOTHING_H
#define TESTUDO_NOTHING_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("?xdp.frags")
int testudo_nothing(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_DROP;
}

#endif
