#include "processor.h"

#ifdef ONERING_AVX // every processor with AVX2 has F16C
#define KIND 1
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
#include "kind.h"

TABLE(avx2)
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
