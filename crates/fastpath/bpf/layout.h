/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The layout shared by the filter and the daemon. src/filter/layout.rs has the same in Rust; a test
 * there compares the two. Pinned maps outlive the daemon: increase LAYOUT_VERSION with every change
 * of a map or of the meaning of a value. A new map, or a new flag, that an older filter does without
 * needs no new version.
 */
#ifndef TESTUDO_LAYOUT_H
#define TESTUDO_LAYOUT_H

#include <linux/types.h>

#define LAYOUT_VERSION 11

#define MAX_PORTS 64
#define LOW_PORTS 4096
#define MAX_QUEUES 64
#define MAX_REASONS 64
#define MAX_ADDRESSES 1024
#define LOCAL_SLOTS 256
#define MAX_PREFIXES 65536
#define MAX_FRAGMENTS 8192
#define MAX_SEEN 262144
#define MAX_DROPPED 1024
#define HEAD_OCTETS 64
#define SHARDS 256
#define TURN_QUEUES 16
#define SESSION_SLOTS 8192

/*
 * The owner of these maps. Interface numbers are only valid in the network namespace, identified by
 * its cookie.
 */
struct layout {
	__u32 version;
	__u32 zero;
	__u64 netns;
};

/* The stamp, directly before a packet that goes to a worker. */
#define STAMP_MAGIC 0x54

#define CLASS_PROTECT 1
#define CLASS_ESP 2
#define CLASS_ESP_IN_UDP 3
#define CLASS_PROTECT_FLOODED 4
#define CLASS_CLEAR 5
#define CLASS_PROTECT_IN_TURN 6

struct stamp {
	__u8 magic;
	__u8 class;
	__u8 port;
	__u8 lane; /* with CLASS_PROTECT_IN_TURN: a worker cannot find it again */
};

/* Clear packets from a protected prefix are discarded on this port. */
#define PORT_CHECK_SOURCE 1
/* Frames to the cluster's MAC address are for this port too. */
#define PORT_FLOODED 2
/* Set for every port: an array has entries for interfaces that are none, too. */
#define PORT_KNOWN 4

struct port {
	__u16 index;
	__u16 flags;
	__u8 mac[6];
	__u8 cluster_mac[6];
};

/* Flags of a prefix in the tries. Neither of the two: an exception inside a larger prefix. */
#define PREFIX_PROTECT_TO 1
#define PREFIX_REFUSE_FROM 2
/* The prefix is here only because of one around it. Written for the next daemon. */
#define PREFIX_WITHIN 4
/*
 * All of its packets belong to one shard: the one in the second octet. Without this flag every
 * node's worker gets them.
 */
#define PREFIX_HOMED 8
/*
 * Clear packets from here go to a worker, which applies the policies to both addresses and the
 * ports.
 */
#define PREFIX_JUDGE_FROM 16
/*
 * Only policies for everything protect the prefix: none of them covers both it and an address that
 * is LOCAL_UNSELECTED.
 */
#define PREFIX_OPEN_TO_HOST 32
/*
 * Any host in the prefix may be a peer, one on a link of ours too. A note of the daemon's to its
 * successor.
 */
#define PREFIX_FOR_ANYBODY 64
/*
 * Only with PREFIX_HOMED: the packets are dealt out to all shards, each session or each packet by
 * itself. The second octet then names the shard whose row clock counts them.
 */
#define PREFIX_SPREAD_SESSION 128
#define PREFIX_SPREAD_PACKET 65536
/* Only with one of the two: lanes take turns, or those with few octets are taken. */
#define PREFIX_ROUND_ROBIN 131072
#define PREFIX_SHORTEST_QUEUE 262144
#define PREFIX_SHARD_SHIFT 8

/* Kinds of local addresses: any, and one that all nodes have. */
#define LOCAL_ADDRESS 1
#define LOCAL_VIP 2
/* No policy for everything has the address on its local side. */
#define LOCAL_UNSELECTED 4
/* In a slot only: it does not answer, the hash does. */
#define LOCAL_ASK_HASH 8

#define CLUSTER_ON 1
#define CLUSTER_DEFAULT_HOST 2
/* Some SPI is SEEN_SPREAD. */
#define CLUSTER_SPREAD 4
/* Each packet comes to one node alone. */
#define CLUSTER_ROUTED 8
/* Some sources are dropped. Also of a lone gateway, whose entry has no other flag. */
#define CLUSTER_DROPS_SOURCES 16
/* Lanes take turns, by packet and by session: all nodes know how. */
#define CLUSTER_IN_TURN 32
#define CLUSTER_SESSIONS_IN_TURN 64

/*
 * What a node keeps of the packets that all nodes get; with CLUSTER_ROUTED, it keeps all. Written
 * as a whole; a packet depends on one bit of each set, so it meets the old table or the new one, in
 * whatever order the octets are written.
 */
struct cluster {
	__u64 packets[4]; /* shards whose packets it carries, shard 0 first */
	__u64 ike[4];     /* shards whose IKE it speaks */
	__u64 held[4];    /* shards that are about to come here: the worker holds their packets */
	__u64 key[2];     /* for what has no home of its own */
	__u64 deadline;   /* nanoseconds of CLOCK_BOOTTIME: from then on it keeps nothing */
	__u32 flags;
	__u32 zero;
};

/* The packets of the SPI are dealt out to all shards by their numbers. */
#define SEEN_SPREAD 1

struct seen {
	__u64 number; /* the highest that was seen, counted on beyond 32 bits */
	__u32 flags;
	__u32 zero;
};

/* What was counted for the spread prefixes of one shard. */
struct turn {
	__u32 next;
	__u32 base; /* the first lane of the first queue; the lowest octet counts */
	__u32 queues[TURN_QUEUES];
	__u32 mark; /* what the last mark has shown */
};

/* The octets that sessions of the spread prefixes of one shard have sent in each lane since a mark. */
struct lane_queues {
	__u32 octets[SHARDS];
};

/*
 * A word of `sessions`: the tag of the session that has the slot in the upper half, its lane in the
 * lowest octet. 0 if no session has it.
 */
#define SESSION_TAKEN 0x100
/* Set with each packet; the daemon removes it. */
#define SESSION_SEEN 0x200
/* Set with the first packet, so that the daemon knows what is new. */
#define SESSION_NEW 0x800

/* The beginning of a packet, from the IP header on. */
struct clear_head {
	__u32 length; /* of the whole packet; 0: there is none */
	__u8 octets[HEAD_OCTETS];
};

struct address4 {
	union {
		__u8 octets[4];
		__u32 word;
	};
};

struct address6 {
	union {
		__u8 octets[16];
		__u32 words[4];
	};
};

struct prefix4 {
	__u32 length;
	struct address4 addr;
};

struct prefix6 {
	__u32 length;
	struct address6 addr;
};

/* What is local of all addresses that have this slot: one of them, or none if there are no flags. */
struct slot4 {
	struct address4 addr;
	__u32 flags; /* LOCAL_ flags */
};

struct slot6 {
	struct address6 addr;
	__u32 flags;
};

/* A datagram whose first fragment is for a worker. IPv4 addresses fill the first four octets. */
struct datagram {
	struct address6 src;
	struct address6 dst;
	__u32 id;
	__u8 proto; /* 0 in IPv6, where later fragments need not name the upper layer */
	__u8 zero[3];
};

#endif
