#include "ort.h"
#include "subnormals.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <dlfcn.h>
#endif

static void *const *api; // the OrtApi table

void *const *onering_functions(void) { return api; }

// ORT(Name, types of arguments) is the function in the slot of that name.
#define CALL(ret, name, ...) ((ret (*)(__VA_ARGS__))api[ORT_##name])
#define ORT(name, ...) CALL(OrtStatus *, name, __VA_ARGS__)

#ifdef _WIN32
const OrtApiBase *onering_open(const char *path, char **error) {
	wchar_t wide[4096];
	char text[256];
	if (!MultiByteToWideChar(CP_UTF8, 0, path, -1, wide, 4096)) {
		*error = strdup("the path is too long or not UTF-8");
		return NULL;
	}
	// The flag also finds libraries in the same folder, such as providers.
	HMODULE lib = LoadLibraryExW(wide, NULL, LOAD_WITH_ALTERED_SEARCH_PATH);
	if (!lib) {
		snprintf(text, sizeof text, "LoadLibrary failed with code %lu", (unsigned long)GetLastError());
		*error = strdup(text);
		return NULL;
	}
	const OrtApiBase *(*get)(void) = (const OrtApiBase *(*)(void))(void *)GetProcAddress(lib, "OrtGetApiBase");
	if (!get) {
		FreeLibrary(lib);
		*error = strdup("it does not export OrtGetApiBase");
		return NULL;
	}
	return get();
}
#else
const OrtApiBase *onering_open(const char *path, char **error) {
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		*error = strdup(dlerror());
		return NULL;
	}
	const OrtApiBase *(*get)(void) = (const OrtApiBase *(*)(void))dlsym(lib, "OrtGetApiBase");
	if (!get) {
		dlclose(lib);
		*error = strdup("it does not export OrtGetApiBase");
		return NULL;
	}
	return get();
}
#endif

const char *onering_version(const OrtApiBase *base) { return base->GetVersionString(); }

int onering_api(const OrtApiBase *base, uint32_t version) {
	void *const *table = base->GetApi(version);
	if (table) api = table;
	return table != NULL;
}

const char *onering_message(OrtStatus *s) { return CALL(const char *, GetErrorMessage, const OrtStatus *)(s); }
void onering_release_status(OrtStatus *s) { CALL(void, ReleaseStatus, OrtStatus *)(s); }

// Severity 4 is fatal: onering prints errors itself, from the status.
enum { severity_fatal = 4, optimize_all = 99 };

OrtStatus *onering_env(int threads, int spin, OrtEnv **env) {
	OrtThreadingOptions *t = NULL;
	OrtStatus *s = ORT(CreateThreadingOptions, OrtThreadingOptions **)(&t);
	if (!s) s = ORT(SetGlobalIntraOpNumThreads, OrtThreadingOptions *, int)(t, threads);
	if (!s) s = ORT(SetGlobalInterOpNumThreads, OrtThreadingOptions *, int)(t, 1);
	if (!s) s = ORT(SetGlobalSpinControl, OrtThreadingOptions *, int)(t, spin);
	if (!s) s = ORT(SetGlobalDenormalAsZero, OrtThreadingOptions *)(t);
	if (!s) s = ORT(CreateEnvWithGlobalThreadPools, int, const char *, const OrtThreadingOptions *, OrtEnv **)(severity_fatal, "onering", t, env);
	if (t) CALL(void, ReleaseThreadingOptions, OrtThreadingOptions *)(t);
	return s;
}

void onering_release_env(OrtEnv *env) { CALL(void, ReleaseEnv, OrtEnv *)(env); }

OrtStatus *onering_cpu_memory(OrtMemoryInfo **info) {
	// OrtDeviceAllocator (0), OrtMemTypeDefault (0): memory that the caller owns.
	return ORT(CreateCpuMemoryInfo, int, int, OrtMemoryInfo **)(0, 0, info);
}

OrtStatus *onering_providers(char ***names, int *n) { return ORT(GetAvailableProviders, char ***, int *)(names, n); }

void onering_release_providers(char **names, int n) {
	onering_release_status(ORT(ReleaseAvailableProviders, char **, int)(names, n));
}

OrtStatus *onering_options(OrtSessionOptions **o, int threads) {
	OrtStatus *s = ORT(CreateSessionOptions, OrtSessionOptions **)(o);
	if (!s && threads) s = ORT(SetIntraOpNumThreads, OrtSessionOptions *, int)(*o, threads);
	else if (!s) s = ORT(DisablePerSessionThreads, OrtSessionOptions *)(*o);
	if (!s) s = ORT(SetSessionGraphOptimizationLevel, OrtSessionOptions *, int)(*o, optimize_all);
	if (!s) s = ORT(SetSessionLogSeverityLevel, OrtSessionOptions *, int)(*o, severity_fatal);
	if (!s) s = ORT(DisableMemPattern, OrtSessionOptions *)(*o);
	return s;
}

OrtStatus *onering_option(OrtSessionOptions *o, const char *key, const char *value) {
	return ORT(AddSessionConfigEntry, OrtSessionOptions *, const char *, const char *)(o, key, value);
}

