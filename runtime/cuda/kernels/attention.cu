// Attention by the tensor cores: of a new token of each row to the keys and values in its
// cache, and in training of whole sequences to what came before. Scores are never stored: a
// tile of TILE queries or keys takes the others tile by tile, and the gradient computes them
// again (FlashAttention 2, arXiv 2307.08691). Products are of 16 bits with sums in float32.
// The weights go into the product with the values as two numbers of 16 bits each, so that the
// result is as one of float32 weights; those of the gradients are rounded.
//
// A block has four warps. The kernels are for heads of WIDTH elements, 64 or 128; smaller ones,
// multiples of 8, are filled up with zeros.

enum { TILE = 64, HALF_TILE = 32, ROWS = 16, ATTENTION_THREADS = 128, MOST_WIDTH = 128 };
#define LOG2_E 1.4426950408889634f
#define OUT_OF_SIGHT -1e30f // the score of a key that comes after its query

// spot is the place of eight elements in a tile of rows of W: so eight rows are in
// different banks.
INLINE int spot(int row, int part, const int W) { return row * W + (part ^ (row & 7)) * 8; }

// fetch begins to copy rows from first on of a head to a tile. x is [T,step] from the head on.
// Rows beyond T, and elements beyond the head, become 0.
INLINE void fetch(u16 *tile, const u16 *x, int first, int rows, i64 step, int tokens, int width, const int W) {
	ROLLED for (int i = threadIdx.x; i < rows * (W / 8); i += blockDim.x) {
		int row = i / (W / 8), part = i % (W / 8), there = first + row < tokens && part * 8 < width;
		copy_eight(tile + spot(row, part, W), x + (there ? (first + row) * step + part * 8 : 0), there);
	}
}

// rows_of reads 16 rows and 16 columns of a tile, as the first operand of multiply.
INLINE void rows_of(u32 *a, const u16 *tile, int row, int column, const int W) {
	int lane = threadIdx.x & 31;
	matrices(a, tile + spot(row + (lane & 15), column / 8 + (lane >> 4), W));
}

// columns_of reads 16 rows, which are columns of the second operand, and 16 of its rows.
INLINE void columns_of(u32 *b, const u16 *tile, int row, int column, const int W) {
	int lane = threadIdx.x & 31;
	matrices(b, tile + spot(row + (lane & 7) + (lane >> 4) * 8, column / 8 + (lane >> 3 & 1), W));
}

// turned_of reads 16 rows and 16 columns of the second operand.
INLINE void turned_of(u32 *b, const u16 *tile, int row, int column, const int W) {
	int lane = threadIdx.x & 31;
	matrices_turned(b, tile + spot(row + (lane & 15), column / 8 + (lane >> 4), W));
}

// scores adds rows of a, from row on, times the first N rows of b to s.
INLINE void scores(float s[][4], const u16 *a, int row, const u16 *b, const int N, const int W) {
	UNROLL for (int k = 0; k < W; k += 16) {
		u32 x[4], y[4];
		rows_of(x, a, row, k, W);
		UNROLL for (int n = 0; n < N; n += 16) {
			columns_of(y, b, n, k, W);
			multiply(s[n / 8], x, y);
			multiply(s[n / 8 + 1], x, y + 2);
		}
	}
}

// add_product adds p [16,N], which are sums of multiply, times N rows of b to sum [16,W]. With both,
// what p loses by its 16 bits is multiplied, too.
INLINE void add_product(float sum[][4], float p[][4], const u16 *b, const int N, const int W, const int both) {
	UNROLL for (int k = 0; k < N; k += 16) {
		u32 x[4], rest[4], y[4];
		UNROLL for (int i = 0; i < 4; i++) {
			float *at = p[k / 8 + i / 2] + i % 2 * 2;
			x[i] = both_narrow(at[0], at[1]);
			if (both) rest[i] = both_narrow(at[0] - wide((u16)x[i]), at[1] - wide((u16)(x[i] >> 16)));
		}
		UNROLL for (int n = 0; n < W; n += 16) {
			turned_of(y, b, k, n, W);
			multiply(sum[n / 8], x, y);
			multiply(sum[n / 8 + 1], x, y + 2);
			if (both) {
				multiply(sum[n / 8], rest, y);
				multiply(sum[n / 8 + 1], rest, y + 2);
			}
		}
	}
}

