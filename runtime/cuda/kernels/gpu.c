#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef __linux__

onering_device *onering_gpu_open(int number, const char *cuda, const char *cublas, int *major, int *minor, char **error) {
	*error = strdup("a GPU is used on Linux only");
	return NULL;
}

char *onering_gpu_load(onering_device *d, int half, const void *image) { return strdup("a GPU is used on Linux only"); }

#else
#include <dlfcn.h>

// CUDA's and cuBLAS's own numbers.
enum { F32 = 0, F16 = 2, BF16 = 14, COMPUTE_F32 = 68 };
enum { TURN_A = 3, TURN_B = 4, EPILOGUE = 7, BIAS = 8, EPILOGUE_BIAS = 4 };
enum { MOST_ROOM = 8 }; // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
enum { MOST_WORKSPACE = 1, REDUCTIONS = 3, IN_ORDER = 2 }; // partial sums are added by one thread, in order

// How cuBLAS computes a product of a shape: what it would do first. It is the same in every
// run, as it follows from the shape, the library and the card.
typedef struct {
	onering_product shape; // without its pointers
	int bias, sum;
	void *operation, *a, *b, *y;
	struct {
		uint64_t algorithm[8];
		size_t workspace;
		int status;
		float waves;
		int reserved[4];
	} how;
} plan;

enum { PLANS = 512, WORKSPACE = 32 << 20 };

typedef struct {
	onering_device base; // first, as the functions get it
	void *functions[2][KERNELS];
	void *room, *workspace, *handle;
	size_t room_bytes;
	plan *plans;
	int used; // how many plans there have been

	void *context;
	int (*use)(void *); // makes the context current, which is the thread's
	int (*load)(void **, const void *);
	int (*find)(void **, void *, const char *);
	int (*allow)(void *, int, int); // sets an attribute of a function
	int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
	int (*alloc)(void **, size_t);
	int (*free)(void *);
	int (*sync)(void);
	int (*text)(int, const char **);
	int (*describe)(void **, int, int);
	int (*describe_free)(void *);
	int (*set)(void *, int, const void *, size_t);
	int (*layout)(void **, int, uint64_t, uint64_t, int64_t);
	int (*layout_free)(void *);
	int (*prefer)(void **);
	int (*prefer_free)(void *);
	int (*prefer_set)(void *, int, const void *, size_t);
	int (*choose)(void *, void *, void *, void *, void *, void *, void *, int, void *, int *);
	int (*multiply)(void *, void *, const void *, const void *, void *, const void *, void *, const void *, const void *, void *, void *, void *, const void *, void *, size_t, void *);
} gpu;

static const char *failed(gpu *g, const char *what, int code) {
	static __thread char text[256];
	const char *why = NULL;
	if (!code) return NULL;
	if (g->text) g->text(code, &why);
	snprintf(text, sizeof text, "%s: %s (CUDA error %d)", what, why ? why : "unknown", code);
	return text;
}

// room_of is the memory of a block that a launch gives it, in bytes.
static int room_of(int kernel) {
	int rows[] = {5 * 64, 6 * 64, 4 * 64, 4 * 64 + 16}, i = kernel - KERNEL_CAUSAL_FORWARD; // of the tiles, as in attention.cu
	return i < 0 ? 0 : rows[i / 2] * (i % 2 ? 128 : 64) * 2;
}

static const char *launch(onering_device *d, int half, int kernel, const unsigned *grid, unsigned block, void **args, void *stream) {
	gpu *g = (gpu *)d;
	const char *problem = failed(g, "using the GPU", g->use(g->context));
	if (problem) return problem;
	return failed(g, onering_kernel_names[kernel], g->launch(g->functions[half][kernel], grid[0], grid[1], grid[2], block, 1, 1, room_of(kernel), stream, args, NULL));
}

static const char *scratch(onering_device *d, size_t bytes, void **at) {
	gpu *g = (gpu *)d;
	if (bytes > g->room_bytes) {
		// What reads the old room may still run.
		const char *problem = failed(g, "using the GPU", g->use(g->context));
		if (!problem) problem = failed(g, "waiting for the GPU", g->sync());
		if (!problem && g->room) problem = failed(g, "freeing memory", g->free(g->room));
		if (!problem) {
			g->room = NULL;
			g->room_bytes = 0;
			problem = failed(g, "allocating memory for kernels", g->alloc(&g->room, bytes));
		}
		if (problem) return problem;
		g->room_bytes = bytes;
	}
	*at = g->room;
	return NULL;
}

