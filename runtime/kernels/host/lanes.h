// Sixteen float32 numbers, and thirty-two of bfloat16, on a kind of processor: KIND is PLAIN,
// AVX2 or AVX512. Every operation has the same bits on every kind; sums of products are fused
// only where fma says so.
#ifdef __clang__
#pragma clang fp contract(off)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#pragma GCC optimize("O3,fp-contract=off")
#define UNROLL _Pragma("GCC unroll 16")
#endif
#define INLINE static inline __attribute__((always_inline))

INLINE uint32_t bits_of(float f) {
	uint32_t u;
	memcpy(&u, &f, 4);
	return u;
}
INLINE float float_of(uint32_t u) {
	float f;
	memcpy(&f, &u, 4);
	return f;
}

// The numbers that four bits stand for in NF4: quantiles of the normal distribution, from "QLoRA:
// Efficient Finetuning of Quantized LLMs" (2023), appendix E. Of a byte the upper four bits come
// first.
static const float codes[16] = {
	-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
	0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f, 0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f,
};

#if KIND == PLAIN
typedef struct { float v[16]; } lanes;
typedef struct { uint16_t v[32]; } shorts32;
#define EACH for (int i = 0; i < 16; i++)
// A subnormal number of bfloat16 is zero in a product, and so is a sum that would be subnormal.
INLINE float widened(uint16_t h) { return float_of((uint32_t)h << 16); }
INLINE float operand(uint16_t h) { return float_of((uint32_t)(h & 0x7f80 ? h : h & 0x8000) << 16); }
INLINE uint16_t narrowed(float f) {
	uint32_t u = bits_of(f);
	if ((u & 0x7fffffff) > 0x7f800000) return u >> 16 | 0x40;
	if (!(u & 0x7f800000)) return u >> 16 & 0x8000;
	return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
// A product is exact in float64, and so is its sum but for what float32 does not see.
INLINE float add_product(float sum, uint16_t a, uint16_t b) {
	double d = (double)operand(a) * operand(b) + sum;
	if (__builtin_fabs(d) < 0x1.ffffffp-127) return d < 0 || __builtin_signbit(d) ? -0.0f : 0.0f;
	return (float)d;
}
INLINE lanes set(float x) { lanes r; EACH r.v[i] = x; return r; }
INLINE lanes load(const float *p) { lanes r; memcpy(r.v, p, 64); return r; }
INLINE lanes load_some(const float *p, int n) { lanes r = {{0}}; for (int i = 0; i < n; i++) r.v[i] = p[i]; return r; }
INLINE void store(float *p, lanes x) { memcpy(p, x.v, 64); }
INLINE void store_some(float *p, lanes x, int n) { for (int i = 0; i < n; i++) p[i] = x.v[i]; }
INLINE lanes widen_some(const uint16_t *p, int n) { lanes r = {{0}}; for (int i = 0; i < n; i++) r.v[i] = widened(p[i]); return r; }
INLINE void narrow_some(uint16_t *p, lanes x, int n) { for (int i = 0; i < n; i++) p[i] = narrowed(x.v[i]); }
INLINE float half(uint16_t h) {
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, b = (uint32_t)(h & 0x7fff) << 13;
	if (h & 0x7c00) return float_of(sign | (b + ((h & 0x7c00) == 0x7c00 ? 224u << 23 : 112u << 23)));
	return float_of(sign | bits_of((h & 0x3ff) * 0x1p-24f));
}
INLINE lanes halves_some(const uint16_t *p, int n) { lanes r = {{0}}; for (int i = 0; i < n; i++) r.v[i] = half(p[i]); return r; }
INLINE lanes bytes16(const int8_t *p) { lanes r; EACH r.v[i] = p[i]; return r; }
INLINE lanes codes16(const uint8_t *p) { lanes r; EACH r.v[i] = codes[i % 2 ? p[i / 2] & 15 : p[i / 2] >> 4]; return r; }
INLINE lanes add(lanes a, lanes b) { EACH a.v[i] = a.v[i] + b.v[i]; return a; }
INLINE lanes sub(lanes a, lanes b) { EACH a.v[i] = a.v[i] - b.v[i]; return a; }
INLINE lanes mul(lanes a, lanes b) { EACH a.v[i] = a.v[i] * b.v[i]; return a; }
INLINE lanes quotient(lanes a, lanes b) { EACH a.v[i] = a.v[i] / b.v[i]; return a; }
INLINE lanes fma3(lanes a, lanes b, lanes c) { EACH c.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]); return c; }
INLINE lanes larger(lanes a, lanes b) { EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i]; return a; }
INLINE lanes smaller(lanes a, lanes b) { EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i]; return a; }
INLINE lanes power(lanes t) { EACH t.v[i] = float_of((bits_of(t.v[i]) << 23) + 0x3f800000u); return t; }
INLINE shorts32 load32(const uint16_t *p) { shorts32 r; memcpy(r.v, p, 64); return r; }
INLINE shorts32 load32_some(const uint16_t *p, int n) { shorts32 r = {{0}}; memcpy(r.v, p, n * 2); return r; }
INLINE shorts32 pair(uint32_t both) { shorts32 r; EACH memcpy(r.v + 2 * i, &both, 4); return r; }
INLINE lanes products(lanes s, shorts32 a, shorts32 b) {
	EACH s.v[i] = add_product(add_product(s.v[i], a.v[2 * i + 1], b.v[2 * i + 1]), a.v[2 * i], b.v[2 * i]);
	return s;
}
INLINE void interleave(uint32_t *to, const uint16_t *even, const uint16_t *odd, int n) {
	for (int i = 0; i < n; i++) to[i] = even[i] | (uint32_t)(odd ? odd[i] : 0) << 16;
}
INLINE float sum16(lanes x) {
	for (int h = 8; h; h /= 2) for (int i = 0; i < h; i++) x.v[i] = x.v[i] + x.v[i + h];
	return x.v[0];
}
INLINE float largest16(lanes x) {
	for (int h = 8; h; h /= 2) for (int i = 0; i < h; i++) x.v[i] = x.v[i] > x.v[i + h] ? x.v[i] : x.v[i + h];
	return x.v[0];
}
#undef EACH