INLINE void clear(float s[][4], const int n) {
	UNROLL for (int i = 0; i < n; i++) {
		UNROLL for (int k = 0; k < 4; k++) s[i][k] = 0;
	}
}

// A thread has rows row and row + 8 of its warp's 16 of scores, and columns column and
// column + 1 of each eight.
INLINE int row_of(int i) { return (threadIdx.x & 31) / 4 + i * 8; }
INLINE int column_of(int i) { return threadIdx.x % 4 * 2 + i; }

// lanes_sum and lanes_most are of the four threads that have a row.
INLINE float lanes_sum(float x) {
	x += __shfl_xor_sync(~0u, x, 1);
	return x + __shfl_xor_sync(~0u, x, 2);
}
INLINE float lanes_most(float x) {
	x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
	return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

// seen makes s log2 of weights before their sum: times scale, and OUT_OF_SIGHT where a key
// comes after its query. query and key are the first of the warp's.
INLINE void seen(float s[][4], int query, int key, float scale) {
	int cut = key + TILE - 1 > query;
	UNROLL for (int n = 0; n < TILE / 8; n++) {
		UNROLL for (int i = 0; i < 4; i++) s[n][i] = cut && key + n * 8 + column_of(i % 2) > query + row_of(i / 2) ? OUT_OF_SIGHT : s[n][i] * scale;
	}
}

// running joins N scores of two rows with the largest score and the sum so far, and makes them
// weights. Sums so far are times less then.
INLINE void running(float s[][4], float *largest, float *whole, float *less, const int N) {
	UNROLL for (int r = 0; r < 2; r++) {
		float top = largest[r], all = 0;
		UNROLL for (int n = 0; n < N / 8; n++) top = fmaxf(top, fmaxf(s[n][r * 2], s[n][r * 2 + 1]));
		top = lanes_most(top);
		less[r] = power_of_two(largest[r] - top);
		largest[r] = top;
		UNROLL for (int n = 0; n < N / 8; n++) {
			UNROLL for (int i = r * 2; i < r * 2 + 2; i++) all += s[n][i] = power_of_two(s[n][i] - top);
		}
		whole[r] = whole[r] * less[r] + all; // of this thread's columns
	}
}

INLINE void weaken(float sum[][4], const float *less, const int W) {
	UNROLL for (int n = 0; n < W / 8; n++) {
		UNROLL for (int i = 0; i < 4; i++) sum[n][i] *= less[i / 2];
	}
}

// store writes rows of sums, times factors, as 16 bits. x is [T,step] from the head on.
INLINE void store(u16 *x, float sum[][4], const float *factor, int first, i64 step, int tokens, int width, const int W) {
	UNROLL for (int r = 0; r < 2; r++) {
		int row = first + row_of(r);
		if (row >= tokens) continue;
		UNROLL for (int n = 0; n < W / 8; n++) {
			if (n * 8 < width) *(u32 *)(x + row * step + n * 8 + column_of(0)) = both_narrow(sum[n][r * 2] * factor[r], sum[n][r * 2 + 1] * factor[r]);
		}
	}
}

typedef struct {
	const u16 *qkv;           // [B,(H+2G)*K], not turned
	const int *before;        // [B], the tokens cached before: where the new one goes
	const float *cos, *sin;   // [P,K/2]; NULL where heads are not turned
	u16 *keys, *values;       // [B,G,S,K]
	u16 *out;                 // [B,H*K]
	float *parts;             // [B,H,splits,K+2], where a row has several splits
	i64 capacity;             // S
	int heads, groups, width; // H, G, K
	int split;                // how many tokens of the cache a block has
	float scale;
} attention;

// turned is element i of a head [width] turned by the angles of a place.
INLINE float turned(const u16 *head, int i, const float *cos, const float *sin, int width) {
	float x = wide(head[i]);
	if (!cos) return x;
	int pair = i < width / 2 ? i : i - width / 2;
	float other = wide(head[i < width / 2 ? i + width / 2 : i - width / 2]);
	float c = cos[pair], s = sin[pair];
	return i < width / 2 ? x * c - other * s : x * c + other * s;
}

// attend is attention of a new token; the grid is splits, groups, rows. The query heads of a
// group, at most ROWS, are the rows of the products, and each warp has a quarter of a tile's
// keys.
INLINE void attend(attention a, const int W, u16 *room) {
	SHARED float tops[4 * ROWS], sums[4 * ROWS];
	int width = a.width, R = a.heads / a.groups, g = blockIdx.y, b = blockIdx.z, warp = threadIdx.x / 32;
	int pos = a.before[b], first = blockIdx.x * a.split;
	if (first > pos) return;
	int end = first + a.split < pos + 1 ? first + a.split : pos + 1;
	const u16 *row = a.qkv + (i64)b * (a.heads + 2 * a.groups) * width;
	const float *cos = a.cos ? a.cos + (i64)pos * (width / 2) : a.cos, *sin = a.cos ? a.sin + (i64)pos * (width / 2) : a.cos;
	u16 *keys = a.keys + ((i64)b * a.groups + g) * a.capacity * width, *values = a.values + ((i64)b * a.groups + g) * a.capacity * width;
	u16 *q = room, *k = q + ROWS * W, *v = k + 2 * TILE * W;
	if (end == pos + 1) {
		ROLLED for (int i = threadIdx.x; i < width; i += blockDim.x) {
			keys[(i64)pos * width + i] = narrow(turned(row + (i64)(a.heads + g) * width, i, cos, sin, width));
			values[(i64)pos * width + i] = row[(i64)(a.heads + a.groups + g) * width + i];
		}
		__syncthreads();
	}
	fetch(k, keys, first, TILE, width, end, width, W);
	fetch(v, values, first, TILE, width, end, width, W);
	copies_end();
	ROLLED for (int i = threadIdx.x; i < ROWS * W; i += blockDim.x) {
		int r = i / W, at = i % W;
		q[spot(r, at / 8, W) + at % 8] = r < R && at < width ? narrow(turned(row + (i64)(g * R + r) * width, at, cos, sin, width)) : 0; // as training rounds it
	}
	float sum[MOST_WIDTH / 8][4], largest[2] = {OUT_OF_SIGHT, OUT_OF_SIGHT}, whole[2] = {0, 0}, less[2];
	clear(sum, W / 8);
	ROLLED for (int from = first; from < end; from += TILE) {
		int now = (from - first) / TILE % 2 * TILE * W, next = TILE * W - now;
		if (from + TILE < end) {
			fetch(k + next, keys, from + TILE, TILE, width, end, width, W);
			fetch(v + next, values, from + TILE, TILE, width, end, width, W);
		}
		copies_end();
		copies_wait();
		__syncthreads();
		float s[2][4];
		clear(s, 2);
		scores(s, q, 0, k + now + warp * 16 * W, 16, W);
		UNROLL for (int n = 0; n < 2; n++) {
			UNROLL for (int i = 0; i < 4; i++) s[n][i] = from + warp * 16 + n * 8 + column_of(i % 2) < end ? s[n][i] * (a.scale * LOG2_E) : OUT_OF_SIGHT;
		}
		running(s, largest, whole, less, 16);
		weaken(sum, less, W);
		add_product(sum, s, v + now + warp * 16 * W, 16, W, 1);
		__syncthreads();
	}
	float *parts = (float *)k; // [4,ROWS,W], in the place of the tiles
	UNROLL for (int r = 0; r < 2; r++) {
		float all = lanes_sum(whole[r]);
		if (threadIdx.x % 4 == 0) {
			tops[warp * ROWS + row_of(r)] = largest[r];
			sums[warp * ROWS + row_of(r)] = all;
		}
		UNROLL for (int n = 0; n < W / 8; n++) {
			UNROLL for (int i = 0; i < 2; i++) parts[(warp * ROWS + row_of(r)) * W + n * 8 + column_of(i)] = sum[n][r * 2 + i];
		}
	}
	__syncthreads();
	int splits = pos / a.split + 1;
	ROLLED for (int i = threadIdx.x; i < R * width; i += blockDim.x) {
		int r = i / width, at = i % width, h = g * R + r;
		float top = OUT_OF_SIGHT, all = 0, value = 0;
		UNROLL for (int w = 0; w < 4; w++) top = fmaxf(top, tops[w * ROWS + r]);
		UNROLL for (int w = 0; w < 4; w++) { // a warp without keys counts for nothing
			float share = power_of_two(tops[w * ROWS + r] - top);
			all += share * sums[w * ROWS + r];
			value += share * parts[(w * ROWS + r) * W + at];
		}
		if (splits == 1) {
			a.out[((i64)b * a.heads + h) * width + at] = narrow(value / all);
			continue;
		}
		float *part = a.parts + (((i64)b * a.heads + h) * gridDim.x + blockIdx.x) * (width + 2);
		part[2 + at] = value;
		if (at < 2) part[at] = at ? all : top;
	}
}

// attend_W is attend for heads of up to W elements.
#define ATTEND(W) \
	KERNEL_OF(ATTENTION_THREADS, 3) attend_##W(attention a) { \
		ROOM(room, (ROWS + 4 * TILE) * W); \
		attend(a, W, room); \
	}