// refused is the message for a code of cuBLAS, which has codes of its own.
static const char *refused(const char *what, int code) {
	static __thread char text[96];
	if (!code) return NULL;
	snprintf(text, sizeof text, "cublasLt: %s failed with code %d", what, code);
	return text;
}

static void forget(gpu *g, plan *p) {
	if (p->operation) g->describe_free(p->operation);
	if (p->a) g->layout_free(p->a);
	if (p->b) g->layout_free(p->b);
	if (p->y) g->layout_free(p->y);
	memset(p, 0, sizeof *p);
}

// make has cuBLAS choose how to compute a product. cuBLAS has matrices column by column, so
// it is given y^T = op(b)^T op(a)^T.
static const char *make(gpu *g, plan *p, const onering_product *s, const void *bias) {
	int narrow = s->half ? F16 : BF16, turn_a = s->turn_b, turn_b = s->turn_a, epilogue = EPILOGUE_BIAS, found = 0, reductions = IN_ORDER;
	size_t workspace = WORKSPACE;
	void *wishes = NULL;
	int code = g->describe(&p->operation, COMPUTE_F32, F32);
	if (!code) code = g->set(p->operation, TURN_A, &turn_a, sizeof turn_a);
	if (!code) code = g->set(p->operation, TURN_B, &turn_b, sizeof turn_b);
	if (!code && bias) code = g->set(p->operation, EPILOGUE, &epilogue, sizeof epilogue);
	if (!code && bias) code = g->set(p->operation, BIAS, &bias, sizeof bias);
	if (!code) code = s->turn_b ? g->layout(&p->a, narrow, s->k, s->n, s->k) : g->layout(&p->a, narrow, s->n, s->k, s->n);
	if (!code) code = s->turn_a ? g->layout(&p->b, narrow, s->m, s->k, s->m) : g->layout(&p->b, narrow, s->k, s->m, s->k);
	if (!code) code = g->layout(&p->y, s->wide ? F32 : narrow, s->n, s->m, s->y_step);
	if (!code) code = g->prefer(&wishes);
	if (!code) code = g->prefer_set(wishes, MOST_WORKSPACE, &workspace, sizeof workspace);
	if (!code) code = g->prefer_set(wishes, REDUCTIONS, &reductions, sizeof reductions);
	if (!code) code = g->choose(g->handle, p->operation, p->a, p->b, p->y, p->y, wishes, 1, &p->how, &found);
	if (wishes) g->prefer_free(wishes);
	if (!code && !found) return "cublasLt has no way to compute this product";
	return refused("choosing how to compute a product", code);
}

static const char *product(onering_device *d, const onering_product *s, void *stream) {
	gpu *g = (gpu *)d;
	onering_product shape = *s;
	shape.a = shape.b = shape.bias = shape.sum = shape.y = NULL;
	int bias = s->bias != NULL, sum = s->sum != NULL;
	plan *p = NULL;
	for (int i = 0; i < PLANS && i < g->used && !p; i++) {
		plan *q = g->plans + i;
		if (q->operation && q->bias == bias && q->sum == sum && !memcmp(&q->shape, &shape, sizeof shape)) p = q;
	}
	if (!p) {
		p = g->plans + g->used++ % PLANS;
		forget(g, p);
		const char *problem = make(g, p, &shape, s->bias);
		if (problem) {
			forget(g, p);
			return problem;
		}
		p->shape = shape;
		p->bias = bias;
		p->sum = sum;
	} else if (bias) {
		int code = g->set(p->operation, BIAS, &s->bias, sizeof s->bias);
		if (code) return refused("setting a bias", code);
	}
	float alpha = 1, beta = sum;
	return refused("a product", g->multiply(g->handle, p->operation, &alpha, s->b, p->a, s->a, p->b, &beta, sum ? s->sum : s->y, p->y, s->y, p->y, &p->how.algorithm, g->workspace, WORKSPACE, stream));
}

