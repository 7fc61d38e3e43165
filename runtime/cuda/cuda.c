#ifdef __linux__
#define _GNU_SOURCE
#endif
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef __linux__

int onering_cuda_driver(const char *library, onering_gpu *gpus, int max, int *version, char **error) {
	*error = strdup("a GPU is used on Linux only");
	return -1;
}

char *onering_preload(const char *library, char **error) {
	*error = strdup("a GPU is used on Linux only");
	return NULL;
}

int onering_cuda_open(const char *cudart, int device, void **stream, char **error) {
	*error = strdup("a GPU is used on Linux only");
	return -1;
}

const char *onering_cuda_text(int code) { return "a GPU is used on Linux only"; }
int onering_cuda_alloc(int device, size_t bytes, void **at) { return -1; }
int onering_cuda_free(int device, void *at) { return -1; }
int onering_cuda_copy(int device, void *to, const void *from, size_t bytes, int kind, void *stream) { return -1; }
int onering_cuda_pinned(int device, size_t bytes, void **at) { return -1; }
int onering_cuda_zero(int device, void *at, size_t bytes, void *stream) { return -1; }
int onering_cuda_copy_runs(int device, void *to, size_t stride, const void *from, size_t from_stride, size_t width, size_t runs, void *stream) { return -1; }
int onering_cuda_wait(int device, void *stream) { return -1; }
int onering_cuda_use_device(int device) { return -1; }
int onering_cuda_place(int device, char *text, int size) { return -1; }

#else
#include <dlfcn.h>
#include <link.h>

static char *message(const char *call, int code) {
	char text[96];
	snprintf(text, sizeof text, "%s failed with code %d", call, code);
	return strdup(text);
}