ATTEND(64)
ATTEND(128)

// attend_join joins the splits of rows that have several; the grid is heads, rows.
KERNEL(256) attend_join(attention a, int most) {
	int b = blockIdx.y, h = blockIdx.x, splits = a.before[b] / a.split + 1;
	if (splits == 1) return; // attend wrote it
	const float *parts = a.parts + ((i64)b * a.heads + h) * most * (a.width + 2);
	for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
		float largest = OUT_OF_SIGHT, sum = 0, value = 0;
		ROLLED for (int j = 0; j < splits; j++) largest = fmaxf(largest, parts[(i64)j * (a.width + 2)]);
		ROLLED for (int j = 0; j < splits; j++) {
			const float *part = parts + (i64)j * (a.width + 2);
			float share = power_of_two(part[0] - largest);
			sum += share * part[1];
			value += share * part[2 + i];
		}
		a.out[((i64)b * a.heads + h) * a.width + i] = narrow(value / sum);
	}
}

// Causal attention of whole sequences. A warp has 16 rows of a block's TILE.

typedef struct {
	const u16 *q, *k, *v;       // [B,T,H*K], [B,T,G*K], [B,T,G*K]
	const u16 *o, *dy;          // [B,T,H*K], the result and its gradient
	u16 *out, *dq, *dk, *dv;    // the result, and the gradients
	float *ends, *delta;        // [B,H,T]: log2 of the sum of 2^score, and the sum of o dy
	float *part_k, *part_v;     // [B,T,H*K]: dk and dv by query heads
	int tokens;                 // T
	int heads, groups, width;   // H, G, K
	float scale;
} causal;

