#include "rest.h"

#include <pthread.h>
#include <stdlib.h>

// The call of one thread. ONNX Runtime reads and writes it until the thread waits.
typedef struct {
	rest *of;
	OrtValue *result;
} call;

struct rest {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int resting; // threads that are waiting, or will
	int over;
	pthread_t caller; // of onering_rest
	const char *names[2];
	const OrtValue *input;
	call calls[];
};

static void fall_asleep(void *of, OrtValue **results, size_t n, OrtStatus *s) {
	call *c = of;
	rest *r = c->of;
	for (size_t i = 0; i < n; i++)
		if (results[i]) onering_release_value(results[i]);
	if (s) onering_release_status(s); // a session that fails waits as well
	// A thread whose queue is full takes no call, and the pool has the caller run it.
	int sleeps = !pthread_equal(pthread_self(), r->caller);
	pthread_mutex_lock(&r->lock);
	while (sleeps && !r->over) pthread_cond_wait(&r->changed, &r->lock);
	r->resting--;
	pthread_cond_broadcast(&r->changed);
	pthread_mutex_unlock(&r->lock);
}

OrtStatus *onering_rest(OrtSession *s, const char *const names[2], const OrtValue *input, int n, rest **to) {
	rest *r = *to = calloc(1, sizeof *r + (size_t)n * sizeof *r->calls);
	if (!r) abort(); // as Go does without memory
	r->caller = pthread_self();
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->changed, NULL);
	r->names[0] = names[0], r->names[1] = names[1], r->input = input;
	for (int i = 0; i < n; i++) {
		r->calls[i].of = r;
		pthread_mutex_lock(&r->lock);
		r->resting++;
		pthread_mutex_unlock(&r->lock);
		OrtStatus *status = onering_run_async(s, &r->names[0], &r->input, &r->names[1], &r->calls[i].result, fall_asleep, &r->calls[i]);
		if (!status) continue;
		pthread_mutex_lock(&r->lock);
		r->resting--;
		pthread_mutex_unlock(&r->lock);
		return status;
	}
	return NULL;
}

void onering_wake(rest *r) {
	pthread_mutex_lock(&r->lock);
	r->over = 1;
	pthread_cond_broadcast(&r->changed);
	while (r->resting) pthread_cond_wait(&r->changed, &r->lock);
	pthread_mutex_unlock(&r->lock);
	pthread_cond_destroy(&r->changed);
	pthread_mutex_destroy(&r->lock);
	free(r);
}
