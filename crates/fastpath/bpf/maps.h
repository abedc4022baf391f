/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* The maps. All ports share them, and all are pinned: they are the policy while no daemon runs. */
#ifndef TESTUDO_MAPS_H
#define TESTUDO_MAPS_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "layout.h"

/* Written when the other maps are complete; not read by the filter. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct layout);
} layout SEC(".maps");

/*
 * By interface index. Nearly all interfaces are in the array, too, which is read in a few
 * nanoseconds. A hash takes up to thirty.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOW_PORTS);
	__type(key, __u32);
	__type(value, struct port);
} low_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PORTS);
	__type(key, __u32);
	__type(value, struct port);
} ports SEC(".maps");

/* The gateway's own addresses for IKE and ESP. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ADDRESSES);
	__type(key, struct address4);
	__type(value, __u32); /* LOCAL_ flags */
} local4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ADDRESSES);
	__type(key, struct address6);
	__type(value, __u32);
} local6 SEC(".maps");

/* The same by slot_of(): they answer for nearly all packets, most of which are to none of these. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOCAL_SLOTS);
	__type(key, __u32);
	__type(value, struct slot4);
} slots4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LOCAL_SLOTS);
	__type(key, __u32);
	__type(value, struct slot6);
} slots6 SEC(".maps");

/* Protected prefixes and the exceptions inside them; values are PREFIX_ flags. */
struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix4);
	__type(value, __u32);
} prefixes4 SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, MAX_PREFIXES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct prefix6);
	__type(value, __u32);
} prefixes6 SEC(".maps");

/* One entry. Without CLUSTER_ON there is no cluster. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cluster);
} cluster SEC(".maps");

/*
 * The highest sequence number seen to a VIP, by SPI (both in the machine's byte order), and which
 * SPIs are spread.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_SEEN);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct seen);
} seen SEC(".maps");

/*
 * The row clocks: by shard, the clear packets for spread prefixes of that shard that came here.
 * The daemon maps them into its memory.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHARDS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} clocks SEC(".maps");

/* By shard: whose turn it is among the lanes of its spread prefixes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHARDS);
	__type(key, __u32);
	__type(value, struct turn);
} turns SEC(".maps");

/* By shard: which of its lanes a new session takes, if sessions go by octets. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SHARDS);
	__type(key, __u32);
	__type(value, struct lane_queues);
} lane_queues SEC(".maps");

/*
 * By slot: the session that has it, if sessions take turns. The daemon maps this into its memory,
 * and writes it too.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SESSION_SLOTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} sessions SEC(".maps");

/*
 * Datagrams to port 4500 whose first fragment is for a worker, with its time (nanoseconds since
 * boot).
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_FRAGMENTS);
	__type(key, struct datagram);
	__type(value, __u64);
} fragments SEC(".maps");

/*
 * Sources whose packets are dropped because of an alarm, and until when (nanoseconds of
 * CLOCK_BOOTTIME). IPv4 addresses are mapped (::ffff:0:0/96).
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_DROPPED);
	__type(key, struct address6);
	__type(value, __u64);
} dropped SEC(".maps");

/*
 * By port: the first clear packet that was dropped because it must be protected, until the daemon
 * has read it and empties the entry.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_PORTS + 1);
	__type(key, __u32);
	__type(value, struct clear_head);
} clear_heads SEC(".maps");

/* By port index * MAX_QUEUES + queue. An entry disappears with its socket. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_PORTS * MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

/* By port index * MAX_REASONS + reason; unknown ports count as port MAX_PORTS. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, (MAX_PORTS + 1) * MAX_REASONS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

#endif