// FIND declares a pointer to a function of lib, or fails naming it.
#define FIND(name, ...) \
	int (*name)(__VA_ARGS__) = (int (*)(__VA_ARGS__))dlsym(lib, #name); \
	if (!name) { \
		*error = strdup("it lacks the function " #name); \
		return -1; \
	}
#define TRY(call, ...) \
	do { \
		int code = call(__VA_ARGS__); \
		if (code) { \
			*error = message(#call, code); \
			return -1; \
		} \
	} while (0)

int onering_cuda_driver(const char *library, onering_gpu *gpus, int max, int *version, char **error) {
	enum { no_device = 100, capability_major = 75, capability_minor = 76 };
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		*error = strdup(dlerror());
		return -1;
	}
	FIND(cuInit, unsigned)
	FIND(cuDriverGetVersion, int *)
	FIND(cuDeviceGetCount, int *)
	FIND(cuDeviceGet, int *, int)
	FIND(cuDeviceGetName, char *, int, int)
	FIND(cuDeviceTotalMem_v2, size_t *, int)
	FIND(cuDeviceGetAttribute, int *, int, int)
	int n = 0;
	TRY(cuDriverGetVersion, version);
	int started = cuInit(0);
	if (started == no_device) return 0;
	if (started) {
		*error = message("cuInit", started);
		return -1;
	}
	TRY(cuDeviceGetCount, &n);
	for (int i = 0; i < n && i < max; i++) {
		int device = 0;
		size_t bytes = 0;
		TRY(cuDeviceGet, &device, i);
		TRY(cuDeviceGetName, gpus[i].name, sizeof gpus[i].name, device);
		TRY(cuDeviceTotalMem_v2, &bytes, device);
		TRY(cuDeviceGetAttribute, &gpus[i].major, capability_major, device);
		TRY(cuDeviceGetAttribute, &gpus[i].minor, capability_minor, device);
		gpus[i].bytes = bytes;
	}
	return n;
}

char *onering_preload(const char *library, char **error) {
	void *lib = dlopen(library, RTLD_NOW | RTLD_GLOBAL);
	if (!lib) {
		*error = strdup(dlerror());
		return NULL;
	}
	struct link_map *map = NULL;
	if (dlinfo(lib, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name[0]) return strdup(map->l_name);
	return strdup(library);
}

static struct runtime {
	int (*set_device)(int);
	int (*stream)(void **, unsigned);
	int (*alloc)(void **, size_t);
	int (*free)(void *);
	int (*copy)(void *, const void *, size_t, int, void *);
	int (*zero)(void *, int, size_t, void *);
	int (*copy_runs)(void *, size_t, const void *, size_t, size_t, size_t, int, void *);
	int (*wait)(void *);
	const char *(*text)(int);
	int (*pinned)(void **, size_t, unsigned); // may be NULL
	int (*place)(char *, int, int);           // may be NULL
} cuda;

int onering_cuda_open(const char *cudart, int device, void **stream, char **error) {
	// When a host value is bound, ONNX Runtime copies it to the device in the default
	// stream, perhaps to memory that an unfinished run has given back. So the two
	// streams must wait for each other, which a non-blocking stream would not do.
	enum { blocking = 0 };
	void *lib = dlopen(cudart, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		*error = strdup(dlerror());
		return -1;
	}
	struct runtime found;
	const struct {
		const char *name;
		void **to;
	} functions[] = {
		{"cudaSetDevice", (void **)&found.set_device},
		{"cudaStreamCreateWithFlags", (void **)&found.stream},
		{"cudaMalloc", (void **)&found.alloc},
		{"cudaFree", (void **)&found.free},
		{"cudaMemcpyAsync", (void **)&found.copy},
		{"cudaMemcpy2DAsync", (void **)&found.copy_runs},
		{"cudaMemsetAsync", (void **)&found.zero},
		{"cudaStreamSynchronize", (void **)&found.wait},
		{"cudaGetErrorString", (void **)&found.text},
	};
	for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
		*functions[i].to = dlsym(lib, functions[i].name);
		if (!*functions[i].to) {
			char text[128];
			snprintf(text, sizeof text, "%s lacks the function %s", cudart, functions[i].name);
			*error = strdup(text);
			return -1;
		}
	}
	found.pinned = (int (*)(void **, size_t, unsigned))dlsym(lib, "cudaHostAlloc");
	found.place = (int (*)(char *, int, int))dlsym(lib, "cudaDeviceGetPCIBusId");
	onering_cuda_find(lib);
	cuda = found;
	int code = cuda.set_device(device);
	if (!code) code = cuda.stream(stream, blocking);
	if (code) *error = strdup(cuda.text(code));
	return code ? -1 : 0;
}

const char *onering_cuda_text(int code) { return cuda.text(code); }

// CUDA's choice of a GPU is that of the thread, and Go moves between threads.
#define ON(device, call) \
	do { \
		int code = cuda.set_device(device); \
		return code ? code : (call); \
	} while (0)

int onering_cuda_alloc(int device, size_t bytes, void **at) { ON(device, cuda.alloc(at, bytes)); }
int onering_cuda_free(int device, void *at) { ON(device, cuda.free(at)); }
int onering_cuda_copy(int device, void *to, const void *from, size_t bytes, int kind, void *stream) {
	ON(device, cuda.copy(to, from, bytes, kind, stream));
}
int onering_cuda_pinned(int device, size_t bytes, void **at) {
	enum { of_all_gpus = 1 };
	if (!cuda.pinned) return -1;
	ON(device, cuda.pinned(at, bytes, of_all_gpus));
}
int onering_cuda_zero(int device, void *at, size_t bytes, void *stream) { ON(device, cuda.zero(at, 0, bytes, stream)); }
int onering_cuda_copy_runs(int device, void *to, size_t stride, const void *from, size_t from_stride, size_t width, size_t runs, void *stream) {
	enum { within = 3 };
	ON(device, cuda.copy_runs(to, stride, from, from_stride, width, runs, within, stream));
}
int onering_cuda_wait(int device, void *stream) { ON(device, cuda.wait(stream)); }
int onering_cuda_use_device(int device) { return cuda.set_device(device); }
int onering_cuda_place(int device, char *text, int size) { return cuda.place ? cuda.place(text, size, device) : -1; }
#endif
