/*
 * Everything that Testudo needs to know from intel-ipsec-mb.h: which functions this processor is to
 * call, and how large their data is. The layouts are the header's business; ipsec_mb.rs sees only
 * pointers and sizes.
 */
#define _DEFAULT_SOURCE
#include <intel-ipsec-mb.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef void (*testudo_imb_pre)(const void *key, struct gcm_key_data *schedule);
typedef void (*testudo_imb_expand)(const void *key, void *encryption, void *decryption);
typedef void (*testudo_imb_block)(const void *block, void *digest);
typedef int (*testudo_imb_des)(uint64_t *schedule, const void *key);
typedef void (*testudo_imb_xcbc)(const void *key, void *round_keys, void *whole, void *filled);
typedef void (*testudo_imb_cmac)(const void *round_keys, void *whole, void *filled);

/* Mirrored by `Functions` in ipsec_mb.rs. */
struct testudo_imb {
        testudo_imb_pre pre128;
        testudo_imb_pre pre192;
        testudo_imb_pre pre256;
        testudo_imb_pre pre_chacha;
        aes_gcm_enc_dec_t enc128;
        aes_gcm_enc_dec_t dec128;
        aes_gcm_enc_dec_t enc192;
        aes_gcm_enc_dec_t dec192;
        aes_gcm_enc_dec_t enc256;
        aes_gcm_enc_dec_t dec256;
        aes_gcm_enc_dec_t enc_chacha;
        aes_gcm_enc_dec_t dec_chacha;
        aes_gcm_enc_dec_t gmac128;
        aes_gcm_enc_dec_t gmac192;
        aes_gcm_enc_dec_t gmac256;
        testudo_imb_expand aes128;
        testudo_imb_expand aes192;
        testudo_imb_expand aes256;
        testudo_imb_block sha1;
        testudo_imb_block sha256;
        testudo_imb_block sha384;
        testudo_imb_block sha512;
        testudo_imb_xcbc xcbc;
        testudo_imb_cmac cmac;
        testudo_imb_block md5;
        testudo_imb_des des;
        size_t schedule_size;
        uint64_t many_des;
        const char *version;
};

/* Mirrored by the constants of ipsec_mb.rs. */
_Static_assert(sizeof(struct gcm_context_data) <= 128,
               "the context outgrew what ipsec_mb.rs reserves");
_Static_assert(_Alignof(struct gcm_context_data) <= 64,
               "the context wants more alignment than ipsec_mb.rs gives");
_Static_assert(_Alignof(struct gcm_key_data) <= 64,
               "the schedule wants more alignment than ipsec_mb.rs gives");

enum { OK = 0, NO_MEMORY = 1, NO_AES_NI = 2, SELF_TEST_FAILED = 3 };

enum { CHACHA_KEY = 32 };

/*
 * The library's steps of ChaCha20-Poly1305, which has no direct call. Written once, by
 * testudo_imb_load.
 */
static struct {
        chacha_poly_init_t init;
        chacha_poly_enc_dec_update_t encrypt;
        chacha_poly_enc_dec_update_t decrypt;
        chacha_poly_finalize_t finalize;
} chacha;

/* The key is its own schedule. */
static void chacha_pre(const void *key, struct gcm_key_data *schedule)
{
        memcpy(schedule, key, CHACHA_KEY);
}

static void chacha_crypt(chacha_poly_enc_dec_update_t crypt, const void *key, uint8_t *out,
                         const uint8_t *in, uint64_t len, const uint8_t *iv, const uint8_t *aad,
                         uint64_t aad_len, uint8_t *tag, uint64_t tag_len)
{
        struct chacha20_poly1305_context_data context;

        chacha.init(key, &context, iv, aad, aad_len);
        crypt(key, &context, out, in, len);
        chacha.finalize(&context, tag, tag_len);
        explicit_bzero(&context, sizeof(context));
}

/* Like the direct calls of GCM, but without their context. */
static void chacha_enc(const struct gcm_key_data *key, struct gcm_context_data *unused,
                       uint8_t *out, const uint8_t *in, uint64_t len, const uint8_t *iv,
                       const uint8_t *aad, uint64_t aad_len, uint8_t *tag, uint64_t tag_len)
{
        (void) unused;
        chacha_crypt(chacha.encrypt, key, out, in, len, iv, aad, aad_len, tag, tag_len);
}

static void chacha_dec(const struct gcm_key_data *key, struct gcm_context_data *unused,
                       uint8_t *out, const uint8_t *in, uint64_t len, const uint8_t *iv,
                       const uint8_t *aad, uint64_t aad_len, uint8_t *tag, uint64_t tag_len)
{
        (void) unused;
        chacha_crypt(chacha.decrypt, key, out, in, len, iv, aad, aad_len, tag, tag_len);
}

enum { NONCE = 12, SALT = 4 };

