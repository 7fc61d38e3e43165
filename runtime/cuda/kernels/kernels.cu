// The kernels of onering. NVRTC compiles this file for GPUs (see compile.py), and a C
// compiler for the CPU, where host.h stands in for what CUDA has and tests compare the
// results with float64. So the file is C as well as CUDA C++, and includes nothing of
// CUDA's.
//
// Every sum has an order of its own that depends on shapes alone, so the bits repeat.
// Elements of 16 bits are bfloat16, or float16 where HALF is 1: it is compiled for both.
#ifdef __CUDACC_RTC__
#define KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads)
#define KERNEL_OF(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks) // at least so many blocks at once
#define SHARED __shared__
#define INLINE static __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define ROLLED _Pragma("unroll 1")
#define INFINITY __int_as_float(0x7f800000)
INLINE void least(int *to, int x) { atomicMin(to, x); }
INLINE float half_float(unsigned short x) {
	float y;
	asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
	return y;
}
INLINE unsigned short float_half(float x) {
	unsigned short y;
	asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
	return y;
}
#else
#include "host.h"
#endif

typedef unsigned short u16;
typedef unsigned int u32;
typedef long long i64;

// Elements that one access reads or writes.
typedef struct __align__(16) { u16 at[8]; } eight;
typedef struct __align__(8) { u16 at[4]; } quad;
typedef struct __align__(16) { float at[4]; } four;

INLINE float bits(u32 x) { return __uint_as_float(x); }

// wide is an element of 16 bits as a float.
INLINE float wide(u16 x) { return HALF ? half_float(x) : bits((u32)x << 16); }

// narrow rounds to the nearest element of 16 bits, of two to the even one.
INLINE u16 narrow(float x) {
	if (HALF) return float_half(x);
	u32 b = __float_as_uint(x);
	if ((b & 0x7fffffffu) > 0x7f800000u) return (u16)(b >> 16 | 0x40u); // NaN
	return (u16)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

// total is the sum of x over the threads of a block, whose number is a multiple of 32 and at
// most 1,024. All threads get it. sums has room for 32 numbers.
INLINE float total(float x, float *sums) {
	for (int k = 16; k; k >>= 1) x += __shfl_xor_sync(~0u, x, k);
	if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = x;
	__syncthreads();
	float y = threadIdx.x < (blockDim.x >> 5) ? sums[threadIdx.x] : 0;
	if (threadIdx.x < 32) {
		for (int k = 16; k; k >>= 1) y += __shfl_xor_sync(~0u, y, k);
		if (threadIdx.x == 0) sums[0] = y;
	}
	__syncthreads();
	x = sums[0];
	__syncthreads(); // so that sums can be used again
	return x;
}

// most is the largest x of a block; see total.
INLINE float most(float x, float *sums) {
	for (int k = 16; k; k >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, k));
	if ((threadIdx.x & 31) == 0) sums[threadIdx.x >> 5] = x;
	__syncthreads();
	x = sums[0];
	for (int k = 1; k < (blockDim.x >> 5); k++) x = fmaxf(x, sums[k]);
	__syncthreads();
	return x;
}

// The order of adamw's numbers.
enum { BETA1, BETA1_REST, BETA2, BETA2_REST, EPS, RATE, ROOT, KEEP, CLIP };

// adamw_one is the update of one element by the same operations, in the same order and with
// the same roundings, as the graph of package adamw.
INLINE float adamw_one(float p, float g, float *m, float *v, const float *s) {
	g = __fmul_rn(g, s[CLIP]);
	*m = __fadd_rn(__fmul_rn(*m, s[BETA1]), __fmul_rn(g, s[BETA1_REST]));
	*v = __fadd_rn(__fmul_rn(*v, s[BETA2]), __fmul_rn(__fmul_rn(g, g), s[BETA2_REST]));
	float step = __fdiv_rn(__fmul_rn(*m, s[RATE]), __fadd_rn(__fmul_rn(__fsqrt_rn(*v), s[ROOT]), s[EPS]));
	return __fsub_rn(__fmul_rn(p, s[KEEP]), step);
}

typedef struct { float at[9]; } adamw_numbers;

