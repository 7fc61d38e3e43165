#include "cuda.h"

#ifndef __linux__
void onering_cuda_room(const char *library, int device, onering_gpu *gpu) {}
#else
#include <dlfcn.h>

// The context is the one that the CUDA runtime uses, too; where nothing else holds it, it is
// given back.
void onering_cuda_room(const char *library, int device, onering_gpu *gpu) {
	void *lib = dlopen(library, RTLD_NOW | RTLD_LOCAL), *context = NULL;
	if (!lib) return;
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(lib, "cuInit");
	int (*get)(int *, int) = (int (*)(int *, int))dlsym(lib, "cuDeviceGet");
	int (*name)(char *, int, int) = (int (*)(char *, int, int))dlsym(lib, "cuDeviceGetName");
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(lib, "cuDevicePrimaryCtxRetain");
	int (*release)(int) = (int (*)(int))dlsym(lib, "cuDevicePrimaryCtxRelease_v2");
	int (*push)(void *) = (int (*)(void *))dlsym(lib, "cuCtxPushCurrent_v2");
	int (*pop)(void **) = (int (*)(void **))dlsym(lib, "cuCtxPopCurrent_v2");
	int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))dlsym(lib, "cuMemGetInfo_v2");
	int id = 0;
	size_t left = 0, all = 0;
	if (!init || !get || !name || !retain || !release || !push || !pop || !info || init(0) || get(&id, device) || name(gpu->name, sizeof gpu->name, id) || retain(&context, id)) return;
	if (!push(context)) {
		if (!info(&left, &all)) gpu->bytes = left;
		pop(&context);
	}
	release(id);
}
#endif
