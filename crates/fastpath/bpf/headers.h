/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Protocol headers and numbers that the filter reads; everything in network byte order.
 *
 * Only Ethernet's is packed: of a packed structure the compiler reads octet after octet, which costs
 * packets, and the verifier, several times as much. IP headers lie at odd multiples of two octets;
 * the kernels of x86-64 and arm64 let a program read words there.
 */
#ifndef TESTUDO_HEADERS_H
#define TESTUDO_HEADERS_H

#include "layout.h"

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100  /* IEEE 802.1Q */
#define ETHERTYPE_QINQ 0x88a8  /* IEEE 802.1ad */
#define VLAN_ID_MASK 0x0fff

#define PROTO_HOP_BY_HOP 0
#define PROTO_ICMP 1
#define PROTO_TCP 6
#define PROTO_UDP 17
#define PROTO_ROUTING 43
#define PROTO_FRAGMENT 44
#define PROTO_ESP 50
#define PROTO_AH 51
#define PROTO_ICMPV6 58
#define PROTO_DESTINATION 60
#define PROTO_SCTP 132

#define UDP_PORT_IKE 500
#define UDP_PORT_NATT 4500

#define IPV4_MORE_FRAGMENTS 0x2000
#define IPV4_OFFSET_MASK 0x1fff
#define IPV6_MORE_FRAGMENTS 0x0001
#define IPV6_OFFSET_MASK 0xfff8

struct ethernet {
	__u8 dst[6];
	__u8 src[6];
	__be16 type;
} __attribute__((packed));

struct vlan_tag {
	__be16 control;
	__be16 type;
};

struct ipv4 {
	__u8 version_length;
	__u8 tos;
	__be16 total_length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 proto;
	__be16 checksum;
	struct address4 src;
	struct address4 dst;
};

struct ipv6 {
	__u8 version_class;
	__u8 class_label[3];
	__be16 payload_length;
	__u8 next;
	__u8 hop_limit;
	struct address6 src;
	struct address6 dst;
};

/*
 * Hop-by-hop, routing and destination options begin in the same way; `segments_left` is the routing
 * header's (RFC 8200 4.4).
 */
struct extension {
	__u8 next;
	__u8 length; /* in 8 octets, without the first 8 */
	__u8 type;
	__u8 segments_left;
	__u8 rest[4];
};

struct fragment6 {
	__u8 next;
	__u8 zero;
	__be16 offset;
	__be32 id;
};

/* SPI and sequence number (RFC 4303 2). */
struct esp {
	__be32 spi;
	__be32 number;
};

/* AH (RFC 4302 2): the fields before the same two; the ICV follows them. */
struct ah {
	__u8 next;
	__u8 length;
	__be16 zero;
	struct esp numbers;
};

#define IKE_INITIATOR 0x08 /* the sender initiated the IKE SA */

/* RFC 7296 3.1 */
struct ike {
	union {
		__u8 initiator[8];
		__u64 initiator_word;
	};
	union {
		__u8 responder[8];
		__u64 responder_word;
	};
	__u8 next;
	__u8 version;
	__u8 exchange;
	__u8 flags;
	__be32 id;
	__be32 length;
} __attribute__((packed, aligned(4)));

struct udp {
	__be16 src;
	__be16 dst;
	__be16 length;
	__be16 checksum;
};

_Static_assert(sizeof(struct ethernet) == 14 && sizeof(struct vlan_tag) == 4, "no padding");
_Static_assert(sizeof(struct ipv4) == 20 && sizeof(struct ipv6) == 40, "no padding");
_Static_assert(sizeof(struct extension) == 8 && sizeof(struct fragment6) == 8, "no padding");
_Static_assert(sizeof(struct esp) == 8 && sizeof(struct ah) == 12, "no padding");
_Static_assert(sizeof(struct ike) == 28 && sizeof(struct udp) == 8, "no padding");

#endif
