#include "processor.h"

#ifdef ONERING_AVX
#define KIND 1
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#include "kind.h"

TABLE(avx2)
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
