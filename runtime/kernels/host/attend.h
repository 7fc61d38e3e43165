// Attention. The score of a query and a key is a forward product; exponentials are added in 16
// lanes in the order of places, and values in the order of places. So a row has the same bits in
// decoding, in a prompt and in training.

// mix is R rows of V vectors: onto y, or from zero, the sum over j < n of p[r * row + j * step]
// times row j of v. The last vector has so few numbers.
INLINE void mix(const int R, const int V, int64_t n, const float *p, int64_t row, int64_t step, const uint16_t *v, int64_t ldv, float *y, int64_t ldy, int few, int onto) {
	lanes sum[6][4];
	UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < V; c++) sum[r][c] = onto ? load_some(y + r * ldy + 16 * c, c == V - 1 ? few : 16) : set(0);
	for (int64_t j = 0; j < n; j++) {
		lanes x[4];
		UNROLL for (int c = 0; c < V; c++) x[c] = c == V - 1 ? widen_some(v + j * ldv + 16 * c, few) : widen(v + j * ldv + 16 * c);
		UNROLL for (int r = 0; r < R; r++) {
			lanes w = set(p[r * row + j * step]);
			UNROLL for (int c = 0; c < V; c++) sum[r][c] = fma3(w, x[c], sum[r][c]);
		}
	}
	UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < V; c++) store_some(y + r * ldy + 16 * c, sum[r][c], c == V - 1 ? few : 16);
}
#define MIX(R, V) \
	static __attribute__((noinline)) void mix_##R##x##V(int64_t n, const float *p, int64_t row, int64_t step, const uint16_t *v, int64_t ldv, float *y, int64_t ldy, int few, int onto) { \
		if (few == 16) mix(R, V, n, p, row, step, v, ldv, y, ldy, 16, onto); \
		else mix(R, V, n, p, row, step, v, ldv, y, ldy, few, onto); \
	}
#if KIND == AVX512
enum { MIX_ROWS = 6, MIX_VECTORS = 4 };
MIX(6, 4)
MIX(6, 1)
MIX(2, 4)
MIX(2, 1)
MIX(1, 4)
#define MIXES(rows, vectors) (rows == 6 ? vectors == 4 ? mix_6x4 : mix_6x1 : rows == 2 ? vectors == 4 ? mix_2x4 : mix_2x1 : vectors == 4 ? mix_1x4 : mix_1x1)
#else
enum { MIX_ROWS = 6, MIX_VECTORS = 1 };
MIX(6, 1)
MIX(2, 1)
#define MIXES(rows, vectors) (rows == 6 ? mix_6x1 : rows == 2 ? mix_2x1 : mix_1x1)
#endif
MIX(1, 1)

// mix_all is mix for m rows of width numbers.
static void mix_all(int64_t m, int64_t width, int64_t n, const float *p, int64_t row, int64_t step, const uint16_t *v, int64_t ldv, float *y, int64_t ldy, int onto) {
	for (int64_t r = 0, rows; r < m; r += rows) {
		rows = m - r >= MIX_ROWS ? MIX_ROWS : m - r >= 2 ? 2 : 1;
		for (int64_t c = 0, vectors; c < width; c += 16 * vectors) {
			vectors = width - c > 16 * (MIX_VECTORS - 1) ? MIX_VECTORS : 1;
			int few = width - c < 16 * vectors ? width - c - 16 * (vectors - 1) : 16;
			MIXES(rows, vectors)(n, p + r * row, row, step, v + c, ldv, y + r * ldy + c, ldy, few, onto);
		}
	}
}

// exponentials turns scores into exp((score - largest) scale), and returns their sum.
static float exponentials(float *s, int64_t n, float scale) {
	int64_t whole = n / 16 * 16;
	lanes most = set(-INFINITY), sum = set(0);
	for (int64_t i = 0; i < whole; i += 16) most = larger(most, load(s + i));
	float top = largest16(most);
	for (int64_t i = whole; i < n; i++) top = top > s[i] ? top : s[i];
	for (int64_t i = 0; i < n; i += 16) {
		int few = n - i < 16 ? n - i : 16;
		store_some(s + i, exponential(mul(sub(load_some(s + i, few), set(top)), set(scale))), few);
		sum = add(sum, load_some(s + i, few));
	}
	return sum16(sum);
}

// A view is what rows of queries see: query r the keys before first + r * rise, or the last
// `window` of these.
typedef struct {
	const uint16_t *q, *k, *v;
	int64_t ldq, ldk, ldv, rows, first, rise, window, width;
	float scale, cap;
} view;

// capped turns scores into tanh(score scale / cap).
static void capped(float *s, int64_t n, float scale, float cap) {
	for (int64_t i = 0; i < n; i += 16) {
		int few = n - i < 16 ? n - i : 16;
		lanes e = exponential(mul(load_some(s + i, few), set(2 * scale / cap)));
		store_some(s + i, sub(set(1), quotient(set(2), add(e, set(1)))), few);
	}
}

// weigh fills w [rows,ld] with the exponentials, 0 for what a query does not see, and sums with
// their sums. It returns the number of the first key, and in n how many there are.
static int64_t weigh(const view *a, float *w, int64_t ld, float *sums, int64_t *n) {
	int64_t base = a->window && a->first > a->window ? a->first - a->window : 0, last = a->first + (a->rows - 1) * a->rise;
	*n = last - base;
	rows_by_rows(a->rows, *n, a->width, a->q, a->ldq, a->k + base * a->ldk, a->ldk, w, ld);
	for (int64_t r = 0; r < a->rows; r++) {
		int64_t to = a->first + r * a->rise, from = a->window && to > a->window ? to - a->window : 0;
		float *row = w + r * ld;
		if (a->cap) capped(row + from - base, to - from, a->scale, a->cap);
		sums[r] = exponentials(row + from - base, to - from, a->cap ? a->cap : a->scale);
		memset(row, 0, (from - base) * 4);
		memset(row + to - base, 0, (last - to) * 4);
	}
	return base;
}

