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
#endif
