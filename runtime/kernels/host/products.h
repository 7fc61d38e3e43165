// Products. Each sum of a forward product is that of 16 lanes in the order of k, two numbers of
// bfloat16 or one of float32 to a lane, then a tree over the lanes, for every 1,024 of k. Each sum
// of an outer product is in the order of k. So a result depends on its row and its column alone.
enum { HELD_SAME = -1, DEEP = 1024, WIDE_ROWS = KIND == AVX2 ? 32 : 48, SOME_COLUMNS = 8, MOST_COLUMNS = 128, ACROSS = KIND == AVX512 ? 8 : 4, TALL = 6 };

// A matrix [n,ld] is held in a type; see kernels.h.
typedef struct {
	const void *at;
	const float *scales;
	int64_t ld;
	int held;
} matrix;

// held16 are n numbers, at most 16 of one block, from number i of a matrix on.
INLINE lanes held16(const int held, const matrix *w, int64_t i, int n) {
	switch (held) {
	case HELD_INT8: return mul(bytes16((const int8_t *)w->at + i), set(w->scales[i / 32]));
	case HELD_NF4: return mul(codes16((const uint8_t *)w->at + i / 2), set(w->scales[i / 64]));
	case HELD_FLOAT: return load_some((const float *)w->at + i, n);
	case HELD_HALF: return halves_some((const uint16_t *)w->at + i, n);
	}
	return widen_some((const uint16_t *)w->at + i, n);
}

// AS_HELD is EACH(how), with the way in which a matrix is held as a constant.
#define AS_HELD(w, EACH) \
	switch ((w)->held) { \
	case HELD_INT8: EACH(HELD_INT8) break; \
	case HELD_NF4: EACH(HELD_NF4) break; \
	case HELD_FLOAT: EACH(HELD_FLOAT) break; \
	case HELD_HALF: EACH(HELD_HALF) break; \
	default: EACH(HELD_SHORT) \
	}

// fetch brings the numbers of a matrix from number i on into the second-level cache: in the first they would drive
// out the rows that are being multiplied.
INLINE void fetch(const int held, const matrix *w, int64_t i) {
	__builtin_prefetch((const char *)w->at + (held == HELD_NF4 ? i / 2 : held == HELD_INT8 ? i : held == HELD_FLOAT ? 4 * i : 2 * i), 0, 2);
}

#define E(name) name
#define OWN HELD_SHORT
#define ELEMENT uint16_t
#define VECTOR shorts32
#define STEP 32
#define LOAD load32
#define LOAD_SOME load32_some
#define LOAD_HELD(held, w, i, n) narrowed32(held16(held, w, i, n < 16 ? n : 16), n > 16 ? held16(held, w, i + 16, n - 16) : set(0))
#define TIMES products
#define LOAD_PART part8
#define SPLIT16 split16
#define WIDEN widen_some
#define PUT narrow_some
#define PUT_TWO narrow32
#include "tiles.h"
#include "attend.h"
#define E(name) name##_wide
#define OWN HELD_FLOAT
#define ELEMENT float
#define VECTOR lanes
#define STEP 16
#define LOAD load
#define LOAD_SOME load_some
#define LOAD_HELD held16
#define TIMES(sum, a, b) fma3(a, b, sum)
#define LOAD_PART(p, at) _mm256_loadu_ps(at)
#define SPLIT16 split16_wide
#define WIDEN load_some
#define PUT store_some
#define PUT_TWO(p, a, b) store(p, a), store(p + 16, b)
#include "tiles.h"
#include "attend.h"

// rows_by_rows is y [m,n] = x [m,k] w [n,k]^T.
static void rows_by_rows(int64_t m, int64_t n, int64_t k, const uint16_t *x, int64_t ldx, const uint16_t *w, int64_t ldw, float *y, int64_t ldy) {
	rows_by(m, n, k, x, ldx, &(matrix){w, NULL, ldw, HELD_SHORT}, 0, y, ldy);
}

// A task of unpack is some rows of a matrix, in float32 or in bfloat16.
static void unpack_rows(const job *j, size_t task) {
	const matrix w = {A(0, void *), A(1, floats), A(5, int64_t), A(3, int)};
	int64_t n = w.ld, rows = A(4, int64_t);
	for (int64_t r = task * SOME_ROWS; r < rows && r < (int64_t)(task + 1) * SOME_ROWS; r++) {
		if (A(6, int)) unpack_wide(&w, r, 0, n, A(2, floats) + r * n, 0);
		else unpack(&w, r, 0, n, A(2, shorts) + r * n, 0);
	}
}

