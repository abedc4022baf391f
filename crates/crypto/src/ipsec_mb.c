/*
 * Everything that Testudo needs to know from intel-ipsec-mb.h: which functions this processor is to call, and how
 * large their data is. The layouts are the header's business; ipsec_mb.rs sees only pointers and sizes.
 */
#include <intel-ipsec-mb.h>
#include <stddef.h>
#include <stdint.h>

typedef void (*testudo_imb_pre)(const void *key, struct gcm_key_data *schedule);
typedef void (*testudo_imb_expand)(const void *key, void *encryption, void *decryption);
typedef void (*testudo_imb_block)(const void *block, void *digest);

/* Mirrored by `Functions` in ipsec_mb.rs. */
struct testudo_imb {
        testudo_imb_pre pre128;
        testudo_imb_pre pre256;
        aes_gcm_enc_dec_t enc128;
        aes_gcm_enc_dec_t dec128;
        aes_gcm_enc_dec_t enc256;
        aes_gcm_enc_dec_t dec256;
        testudo_imb_expand aes128;
        testudo_imb_expand aes192;
        testudo_imb_expand aes256;
        testudo_imb_block sha1;
        testudo_imb_block sha256;
        testudo_imb_block sha384;
        testudo_imb_block sha512;
        size_t schedule_size;
        const char *version;
};

/* Mirrored by the constants of ipsec_mb.rs. */
_Static_assert(sizeof(struct gcm_context_data) <= 128, "the context outgrew what ipsec_mb.rs reserves");
_Static_assert(_Alignof(struct gcm_context_data) <= 64, "the context wants more alignment than ipsec_mb.rs gives");
_Static_assert(_Alignof(struct gcm_key_data) <= 64, "the schedule wants more alignment than ipsec_mb.rs gives");

enum { OK = 0, NO_MEMORY = 1, NO_AES_NI = 2, SELF_TEST_FAILED = 3 };

/*
 * Fills `out` for this processor. The manager itself is not kept: these are pure functions of their arguments, so their
 * addresses are all that is wanted of it.
 */
int testudo_imb_load(struct testudo_imb *out)
{
        const uint64_t needed = IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ;
        int result = OK;

        IMB_MGR *mgr = alloc_mb_mgr(0);
        if (mgr == NULL)
                return NO_MEMORY;
        init_mb_mgr_auto(mgr, NULL);

        /* Without AES-NI the library emulates AES from tables: slow, and its timing tells the key. */
        if ((mgr->features & needed) != needed)
                result = NO_AES_NI;
#ifdef IMB_FEATURE_SELF_TEST
        else if ((mgr->features & IMB_FEATURE_SELF_TEST) != 0 && (mgr->features & IMB_FEATURE_SELF_TEST_PASS) == 0)
                result = SELF_TEST_FAILED;
#endif

        out->pre128 = mgr->gcm128_pre;
        out->pre256 = mgr->gcm256_pre;
        out->enc128 = mgr->gcm128_enc;
        out->dec128 = mgr->gcm128_dec;
        out->enc256 = mgr->gcm256_enc;
        out->dec256 = mgr->gcm256_dec;
        out->aes128 = mgr->keyexp_128;
        out->aes192 = mgr->keyexp_192;
        out->aes256 = mgr->keyexp_256;
        out->sha1 = mgr->sha1_one_block;
        out->sha256 = mgr->sha256_one_block;
        out->sha384 = mgr->sha384_one_block;
        out->sha512 = mgr->sha512_one_block;
        out->schedule_size = sizeof(struct gcm_key_data);
        out->version = imb_get_version_str();

        free_mb_mgr(mgr);
        return result;
}
