#include "tiles.h"
#include "../../subnormals.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

typedef void loop(float *to, const float *a, const float *b, float x, size_t n);

// Each operator has a loop of its own, so that no product is fused with a sum: vectors
// of any width have the same bits. The result may be where an operand is.
#define LOOPS(kind, WIDTH, VECTOR, root, sign) \
	LOOP(mul##kind, WIDTH, VECTOR, A * B, a[i] * b[i]) \
	LOOP(mul_scalar##kind, WIDTH, VECTOR, A * x, a[i] * x) \
	LOOP(add##kind, WIDTH, VECTOR, A + B, a[i] + b[i]) \
	LOOP(add_scalar##kind, WIDTH, VECTOR, A + x, a[i] + x) \
	LOOP(sub##kind, WIDTH, VECTOR, A - B, a[i] - b[i]) \
	LOOP(sub_scalar##kind, WIDTH, VECTOR, A - x, a[i] - x) \
	LOOP(scalar_sub##kind, WIDTH, VECTOR, x - B, x - b[i]) \
	LOOP(div##kind, WIDTH, VECTOR, A / B, a[i] / b[i]) \
	LOOP(div_scalar##kind, WIDTH, VECTOR, A / x, a[i] / x) \
	LOOP(scalar_div##kind, WIDTH, VECTOR, x / B, x / b[i]) \
	LOOP(sqrt##kind, WIDTH, VECTOR, root(A), sqrtf(a[i])) \
	LOOP(sign##kind, WIDTH, VECTOR, sign(A), SIGN(a[i])) \
	/* The loops of an operator: on two arrays, on an array and a scalar, and on a scalar and an array. */ \
	static loop *const loops##kind[][3] = { \
		[tile_mul] = {mul##kind, mul_scalar##kind, NULL}, \
		[tile_add] = {add##kind, add_scalar##kind, NULL}, \
		[tile_sub] = {sub##kind, sub_scalar##kind, scalar_sub##kind}, \
		[tile_div] = {div##kind, div_scalar##kind, scalar_div##kind}, \
		[tile_sqrt] = {sqrt##kind, NULL, NULL}, \
		[tile_sign] = {sign##kind, NULL, NULL}, \
	};
#define SIGN(x) (float)((x > 0) - (x < 0))
#define SIGNS(x) __builtin_convertvector((x < 0) - (x > 0), vector) // -1 is true
#define A (*(const vector *)(a + i))
#define B (*(const vector *)(b + i))
#define LOOP(name, WIDTH, VECTOR, value, rest) \
	WIDTH static void name(float *to, const float *a, const float *b, float x, size_t n) { \
		typedef VECTOR vector; \
		size_t i = 0; \
		(void)a; (void)b; (void)x; \
		for (; i + sizeof(vector) / 4 <= n; i += sizeof(vector) / 4) *(vector *)(to + i) = value; \
		for (; i < n; i++) to[i] = rest; \
	}
#if defined(__x86_64__)
typedef float wide __attribute__((vector_size(32), aligned(4), may_alias));
typedef float wider __attribute__((vector_size(64), aligned(4), may_alias));
LOOPS(_avx2, __attribute__((target("avx2"))), wide, _mm256_sqrt_ps, SIGNS)
LOOPS(_avx512, __attribute__((target("avx512f"))), wider, _mm512_sqrt_ps, SIGNS)
#endif
LOOPS(_plain, , float, sqrtf, SIGN)

// The steps of AdamW, as package tiles compiles the graph of package adamw, in one loop:
// the results between steps stay in registers. r is an array, s a scalar. Steps that are
// others run one after the other.
#define ADAMW(STEP) \
	STEP(mul, 4, r, 1, s, 0) /* g clip */ \
	STEP(mul, 5, r, 2, s, 1) STEP(mul, 6, r, 4, s, 3) STEP(add, 2, r, 5, r, 6) /* m */ \
	STEP(mul, 6, r, 3, s, 2) STEP(mul, 4, r, 4, r, 4) STEP(mul, 4, r, 4, s, 4) STEP(add, 3, r, 6, r, 4) /* v */ \
	STEP(mul, 4, r, 2, s, 5) \
	STEP(sqrt, 6, r, 3, r, 0) STEP(mul, 6, r, 6, s, 6) STEP(add, 6, r, 6, s, 7) STEP(div, 6, r, 4, r, 6) \
	STEP(mul, 4, r, 0, s, 8) STEP(sub, 0, r, 4, r, 6) /* p */

#if defined(__x86_64__)
enum { scalar_r, scalar_s };
#define LISTED(op, to, ka, a, kb, b) {tile_##op, to, a, b, scalar_##ka, scalar_##kb},
static const tile_step adamw[] = {ADAMW(LISTED)};

#define DO_mul(a, b) a * b
#define DO_add(a, b) a + b
#define DO_sub(a, b) a - b
#define DO_div(a, b) a / b
// The empty assembler between two operators keeps the compiler from fusing a product
// with a sum.
#define DONE(op, to, ka, a, kb, b) r##to = DO_##op(ka##a, kb##b); __asm__("" : "+" REGISTER(r##to));
#define REGISTER(x) "x"(x)
#define CHAIN(name, WIDTH, VECTOR, UNALIGNED, set) \
	WIDTH static size_t name(float *const *at, const float *x, size_t n) { \
		enum { width = sizeof(VECTOR) / 4 }; \
		const VECTOR s0 = set(x[0]), s1 = set(x[1]), s2 = set(x[2]), s3 = set(x[3]), s4 = set(x[4]), s5 = set(x[5]), s6 = set(x[6]), s7 = set(x[7]), s8 = set(x[8]); \
		float *const a0 = at[0], *const a1 = at[1], *const a2 = at[2], *const a3 = at[3]; \
		size_t i = 0; \
		for (; i + width <= n; i += width) { \
			VECTOR r0 = *(const UNALIGNED *)(a0 + i), r1 = *(const UNALIGNED *)(a1 + i), r2 = *(const UNALIGNED *)(a2 + i), r3 = *(const UNALIGNED *)(a3 + i), r4, r5, r6; \
			ADAMW(DONE) \
			*(UNALIGNED *)(a0 + i) = r0, *(UNALIGNED *)(a2 + i) = r2, *(UNALIGNED *)(a3 + i) = r3; \
		} \
		return i; \
	}
#define DO_sqrt(a, b) _mm256_sqrt_ps(a)
CHAIN(adamw_avx2, __attribute__((target("avx2"))), __m256, wide, _mm256_set1_ps)
#undef DO_sqrt
#undef REGISTER
#define DO_sqrt(a, b) _mm512_sqrt_ps(a)
#define REGISTER(x) "v"(x)
CHAIN(adamw_avx512, __attribute__((target("avx512f"))), __m512, wider, _mm512_set1_ps)
#endif

int onering_tiles_one_loop(const tile_step *steps, size_t count, size_t given) {
#if defined(__x86_64__)
	return __builtin_cpu_supports("avx2") && given == 4 && count == sizeof adamw / sizeof *adamw && !memcmp(steps, adamw, sizeof adamw);
#else
	return 0;
#endif
}

void onering_tiles(const tile_step *steps, size_t count, float *const *at, size_t given, size_t arrays, const float *scalars, size_t n) {
	float between[tile_arrays][tile_elements] __attribute__((aligned(64)));
	float *array[tile_arrays];
	loop *const(*loops)[3] = loops_plain;
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f")) loops = loops_avx512;
	else if (__builtin_cpu_supports("avx2")) loops = loops_avx2;
#endif
	unsigned state = flush_subnormals();
	for (size_t i = given; i < arrays; i++) array[i] = between[i];
	size_t first = 0;
#if defined(__x86_64__)
	if (onering_tiles_one_loop(steps, count, given)) first = loops == loops_avx512 ? adamw_avx512(at, scalars, n) : adamw_avx2(at, scalars, n);
#endif
	for (; first < n; first += tile_elements) {
		size_t m = n - first < tile_elements ? n - first : tile_elements;
		for (size_t i = 0; i < given; i++) {
			array[i] = at[i] + first;
#if defined(__GNUC__)
			// Processors fetch ahead within a page, which is one tile.
			if (m == tile_elements && first + 2 * tile_elements <= n)
				for (size_t k = 0; k < tile_elements; k += 16) __builtin_prefetch(array[i] + tile_elements + k, 0, 2);
#endif
		}
		for (const tile_step *s = steps; s < steps + count; s++) {
			const float *a = s->a_scalar ? NULL : array[s->a], *b = s->b_scalar ? NULL : array[s->b];
			float x = s->a_scalar ? scalars[s->a] : s->b_scalar ? scalars[s->b] : 0;
			loops[s->op][s->a_scalar ? 2 : s->b_scalar ? 1 : 0](array[s->to], a, b, x, m);
		}
	}
	restore(state);
}

// Loops of a constant length are what compilers vectorize without being asked.
#define BLOCKS(...) \
	size_t i = 0; \
	for (; i + tile_elements <= n; i += tile_elements) \
		for (size_t k = i; k < i + tile_elements; k++) {__VA_ARGS__} \
	for (size_t k = i; k < n; k++) {__VA_ARGS__}
typedef uint32_t __attribute__((may_alias)) bits;

void onering_split(uint16_t *restrict high, uint16_t *restrict low, const float *restrict x, size_t n) {
	const bits *from = (const void *)x;
	BLOCKS(
		uint32_t b = from[k], rounded = (b + 0x7fff + (b >> 16 & 1)) >> 16, nan = b >> 16 | (b & 0x7f0000 ? 0 : 0x40);
		uint32_t up = (b & 0x1ffff) == 0x18000; /* halfway to the even number above */
		high[k] = (uint16_t)((b & 0x7fffffff) > 0x7f800000 ? nan : rounded);
		low[k] = (uint16_t)(b + up);)
}

void onering_join(float *restrict x, const uint16_t *restrict high, const uint16_t *restrict low, size_t n) {
	bits *to = (void *)x;
	BLOCKS(to[k] = ((uint32_t)high[k] - (low[k] > 0x8000)) << 16 | low[k];)
}
