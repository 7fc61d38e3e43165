// The products of a type of numbers, for which this is included: those of ELEMENT, STEP of which
// LOAD makes a VECTOR and LOAD_HELD one of a matrix as it is held; TIMES adds the products of two to 16 lanes, LOAD_PART loads
// a part of eight lanes and SPLIT16 brings 16 numbers into the order of parts, PUT stores some of 16 lanes as
// such numbers and PUT_TWO twice 16, and E names the functions of the type.

// taken are n numbers of a matrix from number i on, all STEP of them or fewer. HELD_SAME is a matrix of ELEMENT.
INLINE VECTOR E(taken)(const int held, const matrix *w, int64_t i, int n) {
	if (held != HELD_SAME) return LOAD_HELD(held, w, i, n);
	return n == STEP ? LOAD((const ELEMENT *)w->at + i) : LOAD_SOME((const ELEMENT *)w->at + i, n);
}

// tile is R rows of x and C rows of w, from number `at` of w on, over k. ahead is at which number
// the next rows of w lie, or 0.
INLINE void E(tile)(const int R, const int C, const int held, int64_t k, const ELEMENT *x, int64_t ldx, const matrix *w, int64_t at, float *y, int64_t ldy, int onto, int64_t ahead) {
	int64_t ldw = w->ld, i = 0;
	lanes sum[6][8];
	UNROLL for (int r = 0; r < R; r++) UNROLL for (int c = 0; c < C; c++) sum[r][c] = set(0);
	for (; i + STEP <= k; i += STEP) {
		VECTOR b[8];
		UNROLL for (int c = 0; c < C; c++) {
			b[c] = E(taken)(held, w, at + c * ldw + i, STEP);
			if (ahead) fetch(held == HELD_SAME ? OWN : held, w, ahead + c * ldw + i);
		}
		UNROLL for (int r = 0; r < R; r++) {
			VECTOR a = LOAD(x + r * ldx + i);
			UNROLL for (int c = 0; c < C; c++) sum[r][c] = TIMES(sum[r][c], a, b[c]);
		}
	}
	if (i < k) UNROLL for (int r = 0; r < R; r++) {
		VECTOR a = LOAD_SOME(x + r * ldx + i, k - i);
		UNROLL for (int c = 0; c < C; c++) sum[r][c] = TIMES(sum[r][c], a, E(taken)(held, w, at + c * ldw + i, k - i));
	}
	UNROLL for (int r = 0; r < R; r++) {
		float *to = y + r * ldy;
#if KIND == AVX512
		if (C % 4 == 0) {
			UNROLL for (int c = 0; c < C; c += 4) {
				__m128 s = sums4(sum[r][c], sum[r][c + 1], sum[r][c + 2], sum[r][c + 3]);
				_mm_storeu_ps(to + c, onto ? _mm_add_ps(_mm_loadu_ps(to + c), s) : s);
			}
			continue;
		}
#endif
		UNROLL for (int c = 0; c < C; c++) {
			float s = sum16(sum[r][c]);
			to[c] = onto ? to[c] + s : s;
		}
	}
}
#define TILE(R, C) \
	static __attribute__((noinline)) void E(tile_##R##x##C)(int64_t k, const ELEMENT *x, int64_t ldx, const matrix *w, int64_t at, float *y, int64_t ldy, int onto, int64_t ahead) { \
		if (ahead) E(tile)(R, C, HELD_SAME, k, x, ldx, w, at, y, ldy, onto, ahead); \
		else E(tile)(R, C, HELD_SAME, k, x, ldx, w, at, y, ldy, onto, 0); \
	}
#if KIND == AVX512
TILE(6, 4)
TILE(4, 4)
TILE(2, 4)
TILE(1, 8)
TILE(1, 4)
#elif KIND == AVX2
TILE(3, 2)
TILE(2, 2)
TILE(1, 4)
#endif
TILE(1, 1)

