// Attention of whole sequences, and its gradient, in bfloat16.

// packed_view is the view of some queries of a head in [B,T,heads*K].
static view packed_view(const causal *a, int64_t row, int64_t head, int64_t first) {
	int64_t k = a->width, ldq = a->heads * k, ldk = a->groups * k, group = head / (a->heads / a->groups), at = row * a->tokens * ldk + group * k;
	int64_t rows = a->tokens - first < BLOCK_ROWS ? a->tokens - first : BLOCK_ROWS;
	return (view){.q = a->q + (row * a->tokens + first) * ldq + head * k, .k = a->k + at, .v = a->v + at, .ldq = ldq, .ldk = ldk, .ldv = ldk, .rows = rows, .first = first + 1, .rise = 1, .window = a->window, .width = k, .scale = a->scale, .cap = a->cap};
}

static void causal_forward(const job *j, size_t task) {
	const causal *a = j->a[0];
	int64_t blocks = (a->tokens + BLOCK_ROWS - 1) / BLOCK_ROWS, first = task % blocks * BLOCK_ROWS, head = task / blocks % a->heads, row = task / blocks / a->heads;
	view v = packed_view(a, row, head, first);
	attend_rows(&v, a->out + (row * a->tokens + first) * v.ldq + head * a->width, v.ldq);
}

// causal_queries: a task is a head of a row. It computes the gradient of the queries, and the
// head's part of those of keys and values.
static void causal_queries(const job *j, size_t task) {
	const causal *a = j->a[0];
	int64_t head = task % a->heads, row = task / a->heads, k = a->width, T = a->tokens, ldq = a->heads * k, ld = T + 16, n;
	float *dk = a->part_k + task * T * k, *dv = a->part_v + task * T * k;
	float *p = onering_room(BLOCK_ROWS * (3 * ld + k + 1) * 4), *dp = p + BLOCK_ROWS * ld, *t = dp + BLOCK_ROWS * ld, *dq = t + BLOCK_ROWS * ld, *sums = dq + BLOCK_ROWS * k;
	memset(dk, 0, T * k * 4);
	memset(dv, 0, T * k * 4);
	for (int64_t first = 0; first < T; first += BLOCK_ROWS) {
		view v = packed_view(a, row, head, first);
		int64_t at = (row * T + first) * ldq + head * k;
		int64_t base = weigh(&v, p, ld, sums, &n);
		v.k += base * v.ldk, v.v += base * v.ldv;
		rows_by_rows(v.rows, n, k, a->dy + at, ldq, v.v, v.ldv, dp, ld);
		if (a->cap) rows_by_rows(v.rows, n, k, v.q, v.ldq, v.k, v.ldk, t, ld);
		for (int64_t r = 0; r < v.rows; r++) {
			lanes delta = set(0), total = set(sums[r]), scale = set(a->scale);
			for (int64_t c = 0; c < k; c += 16) {
				int few = k - c < 16 ? k - c : 16;
				delta = fma3(widen_some(a->dy + at + r * ldq + c, few), widen_some(a->o + at + r * ldq + c, few), delta);
			}
			delta = set(sum16(delta));
			if (a->cap) capped(t + r * ld, n, a->scale, a->cap);
			for (int64_t i = 0; i < n; i += 16) {
				float *w = p + r * ld + i, *d = dp + r * ld + i;
				int few = n - i < 16 ? n - i : 16;
				lanes x = quotient(load_some(w, few), total);
				store_some(w, x, few);
				x = mul(mul(x, sub(load_some(d, few), delta)), scale);
				if (a->cap) { // times the slope of tanh
					lanes y = load_some(t + r * ld + i, few);
					x = mul(x, sub(set(1), mul(y, y)));
				}
				store_some(d, x, few);
			}
		}
		mix_all(v.rows, k, n, dp, ld, 1, v.k, v.ldk, dq, k, 0);
		for (int64_t r = 0; r < v.rows; r++) for (int64_t c = 0; c < k; c += 16) narrow_some(a->dq + at + r * ldq + c, load_some(dq + r * k + c, k - c < 16 ? k - c : 16), k - c < 16 ? k - c : 16);
		mix_all(n, k, v.rows, dp, 1, ld, v.q, ldq, dk + base * k, k, 1);
		mix_all(n, k, v.rows, p, 1, ld, a->dy + at, ldq, dv + base * k, k, 1);
	}
	onering_room_back(p);
}

// causal_sum: a task is a token of a row. It adds the parts of a group's heads.
static void causal_sum(const job *j, size_t task) {
	const causal *a = j->a[0];
	int64_t row = task / a->tokens, token = task % a->tokens, k = a->width, heads = a->heads / a->groups;
	for (int64_t g = 0; g < a->groups; g++) for (int64_t c = 0; c < k; c += 16) {
		int few = k - c < 16 ? k - c : 16;
		lanes dk = set(0), dv = set(0);
		for (int64_t h = 0; h < heads; h++) {
			int64_t at = ((row * a->heads + g * heads + h) * a->tokens + token) * k + c;
			dk = add(dk, load_some(a->part_k + at, few));
			dv = add(dv, load_some(a->part_v + at, few));
		}
		int64_t to = (task * a->groups + g) * k + c;
		narrow_some(a->dk + to, dk, few);
		narrow_some(a->dv + to, dv, few);
	}
}