// causal_forward: the grid is tiles of queries, the last first, heads, sequences.
INLINE void causal_forward(causal a, const int W, u16 *room) {
	int tile = gridDim.x - 1 - blockIdx.x, h = blockIdx.y, g = h / (a.heads / a.groups), warp = threadIdx.x / 32 * 16;
	i64 q_step = a.heads * a.width, k_step = a.groups * a.width, tokens = (i64)blockIdx.z * a.tokens;
	const u16 *keys = a.k + tokens * k_step + g * a.width, *values = a.v + tokens * k_step + g * a.width;
	u16 *q = room, *k = q + TILE * W, *v = k + 2 * TILE * W;
	float sum[MOST_WIDTH / 8][4], largest[2] = {OUT_OF_SIGHT, OUT_OF_SIGHT}, whole[2] = {0, 0}, less[2];
	clear(sum, W / 8);
	fetch(q, a.q + tokens * q_step + h * a.width, tile * TILE, TILE, q_step, a.tokens, a.width, W);
	fetch(k, keys, 0, TILE, k_step, a.tokens, a.width, W);
	fetch(v, values, 0, TILE, k_step, a.tokens, a.width, W);
	copies_end();
	ROLLED for (int j = 0; j <= tile; j++) {
		int now = j % 2 * TILE * W, next = TILE * W - now;
		if (j < tile) {
			fetch(k + next, keys, (j + 1) * TILE, TILE, k_step, a.tokens, a.width, W);
			fetch(v + next, values, (j + 1) * TILE, TILE, k_step, a.tokens, a.width, W);
		}
		copies_end();
		copies_wait();
		__syncthreads();
		float s[TILE / 8][4];
		clear(s, TILE / 8);
		scores(s, q, warp, k + now, TILE, W);
		seen(s, tile * TILE + warp, j * TILE, a.scale * LOG2_E);
		running(s, largest, whole, less, TILE);
		weaken(sum, less, W);
		add_product(sum, s, v + now, TILE, W, 1);
		__syncthreads();
	}
	UNROLL for (int r = 0; r < 2; r++) whole[r] = 1 / lanes_sum(whole[r]);
	store(a.out + tokens * q_step + h * a.width, sum, whole, tile * TILE + warp, q_step, a.tokens, a.width, W);
}

