// The kernels of onering as operators of ONNX Runtime, and for calls between runs.
#ifndef ONERING_KERNELS_H
#define ONERING_KERNELS_H

#include <stddef.h>
#include <stdint.h>

// The kernels by their numbers; onering_kernel_names has their names.
enum {
	KERNEL_ADAMW,
	KERNEL_SQUARES,
	KERNEL_SUM_PARTS,
	KERNEL_RMS_NORM,
	KERNEL_RMS_NORM_GRAD,
	KERNEL_SUM_ROWS,
	KERNEL_SWIGLU,
	KERNEL_SWIGLU_GRAD,
	KERNEL_ATTEND_JOIN,
	KERNEL_MASKED_SOFTMAX,
	KERNEL_SOFTMAX_GRAD,
	KERNEL_CHOOSE,
	KERNEL_HEAD_SUMS,
	KERNEL_HEAD_GRAD,
	KERNEL_TURN,
	KERNEL_GATHER,
	KERNEL_CAUSAL_SUM,
	KERNEL_CAUSAL_FORWARD, // for heads of up to 64 elements, and then of 128, as those that follow
	KERNEL_CAUSAL_QUERIES = KERNEL_CAUSAL_FORWARD + 2,
	KERNEL_CAUSAL_KEYS = KERNEL_CAUSAL_QUERIES + 2,
	KERNEL_ATTEND = KERNEL_CAUSAL_KEYS + 2,
	KERNELS = KERNEL_ATTEND + 2,
	KERNEL_ATTEND_KEYS = KERNELS, // from here on the host's alone
	KERNEL_ATTEND_PROMPT,
	KERNEL_ATTEND_WIDE, // in float32, as the next two
	KERNEL_ATTEND_KEYS_WIDE,
	KERNEL_ATTEND_PROMPT_WIDE,
	KERNEL_ROW_DOTS,
	KERNEL_UNPACK,
	HOST_KERNELS,
};
extern const char *const onering_kernel_names[KERNELS];

// A product is y = op(a) op(b) + bias or + sum for matrices of 16 bits, row by row: a [m,k] or
// with turn_a [k,m], b [k,n] or with turn_b [n,k], y [m,n] with rows y_step elements apart.
// With wide y is float32 and sum, which may be y, is [m,n] or NULL; else y has 16 bits and
// bias is [n] or NULL. On the host also plus is, which is laid out as y, or NULL; b may be held in
// another type, and with floats a, y and bias are float32, and so are all sums and products.
typedef struct {
	const void *a, *b, *bias, *plus;
	const float *sum;
	void *y;
	int64_t m, n, k, y_step;
	int turn_a, turn_b, wide, half;
	int floats, held;
	const float *scales, *plus_scales; // of b, and of plus where it is another matrix
} onering_product;

// How the host's products take a matrix: in numbers of bfloat16; in int8 with a scale for every 32
// numbers of a row; in NF4, two numbers to a byte, with a scale for every 64; in float32; in float16.
enum { HELD_SHORT, HELD_INT8, HELD_NF4, HELD_FLOAT, HELD_HALF };

// A device computes: a GPU, or the host. The functions return an error, which stays
// where it is until the next one of the thread, or NULL.
typedef struct onering_device {
	const char *(*launch)(struct onering_device *, int half, int kernel, const unsigned *grid, unsigned block, void **args, void *stream);
	const char *(*product)(struct onering_device *, const onering_product *, void *stream);
	// scratch is room that the next call of an operator may overwrite.
	const char *(*scratch)(struct onering_device *, size_t bytes, void **at);
	// What only the host has, else NULL: gate_up is silu(a b^T) (a plus^T) for plus in the
	// shape of b, and done is called after an operator.
	const char *(*gate_up)(struct onering_device *, const onering_product *, void *stream);
	void (*done)(struct onering_device *);
	int split;            // how many cached tokens one part of attention has, on which its bits depend; 0 is all
	int single;           // bfloat16 is the only type of 16 bits
	const char *provider; // whose nodes the operators are, as ONNX Runtime calls it
	void *domain;
	void *const *functions; // ONNX Runtime's; onering_ops sets it
} onering_device;

// onering_ops adds the operators to the options of a session, by ONNX Runtime's table of
// functions. It returns an error that the caller frees, or NULL.
char *onering_ops(onering_device *, void *const *functions, void *options);

// onering_adamw and onering_squares are the kernels of these names; numbers are adamw's.
const char *onering_adamw(onering_device *, float *p, const float *g, float *m, float *v, void *copy, int64_t n, const float *numbers, int half, void *stream);
const char *onering_squares(onering_device *, const float *g, int64_t n, float scale, float *sum, void *stream);

#endif