// finish rounds sums [m,n] to their place in y, with what is added to them.
static void finish(const onering_product *p, const float *sums, int64_t ld, int64_t row, int64_t column, int64_t m, int64_t n) {
	for (int64_t r = 0; r < m; r++) for (int64_t c = 0; c < n; c += 16) {
		int some = n - c < 16 ? n - c : 16;
		int64_t at = (row + r) * p->y_step + column + c;
		lanes v = load_some(sums + r * ld + c, some);
		if (p->bias) v = add(v, p->floats ? load_some((const float *)p->bias + column + c, some) : widen_some((const uint16_t *)p->bias + column + c, some));
		if (p->plus) v = add(v, widen_some((const uint16_t *)p->plus + at, some));
		if (p->sum) v = add(v, load_some(p->sum + at, some));
		if (p->wide) store_some((float *)p->y + at, v, some);
		else narrow_some((uint16_t *)p->y + at, v, some);
	}
}

// block finds the block of a task; it returns its number of rows.
static int64_t block(const multiplication *j, size_t task, int64_t *row, int64_t *column, int64_t *columns) {
	const onering_product *p = j->p;
	int64_t across = (p->n + j->columns - 1) / j->columns;
	*row = task / across * j->rows, *column = task % across * j->columns;
	*columns = p->n - *column < j->columns ? p->n - *column : j->columns;
	return p->m - *row < j->rows ? p->m - *row : j->rows;
}

// weights is b, or with 1 the second matrix of gate_up.
static matrix weights(const onering_product *p, int second) {
	return (matrix){second ? p->plus : p->b, second ? p->plus_scales : p->scales, p->turn_b ? p->k : p->n, p->held};
}

// by_columns is the product of so many rows of a and of one of the matrices.
static void by_columns(const onering_product *p, int second, int64_t row, int64_t column, int64_t rows, int64_t columns, float *sums) {
	const matrix w = weights(p, second);
	if (p->floats) rows_by_wide(rows, columns, p->k, (const float *)p->a + row * p->k, p->k, &w, column, sums, columns);
	else rows_by(rows, columns, p->k, (const uint16_t *)p->a + row * p->k, p->k, &w, column, sums, columns);
}

static void forward(const multiplication *j, size_t task) {
	const onering_product *p = j->p;
	int64_t row, column, columns, rows = block(j, task, &row, &column, &columns);
	float *sums = onering_room(rows * columns * 4);
	by_columns(p, 0, row, column, rows, columns, sums);
	finish(p, sums, columns, row, column, rows, columns);
	onering_room_back(sums);
}

INLINE lanes sigmoid(lanes x) { return quotient(set(1), add(set(1), exponential(sub(set(0), x)))); }

// gated is silu(gate) up for n numbers.
static void gated(const uint16_t *gate, const uint16_t *up, uint16_t *y, int64_t n) {
	for (int64_t i = 0; i < n; i += 16) {
		int few = n - i < 16 ? n - i : 16;
		lanes g = widen_some(gate + i, few);
		narrow_some(y + i, mul(mul(g, sigmoid(g)), widen_some(up + i, few)), few);
	}
}

// gate_up is silu(a b^T) (a plus^T) for a block, where plus has the shape of b; both products are
// rounded before.
static void gate_up(const multiplication *j, size_t task) {
	const onering_product *p = j->p;
	int64_t row, column, columns, rows = block(j, task, &row, &column, &columns);
	float *sums = onering_room(rows * columns * (4 + 2 + 2));
	uint16_t *both[2] = {(uint16_t *)(sums + rows * columns), (uint16_t *)(sums + rows * columns) + rows * columns};
	for (int i = 0; i < 2; i++) {
		by_columns(p, i, row, column, rows, columns, sums);
		for (int64_t n = 0; n < rows * columns; n += 16) narrow_some(both[i] + n, load_some(sums + n, rows * columns - n < 16 ? rows * columns - n : 16), rows * columns - n < 16 ? rows * columns - n : 16);
	}
	for (int64_t r = 0; r < rows; r++) gated(both[0] + r * columns, both[1] + r * columns, (uint16_t *)p->y + (row + r) * p->y_step + column, columns);
	onering_room_back(sums);
}

#if KIND == AVX512
enum { STRIP = 12, VECTORS = 2, PAIRS = 1024 };
#else
enum { STRIP = 6, VECTORS = 1, PAIRS = 256 };
#endif
enum { PANEL = 16 * VECTORS }; // PAIRS pairs of k are multiplied at a time

// A panel has PANEL columns of b: of each pair of rows PANEL pairs. What is missing is zero.
static void pack(const multiplication *j, size_t panel) {
	const onering_product *p = j->p;
	int64_t pairs = (p->k + 1) / 2, column = panel * PANEL, n = p->n - column < PANEL ? p->n - column : PANEL;
	uint32_t *to = j->packed + panel * PANEL * pairs;
	const matrix w = weights(p, 0);
	uint16_t some[2 * PANEL];
	for (int64_t i = 0; i < pairs; i++, to += PANEL) {
		const uint16_t *row = (const uint16_t *)w.at + 2 * i * p->n + column, *next = row + p->n;
		if (w.held) {
			unpack(&w, 2 * i, column, n, some, 0);
			if (2 * i + 1 < p->k) unpack(&w, 2 * i + 1, column, n, some + PANEL, 0);
			row = some, next = some + PANEL;
		}
		if (n < PANEL) memset(to, 0, PANEL * 4);
		interleave(to, row, 2 * i + 1 < p->k ? next : NULL, n);
	}
}

