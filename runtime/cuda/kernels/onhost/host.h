// What kernels.cu needs of CUDA, on the CPU: the blocks of a grid run one after the other, and
// the threads of a block in turn on stacks of their own, which change places where the threads
// wait for one another. It shows indices, ends, rounding and orders of sums; what it cannot
// show are races of threads that do not wait.
#ifdef __clang__
#pragma clang fp contract(off)
#else
#pragma GCC optimize("fp-contract=off")
#endif
#include <math.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define KERNEL(threads) static void
#define KERNEL_OF(threads, blocks) static void
#define SHARED static
#define INLINE static inline
#define UNROLL
#define ROLLED
#define ROOM(name, n) static unsigned short name[n] __attribute__((aligned(16)))
#define __align__(n) __attribute__((aligned(n)))

enum { MOST_THREADS = 1024, STACK = 32 << 10 };

typedef struct { int x, y, z; } place;
static place threadIdx, blockIdx, blockDim, gridDim;

// A barrier is where the threads of the block, or of a warp, wait for one another.
typedef struct {
	int live, here; // the threads that have not ended, and those that wait
	unsigned passed;
} barrier;

static struct thread {
	ucontext_t start;
	jmp_buf at;
	int begun, live;
	float given;
	unsigned a[4], b[2];
	const unsigned short *row;
} *threads;
static barrier all, warps[MOST_THREADS / 32];
static char *stacks;
static ucontext_t beginning;
static jmp_buf scheduler;
static void (*body)(void **);
static void **arguments;

// pass lets the threads go if none is missing.
static void pass(barrier *b) {
	if (b->here < b->live) return;
	b->here = 0;
	b->passed++;
}

// wait_at returns once all threads of a barrier have come.
static void wait_at(barrier *b) {
	int self = threadIdx.x;
	unsigned passed = b->passed;
	b->here++;
	pass(b);
	while (b->passed == passed)
		if (!_setjmp(threads[self].at)) _longjmp(scheduler, 1);
}

static inline void __syncthreads(void) { wait_at(&all); }

static inline float __shfl_xor_sync(unsigned mask, float x, int lane) {
	int self = threadIdx.x;
	threads[self].given = x;
	wait_at(warps + self / 32);
	float y = threads[self ^ lane].given;
	wait_at(warps + self / 32);
	return y;
}

static inline float wide(unsigned short x);
static inline unsigned short narrow(float x);

// element is one of 16 bits in a pair.
static inline unsigned short element_of(unsigned pair, int i) { return (unsigned short)(pair >> 16 * i); }
static inline unsigned both_narrow(float x, float y) { return narrow(x) | (unsigned)narrow(y) << 16; }

// multiply and matrices: which lane has what of a matrix is what the PTX ISA says of mma.m16n8k16
// and of ldmatrix.
static inline void multiply(float *y, const unsigned *a, const unsigned *b) {
	int self = threadIdx.x, lane = self % 32;
	struct thread *of = threads + self - lane;
	memcpy(threads[self].a, a, sizeof threads->a);
	memcpy(threads[self].b, b, sizeof threads->b);
	wait_at(warps + self / 32);
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 16; k++) {
			const struct thread *left = of + lane / 4 * 4 + k % 8 / 2, *right = of + (lane % 4 * 2 + i % 2) * 4 + k % 8 / 2;
			y[i] += wide(element_of(left->a[i / 2 + k / 8 * 2], k % 2)) * wide(element_of(right->b[k / 8], k % 2));
		}
	wait_at(warps + self / 32);
}

static inline void rows_at(unsigned *x, const void *row, int turned) {
	int self = threadIdx.x, lane = self % 32;
	threads[self].row = row;
	wait_at(warps + self / 32);
	for (int i = 0; i < 4; i++) {
		const struct thread *of = threads + self - lane + i * 8;
		x[i] = 0;
		for (int k = 0; k < 2; k++) x[i] |= (unsigned)(turned ? of[lane % 4 * 2 + k].row[lane / 4] : of[lane / 4].row[lane % 4 * 2 + k]) << 16 * k;
	}
	wait_at(warps + self / 32);
}