// adamw updates n weights p and their moments m and v with gradients g, which do not change.
// copy are the weights rounded to 16 bits; it may be NULL. It reads and writes 28 bytes a
// weight, and 2 for the copy. All pointers are to multiples of 16 bytes.
KERNEL(256) adamw(float *p, const float *g, float *m, float *v, u16 *copy, i64 n, adamw_numbers numbers) {
	const float *s = numbers.at;
	i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 4, stride = (i64)gridDim.x * blockDim.x * 4;
	for (i64 i = first; i < n; i += stride) {
		if (i + 4 > n) { // the end
			for (; i < n; i++) {
				p[i] = adamw_one(p[i], g[i], m + i, v + i, s);
				if (copy) copy[i] = narrow(p[i]);
			}
			return;
		}
		four ps = *(const four *)(p + i), gs = *(const four *)(g + i), ms = *(const four *)(m + i), vs = *(const four *)(v + i);
		quad cs;
		UNROLL for (int k = 0; k < 4; k++) {
			ps.at[k] = adamw_one(ps.at[k], gs.at[k], ms.at + k, vs.at + k, s);
			cs.at[k] = narrow(ps.at[k]);
		}
		*(four *)(p + i) = ps;
		*(four *)(m + i) = ms;
		*(four *)(v + i) = vs;
		if (copy) *(quad *)(copy + i) = cs;
	}
}

// squares writes the sum of the squares of each block's share of g to part[block].
KERNEL(256) squares(const float *g, i64 n, float scale, float *part) {
	SHARED float sums[32];
	float a = 0, b = 0, c = 0, d = 0;
	i64 first = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 4, stride = (i64)gridDim.x * blockDim.x * 4;
	i64 i = first;
	for (; i + 4 <= n; i += stride) {
		four x = *(const four *)(g + i);
		a += x.at[0] * scale * (x.at[0] * scale);
		b += x.at[1] * scale * (x.at[1] * scale);
		c += x.at[2] * scale * (x.at[2] * scale);
		d += x.at[3] * scale * (x.at[3] * scale);
	}
	for (; i < n; i++) a += g[i] * scale * (g[i] * scale);
	float sum = total((a + b) + (c + d), sums);
	if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

// sum_parts writes the sum of n numbers to sum. One block runs it.
KERNEL(256) sum_parts(const float *part, int n, float *sum) {
	SHARED float sums[32];
	float a = 0;
	for (int i = threadIdx.x; i < n; i += blockDim.x) a += part[i];
	a = total(a, sums);
	if (threadIdx.x == 0) *sum = a;
}

// rms_norm is y = x / sqrt(mean(x^2) + eps) * w of rows [d], rounded to 16 bits. A block has
// a row, and a thread up to MOST_FOURS times four elements of it that it reads once. d is a
// multiple of 4.
enum { MOST_FOURS = 4 };
KERNEL(1024) rms_norm(const float *x, const float *w, u16 *y, int d, float eps) {
	SHARED float sums[32];
	const float *row = x + (i64)blockIdx.x * d;
	four xs[MOST_FOURS], ws[MOST_FOURS];
	float a = 0;
	UNROLL for (int k = 0; k < MOST_FOURS; k++) {
		int i = (k * blockDim.x + threadIdx.x) * 4;
		if (i >= d) continue;
		xs[k] = *(const four *)(row + i);
		ws[k] = *(const four *)(w + i);
		UNROLL for (int j = 0; j < 4; j++) a += xs[k].at[j] * xs[k].at[j];
	}
	float r = 1 / __fsqrt_rn(total(a, sums) / d + eps);
	UNROLL for (int k = 0; k < MOST_FOURS; k++) {
		int i = (k * blockDim.x + threadIdx.x) * 4;
		if (i >= d) continue;
		quad out;
		UNROLL for (int j = 0; j < 4; j++) out.at[j] = narrow(xs[k].at[j] * r * ws[k].at[j]);
		*(quad *)(y + (i64)blockIdx.x * d + i) = out;
	}
}

// rms_norm_grad is the gradient of rms_norm: with n = x r and r = 1/rms,
// dx = onto + r (dy w - n mean(dy w n)), and shares of dw = sum dy n. onto may be NULL.
// Block i has rows i, i + blocks and so on, and writes its share of dw to row i of parts.
KERNEL(1024) rms_norm_grad(const float *x, const float *w, const u16 *dy, const float *onto, float *dx, float *parts, i64 rows, int d, float eps) {
	SHARED float sums[32];
	float *part = parts + (i64)blockIdx.x * d;
	for (int i = threadIdx.x; i < d; i += blockDim.x) part[i] = 0;
	for (i64 row = blockIdx.x; row < rows; row += gridDim.x) {
		const float *in = x + row * d;
		const u16 *up = dy + row * d;
		float a = 0, b = 0;
		for (int i = threadIdx.x; i < d; i += blockDim.x) {
			a += in[i] * in[i];
			b += wide(up[i]) * w[i] * in[i];
		}
		float r = 1 / __fsqrt_rn(total(a, sums) / d + eps);
		float mean = total(b, sums) * r / d;
		for (int i = threadIdx.x; i < d; i += blockDim.x) {
			float n = in[i] * r, g = wide(up[i]), y = r * (g * w[i] - n * mean);
			dx[row * d + i] = onto ? onto[row * d + i] + y : y;
			part[i] += g * n;
		}
	}
}

// sum_rows adds rows [rows,d] in order onto onto [d], as out.
KERNEL(256) sum_rows(const float *parts, const float *onto, float *out, int rows, int d) {
	int i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= d) return;
	float a = 0;
	for (int row = 0; row < rows; row++) a += parts[(i64)row * d + i];
	out[i] = onto ? onto[i] + a : a;
}

