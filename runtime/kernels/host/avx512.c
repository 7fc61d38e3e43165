#include "processor.h"

#ifdef ONERING_AVX
#define KIND 2
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,fma")
#endif
#include "kind.h"

TABLE(avx512)
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
