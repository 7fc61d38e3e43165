// A library with NCCL's functions over the host's memory, for tests: the ranks of one id,
// which are processes or threads, share a file of memory. A group is done when its end
// returns. As NCCL does between GPUs of one machine, it does not notice that a rank has died:
// only ncclCommAbort ends what waits for it.
//
// VERSION is what it calls itself, FAIL_ID and FAIL_INIT=RANK have it refuse, and with
// WITHOUT_ABORT it lacks a function.
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef VERSION
#define VERSION 22703
#endif

enum { most_ranks = 8, chunk = 1 << 16, most_moves = 64 };
enum { ok = 0, system_error = 2, invalid_argument = 4 };

typedef struct { char bytes[128]; } ncclUniqueId;

// A box holds a piece on its way from one rank to another.
struct box {
	atomic_int full;
	size_t bytes;
	char data[chunk];
};

struct room {
	atomic_int joined;
	struct box boxes[most_ranks][most_ranks]; // from, to
};

struct comm {
	struct room *room;
	int rank, size;
	atomic_int aborted;
};

struct move {
	struct comm *comm;
	int peer, out;
	char *at;
	size_t bytes, done;
};

static _Thread_local struct move moves[most_moves];
static _Thread_local int count, depth;

int ncclGetVersion(int *v) { *v = VERSION; return ok; }

const char *ncclGetErrorString(int code) { return code == system_error ? "unhandled system error" : "invalid argument"; }

int ncclGetUniqueId(ncclUniqueId *id) {
#ifdef FAIL_ID
	return system_error;
#endif
	memset(id, 0, sizeof *id);
	strcpy(id->bytes, "/dev/shm/onering-nccl-XXXXXX");
	int f = mkstemp(id->bytes);
	if (f < 0 || ftruncate(f, sizeof(struct room))) return system_error;
	close(f);
	return ok;
}

int ncclCommInitRank(struct comm **comm, int size, ncclUniqueId id, int rank) {
#ifdef FAIL_INIT
	if (rank == FAIL_INIT) return system_error;
#endif
	if (size > most_ranks || rank < 0 || rank >= size) return invalid_argument;
	int f = open(id.bytes, O_RDWR);
	if (f < 0) return system_error;
	struct room *room = mmap(NULL, sizeof *room, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
	close(f);
	if (room == MAP_FAILED) return system_error;
	atomic_fetch_add(&room->joined, 1);
	while (atomic_load(&room->joined) < size) usleep(100);
	if (rank == 0) unlink(id.bytes);
	struct comm *c = calloc(1, sizeof *c);
	c->room = room;
	c->rank = rank;
	c->size = size;
	*comm = c;
	return ok;
}

// step moves a piece if it can.
static int step(struct move *m) {
	struct comm *c = m->comm;
	struct box *b = m->out ? &c->room->boxes[c->rank][m->peer] : &c->room->boxes[m->peer][c->rank];
	if (m->done == m->bytes || atomic_load(&b->full) == m->out) return 0;
	size_t n = m->bytes - m->done < chunk ? m->bytes - m->done : chunk;
	if (m->out) {
		memcpy(b->data, m->at + m->done, n);
		b->bytes = n;
	} else {
		if (b->bytes != n) abort(); // sizes differ: NCCL would hang
		memcpy(m->at + m->done, b->data, n);
	}
	m->done += n;
	atomic_store(&b->full, m->out);
	return 1;
}

// earlier says whether a move before this one goes the same way and is not done.
static int earlier(int i) {
	for (int k = 0; k < i; k++)
		if (moves[k].out == moves[i].out && moves[k].peer == moves[i].peer && moves[k].done < moves[k].bytes) return 1;
	return 0;
}

int ncclGroupStart(void) { depth++; return ok; }

int ncclGroupEnd(void) {
	if (--depth) return ok;
	int code = ok;
	for (;;) {
		int left = 0, moved = 0;
		for (int i = 0; i < count && !code; i++) {
			if (atomic_load(&moves[i].comm->aborted)) code = system_error;
			else if (!earlier(i)) moved += step(&moves[i]);
			left += moves[i].done < moves[i].bytes;
		}
		if (!left || code) break;
		if (!moved) sched_yield();
	}
	count = 0;
	return code;
}

static int add(struct comm *c, int peer, int out, char *at, size_t bytes) {
	if (count == most_moves || peer < 0 || peer >= c->size) return invalid_argument;
	moves[count++] = (struct move){c, peer, out, at, bytes, 0};
	return ok;
}

int ncclSend(const void *at, size_t bytes, int type, int peer, struct comm *c, void *stream) { return add(c, peer, 1, (char *)at, bytes); }

int ncclRecv(void *at, size_t bytes, int type, int peer, struct comm *c, void *stream) { return add(c, peer, 0, at, bytes); }

int ncclAllGather(const void *own, void *all, size_t bytes, int type, struct comm *c, void *stream) {
	ncclGroupStart();
	for (int r = 0; r < c->size; r++) {
		if (r == c->rank) continue;
		add(c, r, 1, (char *)own, bytes);
		add(c, r, 0, (char *)all + r * bytes, bytes);
	}
	return ncclGroupEnd();
}

int ncclCommGetAsyncError(struct comm *c, int *code) { *code = ok; return ok; }

// The memory of a communicator stays: a thread may be in a group.
int ncclCommDestroy(struct comm *c) { return ok; }

#ifndef WITHOUT_ABORT
int ncclCommAbort(struct comm *c) { atomic_store(&c->aborted, 1); return ok; }
#endif