static inline void matrices(unsigned *x, const void *row) { rows_at(x, row, 0); }
static inline void matrices_turned(unsigned *x, const void *row) { rows_at(x, row, 1); }

static inline void copy_eight(void *to, const void *from, int there) {
	if (there) memcpy(to, from, 16);
	else memset(to, 0, 16);
}
static inline void copies_end(void) {}
static inline void copies_wait(void) {}

// enter is a thread's whole life: a block after the other.
static void enter(void) {
	int self = threadIdx.x;
	for (;;) {
		body(arguments);
		threads[self].live = 0;
		all.live--;
		warps[self / 32].live--;
		pass(&all);
		pass(warps + self / 32);
		if (!_setjmp(threads[self].at)) _longjmp(scheduler, 1);
	}
}

// run_block runs the threads of a block, each until it waits, until all have ended.
static void run_block(void) {
	memset(warps, 0, sizeof warps);
	all = (barrier){.live = blockDim.x};
	for (int i = 0; i < blockDim.x; i++) {
		threads[i].live = 1;
		warps[i / 32].live++;
	}
	for (volatile int any = 1; any;) { // volatile, as _longjmp comes back here
		any = 0;
		for (volatile int i = 0; i < blockDim.x; i++) {
			struct thread *t = threads + i;
			if (!t->live) continue;
			any = 1;
			threadIdx.x = i;
			if (_setjmp(scheduler)) continue;
			if (t->begun) _longjmp(t->at, 1);
			t->begun = 1;
			getcontext(&t->start);
			t->start.uc_stack.ss_sp = stacks + (size_t)i * STACK;
			t->start.uc_stack.ss_size = STACK;
			t->start.uc_link = NULL;
			makecontext(&t->start, enter, 0);
			swapcontext(&beginning, &t->start);
		}
	}
}

// launch runs a kernel on the CPU.
static void launch(void (*kernel)(void **), void **args, place grid, int block) {
	if (!threads) {
		threads = calloc(MOST_THREADS, sizeof *threads);
		stacks = malloc((size_t)MOST_THREADS * STACK);
	}
	body = kernel;
	arguments = args;
	blockDim = (place){block, 1, 1};
	gridDim = grid;
	for (blockIdx.z = 0; blockIdx.z < grid.z; blockIdx.z++)
		for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
			for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) run_block();
}

static inline float __uint_as_float(unsigned x) {
	float y;
	memcpy(&y, &x, 4);
	return y;
}

static inline unsigned __float_as_uint(float x) {
	unsigned y;
	memcpy(&y, &x, 4);
	return y;
}

// No product and sum are joined into one operation: see the top.
static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
#define __expf expf
#define power_of_two exp2f

// least is a minimum that threads take at once.
static inline void least(int *to, int x) {
	if (x < *to) *to = x;
}

// half_float is a float16 as a float.
static inline float half_float(unsigned short x) {
	unsigned sign = (unsigned)(x & 0x8000) << 16, exponent = x >> 10 & 31, fraction = x & 1023;
	if (exponent == 0) return (sign ? -1 : 1) * ldexpf(fraction, -24);
	if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | fraction << 13);
	return __uint_as_float(sign | (exponent + 112) << 23 | fraction << 13);
}

// float_half rounds to the nearest float16, of two to the even one.
static inline unsigned short float_half(float x) {
	unsigned b = __float_as_uint(x), sign = b >> 16 & 0x8000, rest = b & 0x7fffffff;
	if (rest > 0x7f800000) return sign | 0x7e00;
	if (rest >= 0x477ff000) return sign | 0x7c00;
	if (rest < 0x38800000) return sign | (unsigned short)rintf(ldexpf(__uint_as_float(rest), 24)); // subnormal
	return sign | (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
}
