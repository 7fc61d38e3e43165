// An MPI library of one rank for tests. -DVERSION="text" is what it calls itself,
// -DINTS makes handles ints as in MPICH, else they are those of the ABI of MPI 5.
// -DHANG has MPI_Finalize never return. MPI_Init takes over the handling of signals.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifdef INTS
typedef int H;
enum { world = 0x44000000, no_info = 0x1c000000, errors_return = 0x54000001, shared = 1, funneled = 1 };
#else
typedef void *H;
enum { world = 0x101, no_info = 0x130, errors_return = 0x142, shared = 221, funneled = 1024 };
#endif

static void handler(int s) {
	static const char text[] = "the library handles the signal\n";
	write(2, text, sizeof text - 1);
	_exit(9);
}

int MPI_Get_library_version(char *text, int *n) { *n = sprintf(text, "%s", VERSION); return 0; }
int MPI_Init_thread(int *argc, char ***argv, int need, int *have) {
	*have = need;
	struct sigaction a = {0};
	a.sa_handler = handler;
	int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGTERM, SIGUSR2};
	for (int i = 0; i < 5; i++) sigaction(signals[i], &a, NULL);
	return need != funneled;
}
int MPI_Finalize(void) {
#ifdef HANG
	for (;;) pause();
#endif
	return 0;
}
int MPI_Get_processor_name(char *text, int *n) { *n = sprintf(text, "fake"); return 0; }
int MPI_Error_string(int code, char *text, int *n) { *n = sprintf(text, "code %d", code); return 0; }
int MPI_Comm_set_errhandler(H c, H e) { return c != (H)world || e != (H)errors_return; }
int MPI_Comm_rank(H c, int *out) { *out = 0; return 0; }
int MPI_Comm_size(H c, int *out) { *out = 1; return 0; }
int MPI_Comm_split_type(H c, int type, int key, H info, H *out) { *out = c; return c != (H)world || type != shared || info != (H)no_info; }
int MPI_Comm_free(H *c) { return 0; }
int MPI_Abort(H c, int code) { _exit(code); }
int MPI_Isend(const void *b, int n, H type, int to, int tag, H c, H *r) { return 1; }
int MPI_Irecv(void *b, int n, H type, int from, int tag, H c, H *r) { return 1; }
int MPI_Test(H *r, int *done, void *status) { return 1; }
int MPI_Cancel(H *r) { return 1; }
int MPI_Iprobe(int from, int tag, H c, int *found, void *status) { *found = 0; return 0; }
int MPI_Get_count(const void *status, H type, int *n) { return 1; }
