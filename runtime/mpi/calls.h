// The calls whose arguments are handles, for one type of handle. mpi.c includes this
// file twice, with HANDLE, the type, and NAME(f), the name of f for that type.

#define AS(constant) ((HANDLE)(intptr_t)(constant))

static int NAME(world)(onering_world *w) {
	HANDLE local;
	TRY(MPI_Comm_set_errhandler, (HANDLE, HANDLE), AS(use.world), AS(use.errors_return));
	TRY(MPI_Comm_rank, (HANDLE, int *), AS(use.world), &w->rank);
	TRY(MPI_Comm_size, (HANDLE, int *), AS(use.world), &w->size);
	TRY(MPI_Comm_split_type, (HANDLE, int, int, HANDLE, HANDLE *), AS(use.world), use.shared, w->rank, AS(use.no_info), &local);
	TRY(MPI_Comm_rank, (HANDLE, int *), local, &w->local);
	TRY(MPI_Comm_size, (HANDLE, int *), local, &w->local_size);
	TRY(MPI_Comm_free, (HANDLE *), &local);
	return 0;
}

static int NAME(abort)(int code) { return CALL(MPI_Abort, (HANDLE, int), AS(use.world), code); }

static int NAME(send)(onering_part *p, const void *bytes, int size, int to, int tag) {
	return CALL(MPI_Isend, (const void *, int, HANDLE, int, int, HANDLE, HANDLE *), bytes, size, AS(use.byte), to, tag, AS(use.world), (HANDLE *)&p->request);
}

static int NAME(receive)(onering_part *p, void *bytes, int size, int from, int tag) {
	return CALL(MPI_Irecv, (void *, int, HANDLE, int, int, HANDLE, HANDLE *), bytes, size, AS(use.byte), from, tag, AS(use.world), (HANDLE *)&p->request);
}

static int NAME(cancel)(onering_part *p) { return CALL(MPI_Cancel, (HANDLE *), (HANDLE *)&p->request); }

static int NAME(count)(status *s, int *size) { return CALL(MPI_Get_count, (const void *, HANDLE, int *), s, AS(use.byte), size); }

static int NAME(test)(onering_part *p, status *s) { return CALL(MPI_Test, (HANDLE *, int *, void *), (HANDLE *)&p->request, &p->done, s); }

static int NAME(probe)(int tag, int *found, status *s) {
	return CALL(MPI_Iprobe, (int, int, HANDLE, int *, void *), use.any_source, tag, AS(use.world), found, s);
}

#undef AS