static void attend_rows(const view *a, uint16_t *out, int64_t ldo) {
	int64_t ld = a->first + a->rows * (a->rise + 1), width = a->width, n;
	float *w = onering_room((a->rows * (ld + width) + a->rows) * 4), *y = w + a->rows * ld, *sums = y + a->rows * width;
	int64_t base = weigh(a, w, ld, sums, &n);
	mix_all(a->rows, width, n, w, ld, 1, a->v + base * a->ldv, a->ldv, y, width, 0);
	for (int64_t r = 0; r < a->rows; r++) for (int64_t c = 0; c < width; c += 16) {
		int few = width - c < 16 ? width - c : 16;
		narrow_some(out + r * ldo + c, quotient(load_some(y + r * width + c, few), set(sums[r])), few);
	}
	onering_room_back(w);
}

// turn_head turns a head by angles; without cosines it copies it.
static void turn_head(const uint16_t *x, uint16_t *y, int64_t width, const float *cosines, const float *sines, float sign) {
	int64_t half = width / 2;
	if (!cosines) {
		memcpy(y, x, width * 2);
		return;
	}
	for (int64_t i = 0; i < half; i += 16) {
		int few = half - i < 16 ? half - i : 16;
		lanes a = widen_some(x + i, few), b = widen_some(x + half + i, few), c = load_some(cosines + i, few), s = mul(load_some(sines + i, few), set(sign));
		narrow_some(y + i, sub(mul(a, c), mul(b, s)), few);
		narrow_some(y + half + i, add(mul(b, c), mul(a, s)), few);
	}
}

// placed is where a head's turned angles are for a place.
INLINE const float *placed(const attention *a, const float *angles, int64_t place) { return angles ? angles + place * (a->width / 2) : NULL; }

// past is how many tokens of a row the cache has before the call's.
INLINE int64_t past(const attention *a, int64_t row) {
	int64_t n = a->tokens == 1 ? a->before[row] : a->total == a->tokens ? 0 : (int64_t)a->before[row] + 1 - a->tokens;
	return n < 0 ? 0 : n;
}

// put puts the keys and values of a token and a group into the cache.
static void put(const attention *a, int64_t row, int64_t token, int64_t group) {
	int64_t k = a->width, place = past(a, row) + token, at = ((row * a->groups + group) * a->capacity + place) * k;
	const uint16_t *x = a->qkv + (row * a->tokens + token) * (a->heads + 2 * a->groups) * k;
	if (place >= a->capacity) return;
	turn_head(x + (a->heads + group) * k, a->keys + at, k, placed(a, a->cos, place), placed(a, a->sin, place), 1);
	memcpy(a->values + at, x + (a->heads + a->groups + group) * k, k * 2);
}

// cached is the view of a group's keys in the cache.
static view cached(const attention *a, int64_t row, int64_t group) {
	int64_t at = (row * a->groups + group) * a->capacity * a->width;
	return (view){.k = a->keys + at, .v = a->values + at, .ldk = a->width, .ldv = a->width, .ldq = a->width, .window = a->window, .width = a->width, .scale = a->scale, .cap = a->cap};
}

// attend_token: a task is a group of heads of one row.
static void attend_token(const job *j, size_t task) {
	const attention *a = j->a[0];
	int64_t row = task / a->groups, group = task % a->groups, heads = a->heads / a->groups, place = past(a, row), k = a->width;
	if (place >= a->capacity) place = a->capacity - 1;
	uint16_t *q = onering_room(heads * k * 2);
	put(a, row, 0, group);
	for (int64_t h = 0; h < heads; h++) turn_head(a->qkv + (row * (a->heads + 2 * a->groups) + group * heads + h) * k, q + h * k, k, placed(a, a->cos, place), placed(a, a->sin, place), 1);
	view v = cached(a, row, group);
	v.q = q, v.rows = heads, v.first = place + 1;
	attend_rows(&v, a->out + (row * a->heads + group * heads) * k, k);
	onering_room_back(q);
}

// attend_keys: a task is a token of a prompt.
static void attend_keys(const job *j, size_t task) {
	const attention *a = j->a[0];
	for (int64_t g = 0; g < a->groups; g++) put(a, task / a->tokens, task % a->tokens, g);
}

// attend_prompt: a task is some tokens of a head, once all keys are in the cache.
static void attend_prompt(const job *j, size_t task) {
	const attention *a = j->a[0];
	int64_t blocks = (a->tokens + BLOCK_ROWS - 1) / BLOCK_ROWS, first = task % blocks * BLOCK_ROWS, head = task / blocks % a->heads, row = task / blocks / a->heads, k = a->width;
	int64_t rows = a->tokens - first < BLOCK_ROWS ? a->tokens - first : BLOCK_ROWS, before = past(a, row) + first, all = a->heads + 2 * a->groups;
	uint16_t *q = onering_room(rows * k * 2);
	for (int64_t t = 0; t < rows; t++) turn_head(a->qkv + ((row * a->tokens + first + t) * all + head) * k, q + t * k, k, placed(a, a->cos, before + t), placed(a, a->sin, before + t), 1);
	view v = cached(a, row, head / (a->heads / a->groups));
	v.q = q, v.rows = rows, v.first = before + 1, v.rise = 1;
	attend_rows(&v, a->out + (row * a->tokens + first) * a->heads * k + head * k, a->heads * k);
	onering_room_back(q);
}

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
