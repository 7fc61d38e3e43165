#include "onhost.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

void onering_stand_in_bfloat16(int, const unsigned *, unsigned, void **);
void onering_stand_in_float16(int, const unsigned *, unsigned, void **);

// Blocks and threads have their places in variables, so one launch runs at a time.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static const char *run(int half, int kernel, const unsigned *grid, unsigned block, void **args) {
	pthread_mutex_lock(&mutex);
	(half ? onering_stand_in_float16 : onering_stand_in_bfloat16)(kernel, grid, block, args);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

static const char *launch(onering_device *d, int half, int kernel, const unsigned *grid, unsigned block, void **args, void *stream) {
	return run(half, kernel, grid, block, args);
}

static const char *product(onering_device *d, const onering_product *p, void *stream) { return run(p->half, -1, NULL, 0, (void **)p); }

static const char *scratch(onering_device *d, size_t bytes, void **at) {
	static __thread void *room;
	*at = room = realloc(room, bytes);
	return room ? NULL : "out of memory";
}

onering_device onering_stand_in = {.launch = launch, .product = product, .scratch = scratch, .split = 512, .provider = "CPUExecutionProvider"};