INLINE float silu(float x) { return x / (1 + __expf(-x)); }

// swiglu is y = silu(gate) * up of rows [f], which begin gate_step and up_step elements apart.
// f is a multiple of 8.
KERNEL(256) swiglu(const u16 *gate, const u16 *up, u16 *y, i64 rows, int f, i64 step) {
	i64 n = rows * (f / 8), stride = (i64)gridDim.x * blockDim.x;
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
		i64 row = i / (f / 8), at = i % (f / 8) * 8;
		eight g = *(const eight *)(gate + row * step + at), u = *(const eight *)(up + row * step + at);
		UNROLL for (int k = 0; k < 8; k++) g.at[k] = narrow(silu(wide(g.at[k])) * wide(u.at[k]));
		*(eight *)(y + row * f + at) = g;
	}
}

// swiglu_grad is the gradient of swiglu for n elements, a multiple of 8: with s the sigmoid
// of gate, dgate = dy up s (1 + gate (1 - s)) and dup = dy gate s.
KERNEL(256) swiglu_grad(const u16 *gate, const u16 *up, const u16 *dy, u16 *dgate, u16 *dup, i64 n) {
	i64 stride = (i64)gridDim.x * blockDim.x * 8;
	for (i64 i = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 8; i < n; i += stride) {
		eight g = *(const eight *)(gate + i), u = *(const eight *)(up + i), d = *(const eight *)(dy + i);
		UNROLL for (int k = 0; k < 8; k++) {
			float x = wide(g.at[k]), y = wide(d.at[k]), s = 1 / (1 + __expf(-x));
			g.at[k] = narrow(y * wide(u.at[k]) * s * (1 + x * (1 - s)));
			u.at[k] = narrow(y * x * s);
		}
		*(eight *)(dgate + i) = g;
		*(eight *)(dup + i) = u;
	}
}

// Attention of one new token of each row to the keys and values in its cache.
//
// A head of k elements is the work of k/8 lanes of a warp, eight elements each, so a warp
// has 256/k tokens at once. k is a power of two from 16 to 256. The query heads of a group,
// at most MOST_HEADS, share the keys and values that were read.

enum { MOST_HEADS = 8, MOST_WIDTH = 256, AT_ONCE = 4, ATTEND_THREADS = 128, ATTEND_BLOCKS = 3 };

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

// A state is what a group of lanes knows of a query head: the largest score, the sum of
// exp(score - largest), and the sum of the values by these weights.
typedef struct { float largest, sum, values[8]; } state;

