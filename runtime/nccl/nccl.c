#include "nccl.h"

#ifdef __linux__
#include <dlfcn.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The functions that are called, in the order of their slots.
#define FUNCTIONS(F) \
	F(ncclGetVersion) F(ncclGetUniqueId) F(ncclCommInitRank) F(ncclSend) F(ncclRecv) F(ncclAllGather) F(ncclGroupStart) \
	F(ncclGroupEnd) F(ncclCommGetAsyncError) F(ncclCommDestroy) F(ncclCommAbort) F(ncclGetErrorString)
#define SLOT(name) SLOT_##name,
#define TEXT(name) #name,
enum { FUNCTIONS(SLOT) SLOTS };
static const char *const names[] = {FUNCTIONS(TEXT)};
_Static_assert(SLOTS == onering_nccl_functions, "every function has its slot");

#define CALL(name, types, ...) ((int (*) types)lib->functions[SLOT_##name])(__VA_ARGS__)

enum { bytes_type = 0 }; // ncclChar

// The library takes the id by value.
typedef struct unique_id {
	char bytes[onering_nccl_id_bytes];
} unique_id;

#ifdef __linux__
char *onering_nccl_open(const char *name, onering_nccl *lib) {
	char text[256];
	void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
	if (!library) return strdup(dlerror());
	for (int i = 0; i < SLOTS; i++) {
		lib->functions[i] = dlsym(library, names[i]);
		if (!lib->functions[i]) {
			snprintf(text, sizeof text, "it lacks the function %s", names[i]);
			return strdup(text);
		}
	}
	int code = CALL(ncclGetVersion, (int *), &lib->version);
	return code ? strdup(onering_nccl_text(lib, code)) : NULL;
}
#else
char *onering_nccl_open(const char *name, onering_nccl *lib) { return strdup("NCCL is used on Linux only"); }
#endif

int onering_nccl_id(const onering_nccl *lib, char *id) { return CALL(ncclGetUniqueId, (void *), id); }

int onering_nccl_join(const onering_nccl *lib, const char *id, int rank, int size, void **comm) {
	unique_id own;
	memcpy(own.bytes, id, sizeof own.bytes);
	return CALL(ncclCommInitRank, (void **, int, unique_id, int), comm, size, own, rank);
}

int onering_nccl_exchange(const onering_nccl *lib, void *comm, const onering_nccl_move *moves, int out, int in, void *stream) {
	int code = CALL(ncclGroupStart, (void), );
	for (int i = 0; i < out + in && !code; i++) {
		const onering_nccl_move *m = moves + i;
		if (!m->bytes) continue; // on both sides
		if (i < out)
			code = CALL(ncclSend, (const void *, size_t, int, int, void *, void *), (const void *)m->at, m->bytes, bytes_type, m->peer, comm, stream);
		else
			code = CALL(ncclRecv, (void *, size_t, int, int, void *, void *), (void *)m->at, m->bytes, bytes_type, m->peer, comm, stream);
	}
	int end = CALL(ncclGroupEnd, (void), ); // after an error too: the group is the thread's
	return code ? code : end;
}

int onering_nccl_gather(const onering_nccl *lib, void *comm, uintptr_t at, size_t bytes, int rank, void *stream) {
	if (!bytes) return 0;
	return CALL(ncclAllGather, (const void *, void *, size_t, int, void *, void *), (const void *)(at + rank * bytes), (void *)at, bytes, bytes_type, comm, stream);
}

int onering_nccl_check(const onering_nccl *lib, void *comm) {
	int met = 0;
	int code = CALL(ncclCommGetAsyncError, (void *, int *), comm, &met);
	return code ? code : met;
}

int onering_nccl_destroy(const onering_nccl *lib, void *comm) { return CALL(ncclCommDestroy, (void *), comm); }

int onering_nccl_abort(const onering_nccl *lib, void *comm) { return CALL(ncclCommAbort, (void *), comm); }

const char *onering_nccl_text(const onering_nccl *lib, int code) {
	return ((const char *(*)(int))lib->functions[SLOT_ncclGetErrorString])(code);
}
