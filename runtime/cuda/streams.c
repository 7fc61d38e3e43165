#include "cuda.h"

#ifndef __linux__

int onering_cuda_lock(int device, void *host, size_t bytes) { return -1; }
int onering_cuda_unlock(int device, void *host) { return -1; }
int onering_cuda_stream(int device, void **stream) { return -1; }
int onering_cuda_event(int device, void **event) { return -1; }
int onering_cuda_mark(int device, void *stream, void *event) { return -1; }
int onering_cuda_follow(int device, void *stream, void *event) { return -1; }

#else
#include <dlfcn.h>

static struct {
	int (*set_device)(int);
	int (*lock)(void *, size_t, unsigned);
	int (*unlock)(void *);
	int (*stream)(void **, unsigned);
	int (*event)(void **, unsigned);
	int (*mark)(void *, void *);
	int (*follow)(void *, void *, unsigned);
	int all;
} cuda;

void onering_cuda_find(void *cudart) {
	const struct {
		const char *name;
		void **to;
	} functions[] = {
		{"cudaSetDevice", (void **)&cuda.set_device},
		{"cudaHostRegister", (void **)&cuda.lock},
		{"cudaHostUnregister", (void **)&cuda.unlock},
		{"cudaStreamCreateWithFlags", (void **)&cuda.stream},
		{"cudaEventCreateWithFlags", (void **)&cuda.event},
		{"cudaEventRecord", (void **)&cuda.mark},
		{"cudaStreamWaitEvent", (void **)&cuda.follow},
	};
	cuda.all = 1;
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		*functions[i].to = dlsym(cudart, functions[i].name);
		cuda.all &= *functions[i].to != NULL;
	}
}

#define ON(device, call) \
	do { \
		if (!cuda.all) return -1; \
		int code = cuda.set_device(device); \
		return code ? code : (call); \
	} while (0)

int onering_cuda_lock(int device, void *host, size_t bytes) {
	enum { of_all_gpus = 1 };
	ON(device, cuda.lock(host, bytes, of_all_gpus));
}
int onering_cuda_unlock(int device, void *host) { ON(device, cuda.unlock(host)); }
int onering_cuda_stream(int device, void **stream) {
	enum { non_blocking = 1 };
	ON(device, cuda.stream(stream, non_blocking));
}
int onering_cuda_event(int device, void **event) {
	enum { no_timing = 2 };
	ON(device, cuda.event(event, no_timing));
}
int onering_cuda_mark(int device, void *stream, void *event) { ON(device, cuda.mark(event, stream)); }
int onering_cuda_follow(int device, void *stream, void *event) { ON(device, cuda.follow(stream, event, 0)); }
#endif
