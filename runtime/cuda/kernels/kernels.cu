// The kernels of onering. NVRTC compiles this file and attention.cu, which follows it, for GPUs
// (see compile.py), and a C compiler for the CPU, where host.h stands in for what CUDA has and tests compare the
// results with float64. So both are C as well as CUDA C++, and include nothing of
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
#define ROOM(name, n) extern __shared__ __align__(16) unsigned short name[] // room of the block for n elements, which the launch gives it
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

// both_narrow is two elements of 16 bits, the first in the lower half.
INLINE unsigned both_narrow(float x, float y) {
	unsigned z;
	if (HALF) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(y), "f"(x));
	else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(y), "f"(x));
	return z;
}
INLINE float power_of_two(float x) {
	float y;
	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}

// multiply adds a [16,16] b [16,8] to y [16,8], each of which a warp has in parts.
INLINE void multiply(float *y, const unsigned *a, const unsigned *b) {
	if (HALF) asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : "+f"(y[0]), "+f"(y[1]), "+f"(y[2]), "+f"(y[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
	else asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" : "+f"(y[0]), "+f"(y[1]), "+f"(y[2]), "+f"(y[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// matrices reads four matrices [8,8], of which lanes 8i to 8i+7 have the addresses of the rows
// of matrix i. A lane gets two elements of a row of each, and of a column if they are turned.
INLINE void matrices(unsigned *x, const void *row) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}
INLINE void matrices_turned(unsigned *x, const void *row) {
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}

// copy_eight begins to copy eight elements to memory of the block, or zeros. What was begun
// before copies_end is there after the copies_wait that follows the next copies_end.
INLINE void copy_eight(void *to, const void *from, int there) {
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
INLINE void copies_end(void) { asm volatile("cp.async.commit_group;" ::: "memory"); }
INLINE void copies_wait(void) { asm volatile("cp.async.wait_group 1;" ::: "memory"); }
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

// sum_rows adds rows [rows,d], as out: eight sums of every eighth row, and then these. A block
// has 32 columns.
KERNEL(256) sum_rows(const float *parts, float *out, int rows, int d) {
	SHARED float sums[256];
	int i = blockIdx.x * 32 + threadIdx.x % 32;
	float a = 0;
	if (i < d) {
		for (int row = threadIdx.x / 32; row < rows; row += 8) a += parts[(i64)row * d + i];
	}
	sums[threadIdx.x] = a;
	__syncthreads();
	if (threadIdx.x >= 32 || i >= d) return;
	for (int k = 1; k < 8; k++) a += sums[k * 32 + threadIdx.x];
	out[i] = a;
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

// turn is y = heads [heads,width] of x turned by the angles of their rows' places, or turned
// back where sign is -1. width is a multiple of 16; a thread has eight pairs of n.
KERNEL(256) turn(const u16 *x, const i64 *pos, const float *cos, const float *sin, u16 *y, i64 n, int heads, int width, float sign) {
	i64 stride = (i64)gridDim.x * blockDim.x;
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
		int parts = width / 16, part = i % parts * 8;
		i64 head = i / parts, angle = pos[head / heads] * (width / 2) + part, at = head * width + part;
		eight a = *(const eight *)(x + at), b = *(const eight *)(x + at + width / 2);
		UNROLL for (int k = 0; k < 8; k += 4) {
			four c = *(const four *)(cos + angle + k), s = *(const four *)(sin + angle + k);
			UNROLL for (int j = 0; j < 4; j++) {
				float u = wide(a.at[k + j]), v = wide(b.at[k + j]), t = s.at[j] * sign;
				a.at[k + j] = narrow(u * c.at[j] - v * t);
				b.at[k + j] = narrow(v * c.at[j] + u * t);
			}
		}
		*(eight *)(y + at) = a;
		*(eight *)(y + at + width / 2) = b;
	}
}

// gather is row at[i] of x [,d], or zeros where valid[i] is 0. valid may be NULL. d is a multiple
// of 8; a thread has eight elements of n.
KERNEL(256) gather(const u16 *x, const i64 *at, const float *valid, u16 *y, i64 n, int d) {
	i64 stride = (i64)gridDim.x * blockDim.x;
	for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
		i64 row = i / (d / 8);
		eight out;
		if (!valid || valid[row] != 0) out = *(const eight *)(x + at[row] * d + i % (d / 8) * 8);
		else UNROLL for (int k = 0; k < 8; k++) out.at[k] = 0;
		*(eight *)(y + i * 8) = out;
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
// place, its column last. A block has a row. It goes to y, or rounded to short_y.
KERNEL(512) head_grad(const float *logits, const float *z, const float *w, const i64 *at, const float *own, float *y, u16 *short_y, int n) {
	i64 row = (i64)blockIdx.x * n;
	int column = (int)at[blockIdx.x * 2 + 1];
	float less = z[blockIdx.x], weight = -w[blockIdx.x], add = own[blockIdx.x];
	for (int first = threadIdx.x * 4; first < n; first += blockDim.x * 4) {
		four x = fours(logits + row, first, n);
		UNROLL for (int k = 0; k < 4; k++) {
			x.at[k] = __expf(x.at[k] - less) * weight;
			if (first + k == column) x.at[k] += add;
		}
		if (short_y && first + 4 <= n && n % 4 == 0) {
			quad short_x;
			UNROLL for (int k = 0; k < 4; k++) short_x.at[k] = narrow(x.at[k]);
			*(quad *)(short_y + row + first) = short_x;
			continue;
		}
		if (first + 4 <= n && n % 4 == 0) {
			*(four *)(y + row + first) = x;
			continue;
		}
		for (int k = 0; k < 4 && first + k < n; k++) {
			if (short_y) short_y[row + first + k] = narrow(x.at[k]);
			else y[row + first + k] = x.at[k];
		}
	}
}
