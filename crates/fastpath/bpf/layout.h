/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What the filter and the daemon have to agree on. src/filter/layout.rs says the same in Rust; a test there compares
 * the two. Pinned maps outlive the daemon: raise LAYOUT_VERSION with every change of a map or of what a value means.
 */
#ifndef TESTUDO_LAYOUT_H
#define TESTUDO_LAYOUT_H

#include <linux/types.h>

#define LAYOUT_VERSION 1

#define MAX_PORTS 64
#define MAX_QUEUES 64
#define MAX_REASONS 64
#define MAX_ADDRESSES 1024
#define MAX_PREFIXES 65536
#define MAX_FRAGMENTS 8192

/* Whose maps these are. Interface numbers mean nothing outside the network namespace, known here by its cookie. */
struct layout {
	__u32 version;
	__u32 zero;
	__u64 netns;
};

/* Stamped directly before a packet that goes to a worker. */
#define STAMP_MAGIC 0x54

#define CLASS_PROTECT 1
#define CLASS_ESP 2
#define CLASS_ESP_IN_UDP 3

struct stamp {
	__u8 magic;
	__u8 class;
	__u16 port; /* in the machine's byte order */
};

/* Clear packets from a protected prefix are discarded on this port. */
#define PORT_CHECK_SOURCE 1

struct port {
	__u16 index;
	__u16 flags;
	__u8 mac[6];
	__u8 zero[2];
};

/* What a prefix in the tries asks for. Neither: an exception inside a larger prefix. */
#define PREFIX_PROTECT_TO 1
#define PREFIX_REFUSE_FROM 2
/* The prefix is here only because of one around it. A note of the daemon's to its successor. */
#define PREFIX_WITHIN 4

struct address4 {
	__u8 octets[4];
};

struct address6 {
	__u8 octets[16];
};

struct prefix4 {
	__u32 length;
	struct address4 addr;
};

struct prefix6 {
	__u32 length;
	struct address6 addr;
};

/* A datagram some of whose fragments were dropped. IPv4 addresses fill the first four octets. */
struct datagram {
	struct address6 src;
	struct address6 dst;
	__u32 id;
	__u8 proto; /* 0 in IPv6, where later fragments need not name the upper layer */
	__u8 zero[3];
};

#endif