#else
INLINE __m128i fours(const uint8_t *p) { // the 16 numbers of eight bytes
	__m128i x = _mm_loadl_epi64((const __m128i *)p), low = _mm_set1_epi8(15);
	return _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi16(x, 4), low), _mm_and_si128(x, low));
}
INLINE float largest8(__m256 a) {
	__m128 c = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
	c = _mm_max_ps(c, _mm_movehl_ps(c, c));
	return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}
#endif

#if KIND == AVX2
typedef struct { __m256 v[2]; } lanes;
typedef struct { __m256i v[2]; } shorts32; // elements 0 to 15 and 16 to 31
INLINE __m256i some(int n) { // a mask of the first n of 8
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE lanes set(float x) { return (lanes){{_mm256_set1_ps(x), _mm256_set1_ps(x)}}; }
INLINE lanes load(const float *p) { return (lanes){{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}}; }
INLINE lanes load_some(const float *p, int n) { return n >= 16 ? load(p) : (lanes){{_mm256_maskload_ps(p, some(n)), _mm256_maskload_ps(p + 8, some(n - 8))}}; }
INLINE void store(float *p, lanes x) { _mm256_storeu_ps(p, x.v[0]), _mm256_storeu_ps(p + 8, x.v[1]); }
INLINE void store_some(float *p, lanes x, int n) {
	if (n >= 16) store(p, x);
	else _mm256_maskstore_ps(p, some(n), x.v[0]), _mm256_maskstore_ps(p + 8, some(n - 8), x.v[1]);
}
INLINE __m256 wide8(__m128i h) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16)); }
INLINE lanes widen_some(const uint16_t *p, int n) {
	uint16_t few[16] = {0};
	if (n < 16) p = memcpy(few, p, n * 2);
	return (lanes){{wide8(_mm_loadu_si128((const __m128i *)p)), wide8(_mm_loadu_si128((const __m128i *)(p + 8)))}};
}
INLINE __m256i narrow8(__m256 x) {
	__m256i u = _mm256_castps_si256(x), top = _mm256_srli_epi32(u, 16), rest = _mm256_and_si256(u, _mm256_set1_epi32(0x7fffffff));
	__m256i y = _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(_mm256_set1_epi32(0x7fff), _mm256_and_si256(top, _mm256_set1_epi32(1)))), 16);
	y = _mm256_blendv_epi8(y, _mm256_or_si256(top, _mm256_set1_epi32(0x40)), _mm256_cmpgt_epi32(rest, _mm256_set1_epi32(0x7f800000)));
	return _mm256_blendv_epi8(y, _mm256_and_si256(top, _mm256_set1_epi32(0x8000)), _mm256_cmpgt_epi32(_mm256_set1_epi32(0x800000), rest));
}
INLINE void narrow_some(uint16_t *p, lanes x, int n) {
	__m256i y = _mm256_permute4x64_epi64(_mm256_packus_epi32(narrow8(x.v[0]), narrow8(x.v[1])), 0xd8);
	if (n >= 16) {
		_mm256_storeu_si256((__m256i *)p, y);
		return;
	}
	uint16_t few[16];
	_mm256_storeu_si256((__m256i *)few, y);
	memcpy(p, few, n * 2);
}
INLINE lanes halves_some(const uint16_t *p, int n) {
	uint16_t few[16] = {0};
	if (n < 16) p = memcpy(few, p, n * 2);
	return (lanes){{_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(p + 8)))}};
}
INLINE lanes bytes16(const int8_t *p) {
	__m128i x = _mm_loadu_si128((const __m128i *)p);
	return (lanes){{_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))}};
}
INLINE __m256 codes8(__m256i i) {
	__m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(codes), i), high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(codes + 8), i);
	return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(i, 28)));
}
INLINE lanes codes16(const uint8_t *p) {
	__m128i x = fours(p);
	return (lanes){{codes8(_mm256_cvtepu8_epi32(x)), codes8(_mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)))}};
}
#define BOTH(name, f) INLINE lanes name(lanes a, lanes b) { return (lanes){{f(a.v[0], b.v[0]), f(a.v[1], b.v[1])}}; }
BOTH(add, _mm256_add_ps)
BOTH(sub, _mm256_sub_ps)
BOTH(mul, _mm256_mul_ps)
BOTH(quotient, _mm256_div_ps)
BOTH(larger, _mm256_max_ps)
BOTH(smaller, _mm256_min_ps)
#undef BOTH
INLINE lanes fma3(lanes a, lanes b, lanes c) { return (lanes){{_mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1])}}; }
INLINE __m256 power8(__m256 t) { return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23), _mm256_set1_epi32(0x3f800000))); }
INLINE lanes power(lanes t) { return (lanes){{power8(t.v[0]), power8(t.v[1])}}; }
INLINE shorts32 load32(const uint16_t *p) { return (shorts32){{_mm256_loadu_si256((const __m256i *)p), _mm256_loadu_si256((const __m256i *)(p + 16))}}; }
INLINE shorts32 load32_some(const uint16_t *p, int n) {
	if (n == 16) return (shorts32){{_mm256_loadu_si256((const __m256i *)p), _mm256_setzero_si256()}};
	uint16_t few[32] = {0};
	return load32(memcpy(few, p, n * 2));
}
INLINE shorts32 pair(uint32_t both) { return (shorts32){{_mm256_set1_epi32(both), _mm256_set1_epi32(both)}}; }
INLINE __m256 odd(__m256i v) { return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32(0xffff0000))); }
INLINE __m256 even(__m256i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)); }
INLINE lanes part(const int p, shorts32 v) { return p ? (lanes){{even(v.v[0]), even(v.v[1])}} : (lanes){{odd(v.v[0]), odd(v.v[1])}}; }
INLINE lanes products(lanes s, shorts32 a, shorts32 b) { return fma3(part(1, a), part(1, b), fma3(part(0, a), part(0, b), s)); }
// A pair of a left operand is split into its odd and its even number, once for many columns, and
// one of a right operand where it is multiplied.
enum { PARTS = 2 };
typedef float left;
#define PART_OF lanes
INLINE void split(left *to, const uint32_t *pairs, int n, int step) {
	for (int i = 0; i < n; i++) to[i] = float_of(pairs[i] & 0xffff0000), to[i + step] = float_of(pairs[i] << 16);
}
INLINE __m256 part8(const int p, const uint16_t *x) {
	static const uint16_t odds[16] __attribute__((aligned(32))) = {0, 0xffff, 0, 0xffff, 0, 0xffff, 0, 0xffff, 0, 0xffff, 0, 0xffff, 0, 0xffff, 0, 0xffff};
	__m256i v = _mm256_loadu_si256((const __m256i *)x);
	if (p) return even(v);
	__asm__("vandps %1, %0, %0" : "+x"(v) : "m"(*(const __m256i *)odds)); // no register is left for a mask
	return _mm256_castsi256_ps(v);
}
INLINE void split16(float *to, int step, const uint16_t *x, int n) {
	__m256i v = load32_some(x, n).v[0];
	_mm256_store_ps(to, odd(v)), _mm256_store_ps(to + step, even(v));
}
INLINE void split16_wide(float *to, int step, const float *x, int n) {
	lanes v = load_some(x, n);
	_mm256_store_ps(to, v.v[0]), _mm256_store_ps(to + step, v.v[1]);
}
INLINE lanes times(lanes s, left a, lanes b) { return fma3(set(a), b, s); }
INLINE void interleave(uint32_t *to, const uint16_t *even, const uint16_t *odd, int n) {
	int i = 0;
	if (odd) for (; i + 8 <= n; i += 8) {
		__m256i low = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(even + i))), high = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(odd + i)));
		_mm256_storeu_si256((__m256i *)(to + i), _mm256_or_si256(low, _mm256_slli_epi32(high, 16)));
	}
	for (; i < n; i++) to[i] = even[i] | (uint32_t)(odd ? odd[i] : 0) << 16;
}
// sums4 are the sums of four, by a tree: lanes 8 apart first, then 4, 2 and 1.
#define OP(x) _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1))
INLINE __m128 sums4(lanes a, lanes b, lanes c, lanes d) {
	__m128 p = OP(_mm256_add_ps(a.v[0], a.v[1])), q = OP(_mm256_add_ps(b.v[0], b.v[1])), r = OP(_mm256_add_ps(c.v[0], c.v[1])), s = OP(_mm256_add_ps(d.v[0], d.v[1]));
	p = _mm_add_ps(_mm_movelh_ps(p, q), _mm_movehl_ps(q, p)), r = _mm_add_ps(_mm_movelh_ps(r, s), _mm_movehl_ps(s, r));
	return _mm_add_ps(_mm_shuffle_ps(p, r, 0x88), _mm_shuffle_ps(p, r, 0xdd));
}
#undef OP
INLINE float sum16(lanes x) { return _mm_cvtss_f32(sums4(x, x, x, x)); }
INLINE float largest16(lanes x) { return largest8(_mm256_max_ps(x.v[0], x.v[1])); }

