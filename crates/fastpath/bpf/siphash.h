/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * SipHash over whole words of 64 bits; crates/base/src/siphash.rs computes the same over octets.
 */
#ifndef TESTUDO_SIPHASH_H
#define TESTUDO_SIPHASH_H

#include <linux/types.h>

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define FROM_LITTLE_ENDIAN(word) (word)
#else
#define FROM_LITTLE_ENDIAN(word) __builtin_bswap64(word)
#endif

struct siphash {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 rotate_left(__u64 word, int bits)
{
	return word << bits | word >> (64 - bits);
}

static __always_inline void siphash_round(struct siphash *s)
{
	s->v0 += s->v1;
	s->v1 = rotate_left(s->v1, 13) ^ s->v0;
	s->v0 = rotate_left(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = rotate_left(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = rotate_left(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = rotate_left(s->v1, 17) ^ s->v2;
	s->v2 = rotate_left(s->v2, 32);
}

static __always_inline void siphash_absorb(struct siphash *s, __u64 word, int rounds)
{
	s->v3 ^= word;
#pragma unroll
	for (int i = 0; i < rounds; i++)
		siphash_round(s);
	s->v0 ^= word;
}

/*
 * SipHash-c-d of `count` words, each in the packet's byte order, and of one more if `more` is 1. The
 * other three numbers are constants.
 */
static __always_inline __u64 siphash_rounds(const __u64 key[2], const __u64 *words, int count,
					    int more, int c, int d)
{
	struct siphash s = {
		.v0 = key[0] ^ 0x736f6d6570736575ULL,
		.v1 = key[1] ^ 0x646f72616e646f6dULL,
		.v2 = key[0] ^ 0x6c7967656e657261ULL,
		.v3 = key[1] ^ 0x7465646279746573ULL,
	};

#pragma unroll
	for (int i = 0; i < count; i++)
		siphash_absorb(&s, FROM_LITTLE_ENDIAN(words[i]), c);
	if (more)
		siphash_absorb(&s, FROM_LITTLE_ENDIAN(words[count]), c);
	siphash_absorb(&s, (__u64)(count + more) * 8 << 56, c);
	s.v2 ^= 0xff;
#pragma unroll
	for (int i = 0; i < d; i++)
		siphash_round(&s);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

static __always_inline __u64 siphash(const __u64 key[2], const __u64 *words, int count)
{
	return siphash_rounds(key, words, count, 0, 2, 4);
}

/* For lanes: every node computes it for every clear packet of a spread tunnel. */
static __always_inline __u64 short_siphash(const __u64 key[2], const __u64 *words, int count,
					   int more)
{
	return siphash_rounds(key, words, count, more, 1, 3);
}

#endif