// attend_heads has room of the block for q [R,width], sums [lane groups,R,width] and
// scales [lane groups,R,2], and in whole for the largest score and the sum of each head.
INLINE void attend_heads(attention a, const int R, float *q, float *sums, float *scales, float *whole) {
	int width = a.width, g = blockIdx.y, b = blockIdx.z;
	int pos = a.before[b], first = blockIdx.x * a.split;
	if (first > pos) return;
	int end = first + a.split < pos + 1 ? first + a.split : pos + 1;
	const u16 *row = a.qkv + (i64)b * (a.heads + 2 * a.groups) * width;
	const float *cos = a.cos ? a.cos + (i64)pos * (width / 2) : a.cos, *sin = a.cos ? a.sin + (i64)pos * (width / 2) : a.cos;
	ROLLED for (int i = threadIdx.x; i < R * width; i += blockDim.x) {
		float x = turned(row + (i64)(g * R + i / width) * width, i % width, cos, sin, width);
		q[i] = wide(narrow(x)); // as training rounds it
	}
	u16 *keys = a.keys + ((i64)b * a.groups + g) * a.capacity * width, *values = a.values + ((i64)b * a.groups + g) * a.capacity * width;
	if (end == pos + 1) {
		ROLLED for (int i = threadIdx.x; i < width; i += blockDim.x) {
			keys[(i64)pos * width + i] = narrow(turned(row + (i64)(a.heads + g) * width, i, cos, sin, width));
			values[(i64)pos * width + i] = row[(i64)(a.heads + a.groups + g) * width + i];
		}
	}
	__syncthreads();
	int lanes = width / 8, lane = threadIdx.x % lanes, group = threadIdx.x / lanes, groups = blockDim.x / lanes;
	state s[MOST_HEADS];
	float qs[MOST_HEADS][8];
	UNROLL for (int r = 0; r < R; r++) {
		s[r].largest = -1e30f;
		s[r].sum = 0;
		UNROLL for (int k = 0; k < 8; k++) {
			s[r].values[k] = 0;
			qs[r][k] = q[r * width + lane * 8 + k] * a.scale;
		}
	}
	ROLLED for (int base = first; base < end; base += groups * AT_ONCE) {
		eight ks[AT_ONCE], vs[AT_ONCE];
		float p[AT_ONCE][MOST_HEADS];
		UNROLL for (int u = 0; u < AT_ONCE; u++) {
			int t = base + u * groups + group;
			i64 at = (i64)(t < end ? t : first) * width + lane * 8; // one beyond the end counts for nothing
			ks[u] = *(const eight *)(keys + at);
			vs[u] = *(const eight *)(values + at);
		}
		UNROLL for (int u = 0; u < AT_ONCE; u++) {
			float k[8];
			UNROLL for (int i = 0; i < 8; i++) k[i] = wide(ks[u].at[i]);
			UNROLL for (int r = 0; r < R; r++) {
				p[u][r] = 0;
				UNROLL for (int i = 0; i < 8; i++) p[u][r] += qs[r][i] * k[i];
			}
		}
		ROLLED for (int m = lanes / 2; m; m >>= 1) {
			UNROLL for (int u = 0; u < AT_ONCE; u++) {
				UNROLL for (int r = 0; r < R; r++) p[u][r] += __shfl_xor_sync(~0u, p[u][r], m);
			}
		}
		UNROLL for (int r = 0; r < R; r++) {
			float largest = s[r].largest;
			UNROLL for (int u = 0; u < AT_ONCE; u++) {
				if (base + u * groups + group >= end) p[u][r] = -1e30f;
				largest = fmaxf(largest, p[u][r]);
			}
			float less = __expf(s[r].largest - largest);
			s[r].largest = largest;
			s[r].sum *= less;
			UNROLL for (int i = 0; i < 8; i++) s[r].values[i] *= less;
			UNROLL for (int u = 0; u < AT_ONCE; u++) {
				p[u][r] = base + u * groups + group < end ? __expf(p[u][r] - largest) : 0;
				s[r].sum += p[u][r];
			}
		}
		UNROLL for (int u = 0; u < AT_ONCE; u++) {
			UNROLL for (int i = 0; i < 8; i++) {
				float v = wide(vs[u].at[i]);
				UNROLL for (int r = 0; r < R; r++) s[r].values[i] += p[u][r] * v;
			}
		}
	}
	UNROLL for (int r = 0; r < R; r++) {
		if (lane == 0) {
			scales[(group * R + r) * 2] = s[r].largest;
			scales[(group * R + r) * 2 + 1] = s[r].sum;
		}
		UNROLL for (int i = 0; i < 8; i++) sums[(group * R + r) * width + lane * 8 + i] = s[r].values[i];
	}
	__syncthreads();
	if (threadIdx.x < R) { // what each group of lanes counts for, and the sum
		int r = threadIdx.x;
		float largest = -1e30f, sum = 0;
		ROLLED for (int j = 0; j < groups; j++) largest = fmaxf(largest, scales[(j * R + r) * 2]);
		ROLLED for (int j = 0; j < groups; j++) {
			float share = __expf(scales[(j * R + r) * 2] - largest);
			sum += share * scales[(j * R + r) * 2 + 1];
			scales[(j * R + r) * 2] = share;
		}
		whole[r * 2] = largest;
		whole[r * 2 + 1] = sum;
	}
	__syncthreads();
	int splits = pos / a.split + 1;
	ROLLED for (int i = threadIdx.x; i < R * width; i += blockDim.x) {
		int r = i / width, h = g * R + r;
		float value = 0;
		for (int j = 0; j < groups; j++) value += scales[(j * R + r) * 2] * sums[(j * R + r) * width + i % width];
		if (splits == 1) {
			a.out[((i64)b * a.heads + h) * width + i % width] = narrow(value / whole[r * 2 + 1]);
			continue;
		}
		float *part = a.parts + (((i64)b * a.heads + h) * gridDim.x + blockIdx.x) * (width + 2);
		part[2 + i % width] = value;
		if (i % width < 2) part[i % width] = whole[r * 2 + i % width];
	}
}

