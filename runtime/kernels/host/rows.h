// What is computed row by row, and element by element.

// root_of is 1/rms of x [d].
INLINE float root_of(const float *x, int64_t d, float epsilon) {
	lanes s = set(0);
	for (int64_t i = 0; i < d; i += 16) {
		lanes v = load_some(x + i, d - i < 16 ? d - i : 16);
		s = fma3(v, v, s);
	}
	return 1 / __builtin_sqrtf(sum16(s) / d + epsilon);
}

static void rms_norm(const job *j, size_t task) {
	int64_t d = A(3, int), rows = j->grid[0];
	const float *w = A(1, floats);
	for (int64_t r = task * SOME_ROWS; r < rows && r < (int64_t)(task + 1) * SOME_ROWS; r++) {
		const float *x = A(0, floats) + r * d;
		lanes root = set(root_of(x, d, A(4, float)));
		for (int64_t i = 0; i < d; i += 16) {
			int few = d - i < 16 ? d - i : 16;
			narrow_some(A(2, shorts) + r * d + i, mul(mul(load_some(x + i, few), root), load_some(w + i, few)), few);
		}
	}
}

// rms_norm_grad: a task has every so many rows, and adds its part of the weight's gradient.
static void rms_norm_grad(const job *j, size_t task) {
	int64_t rows = A(6, int64_t), d = A(7, int);
	const float *w = A(1, floats);
	float *part = A(5, floats) + task * d;
	memset(part, 0, d * 4);
	for (int64_t r = task; r < rows; r += j->grid[0]) {
		const float *x = A(0, floats) + r * d, *onto = A(3, floats) + r * d;
		const uint16_t *dy = A(2, shorts) + r * d;
		float root = root_of(x, d, A(8, float)), *dx = A(4, floats) + r * d;
		lanes dot = set(0);
		for (int64_t i = 0; i < d; i += 16) {
			int few = d - i < 16 ? d - i : 16;
			dot = fma3(mul(widen_some(dy + i, few), load_some(w + i, few)), load_some(x + i, few), dot);
		}
		lanes back = set(root * root * (sum16(dot) / d)), scale = set(root);
		for (int64_t i = 0; i < d; i += 16) {
			int few = d - i < 16 ? d - i : 16;
			lanes g = widen_some(dy + i, few), v = load_some(x + i, few);
			store_some(part + i, add(load_some(part + i, few), mul(g, mul(v, scale))), few);
			store_some(dx + i, add(load_some(onto + i, few), mul(scale, sub(mul(g, load_some(w + i, few)), mul(v, back)))), few);
		}
	}
}

static void sum_rows(const job *j, size_t task) {
	int64_t n = A(2, int), d = A(3, int), c = task * 16;
	int few = d - c < 16 ? d - c : 16;
	lanes s = set(0);
	for (int64_t r = 0; r < n; r++) s = add(s, load_some(A(0, floats) + r * d + c, few));
	store_some(A(1, floats) + c, s, few);
}

static void swiglu(const job *j, size_t task) {
	int64_t rows = A(3, int64_t), f = A(4, int), step = A(5, int64_t);
	for (int64_t r = task * 4; r < rows && r < (int64_t)(task + 1) * 4; r++) gated(A(0, shorts) + r * step, A(1, shorts) + r * step, A(2, shorts) + r * f, f);
}

static void swiglu_grad(const job *j, size_t task) {
	int64_t n = A(5, int64_t);
	for (int64_t i = task * SOME; i < n && i < (int64_t)(task + 1) * SOME; i += 16) {
		int few = n - i < 16 ? n - i : 16;
		lanes g = widen_some(A(0, shorts) + i, few), up = widen_some(A(1, shorts) + i, few), dy = widen_some(A(2, shorts) + i, few);
		lanes s = sigmoid(g), y = mul(g, s), slope = add(y, mul(s, sub(set(1), y)));
		narrow_some(A(3, shorts) + i, mul(mul(dy, up), slope), few);
		narrow_some(A(4, shorts) + i, mul(dy, y), few);
	}
}

