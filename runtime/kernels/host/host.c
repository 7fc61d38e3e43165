#include "host.h"
#include "processor.h"
#include "../../subnormals.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const kind *chosen = &onering_plain;

int onering_host_kind(const char *name) {
#ifdef ONERING_AVX
	int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
	if ((!*name || !strcmp(name, "avx512")) && avx2 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
		chosen = &onering_avx512;
		return 1;
	}
	if ((!*name || !strcmp(name, "avx2")) && avx2) {
		chosen = &onering_avx2;
		return 1;
	}
#endif
	if (*name && strcmp(name, "plain")) return 0;
	chosen = &onering_plain;
	return 1;
}

const char *onering_host_name(void) { return chosen->name; }

// A room has its size and where its memory begins before it. rooms are those that nobody has.
typedef struct {
	size_t bytes;
	void *memory;
} room_of;
enum { ROOMS = 64, HEADER = 64 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static room_of *rooms[ROOMS];
static int free_rooms;

void *onering_room(size_t bytes) {
	room_of *room = NULL;
	pthread_mutex_lock(&mutex);
	int best = -1;
	for (int i = 0; i < free_rooms; i++) {
		size_t has = rooms[i]->bytes;
		if (has >= bytes && (best < 0 || has < rooms[best]->bytes)) best = i;
	}
	if (best < 0 && free_rooms == ROOMS) best = 0; // one that is too small, in whose place another comes
	if (best >= 0) {
		room = rooms[best];
		rooms[best] = rooms[--free_rooms];
	}
	pthread_mutex_unlock(&mutex);
	if (room && room->bytes < bytes) {
		free(room->memory);
		room = NULL;
	}
	if (!room) {
		char *memory = malloc(bytes + 2 * HEADER);
		if (!memory) abort(); // as Go does without memory
		room = (room_of *)(memory + HEADER - (uintptr_t)memory % HEADER);
		*room = (room_of){bytes, memory};
	}
	return (char *)room + HEADER;
}

void onering_room_back(void *at) {
	room_of *room = (room_of *)((char *)at - HEADER);
	pthread_mutex_lock(&mutex);
	if (free_rooms < ROOMS) {
		rooms[free_rooms++] = room;
		room = NULL;
	}
	pthread_mutex_unlock(&mutex);
	if (room) free(room->memory);
}

// A run is a function over tasks.
typedef struct {
	void (*f)(const void *, size_t);
	const void *of;
} run;

static void task(void *at, size_t i) {
	const run *r = at;
	unsigned state = flush_subnormals();
	r->f(r->of, i);
	restore(state);
}

// each runs all tasks on the threads of the session.
static const char *each(onering_device *d, void *context, void *f, const void *of, size_t n) {
	enum { ORT_GetErrorMessage = 2, ORT_ReleaseStatus = 93, ORT_KernelContext_ParallelFor = 274 };
	static __thread char text[256];
	run r = {(void (*)(const void *, size_t))f, of};
	if (n == 1 || !context || !d->functions) {
		for (size_t i = 0; i < n; i++) task(&r, i);
		return NULL;
	}
	void *status = ((void *(*)(const void *, void (*)(void *, size_t), size_t, size_t, void *))d->functions[ORT_KernelContext_ParallelFor])(context, task, n, 0, &r);
	if (!status) return NULL;
	strncpy(text, ((const char *(*)(void *))d->functions[ORT_GetErrorMessage])(status), sizeof text - 1);
	((void (*)(void *))d->functions[ORT_ReleaseStatus])(status);
	return text;
}

static size_t parts(int64_t n, int64_t each) { return (n + each - 1) / each; }

static const char *attend(onering_device *d, void *context, job *j, int64_t rows) {
	const attention *a = j->a[0];
	int token = a->floats ? KERNEL_ATTEND_WIDE : KERNEL_ATTEND, keys = a->floats ? KERNEL_ATTEND_KEYS_WIDE : KERNEL_ATTEND_KEYS;
	if (a->tokens == 1) return each(d, context, chosen->tasks[token], j, rows * a->groups);
	const char *problem = each(d, context, chosen->tasks[keys], j, rows * a->tokens);
	return problem ? problem : each(d, context, chosen->tasks[keys + 1], j, rows * a->heads * parts(a->tokens, BLOCK_ROWS));
}

static const char *launch(onering_device *d, int half, int kernel, const unsigned *grid, unsigned block, void **args, void *context) {
	job whole = {.a = args, .grid = grid}, *j = &whole;
	const causal *a = args[0];
	if (kernel >= KERNEL_CAUSAL_FORWARD && kernel < KERNELS) kernel -= (kernel - KERNEL_CAUSAL_FORWARD) % 2; // for heads of any width
	size_t n = grid[0];
	switch (kernel) {
	case KERNEL_RMS_NORM: n = parts(grid[0], SOME_ROWS); break;
	case KERNEL_SUM_ROWS: n = parts(A(3, int), 16); break;
	case KERNEL_SWIGLU: n = parts(A(3, int64_t), 4); break;
	case KERNEL_SWIGLU_GRAD: n = parts(A(5, int64_t), SOME); break;
	case KERNEL_TURN: n = parts(A(9, int64_t), SOME_ROWS); break;
	case KERNEL_GATHER: n = parts(A(6, int64_t), SOME_ROWS); break;
	case KERNEL_UNPACK: n = parts(A(4, int64_t), SOME_ROWS); break;
	case KERNEL_ROW_DOTS: n = parts(A(4, int64_t), SOME_ROWS); break;
	case KERNEL_CAUSAL_FORWARD: n = (size_t)a->batch * a->heads * parts(a->tokens, BLOCK_ROWS); break;
	case KERNEL_CAUSAL_QUERIES: n = (size_t)a->batch * a->heads; break;
	case KERNEL_CAUSAL_KEYS: return NULL; // the queries' tasks have computed them
	case KERNEL_CAUSAL_SUM: n = (size_t)a->batch * a->tokens; break;
	case KERNEL_ATTEND: return attend(d, context, j, grid[2]);
	}
	if (!chosen->tasks[kernel]) return "the host has no such kernel";
	return each(d, context, chosen->tasks[kernel], j, n);
}

// blocked runs a product in blocks, those of few rows and of few blocks narrower, so that all threads have as much.
static const char *blocked(onering_device *d, void *context, void *f, const onering_product *p) {
	int64_t few = parts(p->m, 192) * parts(p->n, 128) < 32;
	multiplication m = {.p = p, .rows = p->m > BLOCK_ROWS ? 192 : p->m, .columns = p->m > BLOCK_ROWS ? few ? 64 : 128 : p->n > 16384 ? 512 : 64};
	return each(d, context, f, &m, parts(p->m, m.rows) * parts(p->n, m.columns));
}

static const char *product(onering_device *d, const onering_product *p, void *context) {
	if (p->turn_b) return p->turn_a ? "a product of two turned matrices" : blocked(d, context, chosen->forward, p);
	size_t panels = parts(p->n, chosen->panel);
	multiplication m = {.p = p, .rows = 48, .columns = 1024, .packed = onering_room((size_t)panels * chosen->panel * ((p->k + 1) / 2) * 4)};
	const char *problem = each(d, context, chosen->pack, &m, panels);
	if (!problem) problem = each(d, context, chosen->outer, &m, parts(p->m, m.rows) * parts(p->n, m.columns));
	onering_room_back(m.packed);
	return problem;
}

static const char *gate_up(onering_device *d, const onering_product *p, void *context) { return blocked(d, context, chosen->gate_up, p); }

static __thread void *held;

static void done(onering_device *d) {
	if (held) onering_room_back(held);
	held = NULL;
}

static const char *scratch(onering_device *d, size_t bytes, void **at) {
	done(d);
	*at = held = onering_room(bytes);
	return NULL;
}

onering_device onering_host = {.launch = launch, .product = product, .scratch = scratch, .gate_up = gate_up, .done = done, .single = 1, .provider = "CPUExecutionProvider"};