// causal_queries is the gradient of the queries, ends and delta: see causal_forward. With P
// the weights, dP = dy v^T, dS = P (dP - delta) and dq = scale dS k.
INLINE void causal_queries(causal a, const int W, u16 *room) {
	int tile = gridDim.x - 1 - blockIdx.x, h = blockIdx.y, g = h / (a.heads / a.groups), warp = threadIdx.x / 32 * 16, first = tile * TILE + warp;
	i64 q_step = a.heads * a.width, k_step = a.groups * a.width, tokens = (i64)blockIdx.z * a.tokens;
	const u16 *keys = a.k + tokens * k_step + g * a.width, *values = a.v + tokens * k_step + g * a.width;
	const u16 *o = a.o + tokens * q_step + h * a.width, *up = a.dy + tokens * q_step + h * a.width;
	u16 *q = room, *dy = q + TILE * W, *k = dy + TILE * W, *v = k + 2 * TILE * W;
	float largest[2] = {OUT_OF_SIGHT, OUT_OF_SIGHT}, end[2] = {0, 0}, less[2], delta[2] = {0, 0};
	fetch(q, a.q + tokens * q_step + h * a.width, tile * TILE, TILE, q_step, a.tokens, a.width, W);
	fetch(dy, up, tile * TILE, TILE, q_step, a.tokens, a.width, W);
	fetch(k, keys, 0, TILE, k_step, a.tokens, a.width, W);
	copies_end();
	UNROLL for (int r = 0; r < 2; r++) {
		if (first + row_of(r) >= a.tokens) continue;
		i64 row = (first + row_of(r)) * q_step;
		ROLLED for (int i = threadIdx.x % 4 * 8; i < a.width; i += 32) {
			eight x = *(const eight *)(o + row + i), y = *(const eight *)(up + row + i);
			UNROLL for (int n = 0; n < 8; n++) delta[r] += wide(x.at[n]) * wide(y.at[n]);
		}
	}
	float s[TILE / 8][4];
	ROLLED for (int j = 0; j <= tile; j++) {
		int now = j % 2 * TILE * W;
		if (j < tile) fetch(k + TILE * W - now, keys, (j + 1) * TILE, TILE, k_step, a.tokens, a.width, W);
		copies_end();
		copies_wait();
		__syncthreads();
		clear(s, TILE / 8);
		scores(s, q, warp, k + now, TILE, W);
		seen(s, first, j * TILE, a.scale * LOG2_E);
		running(s, largest, end, less, TILE);
		__syncthreads();
	}
	UNROLL for (int r = 0; r < 2; r++) {
		delta[r] = lanes_sum(delta[r]);
		end[r] = largest[r] + log2f(lanes_sum(end[r]));
		i64 row = ((i64)blockIdx.z * a.heads + h) * a.tokens + first + row_of(r);
		if (threadIdx.x % 4 || first + row_of(r) >= a.tokens) continue;
		a.ends[row] = end[r];
		a.delta[row] = delta[r];
	}
	float sum[MOST_WIDTH / 8][4], factor[2] = {a.scale, a.scale};
	clear(sum, W / 8);
	fetch(k, keys, 0, TILE, k_step, a.tokens, a.width, W);
	fetch(v, values, 0, TILE, k_step, a.tokens, a.width, W);
	copies_end();
	ROLLED for (int j = 0; j <= tile; j++) {
		int now = j % 2 * TILE * W, next = TILE * W - now;
		if (j < tile) {
			fetch(k + next, keys, (j + 1) * TILE, TILE, k_step, a.tokens, a.width, W);
			fetch(v + next, values, (j + 1) * TILE, TILE, k_step, a.tokens, a.width, W);
		}
		copies_end();
		copies_wait();
		__syncthreads();
		float p[TILE / 8][4];
		clear(s, TILE / 8);
		clear(p, TILE / 8);
		scores(s, q, warp, k + now, TILE, W);
		seen(s, first, j * TILE, a.scale * LOG2_E);
		scores(p, dy, warp, v + now, TILE, W);
		UNROLL for (int n = 0; n < TILE / 8; n++) {
			UNROLL for (int i = 0; i < 4; i++) s[n][i] = power_of_two(s[n][i] - end[i / 2]) * (p[n][i] - delta[i / 2]);
		}
		add_product(sum, s, k + now, TILE, W, 0);
		__syncthreads();
	}
	store(a.dq + tokens * q_step + h * a.width, sum, factor, first, q_step, a.tokens, a.width, W);
}

