// The kernels of kernels.cu on the CPU, as functions that take their arguments as CUDA's
// driver does: an array of pointers.
#include "../kernels.cu"
#include "../attention.cu"

#include "../../../kernels/kernels.h"

#define A(i, type) (*(type *)a[i])
typedef float *floats;
typedef u16 *shorts;
typedef i64 *longs;

static void call_adamw(void **a) { adamw(A(0, floats), A(1, floats), A(2, floats), A(3, floats), A(4, shorts), A(5, i64), A(6, adamw_numbers)); }
static void call_squares(void **a) { squares(A(0, floats), A(1, i64), A(2, float), A(3, floats)); }
static void call_sum_parts(void **a) { sum_parts(A(0, floats), A(1, int), A(2, floats)); }
static void call_rms_norm(void **a) { rms_norm(A(0, floats), A(1, floats), A(2, shorts), A(3, int), A(4, float)); }
static void call_rms_norm_grad(void **a) { rms_norm_grad(A(0, floats), A(1, floats), A(2, shorts), A(3, floats), A(4, floats), A(5, floats), A(6, i64), A(7, int), A(8, float)); }
static void call_sum_rows(void **a) { sum_rows(A(0, floats), A(1, floats), A(2, int), A(3, int)); }
static void call_swiglu(void **a) { swiglu(A(0, shorts), A(1, shorts), A(2, shorts), A(3, i64), A(4, int), A(5, i64)); }
static void call_swiglu_grad(void **a) { swiglu_grad(A(0, shorts), A(1, shorts), A(2, shorts), A(3, shorts), A(4, shorts), A(5, i64)); }
static void call_attend_join(void **a) { attend_join(A(0, attention), A(1, int)); }
static void call_masked_softmax(void **a) { masked_softmax(A(0, floats), A(1, floats), A(2, floats), A(3, i64), A(4, int)); }
static void call_softmax_grad(void **a) { softmax_grad(A(0, floats), A(1, floats), A(2, floats), A(3, floats), A(4, int)); }
static void call_choose(void **a) { choose(A(0, floats), A(1, floats), A(2, floats), A(3, longs), A(4, floats), A(5, floats), A(6, int)); }
static void call_head_sums(void **a) { head_sums(A(0, floats), A(1, floats), A(2, floats), A(3, floats), A(4, floats), A(5, int)); }
static void call_head_grad(void **a) { head_grad(A(0, floats), A(1, floats), A(2, floats), A(3, longs), A(4, floats), A(5, floats), A(6, shorts), A(7, int)); }
static void call_turn(void **a) { turn(A(0, shorts), A(1, longs), A(2, floats), A(3, floats), A(4, shorts), A(5, i64), A(6, int), A(7, int), A(8, float)); }
static void call_gather(void **a) { gather(A(0, shorts), A(1, longs), A(2, floats), A(3, shorts), A(4, i64), A(5, int)); }
static void call_causal_sum(void **a) { causal_sum(A(0, causal), A(1, i64)); }
#define CALL_CAUSAL(NAME) \
	static void call_causal_##NAME(void **a) { causal_##NAME(A(0, causal)); }
CALL_CAUSAL(forward_64)
CALL_CAUSAL(forward_128)
CALL_CAUSAL(queries_64)
CALL_CAUSAL(queries_128)
CALL_CAUSAL(keys_64)
CALL_CAUSAL(keys_128)
#define CALL_ATTEND(W) \
	static void call_attend_##W(void **a) { attend_##W(A(0, attention)); }
CALL_ATTEND(64)
CALL_ATTEND(128)

static void (*const calls[KERNELS])(void **) = {
	call_adamw, call_squares, call_sum_parts, call_rms_norm, call_rms_norm_grad, call_sum_rows, call_swiglu, call_swiglu_grad, call_attend_join, call_masked_softmax, call_softmax_grad, call_choose, call_head_sums, call_head_grad, call_turn, call_gather, call_causal_sum,
	call_causal_forward_64, call_causal_forward_128, call_causal_queries_64, call_causal_queries_128, call_causal_keys_64, call_causal_keys_128, call_attend_64, call_attend_128,
};

static inline float element(const void *p, i64 i, int is_wide) { return is_wide ? ((const float *)p)[i] : wide(((const u16 *)p)[i]); }

// TABLE runs a kernel, or with kernel < 0 a product, one element after the other.
void TABLE(int kernel, const unsigned *grid, unsigned block, void **args) {
	if (kernel >= 0) {
		launch(calls[kernel], args, (place){grid[0], grid[1], grid[2]}, block);
		return;
	}
	const onering_product *p = (const onering_product *)args;
	for (i64 i = 0; i < p->m; i++)
		for (i64 j = 0; j < p->n; j++) {
			float y = 0;
			for (i64 k = 0; k < p->k; k++) y += element(p->a, p->turn_a ? k * p->m + i : i * p->k + k, 0) * element(p->b, p->turn_b ? j * p->k + k : k * p->n + j, 0);
			if (p->bias) y += element(p->bias, j, 0);
			if (p->sum) y += p->sum[i * p->y_step + j];
			if (p->wide) ((float *)p->y)[i * p->y_step + j] = y;
			else ((u16 *)p->y)[i * p->y_step + j] = narrow(y);
		}
}
