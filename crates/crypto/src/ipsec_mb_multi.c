/*
 * Many packets at once: AES-CBC, AES-CCM and MACs are chains, so that one packet leaves most of the
 * processor idle. The library works on up to sixteen packets side by side. ipsec_mb/multi.rs sees
 * only pointers and lengths.
 */
#include <intel-ipsec-mb.h>
#include <stddef.h>
#include <stdint.h>

enum { MAX_BURST_JOBS = 64 };

/* Mirrored by `CipherJob` in multi.rs. */
struct testudo_imb_cipher_job {
        const void *keys;
        const uint8_t *iv;
        uint8_t *text;
        uint64_t len;
};

/* Mirrored by `HashJob` in multi.rs. */
struct testudo_imb_hash_job {
        const uint8_t *first;
        const uint8_t *second;
        const uint8_t *message;
        uint64_t len;
        uint8_t *icv;
};

/* Mirrored by `RawJob` in ccm.rs. */
struct testudo_imb_ccm_job {
        const void *keys;
        uint64_t key_len;
        const uint8_t *nonce;
        const uint8_t *aad;
        uint64_t aad_len;
        uint8_t *text;
        uint64_t len;
        uint8_t *icv;
        uint64_t icv_len;
};

/* Mirrored by `DES_SCHEDULE` in multi.rs. */
_Static_assert(IMB_DES_KEY_SCHED_SIZE == 128, "a schedule of DES is not as large as multi.rs says");

/* A manager for one thread, or NULL. */
IMB_MGR *testudo_imb_manager(void)
{
        IMB_MGR *mgr = alloc_mb_mgr(0);

        if (mgr != NULL)
                init_mb_mgr_auto(mgr, NULL);
        return mgr;
}

void testudo_imb_manager_free(IMB_MGR *mgr)
{
        free_mb_mgr(mgr);
}

/* AES-CBC by the burst. */
static int aes_cbc(IMB_MGR *mgr, const struct testudo_imb_cipher_job *jobs, uint32_t count,
                   uint32_t key_len, int encrypt)
{
        const IMB_CIPHER_DIRECTION direction = encrypt ? IMB_DIR_ENCRYPT : IMB_DIR_DECRYPT;
        IMB_JOB burst[MAX_BURST_JOBS];

        if (count > MAX_BURST_JOBS)
                return 0;
        for (uint32_t i = 0; i < count; i++)
                burst[i] = (IMB_JOB){
                        .enc_keys = jobs[i].keys,
                        .dec_keys = jobs[i].keys,
                        .key_len_in_bytes = key_len,
                        .src = jobs[i].text,
                        .dst = jobs[i].text,
                        .msg_len_to_cipher_in_bytes = jobs[i].len,
                        .iv = jobs[i].iv,
                        .iv_len_in_bytes = 16,
                        .cipher_mode = IMB_CIPHER_CBC,
                        .cipher_direction = direction,
                        .hash_alg = IMB_AUTH_NULL,
                };
        return IMB_SUBMIT_CIPHER_BURST_NOCHECK(mgr, burst, count, IMB_CIPHER_CBC, direction,
                                               (IMB_KEY_SIZE_BYTES) key_len) == count;
}

/* HMAC by the burst. */
static int hmac(IMB_MGR *mgr, const struct testudo_imb_hash_job *jobs, uint32_t count,
                uint32_t hash, uint32_t icv_len)
{
        const IMB_HASH_ALG algorithm = hash == 160   ? IMB_AUTH_HMAC_SHA_1
                                       : hash == 256 ? IMB_AUTH_HMAC_SHA_256
                                       : hash == 384 ? IMB_AUTH_HMAC_SHA_384
                                                     : IMB_AUTH_HMAC_SHA_512;
        IMB_JOB burst[MAX_BURST_JOBS];

        if (count > MAX_BURST_JOBS)
                return 0;
        for (uint32_t i = 0; i < count; i++)
                burst[i] = (IMB_JOB){
                        .src = jobs[i].message,
                        .msg_len_to_hash_in_bytes = jobs[i].len,
                        .auth_tag_output = jobs[i].icv,
                        .auth_tag_output_len_in_bytes = icv_len,
                        .u.HMAC._hashed_auth_key_xor_ipad = jobs[i].first,
                        .u.HMAC._hashed_auth_key_xor_opad = jobs[i].second,
                        .cipher_mode = IMB_CIPHER_NULL,
                        .hash_alg = algorithm,
                };
        return IMB_SUBMIT_HASH_BURST_NOCHECK(mgr, burst, count, algorithm) == count;
}

/* Takes back completed jobs, beginning with this one; returns their number. */
static uint32_t collect(IMB_MGR *mgr, const IMB_JOB *job)
{
        uint32_t done = 0;

        for (; job != NULL; job = IMB_GET_COMPLETED_JOB(mgr))
                done += job->status == IMB_STATUS_COMPLETED;
        return done;
}

/* Submits one job; returns the number of completed jobs. */
static uint32_t submit(IMB_MGR *mgr, const IMB_JOB *job)
{
        *IMB_GET_NEXT_JOB(mgr) = *job;
        return collect(mgr, IMB_SUBMIT_JOB_NOCHECK(mgr));
}

/* Completes all submitted jobs; returns their number. */
static uint32_t finish(IMB_MGR *mgr)
{
        const IMB_JOB *job;
        uint32_t done = 0;

        while ((job = IMB_FLUSH_JOB(mgr)) != NULL)
                done += collect(mgr, job);
        return done;
}