// split_strips splits the pairs of so many rows of op(a) in strips of STRIP rows, of which the last
// may have fewer; with direct only these.
static void split_strips(const onering_product *p, int64_t row, int64_t rows, int64_t first, int64_t pairs, int direct, left *to) {
	for (int64_t i = 0; i < pairs; i++, to += STRIP * PARTS) for (int64_t s = 0; s < rows; s += STRIP) {
		int64_t k = 2 * (first + i), two = k + 1 < p->k, n = rows - s < STRIP ? rows - s : STRIP;
		uint32_t both[STRIP + 2] = {0}; // STRIP, or eight
		if (direct && n == STRIP) continue;
		if (p->turn_a) {
			const uint16_t *at = (const uint16_t *)p->a + k * p->m + row + s;
			if (PARTS > 1) __builtin_prefetch(at + 16 * p->m), __builtin_prefetch(at + 17 * p->m);
			interleave(both, at, two ? at + p->m : NULL, PARTS > 1 && two && row + s + STRIP + 2 <= p->m ? STRIP + 2 : n);
		} else {
			const uint16_t *at = (const uint16_t *)p->a + (row + s) * p->k + k;
			if (two) for (int64_t r = 0; r < n; r++, at += p->k) memcpy(both + r, at, 4);
			else for (int64_t r = 0; r < n; r++, at += p->k) both[r] = at[0];
		}
		split(to + s * PARTS * pairs, both, STRIP, STRIP);
	}
}

// outer_tile is STRIP rows by a panel, of which next is an eighth of the one that follows: number i of row r of the left operand is a[r * row + i * step].
static __attribute__((noinline)) void outer_tile(int64_t pairs, const left *a, int64_t row, int64_t step, const uint32_t *b, const uint32_t *next, float *y, int64_t ldy, int onto) {
	lanes sum[STRIP][VECTORS];
	UNROLL for (int r = 0; r < STRIP; r++) UNROLL for (int c = 0; c < VECTORS; c++) sum[r][c] = onto ? load(y + r * ldy + 16 * c) : set(0);
	for (int64_t i = 0; i < pairs; i++) {
		if (PARTS > 1) __builtin_prefetch(next + i * (PANEL / 8));
		UNROLL for (int q = 0; q < PARTS; q++, a += step) {
			PART_OF w[VECTORS];
			UNROLL for (int c = 0; c < VECTORS; c++) w[c] = part(q, load32((const uint16_t *)(b + i * PANEL + 16 * c)));
			UNROLL for (int r = 0; r < STRIP; r++) UNROLL for (int c = 0; c < VECTORS; c++) sum[r][c] = times(sum[r][c], a[r * row], w[c]);
		}
	}
	UNROLL for (int r = 0; r < STRIP; r++) UNROLL for (int c = 0; c < VECTORS; c++) store(y + r * ldy + 16 * c, sum[r][c]);
}

static void outer(const multiplication *j, size_t task) {
	const onering_product *p = j->p;
	int64_t row, column, columns, rows = block(j, task, &row, &column, &columns), strips = (rows + STRIP - 1) / STRIP;
	int64_t all = (p->k + 1) / 2, ld = (columns + PANEL - 1) / PANEL * PANEL, deep = all < PAIRS ? all : PAIRS;
	int direct = PARTS == 1 && !p->turn_a && p->k % 2 == 0; // whole strips are read where they are
	float *sums = onering_room(strips * STRIP * (ld + deep * PARTS) * 4);
	left *split_rows = (left *)(sums + strips * STRIP * ld);
	for (int64_t first = 0; first < all || first == 0; first += PAIRS) {
		int64_t pairs = all - first < PAIRS ? all - first : PAIRS;
		if (!direct || rows % STRIP) split_strips(p, row, rows, first, pairs, direct, split_rows);
		for (int64_t c = 0; c < columns; c += PANEL) for (int64_t s = 0; s < strips; s++) {
			int there = direct && rows - s * STRIP >= STRIP;
			const left *a = there ? (const left *)((const uint16_t *)p->a + (row + s * STRIP) * p->k) + first : split_rows + s * STRIP * PARTS * pairs;
			const uint32_t *b = j->packed + (column + c) * all + first * PANEL;
			outer_tile(pairs, a, there ? p->k / 2 : 1, there ? 1 : STRIP, b, b + PANEL * all + s % 8 * PANEL * pairs / 8, sums + s * STRIP * ld + c, ld, first > 0);
		}
	}
	finish(p, sums, ld, row, column, rows, columns);
	onering_room_back(sums);
}