// causal_keys is the gradient of keys and values by query heads: dk = scale dS^T q and
// dv = P^T dy. The grid is tiles of keys, heads, sequences.
INLINE void causal_keys(causal a, const int W, u16 *room) {
	SHARED float rows[4 * HALF_TILE]; // ends and delta of two tiles of queries
	int first = blockIdx.x * TILE, h = blockIdx.y, g = h / (a.heads / a.groups), warp = threadIdx.x / 32 * 16;
	i64 q_step = a.heads * a.width, k_step = a.groups * a.width, tokens = (i64)blockIdx.z * a.tokens;
	const u16 *queries = a.q + tokens * q_step + h * a.width, *up = a.dy + tokens * q_step + h * a.width;
	const float *ends = a.ends + ((i64)blockIdx.z * a.heads + h) * a.tokens, *deltas = a.delta + ((i64)blockIdx.z * a.heads + h) * a.tokens;
	u16 *k = room, *v = k + TILE * W, *q = v + TILE * W, *dy = q + 2 * HALF_TILE * W;
	int tiles = (a.tokens + HALF_TILE - 1) / HALF_TILE, from = first / HALF_TILE;
	float dk[MOST_WIDTH / 8][4], dv[MOST_WIDTH / 8][4];
	clear(dk, W / 8);
	clear(dv, W / 8);
	fetch(k, a.k + tokens * k_step + g * a.width, first, TILE, k_step, a.tokens, a.width, W);
	fetch(v, a.v + tokens * k_step + g * a.width, first, TILE, k_step, a.tokens, a.width, W);
	ROLLED for (int j = from - 1; j < tiles; j++) { // the first time it fetches alone
		int after = (j + 1) * HALF_TILE;
		float *soon = rows + (j + 1) % 2 * HALF_TILE * 2;
		if (j + 1 < tiles) {
			fetch(q + (j + 1) % 2 * HALF_TILE * W, queries, after, HALF_TILE, q_step, a.tokens, a.width, W);
			fetch(dy + (j + 1) % 2 * HALF_TILE * W, up, after, HALF_TILE, q_step, a.tokens, a.width, W);
			if (threadIdx.x < HALF_TILE) {
				int there = after + threadIdx.x < a.tokens;
				soon[threadIdx.x] = there ? ends[after + threadIdx.x] : -OUT_OF_SIGHT;
				soon[HALF_TILE + threadIdx.x] = there ? deltas[after + threadIdx.x] : 0;
			}
		}
		copies_end();
		if (j < from) continue;
		copies_wait();
		__syncthreads();
		const u16 *qs = q + j % 2 * HALF_TILE * W, *dys = dy + j % 2 * HALF_TILE * W;
		const float *end = rows + j % 2 * HALF_TILE * 2, *delta = end + HALF_TILE;
		float s[HALF_TILE / 8][4], p[HALF_TILE / 8][4];
		clear(s, HALF_TILE / 8);
		scores(s, k, warp, qs, HALF_TILE, W);
		int cut = first + warp + 15 > j * HALF_TILE;
		UNROLL for (int n = 0; n < HALF_TILE / 8; n++) {
			UNROLL for (int i = 0; i < 4; i++) {
				int column = n * 8 + column_of(i % 2), hidden = cut && first + warp + row_of(i / 2) > j * HALF_TILE + column;
				s[n][i] = hidden ? 0 : power_of_two(s[n][i] * (a.scale * LOG2_E) - end[column]);
			}
		}
		add_product(dv, s, dys, HALF_TILE, W, 0);
		clear(p, HALF_TILE / 8);
		scores(p, v, warp, dys, HALF_TILE, W);
		UNROLL for (int n = 0; n < HALF_TILE / 8; n++) {
			UNROLL for (int i = 0; i < 4; i++) s[n][i] *= p[n][i] - delta[n * 8 + column_of(i % 2)];
		}
		add_product(dk, s, qs, HALF_TILE, W, 0);
		__syncthreads();
	}
	UNROLL for (int r = 0; r < 2; r++) {
		int row = first + warp + row_of(r);
		if (row >= a.tokens) continue;
		UNROLL for (int n = 0; n < W / 8; n++) {
			if (n * 8 >= a.width) continue;
			i64 at = (tokens + row) * q_step + h * a.width + n * 8 + column_of(0);
			UNROLL for (int i = 0; i < 2; i++) {
				a.part_k[at + i] = dk[n][r * 2 + i];
				a.part_v[at + i] = dv[n][r * 2 + i];
			}
		}
	}
}

