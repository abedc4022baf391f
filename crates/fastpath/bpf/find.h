/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Finds ports and the gateway's own addresses: in an array if it can answer, otherwise in the hash.
 */
#ifndef TESTUDO_FIND_H
#define TESTUDO_FIND_H

#include "maps.h"

/* The port with this interface index; NULL if there is none. */
static __always_inline const struct port *find_port(__u32 ifindex)
{
	const struct port *port = bpf_map_lookup_elem(&low_ports, &ifindex);

	if (!port)
		return bpf_map_lookup_elem(&ports, &ifindex);
	return port->flags & PORT_KNOWN ? port : 0;
}

/* The slot of an address, whose words are XORed. src/filter/layout.rs has the same. */
static __always_inline __u32 slot_of(__u32 words)
{
	words ^= words >> 16;
	return (words ^ words >> 8) & (LOCAL_SLOTS - 1);
}

/* Flags of a local address; 0 if it is not local. */
static __always_inline __u32 local_flags4(const struct address4 *addr)
{
	__u32 word, slot, in_slot, *flags;
	const struct slot4 *found;

	__builtin_memcpy(&word, addr, sizeof(word));
	slot = slot_of(word);
	found = bpf_map_lookup_elem(&slots4, &slot);
	if (found && !(found->flags & LOCAL_ASK_HASH)) {
		__builtin_memcpy(&in_slot, &found->addr, sizeof(in_slot));
		return in_slot == word ? found->flags : 0;
	}
	flags = bpf_map_lookup_elem(&local4, addr);
	return flags ? *flags : 0;
}

static __always_inline __u32 local_flags6(const struct address6 *addr)
{
	__u32 words[4], in_slot[4], slot, *flags;
	const struct slot6 *found;

	__builtin_memcpy(words, addr, sizeof(words));
	slot = slot_of(words[0] ^ words[1] ^ words[2] ^ words[3]);
	found = bpf_map_lookup_elem(&slots6, &slot);
	if (found && !(found->flags & LOCAL_ASK_HASH)) {
		__builtin_memcpy(in_slot, &found->addr, sizeof(in_slot));
		return words[0] == in_slot[0] && words[1] == in_slot[1] &&
				       words[2] == in_slot[2] && words[3] == in_slot[3] ?
			       found->flags :
			       0;
	}
	flags = bpf_map_lookup_elem(&local6, addr);
	return flags ? *flags : 0;
}

#endif