onering_device *onering_gpu_open(int number, const char *cuda, const char *cublas, int *major, int *minor, char **error) {
	enum { capability_major = 75, capability_minor = 76 };
	void *driver = dlopen(cuda, RTLD_NOW | RTLD_LOCAL), *blas = driver ? dlopen(cublas, RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!blas) {
		*error = strdup(dlerror());
		return NULL;
	}
	gpu *g = calloc(1, sizeof *g); // as long as the process, as the stream
	int device = 0;
	int (*init)(unsigned), (*nth)(int *, int), (*retain)(void **, int), (*ask)(int *, int, int), (*open)(void **);
	const struct {
		void *lib;
		const char *name;
		void **to;
	} functions[] = {
		{driver, "cuInit", (void **)&init},
		{driver, "cuDeviceGet", (void **)&nth},
		{driver, "cuDevicePrimaryCtxRetain", (void **)&retain},
		{driver, "cuCtxSetCurrent", (void **)&g->use},
		{driver, "cuDeviceGetAttribute", (void **)&ask},
		{driver, "cuModuleLoadData", (void **)&g->load},
		{driver, "cuModuleGetFunction", (void **)&g->find},
		{driver, "cuFuncSetAttribute", (void **)&g->allow},
		{driver, "cuLaunchKernel", (void **)&g->launch},
		{driver, "cuMemAlloc_v2", (void **)&g->alloc},
		{driver, "cuMemFree_v2", (void **)&g->free},
		{driver, "cuCtxSynchronize", (void **)&g->sync},
		{driver, "cuGetErrorString", (void **)&g->text},
		{blas, "cublasLtCreate", (void **)&open},
		{blas, "cublasLtMatmulDescCreate", (void **)&g->describe},
		{blas, "cublasLtMatmulDescDestroy", (void **)&g->describe_free},
		{blas, "cublasLtMatmulDescSetAttribute", (void **)&g->set},
		{blas, "cublasLtMatrixLayoutCreate", (void **)&g->layout},
		{blas, "cublasLtMatrixLayoutDestroy", (void **)&g->layout_free},
		{blas, "cublasLtMatmulPreferenceCreate", (void **)&g->prefer},
		{blas, "cublasLtMatmulPreferenceDestroy", (void **)&g->prefer_free},
		{blas, "cublasLtMatmulPreferenceSetAttribute", (void **)&g->prefer_set},
		{blas, "cublasLtMatmulAlgoGetHeuristic", (void **)&g->choose},
		{blas, "cublasLtMatmul", (void **)&g->multiply},
	};
	const char *problem = NULL;
	char text[128];
	for (size_t i = 0; !problem && i < sizeof functions / sizeof *functions; i++) {
		*functions[i].to = dlsym(functions[i].lib, functions[i].name);
		if (!*functions[i].to) {
			snprintf(text, sizeof text, "%s lacks the function %s", functions[i].lib == driver ? cuda : cublas, functions[i].name);
			problem = text;
		}
	}
	if (!problem) problem = failed(g, "cuInit", init(0));
	if (!problem) problem = failed(g, "finding the GPU", nth(&device, number));
	if (!problem) problem = failed(g, "opening the GPU", retain(&g->context, device)); // the one that the CUDA runtime has
	if (!problem) problem = failed(g, "using the GPU", g->use(g->context));
	if (!problem) problem = failed(g, "asking the GPU", ask(major, capability_major, device));
	if (!problem) problem = failed(g, "asking the GPU", ask(minor, capability_minor, device));
	if (!problem) problem = refused("cublasLtCreate", open(&g->handle));
	if (!problem) problem = failed(g, "allocating memory for cuBLAS", g->alloc(&g->workspace, WORKSPACE));
	if (!problem && !(g->plans = calloc(PLANS, sizeof *g->plans))) problem = "out of memory";
	if (problem) {
		*error = strdup(problem);
		free(g);
		return NULL;
	}
	g->base = (onering_device){.launch = launch, .product = product, .scratch = scratch, .split = 512, .provider = "CUDAExecutionProvider"};
	return &g->base;
}

char *onering_gpu_load(onering_device *d, int half, const void *image) {
	gpu *g = (gpu *)d;
	void *module = NULL;
	const char *problem = failed(g, "using the GPU", g->use(g->context));
	if (!problem) problem = failed(g, "loading the kernels", g->load(&module, image));
	for (int i = 0; !problem && i < KERNELS; i++) {
		problem = failed(g, onering_kernel_names[i], g->find(&g->functions[half][i], module, onering_kernel_names[i]));
		if (!problem && room_of(i)) problem = failed(g, onering_kernel_names[i], g->allow(g->functions[half][i], MOST_ROOM, room_of(i)));
	}
	return problem ? strdup(problem) : NULL;
}
#endif