/* The library's steps of GMAC by key length. Written once, by testudo_imb_load. */
struct gmac {
        aes_gmac_init_t init;
        aes_gmac_update_t update;
        aes_gmac_finalize_t finalize;
};
static struct gmac gmac128, gmac192, gmac256;

/* Authenticates data, IV and text (RFC 4543 section 3.3). */
static void gmac_tag(const struct gmac *gmac, const struct gcm_key_data *key,
                     struct gcm_context_data *context, const uint8_t *text, uint64_t len,
                     const uint8_t *nonce, const uint8_t *aad, uint64_t aad_len, uint8_t *tag,
                     uint64_t tag_len)
{
        gmac->init(key, context, nonce, NONCE);
        gmac->update(key, context, aad, aad_len);
        gmac->update(key, context, nonce + SALT, NONCE - SALT);
        gmac->update(key, context, text, len);
        gmac->finalize(key, context, tag, tag_len);
}

/* Like the direct calls of GCM; the text is not changed. */
#define GMAC(bits)                                                                                \
        static void gmac##bits##_tag(const struct gcm_key_data *key,                              \
                                     struct gcm_context_data *context, uint8_t *out,              \
                                     const uint8_t *in, uint64_t len, const uint8_t *nonce,       \
                                     const uint8_t *aad, uint64_t aad_len, uint8_t *tag,          \
                                     uint64_t tag_len)                                            \
        {                                                                                         \
                (void) out;                                                                       \
                gmac_tag(&gmac##bits, key, context, in, len, nonce, aad, aad_len, tag, tag_len);  \
        }
GMAC(128)
GMAC(192)
GMAC(256)

/*
 * Fills `out` for this processor. The manager itself is not kept: these are pure functions of their
 * arguments, so their addresses are all that is wanted of it.
 */
int testudo_imb_load(struct testudo_imb *out)
{
        const uint64_t needed = IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ;
        int result = OK;

        IMB_MGR *mgr = alloc_mb_mgr(0);
        if (mgr == NULL)
                return NO_MEMORY;
        init_mb_mgr_auto(mgr, NULL);

        /* Without AES-NI the library takes AES from tables: slow, and its timing tells the key. */
        if ((mgr->features & needed) != needed)
                result = NO_AES_NI;
#ifdef IMB_FEATURE_SELF_TEST
        else if ((mgr->features & IMB_FEATURE_SELF_TEST) != 0 &&
                 (mgr->features & IMB_FEATURE_SELF_TEST_PASS) == 0)
                result = SELF_TEST_FAILED;
#endif

        out->pre128 = mgr->gcm128_pre;
        out->pre192 = mgr->gcm192_pre;
        out->pre256 = mgr->gcm256_pre;
        out->pre_chacha = chacha_pre;
        out->enc128 = mgr->gcm128_enc;
        out->dec128 = mgr->gcm128_dec;
        out->enc192 = mgr->gcm192_enc;
        out->dec192 = mgr->gcm192_dec;
        out->enc256 = mgr->gcm256_enc;
        out->dec256 = mgr->gcm256_dec;
        out->enc_chacha = chacha_enc;
        out->dec_chacha = chacha_dec;
        out->gmac128 = gmac128_tag;
        out->gmac192 = gmac192_tag;
        out->gmac256 = gmac256_tag;
        gmac128 = (struct gmac){ mgr->gmac128_init, mgr->gmac128_update, mgr->gmac128_finalize };
        gmac192 = (struct gmac){ mgr->gmac192_init, mgr->gmac192_update, mgr->gmac192_finalize };
        gmac256 = (struct gmac){ mgr->gmac256_init, mgr->gmac256_update, mgr->gmac256_finalize };
        chacha.init = mgr->chacha20_poly1305_init;
        chacha.encrypt = mgr->chacha20_poly1305_enc_update;
        chacha.decrypt = mgr->chacha20_poly1305_dec_update;
        chacha.finalize = mgr->chacha20_poly1305_finalize;
        out->aes128 = mgr->keyexp_128;
        out->aes192 = mgr->keyexp_192;
        out->aes256 = mgr->keyexp_256;
        out->sha1 = mgr->sha1_one_block;
        out->sha256 = mgr->sha256_one_block;
        out->sha384 = mgr->sha384_one_block;
        out->sha512 = mgr->sha512_one_block;
        out->xcbc = mgr->xcbc_keyexp;
        out->cmac = mgr->cmac_subkey_gen_128;
        out->md5 = mgr->md5_one_block;
        out->des = mgr->des_key_sched;
        out->schedule_size = sizeof(struct gcm_key_data);
        out->many_des = (mgr->features & IMB_FEATURE_AVX512_SKX) == IMB_FEATURE_AVX512_SKX;
        out->version = imb_get_version_str();

        free_mb_mgr(mgr);
        return result;
}