// attend_R is attention with R query heads to a group; the grid is splits, groups, rows.
#define ATTEND(R) \
	KERNEL_OF(ATTEND_THREADS, ATTEND_BLOCKS) attend_##R(attention a) { \
		SHARED float q[R * MOST_WIDTH], sums[ATTEND_THREADS * 8 * R], scales[ATTEND_THREADS * R], whole[R * 2]; \
		attend_heads(a, R, q, sums, scales, whole); \
	}
ATTEND(1)
ATTEND(2)
ATTEND(3)
ATTEND(4)
ATTEND(5)
ATTEND(6)
ATTEND(7)
ATTEND(8)

// attend_join joins the splits of rows that have several; the grid is splits of attend,
// heads, rows, of which it takes the first split alone.
KERNEL(256) attend_join(attention a, int most) {
	int b = blockIdx.y, h = blockIdx.x, splits = a.before[b] / a.split + 1;
	if (splits == 1) return; // attend wrote it
	const float *parts = a.parts + ((i64)b * a.heads + h) * most * (a.width + 2);
	for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
		float largest = -1e30f, sum = 0, value = 0;
		ROLLED for (int j = 0; j < splits; j++) largest = fmaxf(largest, parts[(i64)j * (a.width + 2)]);
		ROLLED for (int j = 0; j < splits; j++) {
			const float *part = parts + (i64)j * (a.width + 2);
			float share = __expf(part[0] - largest);
			sum += share * part[1];
			value += share * part[2 + i];
		}
		a.out[((i64)b * a.heads + h) * a.width + i] = narrow(value / sum);
	}
}

// masked_softmax is p = softmax(s + mask) of rows [n]. mask [t,n] repeats every t rows; where
// it is below LEAST, s is not read and p is 0. A block has a row.
#define LEAST -1e30f
enum { MOST_COLUMNS = 8 };
KERNEL(1024) masked_softmax(const float *s, const float *mask, float *p, i64 t, int n) {
	SHARED float sums[32];
	const float *row = s + (i64)blockIdx.x * n, *masked = mask + blockIdx.x % t * n;
	float *out = p + (i64)blockIdx.x * n, x[MOST_COLUMNS], largest = -INFINITY, sum = 0;
	if (n > MOST_COLUMNS * blockDim.x) { // more than the registers have room for
		for (int i = threadIdx.x; i < n; i += blockDim.x) {
			out[i] = masked[i] > LEAST ? row[i] + masked[i] : -INFINITY;
			largest = fmaxf(largest, out[i]);
		}
		largest = most(largest, sums);
		for (int i = threadIdx.x; i < n; i += blockDim.x) sum += out[i] = out[i] > -INFINITY ? __expf(out[i] - largest) : 0;
		sum = 1 / total(sum, sums);
		for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] *= sum;
		return;
	}
	UNROLL for (int k = 0; k < MOST_COLUMNS; k++) {
		int i = k * blockDim.x + threadIdx.x;
		float m = i < n ? masked[i] : LEAST;
		x[k] = m > LEAST ? row[i] + m : -INFINITY;
		largest = fmaxf(largest, x[k]);
	}
	largest = most(largest, sums);
	UNROLL for (int k = 0; k < MOST_COLUMNS; k++) {
		x[k] = x[k] > -INFINITY ? __expf(x[k] - largest) : 0;
		sum += x[k];
	}
	sum = 1 / total(sum, sums);
	UNROLL for (int k = 0; k < MOST_COLUMNS; k++) {
		int i = k * blockDim.x + threadIdx.x;
		if (i < n) out[i] = x[k] * sum;
	}
}

