// The NVIDIA driver and the CUDA runtime, opened by name. So onering is built
// without either, and runs on machines that have neither.
#ifndef ONERING_CUDA_H
#define ONERING_CUDA_H

#include <stddef.h>
#include <stdint.h>

typedef struct onering_gpu {
	char name[128];
	uint64_t bytes;
	int major, minor; // compute capability
} onering_gpu;

// onering_cuda_driver opens the driver's library and describes up to max of the
// GPUs it shows. It returns how many there are, or -1 with *error set to a
// message that the caller frees. *version is 1000*major + 10*minor of the
// newest CUDA that the driver supports.
int onering_cuda_driver(const char *library, onering_gpu *gpus, int max, int *version, char **error);

// onering_cuda_room sets the name of a GPU, and bytes to its free memory; if it cannot,
// bytes do not change.
void onering_cuda_room(const char *library, int device, onering_gpu *gpu);

// onering_preload loads a library for the whole process, so that libraries which
// are loaded later and need one of that name get it. It returns the path that it
// was loaded from, or NULL with *error set; the caller frees both.
char *onering_preload(const char *library, char **error);

// The functions below call the CUDA runtime and return its code, 0 for success.
// onering_cuda_open opens the runtime's library and makes a stream on a GPU. It
// returns -1 with *error set if it cannot.
int onering_cuda_open(const char *cudart, int device, void **stream, char **error);
const char *onering_cuda_text(int code);
int onering_cuda_alloc(int device, size_t bytes, void **at);
int onering_cuda_free(int device, void *at);
// onering_cuda_copy copies to the GPU (kind 1) or from it (kind 2).
int onering_cuda_copy(int device, void *to, const void *from, size_t bytes, int kind, void *stream);
// onering_cuda_pinned allocates memory of the host that the GPU reads and writes by
// itself. It returns -1 if the runtime's library has no such function.
int onering_cuda_pinned(int device, size_t bytes, void **at);
int onering_cuda_zero(int device, void *at, size_t bytes, void *stream);
int onering_cuda_copy_runs(int device, void *to, size_t stride, const void *from, size_t from_stride, size_t width, size_t runs, void *stream);
int onering_cuda_wait(int device, void *stream);
// onering_cuda_use_device makes a GPU the calling thread's.
int onering_cuda_use_device(int device);
// onering_cuda_place writes where a GPU is on the machine's bus. It returns -1 if the
// runtime's library has no such function.
int onering_cuda_place(int device, char *text, int size);

// onering_cuda_find finds the functions below in the runtime's library, once it is open.
// They return -1 if it lacks one of those that they need.
void onering_cuda_find(void *cudart);
// onering_cuda_lock has the GPU read and write bytes of the host by itself, until
// onering_cuda_unlock.
int onering_cuda_lock(int device, void *host, size_t bytes);
int onering_cuda_unlock(int device, void *host);
// onering_cuda_stream makes a stream that waits for no other by itself, onering_cuda_event
// an event. Mark notes what a stream has been given until now as the event, and follow has
// a stream go on only when what was noted last is complete.
int onering_cuda_stream(int device, void **stream);
int onering_cuda_event(int device, void **event);
int onering_cuda_mark(int device, void *stream, void *event);
int onering_cuda_follow(int device, void *stream, void *event);

// onering_cuda_use makes a session run on a GPU, by ONNX Runtime's table of functions and
// the session's options. stream is the CUDA stream for all its work. It returns NULL, or
// an error that the caller frees.
char *onering_cuda_use(void *const *functions, void *options, const char *const *keys, const char *const *values, size_t n, void *stream);

#endif