// causal_NAME_W is NAME for heads of up to W elements, with room of the block for n tiles.
#define CAUSAL(NAME, W, n) \
	KERNEL_OF(ATTENTION_THREADS, 2) causal_##NAME##_##W(causal a) { \
		ROOM(room, n * TILE * W); \
		causal_##NAME(a, W, room); \
	}
CAUSAL(forward, 64, 5)
CAUSAL(forward, 128, 5)
CAUSAL(queries, 64, 6)
CAUSAL(queries, 128, 6)
CAUSAL(keys, 64, 4)
CAUSAL(keys, 128, 4)

// causal_sum adds the gradients of keys and values over the query heads of each group. n is
// how many elements they have, by fours.
KERNEL(256) causal_sum(causal a, i64 n) {
	int R = a.heads / a.groups, row = a.groups * a.width / 4;
	i64 stride = (i64)gridDim.x * blockDim.x;
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
		int at = i % row * 4, g = at / a.width;
		i64 from = (i / row * a.heads + g * R) * a.width + at % a.width;
		four dk = *(const four *)(a.part_k + from), dv = *(const four *)(a.part_v + from);
		ROLLED for (int r = 1; r < R; r++) {
			four k = *(const four *)(a.part_k + from + r * a.width), v = *(const four *)(a.part_v + from + r * a.width);
			UNROLL for (int j = 0; j < 4; j++) {
				dk.at[j] += k.at[j];
				dv.at[j] += v.at[j];
			}
		}
		quad k, v;
		UNROLL for (int j = 0; j < 4; j++) {
			k.at[j] = narrow(dk.at[j] * a.scale);
			v.at[j] = narrow(dv.at[j]);
		}
		*(quad *)(a.dk + i * 4) = k;
		*(quad *)(a.dv + i * 4) = v;
	}
}