#elif KIND == AVX512
typedef __m512 lanes;
typedef __m512i shorts32;
INLINE __mmask16 some(int n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1; }
INLINE lanes set(float x) { return _mm512_set1_ps(x); }
INLINE lanes load(const float *p) { return _mm512_loadu_ps(p); }
INLINE lanes load_some(const float *p, int n) { return _mm512_maskz_loadu_ps(some(n), p); }
INLINE void store(float *p, lanes x) { _mm512_storeu_ps(p, x); }
INLINE void store_some(float *p, lanes x, int n) { _mm512_mask_storeu_ps(p, some(n), x); }
INLINE lanes widen_some(const uint16_t *p, int n) { return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some(n), p)), 16)); }
INLINE void narrow_some(uint16_t *p, lanes x, int n) { _mm256_mask_storeu_epi16(p, some(n), (__m256i)_mm512_cvtneps_pbh(x)); }
INLINE lanes halves_some(const uint16_t *p, int n) { return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(some(n), p)); }
INLINE lanes bytes16(const int8_t *p) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p))); }
INLINE lanes codes16(const uint8_t *p) { return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(fours(p)), _mm512_loadu_ps(codes)); }
INLINE lanes add(lanes a, lanes b) { return _mm512_add_ps(a, b); }
INLINE lanes sub(lanes a, lanes b) { return _mm512_sub_ps(a, b); }
INLINE lanes mul(lanes a, lanes b) { return _mm512_mul_ps(a, b); }
INLINE lanes quotient(lanes a, lanes b) { return _mm512_div_ps(a, b); }
INLINE lanes fma3(lanes a, lanes b, lanes c) { return _mm512_fmadd_ps(a, b, c); }
INLINE lanes larger(lanes a, lanes b) { return _mm512_max_ps(a, b); }
INLINE lanes smaller(lanes a, lanes b) { return _mm512_min_ps(a, b); }
INLINE lanes power(lanes t) { return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23), _mm512_set1_epi32(0x3f800000))); }
INLINE shorts32 load32(const uint16_t *p) { return _mm512_loadu_si512(p); }
INLINE shorts32 load32_some(const uint16_t *p, int n) { return _mm512_maskz_loadu_epi16(n >= 32 ? ~0u : (1u << n) - 1, p); }
INLINE shorts32 pair(uint32_t both) { return _mm512_set1_epi32(both); }
INLINE lanes products(lanes s, shorts32 a, shorts32 b) { return _mm512_dpbf16_ps(s, (__m512bh)a, (__m512bh)b); }
INLINE void interleave(uint32_t *to, const uint16_t *even, const uint16_t *odd, int n) {
	for (int i = 0; i < n; i += 16) {
		__m512i low = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some(n - i), even + i)), high = _mm512_setzero_si512();
		if (odd) high = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some(n - i), odd + i));
		_mm512_mask_storeu_epi32(to + i, some(n - i), _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
	}
}
// sums4 are the sums of four, by a tree: lanes 8 apart first, then 4, 2 and 1.
INLINE __m128 sums4(lanes a, lanes b, lanes c, lanes d) {
	lanes ab = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
	lanes cd = _mm512_add_ps(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
	lanes q = _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
	q = _mm512_add_ps(q, _mm512_permute_ps(q, 0x4e));
	q = _mm512_add_ps(q, _mm512_permute_ps(q, 0xb1));
	return _mm512_castps512_ps128(_mm512_permutexvar_ps(_mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), q));
}
INLINE float sum16(lanes x) { return _mm_cvtss_f32(sums4(x, x, x, x)); }
INLINE float largest16(lanes x) { return largest8(_mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1))); }
#endif