static void turn(const job *j, size_t task) {
	int64_t heads = A(6, int), width = A(7, int), rows = A(9, int64_t);
	for (int64_t r = task * SOME_ROWS; r < rows && r < (int64_t)(task + 1) * SOME_ROWS; r++) {
		int64_t angle = A(1, longs)[r] * (width / 2);
		for (int64_t h = 0; h < heads; h++)
			turn_head(A(0, shorts) + (r * heads + h) * width, A(4, shorts) + (r * heads + h) * width, width, A(2, floats) + angle, A(3, floats) + angle, A(8, float));
	}
}

static void gather(const job *j, size_t task) {
	int64_t d = A(5, int), rows = A(6, int64_t);
	const float *valid = A(2, floats);
	for (int64_t r = task * SOME_ROWS; r < rows && r < (int64_t)(task + 1) * SOME_ROWS; r++) {
		uint16_t *y = A(3, shorts) + r * d;
		if (valid && valid[r] == 0) memset(y, 0, d * 2);
		else memcpy(y, A(0, shorts) + A(1, longs)[r] * d, d * 2);
	}
}

static void masked_softmax(const job *j, size_t r) {
	int64_t t = A(3, int64_t), n = A(4, int);
	float *p = A(2, floats) + r * n;
	const float *s = A(0, floats) + r * n, *mask = A(1, floats) + r % t * n;
	for (int64_t i = 0; i < n; i++) p[i] = s[i] + mask[i];
	lanes sum = set(exponentials(p, n, 1));
	for (int64_t i = 0; i < n; i += 16) store_some(p + i, quotient(load_some(p + i, n - i < 16 ? n - i : 16), sum), n - i < 16 ? n - i : 16);
}

static void softmax_grad(const job *j, size_t r) {
	int64_t n = A(4, int);
	lanes d = set(A(2, floats)[r]);
	for (int64_t i = 0; i < n; i += 16) {
		int few = n - i < 16 ? n - i : 16;
		store_some(A(3, floats) + r * n + i, mul(load_some(A(0, floats) + r * n + i, few), sub(load_some(A(1, floats) + r * n + i, few), d)), few);
	}
}

// logarithm is the natural logarithm of a positive number.
static double logarithm(double x) {
	uint64_t u;
	memcpy(&u, &x, 8);
	int64_t e = (int64_t)(u >> 52) - 1023;
	u = (u & 0xfffffffffffffull) | 0x3ff0000000000000ull;
	memcpy(&x, &u, 8);
	if (x > 1.41421356) x = x * 0.5, e++;
	double s = (x - 1) / (x + 1), q = s * s, p = 0;
	for (int k = 19; k >= 1; k -= 2) p = p * q + 1.0 / k;
	return 2 * s * p + e * 0.6931471805599453;
}

// fold adds n logits, at most HEAD_BLOCK, to a running log-sum-exp z and mean logit u. It returns
// their largest, and in sum their sum of exponentials from there.
static float fold(const float *x, int64_t n, float *z, float *u, float *sum) {
	lanes most = set(-INFINITY), s = set(0), t = set(0);
	int64_t whole = n / 16 * 16;
	for (int64_t i = 0; i < whole; i += 16) most = larger(most, load(x + i));
	float top = largest16(most);
	for (int64_t i = whole; i < n; i++) top = top > x[i] ? top : x[i];
	for (int64_t i = 0; i < n; i += 16) {
		int few = n - i < 16 ? n - i : 16;
		float e[16] = {0};
		lanes v = load_some(x + i, few), y = exponential(sub(v, set(top)));
		if (few < 16) store_some(e, y, few), y = load(e);
		s = add(s, y);
		t = fma3(y, v, t);
	}
	*sum = sum16(s);
	float mean = sum16(t) / *sum, now = top + (float)logarithm(*sum), before = *z;
	float high = before > now ? before : now, gap = before > now ? before - now : now - before;
	*z = high + (float)logarithm(1 + (double)exponential1(-gap));
	*u = *u * exponential1(before - *z) + mean * exponential1(now - *z);
	return top;
}

