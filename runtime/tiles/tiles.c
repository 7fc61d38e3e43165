#include "tiles.h"
#include "../subnormals.h"

#include <math.h>

#if defined(__x86_64__) || defined(_M_X64)
#include <immintrin.h>
#endif

typedef void loop(float *to, const float *a, const float *b, float x, size_t n);

// Each operator has a loop of its own, so that no product is fused with a sum: vectors
// of any width have the same bits. The result may be where an operand is.
#define LOOPS(kind, WIDTH, VECTOR, root) \
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
	/* The loops of an operator: on two arrays, on an array and a scalar, and on a scalar and an array. */ \
	static loop *const loops##kind[][3] = { \
		[tile_mul] = {mul##kind, mul_scalar##kind, NULL}, \
		[tile_add] = {add##kind, add_scalar##kind, NULL}, \
		[tile_sub] = {sub##kind, sub_scalar##kind, scalar_sub##kind}, \
		[tile_div] = {div##kind, div_scalar##kind, scalar_div##kind}, \
		[tile_sqrt] = {sqrt##kind, NULL, NULL}, \
	};
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
LOOPS(_avx2, __attribute__((target("avx2"))), wide, _mm256_sqrt_ps)
LOOPS(_avx512, __attribute__((target("avx512f"))), wider, _mm512_sqrt_ps)
#endif
LOOPS(_plain, , float, sqrtf)

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
	for (size_t first = 0; first < n; first += tile_elements) {
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
