/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Packets to one of the gateway's own addresses: IKE for the kernel, ESP and AH for a worker. Each
 * function returns a reason, or UNDECIDED for an ordinary packet.
 */
#ifndef TESTUDO_LOCAL_H
#define TESTUDO_LOCAL_H

#include "fragments.h"
#include "packet.h"

#define UNDECIDED REASONS

/* UDP to port 4500: IKE after a marker of four zero octets, a keepalive, or ESP (RFC 3948 2). */
static __always_inline int classify_natt(void *payload, __u32 length, void *end)
{
	const __u8 *octet = payload;
	const __be32 *marker = payload;

	if (length == 0)
		return DROP_NATT_SHORT;
	if ((void *)(octet + 1) > end)
		return DROP_NOT_LINEAR;
	if (length == 1 && *octet == 0xff)
		return DROP_KEEPALIVE;
	if (length < sizeof(*marker))
		return DROP_NATT_SHORT;
	if ((void *)(marker + 1) > end)
		return DROP_NOT_LINEAR;
	if (*marker == 0)
		return PASS_IKE;
	return length < sizeof(struct esp) ? DROP_NATT_SHORT : WORKER_ESP_IN_UDP;
}

static __always_inline int classify_udp(const struct payload *payload, void *start, void *end)
{
	const struct udp *udp = start;
	__u32 length;

	if (payload->length < sizeof(*udp))
		return DROP_MALFORMED;
	if ((void *)(udp + 1) > end)
		return DROP_NOT_LINEAR;
	length = bpf_ntohs(udp->length);
	if (length < sizeof(*udp) || length > payload->length)
		return DROP_MALFORMED;
	if (udp->dst == bpf_htons(UDP_PORT_IKE))
		return PASS_IKE;
	if (udp->dst == bpf_htons(UDP_PORT_NATT))
		return classify_natt((void *)(udp + 1), length - sizeof(*udp), end);
	return UNDECIDED;
}

/*
 * The first fragment of a UDP datagram: decides by its ports, and to port 4500 by the octets after
 * them. The kernel reassembles IKE, like everything else for the kernel; a worker reassembles ESP.
 */
static __always_inline int classify_udp_start(const struct payload *payload,
					      const struct datagram *datagram, void *start,
					      void *end)
{
	const struct udp *udp = start;
	const __be32 *marker = (void *)(udp + 1);

	if (payload->length < offsetof(struct udp, length))
		return DROP_FRAGMENT_SHORT;
	if ((void *)&udp->length > end)
		return DROP_NOT_LINEAR;
	if (udp->dst == bpf_htons(UDP_PORT_NATT)) {
		if (payload->length < sizeof(*udp) + sizeof(*marker))
			return DROP_FRAGMENT_SHORT;
		if ((void *)(marker + 1) > end)
			return DROP_NOT_LINEAR;
		if (*marker) {
			remember_datagram(datagram);
			return WORKER_FRAGMENT;
		}
	}
	forget_datagram(datagram);
	if (udp->dst == bpf_htons(UDP_PORT_IKE) || udp->dst == bpf_htons(UDP_PORT_NATT))
		return PASS_IKE;
	return UNDECIDED;
}

/*
 * Fragments of packets for a worker must not reach the kernel, which would reassemble and process
 * them without the worker.
 */
static __always_inline int classify_fragment(const struct payload *payload,
					     const struct datagram *datagram, void *start,
					     void *end)
{
	if (payload->proto == PROTO_ESP || payload->proto == PROTO_AH) {
		if (payload->fragment == FIRST_FRAGMENT)
			remember_datagram(datagram);
		return WORKER_FRAGMENT;
	}
	if (payload->fragment == LATER_FRAGMENT)
		return is_remembered(datagram) ? WORKER_FRAGMENT : UNDECIDED;
	if (payload->proto == PROTO_UDP)
		return classify_udp_start(payload, datagram, start, end);
	return UNDECIDED;
}

/*
 * ICMP errors report path MTUs and come from any router on the path, whose address may be in a
 * protected prefix. They go to the kernel, which checks the packet quoted in them (RFC 4301 6).
 */
static __always_inline int classify_icmp(const struct payload *payload, void *start, void *end)
{
	const __u8 *type = start;
	int error;

	if (payload->length < 8)
		return DROP_MALFORMED;
	if ((void *)(type + 1) > end)
		return DROP_NOT_LINEAR;
	if (payload->proto == PROTO_ICMP)
		error = *type == 3 || *type == 11 || *type == 12;
	else
		error = *type >= 1 && *type <= 4;
	return error ? PASS_ICMP_ERROR : UNDECIDED;
}

/* `icmp` is the protocol number of the family's ICMP. */
static __always_inline int classify_local(const struct xdp_md *ctx, const struct payload *payload,
					  const struct datagram *datagram, __u8 icmp)
{
	void *start = octets_at(ctx, payload->offset), *end = (void *)(long)ctx->data_end;

	if (payload->fragment != WHOLE)
		return classify_fragment(payload, datagram, start, end);
	if (payload->proto == PROTO_ESP)
		return payload->length < sizeof(struct esp) ? DROP_ESP_SHORT : WORKER_ESP;
	if (payload->proto == PROTO_UDP)
		return classify_udp(payload, start, end);
	if (payload->proto == PROTO_AH)
		return payload->length < sizeof(struct ah) ? DROP_AH_SHORT : WORKER_AH;
	if (payload->proto == icmp)
		return classify_icmp(payload, start, end);
	return UNDECIDED;
}

#endif