#if KIND == AVX2
// tall_tile is TALL rows of x by two of w, half of the lanes at a time, whose sums stay in registers.
// x has for every part of eight numbers those of all rows.
static __attribute__((noinline)) void E(tall_tile)(int64_t k, const float *x, const ELEMENT *w, int64_t ldw, float *y, int64_t ldy, int onto) {
	lanes all[TALL][2];
	ELEMENT rest[2][STEP];
	for (int c = 0; c < 2 && k % STEP; c++) memcpy(memset(rest[c], 0, sizeof rest[c]), w + c * ldw + k / STEP * STEP, k % STEP * sizeof *w);
	for (int h = 0; h < 2; h++) {
		__m256 sum[TALL][2];
		UNROLL for (int r = 0; r < TALL; r++) sum[r][0] = sum[r][1] = _mm256_setzero_ps();
		const float *at = x + STEP / 2 * TALL * h;
		const ELEMENT *v = w + STEP / 2 * h, *next = v + ldw;
		for (int64_t i = 0; i < k; i += STEP, at += STEP * TALL, v += STEP, next += STEP) {
			if (k - i < STEP) v = rest[0] + STEP / 2 * h, next = v + STEP;
			__builtin_prefetch(v + 2 * ldw), __builtin_prefetch(next + 2 * ldw); // the next two rows
			UNROLL for (int p = 0; p < STEP / 16; p++) {
				__m256 a = LOAD_PART(p, v), b = LOAD_PART(p, next);
				UNROLL for (int r = 0; r < TALL; r++) {
					__m256 c = _mm256_load_ps(at + 8 * (p * TALL + r));
					// Compilers would load c twice and keep a sum in memory.
					__asm__("vfmadd231ps %2, %1, %0" : "+x"(sum[r][0]) : "x"(a), "x"(c));
					__asm__("vfmadd231ps %2, %1, %0" : "+x"(sum[r][1]) : "x"(b), "x"(c));
				}
			}
		}
		UNROLL for (int r = 0; r < TALL; r++) all[r][0].v[h] = sum[r][0], all[r][1].v[h] = sum[r][1];
	}
	UNROLL for (int r = 0; r < TALL; r += 2) {
		__m128 s = sums4(all[r][0], all[r][1], all[r + 1][0], all[r + 1][1]);
		__m64 *to = (__m64 *)(y + r * ldy), *next = (__m64 *)(y + (r + 1) * ldy);
		if (onto) s = _mm_add_ps(_mm_loadh_pi(_mm_loadl_pi(s, to), next), s);
		_mm_storel_pi(to, s), _mm_storeh_pi(next, s);
	}
}

// tall_rows is some_rows for TALL rows and many columns.
static void E(tall_rows)(int64_t n, int64_t k, const ELEMENT *x, int64_t ldx, const matrix *w, int64_t at, float *y, int64_t ldy, int onto) {
	float split[TALL * DEEP] __attribute__((aligned(32)));
	int64_t c = 0;
	for (int r = 0; r < TALL; r++)
		for (int64_t i = 0; i < (k + STEP - 1) / STEP * STEP; i += 16) SPLIT16(split + i * TALL + 8 * r, 8 * TALL, x + r * ldx + i, k - i < 16 ? k - i < 0 ? 0 : k - i : 16);
	for (; c + 2 <= n; c += 2) E(tall_tile)(k, split, (const ELEMENT *)w->at + at + c * w->ld, w->ld, y + c, ldy, onto);
	if (c < n) for (int r = 0; r < TALL; r++) E(tile_1x1)(k, x + r * ldx, ldx, w, at + c * w->ld, y + r * ldy + c, ldy, onto, 0);
}
#endif

// some_rows computes columns [0,n) of so many rows as a tile has, at most m, and returns how many.
INLINE int64_t E(some_rows)(int64_t m, int64_t n, int64_t k, const ELEMENT *x, int64_t ldx, const matrix *w, int64_t at, float *y, int64_t ldy, int onto, int64_t ahead) {
	int64_t rows = 1, c = 0;
#if KIND == AVX512
	rows = m >= 6 && m != 8 ? 6 : m >= 4 ? 4 : m >= 2 ? 2 : 1;
	if (rows == 1)
		for (; c + 8 <= n; c += 8) E(tile_1x8)(k, x, ldx, w, at + c * w->ld, y + c, ldy, onto, ahead ? ahead + c * w->ld : 0);
	for (; c + 4 <= n; c += 4) (rows == 6 ? E(tile_6x4) : rows == 4 ? E(tile_4x4) : rows == 2 ? E(tile_2x4) : E(tile_1x4))(k, x, ldx, w, at + c * w->ld, y + c, ldy, onto, ahead ? ahead + c * w->ld : 0);
#elif KIND == AVX2
	if (m >= TALL && n > SOME_COLUMNS) return E(tall_rows)(n, k, x, ldx, w, at, y, ldy, onto), TALL;
	rows = m >= 3 && m != 4 ? 3 : m >= 2 ? 2 : 1;
	if (rows == 1)
		for (; c + 4 <= n; c += 4) E(tile_1x4)(k, x, ldx, w, at + c * w->ld, y + c, ldy, onto, ahead ? ahead + c * w->ld : 0);
	else
		for (; c + 2 <= n; c += 2) (rows == 3 ? E(tile_3x2) : E(tile_2x2))(k, x, ldx, w, at + c * w->ld, y + c, ldy, onto, ahead ? ahead + c * w->ld : 0);
#endif
	for (; c < n; c++) for (int64_t r = 0; r < rows; r++) E(tile_1x1)(k, x + r * ldx, ldx, w, at + c * w->ld, y + r * ldy + c, ldy, onto, 0);
	return rows;
}