// softmax_grad is ds = p (dp - d) of rows [n], with a number d of each. A block has a row.
KERNEL(1024) softmax_grad(const float *p, const float *dp, const float *d, float *ds, int n) {
	i64 row = (i64)blockIdx.x * n;
	float mean = d[blockIdx.x];
	for (int i = threadIdx.x; i < n; i += blockDim.x) {
		float x = p[row + i];
		ds[row + i] = x == 0 ? 0 : x * (dp[row + i] - mean);
	}
}

// Choosing a token.

enum { DRAW_THREADS = 512, CELL = 128, MOST_CELLS = 2048, BATCH = 4 };

// fours are elements i to i+3 of a row [n], -INFINITY beyond its end.
INLINE four fours(const float *row, int i, int n) {
	if (i + 4 <= n && n % 4 == 0) return *(const four *)(row + i);
	four x;
	UNROLL for (int k = 0; k < 4; k++) x.at[k] = i + k < n ? row[i + k] : -INFINITY;
	return x;
}

// choose takes a token from a row of logits [n]. With z = logit inverse - the largest of
// these and e = exp(z), logp is z - log(sum e) of the token and entropy is
// log(sum e) - sum(e z) / sum e. With uniforms the token is the first whose cumulative sum of
// e is above uniform times the whole; without, the first that is likeliest. Sums of CELL numbers
// are floats, and all that is made of them is double, one after the other: a running float
// over many tokens would be wrong too often.
KERNEL(DRAW_THREADS) choose(const float *logits, const float *inverse, const float *uniforms, i64 *next, float *logp, float *entropy, int n) {
	SHARED float sums[32], cells[MOST_CELLS], inside[CELL];
	SHARED double lines[32];
	SHARED int token;
	const float *row = logits + (i64)blockIdx.x * n;
	float scale = *inverse, largest = -INFINITY, ez = 0;
	int cell_count = (n + CELL - 1) / CELL, warp = threadIdx.x >> 5, lane = threadIdx.x & 31, warps = blockDim.x >> 5;
	for (int first = threadIdx.x * 4; first < n; first += blockDim.x * 4 * BATCH) {
		four x[BATCH];
		UNROLL for (int k = 0; k < BATCH; k++) x[k] = fours(row, first + k * blockDim.x * 4, n);
		UNROLL for (int k = 0; k < BATCH; k++) {
			UNROLL for (int j = 0; j < 4; j++) largest = fmaxf(largest, x[k].at[j]);
		}
	}
	float likeliest = most(largest, sums);
	largest = likeliest * scale;
	for (int first = warp; first < cell_count; first += warps * BATCH) {
		four x[BATCH];
		float e[BATCH];
		UNROLL for (int k = 0; k < BATCH; k++) x[k] = fours(row, (first + k * warps) * CELL + lane * 4, n);
		UNROLL for (int k = 0; k < BATCH; k++) {
			e[k] = 0;
			UNROLL for (int j = 0; j < 4; j++) {
				float z = x[k].at[j] * scale - largest, y = __expf(z);
				e[k] += y;
				if (y > 0) ez += y * z;
			}
		}
		for (int m = 16; m; m >>= 1) {
			UNROLL for (int k = 0; k < BATCH; k++) e[k] += __shfl_xor_sync(~0u, e[k], m);
		}
		UNROLL for (int k = 0; k < BATCH; k++) {
			if (lane == 0 && first + k * warps < cell_count) cells[first + k * warps] = e[k];
		}
	}
	ez = total(ez, sums); // all cells are there then
	int line = (cell_count + 31) / 32; // cells that a lane of the first warp adds up
	if (threadIdx.x < 32) {
		double x = 0;
		for (int c = lane * line; c < (lane + 1) * line && c < cell_count; c++) x += cells[c];
		lines[lane] = x;
	}
	__syncthreads();
	double whole = 0, target = 0, before = 0;
	int at = -1; // the cell that has the token
	if (threadIdx.x == 0) {
		for (int k = 0; k < 32; k++) whole += lines[k];
		if (uniforms) {
			target = whole * uniforms[blockIdx.x];
			int k = 0;
			for (; k < 31 && before + lines[k] <= target && (k + 1) * line < cell_count; k++) before += lines[k];
			at = k * line;
			for (; at + 1 < (k + 1) * line && at + 1 < cell_count && before + cells[at] <= target; at++) before += cells[at];
		}
		token = uniforms ? at : n;
	}
	__syncthreads();
	at = token;
	__syncthreads();
	if (uniforms) {
		for (int k = threadIdx.x; k < CELL; k += blockDim.x) inside[k] = at * CELL + k < n ? __expf(row[at * CELL + k] * scale - largest) : 0;
		__syncthreads();
		if (threadIdx.x == 0) {
			int last = at * CELL; // the last one that has a probability
			for (int k = 0; k < CELL; k++) {
				if (inside[k] == 0) continue;
				last = at * CELL + k;
				before += inside[k];
				if (before > target) break;
			}
			token = last;
		}
	} else {
		for (int i = threadIdx.x; i < n; i += blockDim.x) {
			if (row[i] == likeliest) {
				least(&token, i);
				break;
			}
		}
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		float log_sum = (float)log(whole);
		next[blockIdx.x] = token;
		logp[blockIdx.x] = row[token] * scale - largest - log_sum;
		entropy[blockIdx.x] = log_sum - ez / (float)whole;
	}
}

