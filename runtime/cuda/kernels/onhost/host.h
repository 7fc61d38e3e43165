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
