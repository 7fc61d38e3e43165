// Attention of a type of numbers, for which this is included behind tiles.h: WIDEN makes lanes of
// some of them.

// mix is R rows of V vectors: onto y, or from zero, the sum over j < n of p[r * row + j * step]
// times row j of v. The last vector has so few numbers.
INLINE void E(mix)(const int R, const int V, int64_t n, const float *p, int64_t row, int64_t step, const ELEMENT *v, int64_t ldv, float *y, int64_t ldy, int few, int onto) {
	lanes sum[6][4];
	UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < V; c++) sum[r][c] = onto ? load_some(y + r * ldy + 16 * c, c == V - 1 ? few : 16) : set(0);
	for (int64_t j = 0; j < n; j++) {
		lanes x[4];
		UNROLL for (int c = 0; c < V; c++) x[c] = c == V - 1 ? WIDEN(v + j * ldv + 16 * c, few) : WIDEN(v + j * ldv + 16 * c, 16);
		UNROLL for (int r = 0; r < R; r++) {
			lanes w = set(p[r * row + j * step]);
			UNROLL for (int c = 0; c < V; c++) sum[r][c] = fma3(w, x[c], sum[r][c]);
		}
	}
	UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < V; c++) store_some(y + r * ldy + 16 * c, sum[r][c], c == V - 1 ? few : 16);
}
#undef MIX
#undef MIXES
#define MIX(R, V) \
	static __attribute__((noinline)) void E(mix_##R##x##V)(int64_t n, const float *p, int64_t row, int64_t step, const ELEMENT *v, int64_t ldv, float *y, int64_t ldy, int few, int onto) { \
		if (few == 16) E(mix)(R, V, n, p, row, step, v, ldv, y, ldy, 16, onto); \
		else E(mix)(R, V, n, p, row, step, v, ldv, y, ldy, few, onto); \
	}
#if KIND == AVX512
MIX(6, 4)
MIX(6, 1)
MIX(2, 4)
MIX(2, 1)
MIX(1, 4)
#define MIXES(rows, vectors) (rows == 6 ? vectors == 4 ? E(mix_6x4) : E(mix_6x1) : rows == 2 ? vectors == 4 ? E(mix_2x4) : E(mix_2x1) : vectors == 4 ? E(mix_1x4) : E(mix_1x1))
#else
MIX(6, 1)
MIX(2, 1)
#define MIXES(rows, vectors) (rows == 6 ? E(mix_6x1) : rows == 2 ? E(mix_2x1) : E(mix_1x1))
#endif
MIX(1, 1)

// mix_all is mix for m rows of width numbers.
static void E(mix_all)(int64_t m, int64_t width, int64_t n, const float *p, int64_t row, int64_t step, const ELEMENT *v, int64_t ldv, float *y, int64_t ldy, int onto) {
	for (int64_t r = 0, rows; r < m; r += rows) {
		rows = m - r >= MIX_ROWS ? MIX_ROWS : m - r >= 2 ? 2 : 1;
		for (int64_t c = 0, vectors; c < width; c += 16 * vectors) {
			vectors = width - c > 16 * (MIX_VECTORS - 1) ? MIX_VECTORS : 1;
			int few = width - c < 16 * vectors ? width - c - 16 * (vectors - 1) : 16;
			MIXES(rows, vectors)(n, p + r * row, row, step, v + c, ldv, y + r * ldy + c, ldy, few, onto);
		}
	}
}

// A view is what rows of queries see: query r the keys before first + r * rise, or the last
// `window` of these.
typedef struct {
	const ELEMENT *q, *k, *v;
	int64_t ldq, ldk, ldv, rows, first, rise, window, width;
	float scale, cap;
} E(view);

