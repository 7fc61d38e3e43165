#include "cuda.h"

#include <string.h>

// Slots of ONNX Runtime's functions, as in ort.h of package runtime.
enum {
	ORT_GetErrorMessage = 2,
	ORT_ReleaseStatus = 93,
	ORT_SessionOptionsAppendExecutionProvider_CUDA_V2 = 204,
	ORT_CreateCUDAProviderOptions = 205,
	ORT_UpdateCUDAProviderOptions = 206,
	ORT_ReleaseCUDAProviderOptions = 208,
	ORT_UpdateCUDAProviderOptionsWithValue = 263,
};
#define ORT(ret, name, ...) ((ret (*)(__VA_ARGS__))functions[ORT_##name])

char *onering_cuda_use(void *const *functions, void *options, const char *const *keys, const char *const *values, size_t n, void *stream) {
	void *cuda = NULL;
	char *error = NULL;
	void *status = ORT(void *, CreateCUDAProviderOptions, void **)(&cuda);
	if (!status) status = ORT(void *, UpdateCUDAProviderOptions, void *, const char *const *, const char *const *, size_t)(cuda, keys, values, n);
	if (!status) status = ORT(void *, UpdateCUDAProviderOptionsWithValue, void *, const char *, void *)(cuda, "user_compute_stream", stream);
	if (!status) status = ORT(void *, SessionOptionsAppendExecutionProvider_CUDA_V2, void *, const void *)(options, cuda);
	if (cuda) ORT(void, ReleaseCUDAProviderOptions, void *)(cuda);
	if (status) {
		error = strdup(ORT(const char *, GetErrorMessage, const void *)(status));
		ORT(void, ReleaseStatus, void *)(status);
	}
	return error;
}