/* AES-CCM in place, with nonces of 11 octets; an ICV is written in either direction. 0 as above. */
int testudo_imb_ccm(IMB_MGR *mgr, const struct testudo_imb_ccm_job *jobs, uint32_t count,
                    int encrypt)
{
        uint32_t done = 0;

        for (uint32_t i = 0; i < count; i++) {
                const IMB_JOB job = {
                        .enc_keys = jobs[i].keys,
                        .dec_keys = jobs[i].keys,
                        .key_len_in_bytes = jobs[i].key_len,
                        .src = jobs[i].text,
                        .dst = jobs[i].text,
                        .msg_len_to_cipher_in_bytes = jobs[i].len,
                        .msg_len_to_hash_in_bytes = jobs[i].len,
                        .iv = jobs[i].nonce,
                        .iv_len_in_bytes = 11,
                        .auth_tag_output = jobs[i].icv,
                        .auth_tag_output_len_in_bytes = jobs[i].icv_len,
                        .u.CCM.aad = jobs[i].aad,
                        .u.CCM.aad_len_in_bytes = jobs[i].aad_len,
                        .cipher_mode = IMB_CIPHER_CCM,
                        .cipher_direction = encrypt ? IMB_DIR_ENCRYPT : IMB_DIR_DECRYPT,
                        .hash_alg = IMB_AUTH_AES_CCM,
                        .chain_order = encrypt ? IMB_ORDER_HASH_CIPHER : IMB_ORDER_CIPHER_HASH,
                };
                done += submit(mgr, &job);
        }
        return done + finish(mgr) == count;
}

enum { XCBC = 1, CMAC = 2, HMAC_MD5 = 3 };

/* Other MACs, by jobs. Of AES `first` are round keys, `second` the two other keys. */
static int other_mac(IMB_MGR *mgr, const struct testudo_imb_hash_job *jobs, uint32_t count,
                     uint32_t mac, uint32_t icv_len)
{
        uint32_t done = 0;

        for (uint32_t i = 0; i < count; i++) {
                IMB_JOB job = {
                        .src = jobs[i].message,
                        .msg_len_to_hash_in_bytes = jobs[i].len,
                        .auth_tag_output = jobs[i].icv,
                        .auth_tag_output_len_in_bytes = icv_len,
                        .cipher_mode = IMB_CIPHER_NULL,
                        .cipher_direction = IMB_DIR_ENCRYPT,
                        .chain_order = IMB_ORDER_HASH_CIPHER,
                };
                if (mac == XCBC) {
                        job.hash_alg = IMB_AUTH_AES_XCBC;
                        job.u.XCBC._k1_expanded = (const uint32_t *) jobs[i].first;
                        job.u.XCBC._k2 = jobs[i].second;
                        job.u.XCBC._k3 = jobs[i].second + 16;
                } else if (mac == HMAC_MD5) {
                        job.hash_alg = IMB_AUTH_MD5;
                        job.u.HMAC._hashed_auth_key_xor_ipad = jobs[i].first;
                        job.u.HMAC._hashed_auth_key_xor_opad = jobs[i].second;
                } else {
                        job.hash_alg = IMB_AUTH_AES_CMAC;
                        job.u.CMAC._key_expanded = jobs[i].first;
                        job.u.CMAC._skey1 = jobs[i].second;
                        job.u.CMAC._skey2 = jobs[i].second + 16;
                }
                done += submit(mgr, &job);
        }
        return done + finish(mgr) == count;
}

enum { TRIPLE_DES = 0 };

/* 3DES-CBC by jobs: `keys` are three schedules. */
static int triple_des(IMB_MGR *mgr, const struct testudo_imb_cipher_job *jobs, uint32_t count,
                      int encrypt)
{
        const void *keys[MAX_BURST_JOBS][3];
        uint32_t done = 0;

        if (count > MAX_BURST_JOBS)
                return 0;
        for (uint32_t i = 0; i < count; i++) {
                for (int n = 0; n < 3; n++)
                        keys[i][n] = (const uint8_t *) jobs[i].keys + n * IMB_DES_KEY_SCHED_SIZE;
                const IMB_JOB job = {
                        .enc_keys = keys[i],
                        .dec_keys = keys[i],
                        .key_len_in_bytes = 24,
                        .src = jobs[i].text,
                        .dst = jobs[i].text,
                        .msg_len_to_cipher_in_bytes = jobs[i].len,
                        .iv = jobs[i].iv,
                        .iv_len_in_bytes = 8,
                        .cipher_mode = IMB_CIPHER_DES3,
                        .cipher_direction = encrypt ? IMB_DIR_ENCRYPT : IMB_DIR_DECRYPT,
                        .hash_alg = IMB_AUTH_NULL,
                        .chain_order = IMB_ORDER_CIPHER_HASH,
                };
                done += submit(mgr, &job);
        }
        return done + finish(mgr) == count;
}

/*
 * CBC over whole blocks, in place: of AES with a key of `key_len` octets, or TRIPLE_DES. 0 if not
 * all of at most MAX_BURST_JOBS jobs were done.
 */
int testudo_imb_cipher(IMB_MGR *mgr, const struct testudo_imb_cipher_job *jobs, uint32_t count,
                       uint32_t key_len, int encrypt)
{
        return key_len == TRIPLE_DES ? triple_des(mgr, jobs, count, encrypt)
                                     : aes_cbc(mgr, jobs, count, key_len, encrypt);
}

/*
 * A MAC, truncated to `icv_len` octets: `mac` is one of those above, or for HMAC the digest's
 * length in bits, 160 for SHA-1. 0 as above.
 */
int testudo_imb_hash(IMB_MGR *mgr, const struct testudo_imb_hash_job *jobs, uint32_t count,
                     uint32_t mac, uint32_t icv_len)
{
        return mac <= HMAC_MD5 ? other_mac(mgr, jobs, count, mac, icv_len)
                               : hmac(mgr, jobs, count, mac, icv_len);
}
