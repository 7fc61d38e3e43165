// The part of ONNX Runtime's C interface that onering calls.
//
// OrtApi is a table of function pointers. Releases only append to it, so the slot
// of a function never changes. This file declares the slots that onering uses
// instead of copying ONNX Runtime's header of 6,000 lines; a test compares them
// with the header in the Go binding. Every supported platform is 64-bit, where
// ORT_API_CALL is the C calling convention.
#ifndef ONERING_ORT_H
#define ONERING_ORT_H

#include <stddef.h>
#include <stdint.h>

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtThreadingOptions OrtThreadingOptions;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtAllocator OrtAllocator;
typedef struct OrtIoBinding OrtIoBinding;
typedef struct OrtValue OrtValue;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtArenaCfg OrtArenaCfg;

typedef struct OrtApiBase {
	const void *(*GetApi)(uint32_t version);
	const char *(*GetVersionString)(void);
} OrtApiBase;

// Slots of OrtApi by the names of onnxruntime_c_api.h.
enum {
	ORT_GetErrorMessage = 2,
	ORT_CreateSessionFromArray = 8,
	ORT_CreateSessionOptions = 10,
	ORT_EnableProfiling = 14,
	ORT_DisableMemPattern = 17,
	ORT_SetSessionLogSeverityLevel = 22,
	ORT_SetSessionGraphOptimizationLevel = 23,
	ORT_SetIntraOpNumThreads = 24,
	ORT_CreateRunOptions = 39,
	ORT_CreateTensorWithDataAsOrtValue = 49,
	ORT_CreateMemoryInfo = 68,
	ORT_CreateCpuMemoryInfo = 69,
	ORT_ReleaseEnv = 92,
	ORT_ReleaseStatus = 93,
	ORT_ReleaseMemoryInfo = 94,
	ORT_ReleaseSession = 95,
	ORT_ReleaseValue = 96,
	ORT_ReleaseSessionOptions = 100,
	ORT_CreateEnvWithGlobalThreadPools = 119,
	ORT_DisablePerSessionThreads = 120,
	ORT_CreateThreadingOptions = 121,
	ORT_ReleaseThreadingOptions = 122,
	ORT_GetAvailableProviders = 125,
	ORT_ReleaseAvailableProviders = 126,
	ORT_AddSessionConfigEntry = 130,
	ORT_CreateAllocator = 131,
	ORT_ReleaseAllocator = 132,
	ORT_RunWithBinding = 133,
	ORT_CreateIoBinding = 134,
	ORT_ReleaseIoBinding = 135,
	ORT_BindInput = 136,
	ORT_BindOutput = 137,
	ORT_SetGlobalIntraOpNumThreads = 147,
	ORT_SetGlobalInterOpNumThreads = 148,
	ORT_SetGlobalSpinControl = 149,
	ORT_SetGlobalDenormalAsZero = 155,
	ORT_CreateArenaCfg = 156,
	ORT_ReleaseArenaCfg = 157,
	ORT_AddRunConfigEntry = 165,
	ORT_CreateAndRegisterAllocatorV2 = 259,
	ORT_RunAsync = 260,
};

// onering_open loads the library at path (UTF-8) and keeps it loaded for the
// life of the process. It returns its OrtApiBase, or NULL with *error set to a
// message that the caller frees.
const OrtApiBase *onering_open(const char *path, char **error);
const char *onering_version(const OrtApiBase *base);
// onering_api selects the function table; 0 if the library lacks that version.
int onering_api(const OrtApiBase *base, uint32_t version);

// onering_functions returns the table, for providers that have functions of their own.
void *const *onering_functions(void);

const char *onering_message(OrtStatus *s);
void onering_release_status(OrtStatus *s);

OrtStatus *onering_env(int threads, int spin, OrtEnv **env);
void onering_release_env(OrtEnv *env);
OrtStatus *onering_cpu_memory(OrtMemoryInfo **info);
OrtStatus *onering_providers(char ***names, int *n);
void onering_release_providers(char **names, int n);

// onering_options makes the options of a session that runs on the pool of the process, or
// where threads is not 0 on so many of its own, the calling one among them.
OrtStatus *onering_options(OrtSessionOptions **o, int threads);
OrtStatus *onering_option(OrtSessionOptions *o, const char *key, const char *value);
OrtStatus *onering_profile(OrtSessionOptions *o, const void *prefix);
void onering_release_options(OrtSessionOptions *o);
// onering_device_memory describes a device's memory, by ONNX Runtime's name for its
// kind.
OrtStatus *onering_device_memory(const char *name, int device, OrtMemoryInfo **info);
// onering_allocator returns the allocator that a session has for a memory.
OrtStatus *onering_allocator(OrtSession *s, const OrtMemoryInfo *info, OrtAllocator **a);
void onering_release_allocator(OrtAllocator *a);
// onering_share gives all sessions on a device one allocator, by the names of the
// execution provider and of the memory.
OrtStatus *onering_share(OrtEnv *env, const char *execution, const char *kind, int device);

OrtStatus *onering_session(OrtEnv *env, const void *model, size_t n, OrtSessionOptions *o, OrtSession **s);
void onering_release_session(OrtSession *s);
OrtStatus *onering_value(OrtMemoryInfo *m, void *data, size_t bytes, const int64_t *shape, size_t rank, int element, OrtValue **v);
void onering_release_value(OrtValue *v);

OrtStatus *onering_binding(OrtSession *s, OrtIoBinding **b);
void onering_release_binding(OrtIoBinding *b);
OrtStatus *onering_bind(OrtIoBinding *b, int output, const char *name, const OrtValue *v);
// onering_run runs with options, which may be NULL.
OrtStatus *onering_run(OrtSession *s, OrtRunOptions *o, OrtIoBinding *b);
// onering_run_async has a thread of the pool run a session of one input and one output and
// then call done, with data and the result, which done releases. Names and values have to
// stay until then.
OrtStatus *onering_run_async(OrtSession *s, const char *const *in, const OrtValue *const *input, const char *const *out, OrtValue **output, void (*done)(void *, OrtValue **, size_t, OrtStatus *), void *data);
// onering_unsynchronized makes the options of runs that return before the GPU is
// done.
OrtStatus *onering_unsynchronized(OrtRunOptions **o);

#endif