// The head's log-softmax over a slice of the vocabulary, logits [n] of each row.

// head_sums joins a row's log-sum-exp z0 and mean logit u0 of the slices before with this
// slice's, as z1 and u1. A block has a row.
KERNEL(512) head_sums(const float *logits, const float *z0, const float *u0, float *z1, float *u1, int n) {
	SHARED float sums[32];
	const float *row = logits + (i64)blockIdx.x * n;
	float largest = -1e30f, sum = 0, weighted = 0;
	for (int first = threadIdx.x * 4; first < n; first += blockDim.x * 4 * BATCH) {
		four x[BATCH];
		float top = largest;
		UNROLL for (int k = 0; k < BATCH; k++) {
			x[k] = fours(row, first + k * blockDim.x * 4, n);
			UNROLL for (int j = 0; j < 4; j++) top = fmaxf(top, x[k].at[j]);
		}
		float less = __expf(largest - top);
		largest = top;
		sum *= less;
		weighted *= less;
		UNROLL for (int k = 0; k < BATCH; k++) {
			UNROLL for (int j = 0; j < 4; j++) {
				float e = __expf(x[k].at[j] - top);
				sum += e;
				if (e > 0) weighted += e * x[k].at[j];
			}
		}
	}
	float top = most(largest, sums), share = __expf(largest - top);
	sum = total(sum * share, sums);
	weighted = total(weighted * share, sums);
	if (threadIdx.x > 0) return;
	float before = z0[blockIdx.x], z = top + logf(sum);
	float both = fmaxf(before, z) + logf(1 + expf(-fabsf(before - z)));
	z1[blockIdx.x] = both;
	u1[blockIdx.x] = u0[blockIdx.x] * expf(before - both) + weighted / sum * expf(z - both);
}

// head_grad is dL/dlogit = own onehot(at) - w exp(logit - z) of rows [n]; at [R,2] has a row's
// place, its column last. A block has a row.
KERNEL(512) head_grad(const float *logits, const float *z, const float *w, const i64 *at, const float *own, float *y, int n) {
	i64 row = (i64)blockIdx.x * n;
	int column = (int)at[blockIdx.x * 2 + 1];
	float less = z[blockIdx.x], weight = -w[blockIdx.x], add = own[blockIdx.x];
	for (int first = threadIdx.x * 4; first < n; first += blockDim.x * 4) {
		four x = fours(logits + row, first, n);
		UNROLL for (int k = 0; k < 4; k++) {
			x.at[k] = __expf(x.at[k] - less) * weight;
			if (first + k == column) x.at[k] += add;
		}
		if (first + 4 <= n && n % 4 == 0) {
			*(four *)(y + row + first) = x;
			continue;
		}
		for (int k = 0; k < 4 && first + k < n; k++) y[row + first + k] = x.at[k];
	}
}
