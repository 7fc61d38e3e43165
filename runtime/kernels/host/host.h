// The kernels of package runtime/kernels on the host's processor, in bfloat16 and float32.
#ifndef ONERING_HOST_H
#define ONERING_HOST_H

#include "../kernels.h"

// A job is a launch: the arguments of its kernel, as ops.c gives them, and its grid. It is cut
// into tasks, each of which computes results of its own, whatever the number of threads.
typedef struct {
	void **a;
	const unsigned *grid;
	size_t tasks;
	void *room; // for what tasks share
} job;
#define A(i, type) (*(type *)j->a[i])
typedef float *floats;
typedef uint16_t *shorts;
typedef int64_t *longs;

// A multiplication is a product that is cut into blocks of rows and columns.
typedef struct {
	const onering_product *p;
	int64_t rows, columns; // of a block
	uint32_t *packed;      // b for outer products, in panels
} multiplication;

// A kind is the kernels for a kind of processor. All kinds compute the same bits.
typedef struct {
	const char *name;
	int64_t panel; // columns of a panel of b
	void (*tasks[HOST_KERNELS])(const job *, size_t);
	void (*forward)(const multiplication *, size_t); // y = a b^T
	void (*pack)(const multiplication *, size_t);    // a panel of b
	void (*outer)(const multiplication *, size_t);   // y = op(a) b
	void (*gate_up)(const multiplication *, size_t);
} kind;
extern const kind onering_plain, onering_avx2, onering_avx512;

// What ops.c gives to the kernels attend and causal.
typedef struct {
	const void *qkv;
	const int32_t *before;
	const float *cos, *sin;
	void *keys, *values, *out, *parts;
	int64_t capacity;
	int heads, groups, width, split;
	float scale;
	int tokens, total, window;
	float cap;
	int floats;
} attention;

typedef struct {
	const uint16_t *q, *k, *v, *o, *dy;
	uint16_t *out, *dq, *dk, *dv;
	float *ends, *delta, *part_k, *part_v;
	int tokens, heads, groups, width;
	float scale;
	int batch, window;
	float cap;
} causal;

// What a task has: queries of attention, rows, and elements. HEAD_BLOCK is how many logits are
// added at once; it divides the slices of the head that training takes.
enum { BLOCK_ROWS = 48, SOME_ROWS = 16, SOME = 8192, HEAD_BLOCK = 8176 };

extern onering_device onering_host;

// onering_host_kind chooses a kind by its name, or with "" the fastest. It returns 0 where there
// is none. onering_host_name is the chosen one's.
int onering_host_kind(const char *name);
const char *onering_host_name(void);

// onering_room lends memory of at least so many bytes, on a multiple of 64, until it is given
// back. NULL means that there is none.
void *onering_room(size_t bytes);
void onering_room_back(void *);

#endif