INLINE shorts32 narrowed32(lanes a, lanes b) {
#if KIND == AVX512
	return (__m512i)_mm512_cvtne2ps_pbh(b, a);
#else
	uint16_t y[32];
	narrow_some(y, a, 16), narrow_some(y + 16, b, 16);
	return load32(y);
#endif
}
INLINE void narrow32(uint16_t *p, lanes a, lanes b) {
	shorts32 y = narrowed32(a, b);
	memcpy(p, &y, sizeof y);
}
#if KIND != AVX2
enum { PARTS = 1 };
#define PART_OF shorts32
typedef uint32_t left __attribute__((may_alias)); // also a pair where it lies
INLINE void split(left *to, const uint32_t *pairs, int n, int step) { memcpy(to, pairs, n * 4); }
INLINE shorts32 part(const int p, shorts32 v) { return v; }
INLINE lanes times(lanes s, left a, shorts32 b) { return products(s, pair(a), b); }
#endif
INLINE lanes widen(const uint16_t *p) { return widen_some(p, 16); }
INLINE void narrow(uint16_t *p, lanes x) { narrow_some(p, x, 16); }

// exponential is e^x for x from -87 to 88, and its value there beyond; relative error 2e-7.
INLINE lanes exponential(lanes x) {
	const float c[] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};
	x = smaller(set(88), larger(set(-87), x)); // of two, the second if one is NaN
	lanes t = add(mul(x, set(1.44269504f)), set(0x1.8p23f)), i = sub(t, set(0x1.8p23f)); // the nearest integer
	lanes f = fma3(i, set(2.12194440e-4f), fma3(i, set(-0.693359375f), x)), p = set(c[0]);
	UNROLL for (int k = 1; k < 6; k++) p = fma3(p, f, set(c[k]));
	return mul(add(fma3(p, mul(f, f), f), set(1)), power(t));
}
INLINE float exponential1(float x) {
	float y[16];
	store(y, exponential(set(x)));
	return y[0];
}
