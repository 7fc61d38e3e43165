// The table of a kind's kernels.
#include "host.h"

#include <math.h>
#include <string.h>

#define PLAIN 0
#define AVX2 1
#define AVX512 2
#include "lanes.h"
#include "scores.h"
#include "products.h"
#include "causal.h"
#include "rows.h"

#define TABLE(name) \
	const kind onering_##name = { \
		#name, PANEL, {[KERNEL_RMS_NORM] = rms_norm, [KERNEL_RMS_NORM_GRAD] = rms_norm_grad, [KERNEL_SUM_ROWS] = sum_rows, [KERNEL_SWIGLU] = swiglu, [KERNEL_SWIGLU_GRAD] = swiglu_grad, \
			[KERNEL_TURN] = turn, [KERNEL_GATHER] = gather, [KERNEL_MASKED_SOFTMAX] = masked_softmax, [KERNEL_SOFTMAX_GRAD] = softmax_grad, [KERNEL_CHOOSE] = choose, [KERNEL_HEAD_SUMS] = head_sums, [KERNEL_HEAD_GRAD] = head_grad, \
			[KERNEL_CAUSAL_FORWARD] = causal_forward, [KERNEL_CAUSAL_QUERIES] = causal_queries, [KERNEL_CAUSAL_SUM] = causal_sum, \
			[KERNEL_ATTEND] = attend_token, [KERNEL_ATTEND_KEYS] = attend_keys, [KERNEL_ATTEND_PROMPT] = attend_prompt, \
			[KERNEL_ATTEND_WIDE] = attend_token_wide, [KERNEL_ATTEND_KEYS_WIDE] = attend_keys_wide, [KERNEL_ATTEND_PROMPT_WIDE] = attend_prompt_wide, [KERNEL_ROW_DOTS] = row_dots, [KERNEL_UNPACK] = unpack_rows}, \
		forward, pack, outer, gate_up, \
	};
