#define _GNU_SOURCE
#include "mpi.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef __linux__
#include <dlfcn.h>
#endif

// The functions that are called, in the order of their slots.
#define FUNCTIONS(F) \
	F(MPI_Get_library_version) F(MPI_Init_thread) F(MPI_Finalize) F(MPI_Get_processor_name) F(MPI_Error_string) \
	F(MPI_Comm_set_errhandler) F(MPI_Comm_rank) F(MPI_Comm_size) F(MPI_Comm_split_type) F(MPI_Comm_free) \
	F(MPI_Abort) F(MPI_Isend) F(MPI_Irecv) F(MPI_Test) F(MPI_Cancel) F(MPI_Iprobe) F(MPI_Get_count)
#define SLOT(name) SLOT_##name,
#define TEXT(name) #name,
enum { FUNCTIONS(SLOT) SLOTS };
static const char *const names[] = {FUNCTIONS(TEXT)};

static void *library;
static void *slots[SLOTS];

// What onering_mpi_wait sleeps on.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wakened;
static int woken;

// What a kind of library calls by its own numbers. Handles are kept as integers.
static struct {
	intptr_t world, byte, no_info, errors_return;
	int shared;     // MPI_COMM_TYPE_SHARED
	int any_source; // MPI_ANY_SOURCE
	int funneled;   // MPI_THREAD_FUNNELED
	int source;     // place of MPI_SOURCE in a status, in ints
	int pointers;   // whether handles are pointers
} use;

// A status has room for that of every kind of library.
typedef union status {
	int ints[16];
	uint64_t align;
} status;

#define CALL(name, types, ...) ((int (*) types)slots[SLOT_##name])(__VA_ARGS__)
#define TRY(name, types, ...) \
	do { \
		int code = CALL(name, types, __VA_ARGS__); \
		if (code) return code; \
	} while (0)

#define HANDLE int
#define NAME(f) int_##f
#include "calls.h"
#undef HANDLE
#undef NAME
#define HANDLE void *
#define NAME(f) pointer_##f
#include "calls.h"
#undef HANDLE
#undef NAME

// BY(f, ...) calls f for the type of handle that the library has.
#define BY(f, ...) (use.pointers ? pointer_##f(__VA_ARGS__) : int_##f(__VA_ARGS__))

#ifdef __linux__
int onering_mpi_open(const char *name, char **path, char **version, int *symbols, char **error) {
	char text[8192] = ""; // MPICH's limit, the largest
	int length = 0;
	// The parts of a library that it opens itself need its symbols.
	library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
	if (!library) {
		*error = strdup(dlerror());
		return -1;
	}
	for (int i = 0; i < SLOTS; i++) {
		slots[i] = dlsym(library, names[i]);
		if (!slots[i]) {
			snprintf(text, sizeof text, "it lacks the function %s", names[i]);
			*error = strdup(text);
			return -1;
		}
	}
	CALL(MPI_Get_library_version, (char *, int *), text, &length);
	Dl_info info;
	*path = strdup(dladdr(slots[0], &info) && info.dli_fname ? info.dli_fname : name);
	*version = strdup(text);
	*symbols = dlsym(library, "ompi_mpi_comm_world") != NULL;
	return 0;
}

void onering_mpi_use(int kind) {
	pthread_condattr_t steady;
	pthread_condattr_init(&steady);
	pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
	pthread_cond_init(&wakened, &steady);
	use.any_source = -1;
	use.funneled = 1;
	use.pointers = 1;
	use.source = 0;
	switch (kind) {
	case ONERING_OPEN_MPI:
		use.world = (intptr_t)dlsym(library, "ompi_mpi_comm_world");
		use.byte = (intptr_t)dlsym(library, "ompi_mpi_byte");
		use.no_info = (intptr_t)dlsym(library, "ompi_mpi_info_null");
		use.errors_return = (intptr_t)dlsym(library, "ompi_mpi_errors_return");
		use.shared = 0;
		break;
	case ONERING_MPICH:
		use.pointers = 0;
		use.world = 0x44000000;
		use.byte = 0x4c00010d;
		use.no_info = 0x1c000000;
		use.errors_return = 0x54000001;
		use.shared = 1;
		use.any_source = -2;
		use.source = 2;
		break;
	case ONERING_ABI:
		use.world = 0x101;
		use.byte = 0x247;
		use.no_info = 0x130;
		use.errors_return = 0x142;
		use.shared = 221;
		use.funneled = 1024;
	}
}

static int cuda(void) {
	int (*query)(void) = (int (*)(void))dlsym(library, "MPIX_Query_cuda_support");
	return query ? query() : 0;
}

