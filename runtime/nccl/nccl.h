// The functions of NCCL that onering calls. The library is opened by name when ranks link
// their GPUs, so that onering is built without it.
#ifndef ONERING_NCCL_H
#define ONERING_NCCL_H

#include <stddef.h>
#include <stdint.h>

enum { onering_nccl_id_bytes = 128, onering_nccl_functions = 12 };

typedef struct onering_nccl {
	void *functions[onering_nccl_functions];
	int version; // 10000*major + 100*minor + patch
} onering_nccl;

// onering_nccl_open opens a library, which stays open. It returns NULL, or what is wrong in
// words that the caller frees.
char *onering_nccl_open(const char *name, onering_nccl *lib);

// A move is bytes that go to a rank or come from it.
typedef struct onering_nccl_move {
	uintptr_t at;
	size_t bytes;
	int peer;
} onering_nccl_move;

// The functions below return 0 or an error code of the library. Those that take a stream
// may return before their work is done.
int onering_nccl_id(const onering_nccl *lib, char *id);
int onering_nccl_join(const onering_nccl *lib, const char *id, int rank, int size, void **comm);
// onering_nccl_exchange sends the first out moves and receives the in that follow, all at once.
int onering_nccl_exchange(const onering_nccl *lib, void *comm, const onering_nccl_move *moves, int out, int in, void *stream);
// onering_nccl_gather fills the parts of the other ranks, of so many bytes each, in the
// order of the ranks; this rank's own is there.
int onering_nccl_gather(const onering_nccl *lib, void *comm, uintptr_t at, size_t bytes, int rank, void *stream);
// onering_nccl_check returns what work in a stream has met so far.
int onering_nccl_check(const onering_nccl *lib, void *comm);
int onering_nccl_destroy(const onering_nccl *lib, void *comm);
int onering_nccl_abort(const onering_nccl *lib, void *comm);
const char *onering_nccl_text(const onering_nccl *lib, int code);

#endif
