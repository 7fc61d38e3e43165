// The functions of an MPI library that onering calls. The library is opened by name
// when a process of several ranks starts, so that onering is built without MPI.
//
// Libraries differ in what a handle is: a pointer to a symbol in Open MPI, an int in
// MPICH and its relatives, a pointer with a fixed value in the ABI of MPI 5.
#ifndef ONERING_MPI_H
#define ONERING_MPI_H

#include <stdint.h>

enum { ONERING_OPEN_MPI = 1, ONERING_MPICH, ONERING_ABI };

// onering_mpi_open opens a library, which stays open. It returns 0 and sets *path to
// the file it was loaded from, *version to what the library calls itself and
// *symbols to whether it has the handles of Open MPI, or returns -1 with *error set.
// The caller frees the texts.
int onering_mpi_open(const char *name, char **path, char **version, int *symbols, char **error);

// onering_mpi_use says which library the functions below call: the one that was
// opened last, with the handles of a kind.
void onering_mpi_use(int kind);

// The functions below return 0 or an error code of the library, and are called by one
// thread, the one that called onering_mpi_init.
typedef struct onering_world {
	int rank, size, local, local_size;
	int threads; // whether the library allows threads that do not call it
	int cuda;    // whether it takes pointers to a GPU's memory; 0 where it cannot tell
	char host[512];
} onering_world;

int onering_mpi_init(onering_world *w);
int onering_mpi_finalize(void);
int onering_mpi_abort(int code);
// onering_mpi_text returns the library's text for a code; the caller frees it.
char *onering_mpi_text(int code);

// A part is one MPI message, sent or received.
typedef struct onering_part {
	uint64_t request; // the library's handle
	int done;         // it is over
	int code;         // how it ended
	int size;         // bytes that were sent or that came
} onering_part;

int onering_mpi_send(onering_part *p, const void *bytes, int size, int to, int tag);
int onering_mpi_receive(onering_part *p, void *bytes, int size, int from, int tag);
// onering_mpi_cancel ends a part that nobody waits for.
void onering_mpi_cancel(onering_part *p);
// onering_mpi_probe looks for a message with the tag, from any rank.
int onering_mpi_probe(int tag, int *found, int *from, int *size);
// onering_mpi_test sets done if the part is over, and lets the library work.
void onering_mpi_test(onering_part *p);
// onering_mpi_wait tests the parts, lets the library work and returns how many are
// done. Where none is, it tests them for spin nanoseconds, sleeps for up to doze
// nanoseconds and tests them once more. onering_mpi_wake, which any thread may
// call, ends the wait, or the next one if there is none.
int onering_mpi_wait(onering_part **parts, int n, int64_t spin, int64_t doze);
void onering_mpi_wake(void);
// onering_mpi_linger looks, for so many nanoseconds at most, whether onering_mpi_over was
// called. Any threads may call both.
void onering_mpi_linger(const int *over, int64_t nanoseconds);
void onering_mpi_over(int *over);

// onering_signals_save notes how the process handles signals. onering_signals_repair
// returns the number of signals that are handled otherwise since: where there was a
// handler it puts that back, and a new one it has run on the signal stack, without
// which a signal in a goroutine ends the program.
void onering_signals_save(void);
int onering_signals_repair(void);

#endif