static struct sigaction before[NSIG];

static int handled(const struct sigaction *a) {
	return (a->sa_flags & SA_SIGINFO) || (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN);
}

void onering_signals_save(void) {
	for (int s = 1; s < NSIG; s++) sigaction(s, NULL, &before[s]);
}

int onering_signals_repair(void) {
	int repaired = 0;
	for (int s = 1; s < NSIG; s++) {
		struct sigaction now;
		if (sigaction(s, NULL, &now) || now.sa_handler == before[s].sa_handler || !handled(&now)) continue;
		if (handled(&before[s])) {
			now = before[s];
		} else {
			now.sa_flags |= SA_ONSTACK;
		}
		repaired += !sigaction(s, &now, NULL);
	}
	return repaired;
}
#else
int onering_mpi_open(const char *name, char **path, char **version, int *symbols, char **error) {
	*error = strdup("MPI is used on Linux only");
	return -1;
}
void onering_mpi_use(int kind) {}
static int cuda(void) { return 0; }
void onering_signals_save(void) {}
int onering_signals_repair(void) { return 0; }
#endif

int onering_mpi_init(onering_world *w) {
	int provided = 0, length = 0;
	TRY(MPI_Init_thread, (int *, char ***, int, int *), NULL, NULL, use.funneled, &provided);
	w->threads = provided >= use.funneled;
	w->cuda = cuda();
	TRY(MPI_Get_processor_name, (char *, int *), w->host, &length);
	return BY(world, w);
}

int onering_mpi_finalize(void) { return CALL(MPI_Finalize, (void), ); }

int onering_mpi_abort(int code) { return BY(abort, code); }

char *onering_mpi_text(int code) {
	char text[1024] = "";
	int length = 0;
	if (CALL(MPI_Error_string, (int, char *, int *), code, text, &length) || !*text) snprintf(text, sizeof text, "error %d", code);
	return strdup(text);
}

static int started(onering_part *p, int code) {
	p->code = code;
	p->done = code != 0;
	p->size = 0;
	return code;
}

int onering_mpi_send(onering_part *p, const void *bytes, int size, int to, int tag) {
	return started(p, BY(send, p, bytes, size, to, tag));
}

int onering_mpi_receive(onering_part *p, void *bytes, int size, int from, int tag) {
	return started(p, BY(receive, p, bytes, size, from, tag));
}

void onering_mpi_test(onering_part *p) {
	if (p->done) return;
	status s = {{0}};
	p->code = BY(test, p, &s);
	if (p->code) p->done = 1;
	if (p->done && !p->code) BY(count, &s, &p->size);
}

void onering_mpi_cancel(onering_part *p) {
	if (BY(cancel, p)) return;
	for (int i = 0; !p->done && i < 1000; i++) onering_mpi_test(p);
}

int onering_mpi_probe(int tag, int *found, int *from, int *size) {
	status s = {{0}};
	*found = 0;
	int code = BY(probe, tag, found, &s);
	if (code || !*found) return code;
	*from = s.ints[use.source];
	return BY(count, &s, size);
}

void onering_mpi_wake(void) {
	pthread_mutex_lock(&mutex);
	woken = 1;
	pthread_cond_signal(&wakened);
	pthread_mutex_unlock(&mutex);
}

static int64_t nanoseconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void onering_mpi_linger(const int *over, int64_t most) {
	for (int64_t end = nanoseconds() + most; !__atomic_load_n(over, __ATOMIC_ACQUIRE) && nanoseconds() < end;) sched_yield();
}

void onering_mpi_over(int *over) { __atomic_store_n(over, 1, __ATOMIC_RELEASE); }

static int test_all(onering_part **parts, int n) {
	int done = 0;
	for (int i = 0; i < n; i++) {
		onering_mpi_test(parts[i]);
		done += parts[i]->done;
	}
	return done;
}

int onering_mpi_wait(onering_part **parts, int n, int64_t spin, int64_t doze) {
	int done = test_all(parts, n);
	if (done) return done;
	for (int64_t end = spin ? nanoseconds() + spin : 0; end && nanoseconds() < end;) {
		sched_yield(); // a rank on the same core may be what this one waits for
		if ((done = test_all(parts, n)) || __atomic_load_n(&woken, __ATOMIC_RELAXED)) break;
	}
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += doze % 1000000000;
	until.tv_sec += doze / 1000000000 + until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&mutex);
	while (!done && doze && !woken && pthread_cond_timedwait(&wakened, &mutex, &until) != ETIMEDOUT) {
	}
	woken = 0;
	pthread_mutex_unlock(&mutex);
	return done ? done : test_all(parts, n);
}