static void head_sums(const job *j, size_t r) {
	int64_t n = A(5, int);
	float z = A(1, floats) ? A(1, floats)[r] : -1e30f, u = A(2, floats) ? A(2, floats)[r] : 0, sum;
	for (int64_t i = 0; i < n; i += HEAD_BLOCK) fold(A(0, floats) + r * n + i, n - i < HEAD_BLOCK ? n - i : HEAD_BLOCK, &z, &u, &sum);
	A(3, floats)[r] = z, A(4, floats)[r] = u;
}

// drawn is the first of n logits at which the sum of exponentials from top exceeds a target, or
// the last that has a probability.
static int64_t drawn(const float *x, int64_t n, float top, double target) {
	double sum = 0;
	int64_t last = 0;
	for (int64_t i = 0; i < n; i += 16) {
		float e[16];
		store(e, exponential(sub(load_some(x + i, n - i < 16 ? n - i : 16), set(top))));
		for (int64_t k = i; k < n && k < i + 16; k++) {
			if (!(x[k] - top > -80)) continue;
			last = k;
			if ((sum += e[k - i]) > target) return k;
		}
	}
	return last;
}

static void choose(const job *j, size_t r) {
	int64_t n = A(6, int), blocks = (n + HEAD_BLOCK - 1) / HEAD_BLOCK, next = 0, b = 0;
	const float *x = A(0, floats) + r * n, *uniforms = A(2, floats);
	float z = -1e30f, u = 0, *tops = onering_room(blocks * 8), *sums = tops + blocks, top = -INFINITY;
	for (b = 0; b < blocks; b++) {
		int64_t i = b * HEAD_BLOCK;
		tops[b] = fold(x + i, n - i < HEAD_BLOCK ? n - i : HEAD_BLOCK, &z, &u, sums + b);
		top = top > tops[b] ? top : tops[b];
	}
	if (uniforms) {
		double all = 0, before = 0, target, share = 0;
		for (b = 0; b < blocks; b++) all += (double)sums[b] * exponential1(tops[b] - top);
		target = uniforms[r] * all;
		for (b = 0; b < blocks - 1; b++) {
			share = (double)sums[b] * exponential1(tops[b] - top);
			if (before + share > target) break;
			before += share;
		}
		while (b > 0 && !(tops[b] - top > -80)) b--; // after rounding
		int64_t i = b * HEAD_BLOCK;
		next = i + drawn(x + i, n - i < HEAD_BLOCK ? n - i : HEAD_BLOCK, tops[b], (target - before) / exponential1(tops[b] - top));
	} else {
		while (next < n - 1 && !(x[next] >= top)) next++;
	}
	A(3, longs)[r] = next;
	A(4, floats)[r] = x[next] - z < 0 ? x[next] - z : x[next] - z > 0 ? 0 : x[next] - z;
	A(5, floats)[r] = z - u > 0 ? z - u : z - u < 0 ? 0 : z - u;
	onering_room_back(tops);
}

static void head_grad(const job *j, size_t r) {
	int64_t n = A(7, int), at = A(3, longs)[2 * r + 1];
	const float *x = A(0, floats) + r * n;
	lanes z = set(A(1, floats)[r]), w = set(-A(2, floats)[r]);
	float *y = A(5, floats), own = A(4, floats)[r];
	uint16_t *rounded = A(6, shorts);
	for (int64_t i = 0; i < n; i += 16) {
		int few = n - i < 16 ? n - i : 16;
		lanes d = mul(exponential(sub(load_some(x + i, few), z)), w);
		if (at >= i && at < i + 16) {
			float e[16];
			store(e, d);
			e[at - i] += own;
			d = load(e);
		}
		if (y) store_some(y + r * n + i, d, few);
		else narrow_some(rounded + r * n + i, d, few);
	}
}

// row_dots is the product of row r of x [R,D] and the row of e that a token has.
static void row_dots(const job *j, size_t task) {
	int64_t rows = A(4, int64_t), d = A(5, int64_t);
	for (int64_t r = task * SOME_ROWS; r < rows && r < (int64_t)(task + 1) * SOME_ROWS; r++)
		rows_by_rows(1, 1, d, A(0, shorts) + r * d, d, A(1, shorts) + A(2, longs)[r] * d, d, A(3, floats) + r, 1);
}
