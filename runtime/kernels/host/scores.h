// Attention. The score of a query and a key is a forward product; exponentials are added in 16
// lanes in the order of places, and values in the order of places. So a row has the same bits in
// decoding, in a prompt and in training.
#if KIND == AVX512
enum { MIX_ROWS = 6, MIX_VECTORS = 4 };
#else
enum { MIX_ROWS = 6, MIX_VECTORS = 1 };
#endif

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

// capped turns scores into tanh(score scale / cap).
static void capped(float *s, int64_t n, float scale, float cap) {
	for (int64_t i = 0; i < n; i += 16) {
		int few = n - i < 16 ? n - i : 16;
		lanes e = exponential(mul(load_some(s + i, few), set(2 * scale / cap)));
		store_some(s + i, sub(set(1), quotient(set(2), add(e, set(1)))), few);
	}
}

// placed is where a head's turned angles are for a place.
INLINE const float *placed(const attention *a, const float *angles, int64_t place) { return angles ? angles + place * (a->width / 2) : NULL; }

// past is how many tokens of a row the cache has before the call's.
INLINE int64_t past(const attention *a, int64_t row) {
	int64_t n = a->tokens == 1 ? a->before[row] : a->total == a->tokens ? 0 : (int64_t)a->before[row] + 1 - a->tokens;
	return n < 0 ? 0 : n;
}