// weigh fills w [rows,ld] with the exponentials, 0 for what a query does not see, and sums with
// their sums. It returns the number of the first key, and in n how many there are.
static int64_t E(weigh)(const E(view) *a, float *w, int64_t ld, float *sums, int64_t *n) {
	int64_t base = a->window && a->first > a->window ? a->first - a->window : 0, last = a->first + (a->rows - 1) * a->rise;
	*n = last - base;
	E(rows_by)(a->rows, *n, a->width, a->q, a->ldq, &(matrix){a->k + base * a->ldk, NULL, a->ldk, OWN}, 0, w, ld);
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

static void E(attend_rows)(const E(view) *a, ELEMENT *out, int64_t ldo) {
	int64_t ld = a->first + a->rows * (a->rise + 1), width = a->width, n;
	float *w = onering_room((a->rows * (ld + width) + a->rows) * 4), *y = w + a->rows * ld, *sums = y + a->rows * width;
	int64_t base = E(weigh)(a, w, ld, sums, &n);
	E(mix_all)(a->rows, width, n, w, ld, 1, a->v + base * a->ldv, a->ldv, y, width, 0);
	for (int64_t r = 0; r < a->rows; r++) for (int64_t c = 0; c < width; c += 16) {
		int few = width - c < 16 ? width - c : 16;
		PUT(out + r * ldo + c, quotient(load_some(y + r * width + c, few), set(sums[r])), few);
	}
	onering_room_back(w);
}

// turn_head turns a head by angles; without cosines it copies it.
static void E(turn_head)(const ELEMENT *x, ELEMENT *y, int64_t width, const float *cosines, const float *sines, float sign) {
	int64_t half = width / 2;
	if (!cosines) {
		memcpy(y, x, width * sizeof *x);
		return;
	}
	for (int64_t i = 0; i < half; i += 16) {
		int few = half - i < 16 ? half - i : 16;
		lanes a = WIDEN(x + i, few), b = WIDEN(x + half + i, few), c = load_some(cosines + i, few), s = mul(load_some(sines + i, few), set(sign));
		PUT(y + i, sub(mul(a, c), mul(b, s)), few);
		PUT(y + half + i, add(mul(b, c), mul(a, s)), few);
	}
}

// put puts the keys and values of a token and a group into the cache.
static void E(put)(const attention *a, int64_t row, int64_t token, int64_t group) {
	int64_t k = a->width, place = past(a, row) + token, at = ((row * a->groups + group) * a->capacity + place) * k;
	const ELEMENT *x = (const ELEMENT *)a->qkv + (row * a->tokens + token) * (a->heads + 2 * a->groups) * k;
	if (place >= a->capacity) return;
	E(turn_head)(x + (a->heads + group) * k, (ELEMENT *)a->keys + at, k, placed(a, a->cos, place), placed(a, a->sin, place), 1);
	memcpy((ELEMENT *)a->values + at, x + (a->heads + a->groups + group) * k, k * sizeof *x);
}

// cached is the view of a group's keys in the cache.
static E(view) E(cached)(const attention *a, int64_t row, int64_t group) {
	int64_t at = (row * a->groups + group) * a->capacity * a->width;
	return (E(view)){.k = (ELEMENT *)a->keys + at, .v = (ELEMENT *)a->values + at, .ldk = a->width, .ldv = a->width, .ldq = a->width, .window = a->window, .width = a->width, .scale = a->scale, .cap = a->cap};
}

// attend_token: a task is a group of heads of one row.
static void E(attend_token)(const job *j, size_t task) {
	const attention *a = j->a[0];
	int64_t row = task / a->groups, group = task % a->groups, heads = a->heads / a->groups, place = past(a, row), k = a->width;
	if (place >= a->capacity) place = a->capacity - 1;
	ELEMENT *q = onering_room(heads * k * sizeof *q);
	E(put)(a, row, 0, group);
	for (int64_t h = 0; h < heads; h++) E(turn_head)((const ELEMENT *)a->qkv + (row * (a->heads + 2 * a->groups) + group * heads + h) * k, q + h * k, k, placed(a, a->cos, place), placed(a, a->sin, place), 1);
	E(view) v = E(cached)(a, row, group);
	v.q = q, v.rows = heads, v.first = place + 1;
	E(attend_rows)(&v, (ELEMENT *)a->out + (row * a->heads + group * heads) * k, k);
	onering_room_back(q);
}

// attend_keys: a task is a token of a prompt.
static void E(attend_keys)(const job *j, size_t task) {
	const attention *a = j->a[0];
	for (int64_t g = 0; g < a->groups; g++) E(put)(a, task / a->tokens, task % a->tokens, g);
}

// attend_prompt: a task is some tokens of a head, once all keys are in the cache.
static void E(attend_prompt)(const job *j, size_t task) {
	const attention *a = j->a[0];
	int64_t blocks = (a->tokens + BLOCK_ROWS - 1) / BLOCK_ROWS, first = task % blocks * BLOCK_ROWS, head = task / blocks % a->heads, row = task / blocks / a->heads, k = a->width;
	int64_t rows = a->tokens - first < BLOCK_ROWS ? a->tokens - first : BLOCK_ROWS, before = past(a, row) + first, all = a->heads + 2 * a->groups;
	ELEMENT *q = onering_room(rows * k * sizeof *q);
	for (int64_t t = 0; t < rows; t++) E(turn_head)((const ELEMENT *)a->qkv + ((row * a->tokens + first + t) * all + head) * k, q + t * k, k, placed(a, a->cos, before + t), placed(a, a->sin, before + t), 1);
	E(view) v = E(cached)(a, row, head / (a->heads / a->groups));
	v.q = q, v.rows = rows, v.first = before + 1, v.rise = 1;
	E(attend_rows)(&v, (ELEMENT *)a->out + (row * a->tokens + first) * a->heads * k + head * k, a->heads * k);
	onering_room_back(q);
}

#undef E
#undef ELEMENT
#undef OWN
#undef VECTOR
#undef STEP
#undef LOAD
#undef LOAD_SOME
#undef LOAD_HELD
#undef TIMES
#undef LOAD_PART
#undef SPLIT16
#undef WIDEN
#undef PUT
#undef PUT_TWO