// unpack puts numbers [first,first+n) of a row of a matrix to a place, and fetches those so many numbers behind
// into the cache, if any. first begins 16 of a block.
static void E(unpack)(const matrix *w, int64_t row, int64_t first, int64_t n, ELEMENT *to, int64_t behind) {
	int64_t at = row * w->ld + first, whole = n / 32 * 32;
#define EACH(held) \
	for (int64_t i = 0; i < whole; i += 32) { \
		if (behind) fetch(held, w, at + i + behind); \
		PUT_TWO(to + i, held16(held, w, at + i, 16), held16(held, w, at + i + 16, 16)); \
	} \
	for (int64_t i = whole; i < n; i += 16) PUT(to + i, held16(held, w, at + i, n - i < 16 ? n - i : 16), n - i < 16 ? n - i : 16);
	AS_HELD(w, EACH)
#undef EACH
}

// A row of x by ACROSS rows of a matrix as it is held: they are widened in registers.
static void E(row_by_held)(int64_t n, int64_t k, const ELEMENT *x, const matrix *w, int64_t at, float *y, int onto, int64_t ahead) {
#define EACH(held) for (int64_t c = 0; c < n; c += ACROSS) E(tile)(1, ACROSS, held, k, x, 0, w, at + c * w->ld, y + c, 0, onto, ahead ? ahead + c * w->ld : 0);
	AS_HELD(w, EACH)
#undef EACH
}

// rows_by is y [m,n] = x [m,k] w^T for the n rows of a matrix from row first on. They are taken in groups that
// stay in the processor's cache, into which those held in another type are unpacked, or for one row of x into registers.
static void E(rows_by)(int64_t m, int64_t n, int64_t k, const ELEMENT *x, int64_t ldx, const matrix *w, int64_t first, float *y, int64_t ldy) {
	enum { LD = DEEP + STEP };
	int own = w->held == OWN;
	int64_t group = m > WIDE_ROWS ? MOST_COLUMNS : own && m > 1 ? 4 : SOME_COLUMNS;
	ELEMENT *some = own ? NULL : onering_room(group * LD * sizeof *some);
	const matrix there = own ? (matrix){w->at, NULL, w->ld, HELD_SAME} : (matrix){some, NULL, LD, HELD_SAME};
	for (int64_t c = 0; c < n; c += group) {
		int64_t columns = n - c < group ? n - c : group, behind = m <= WIDE_ROWS && c + 2 * group <= n ? group * w->ld : 0;
		for (int64_t i = 0; i < k; i += DEEP) {
			int64_t deep = k - i < DEEP ? k - i : DEEP, at = (first + c) * w->ld + i, ahead = behind ? at + behind : 0;
			if (!own && m == 1 && columns == group) {
				E(row_by_held)(columns, deep, x + i, w, at, y + c, i > 0, ahead);
				continue;
			}
			for (int64_t g = 0; !own && g < columns; g++) E(unpack)(w, first + c + g, i, deep, some + g * LD, behind);
			for (int64_t r = 0; r < m;)
				r += E(some_rows)(m - r, columns, deep, x + r * ldx + i, ldx, &there, own ? at : 0, y + r * ldy + c, ldy, i > 0, own && (m <= 16 || r < 9) ? ahead : 0); // some tiles are enough to fetch all
		}
	}
	if (some) onering_room_back(some);
}
#undef TILE
