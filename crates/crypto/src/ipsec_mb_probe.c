/* Preprocessed by build.rs to learn whether a usable intel-ipsec-mb is installed. */
#if defined(__has_include)
#if __has_include(<intel-ipsec-mb.h>)
#include <intel-ipsec-mb.h>
#if defined(IMB_VERSION_NUM) && IMB_VERSION_NUM >= 0x10000
testudo_ipsec_mb_found
#endif
#endif
#endif