OrtStatus *onering_profile(OrtSessionOptions *o, const void *prefix) {
	return ORT(EnableProfiling, OrtSessionOptions *, const void *)(o, prefix);
}

OrtStatus *onering_device_memory(const char *name, int device, OrtMemoryInfo **info) {
	// OrtDeviceAllocator (0), OrtMemTypeDefault (0), as for the CPU.
	return ORT(CreateMemoryInfo, const char *, int, int, int, OrtMemoryInfo **)(name, 0, device, 0, info);
}

OrtStatus *onering_allocator(OrtSession *s, const OrtMemoryInfo *info, OrtAllocator **a) {
	return ORT(CreateAllocator, const OrtSession *, const OrtMemoryInfo *, OrtAllocator **)(s, info, a);
}

void onering_release_allocator(OrtAllocator *a) { CALL(void, ReleaseAllocator, OrtAllocator *)(a); }

OrtStatus *onering_share(OrtEnv *env, const char *execution, const char *kind, int device) {
	OrtMemoryInfo *info = NULL;
	OrtArenaCfg *arena = NULL;
	// OrtArenaAllocator (1), OrtMemTypeDefault (0).
	OrtStatus *s = ORT(CreateMemoryInfo, const char *, int, int, int, OrtMemoryInfo **)(kind, 1, device, 0, &info);
	// No limit (0), extend by as much as is asked for (1), the defaults (-1).
	if (!s) s = ORT(CreateArenaCfg, size_t, int, int, int, OrtArenaCfg **)(0, 1, -1, -1, &arena);
	if (!s) s = ORT(CreateAndRegisterAllocatorV2, OrtEnv *, const char *, const OrtMemoryInfo *, const OrtArenaCfg *, const char *const *, const char *const *, size_t)(
		env, execution, info, arena, NULL, NULL, 0);
	if (arena) CALL(void, ReleaseArenaCfg, OrtArenaCfg *)(arena);
	if (info) CALL(void, ReleaseMemoryInfo, OrtMemoryInfo *)(info);
	return s;
}

void onering_release_options(OrtSessionOptions *o) { CALL(void, ReleaseSessionOptions, OrtSessionOptions *)(o); }

OrtStatus *onering_session(OrtEnv *env, const void *model, size_t n, OrtSessionOptions *o, OrtSession **s) {
	return ORT(CreateSessionFromArray, const OrtEnv *, const void *, size_t, const OrtSessionOptions *, OrtSession **)(env, model, n, o, s);
}

void onering_release_session(OrtSession *s) { CALL(void, ReleaseSession, OrtSession *)(s); }

OrtStatus *onering_value(OrtMemoryInfo *m, void *data, size_t bytes, const int64_t *shape, size_t rank, int element, OrtValue **v) {
	static char nothing[64]; // the address of tensors without elements
	return ORT(CreateTensorWithDataAsOrtValue, const OrtMemoryInfo *, void *, size_t, const int64_t *, size_t, int, OrtValue **)(
		m, bytes ? data : nothing, bytes, shape, rank, element, v);
}

void onering_release_value(OrtValue *v) { CALL(void, ReleaseValue, OrtValue *)(v); }

OrtStatus *onering_binding(OrtSession *s, OrtIoBinding **b) { return ORT(CreateIoBinding, OrtSession *, OrtIoBinding **)(s, b); }

void onering_release_binding(OrtIoBinding *b) { CALL(void, ReleaseIoBinding, OrtIoBinding *)(b); }

OrtStatus *onering_bind(OrtIoBinding *b, int output, const char *name, const OrtValue *v) {
	if (output) return ORT(BindOutput, OrtIoBinding *, const char *, const OrtValue *)(b, name, v);
	return ORT(BindInput, OrtIoBinding *, const char *, const OrtValue *)(b, name, v);
}

OrtStatus *onering_unsynchronized(OrtRunOptions **o) {
	OrtStatus *s = ORT(CreateRunOptions, OrtRunOptions **)(o);
	if (!s) s = ORT(AddRunConfigEntry, OrtRunOptions *, const char *, const char *)(*o, "disable_synchronize_execution_providers", "1");
	return s;
}

OrtStatus *onering_run(OrtSession *s, OrtRunOptions *o, OrtIoBinding *b) {
	unsigned state = flush_subnormals();
	OrtStatus *st = ORT(RunWithBinding, OrtSession *, const void *, const OrtIoBinding *)(s, o, b);
	restore(state);
	return st;
}

OrtStatus *onering_run_async(OrtSession *s, const char *const *in, const OrtValue *const *input, const char *const *out, OrtValue **output, void (*done)(void *, OrtValue **, size_t, OrtStatus *), void *data) {
	return ORT(RunAsync, OrtSession *, const void *, const char *const *, const OrtValue *const *, size_t, const char *const *, size_t, OrtValue **, void (*)(void *, OrtValue **, size_t, OrtStatus *), void *)(s, NULL, in, input, 1, out, 1, output, done, data);
}
