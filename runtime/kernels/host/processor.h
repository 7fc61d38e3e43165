// Which kinds the compiler can make: older ones and other processors have plain C alone.
#if defined(__x86_64__) && !defined(_WIN32) && (__clang_major__ >= 14 || !defined(__clang__) && __GNUC__ >= 12)
#define ONERING_AVX
#include <immintrin.h>
#endif
