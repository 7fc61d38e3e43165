#include "kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const onering_kernel_names[KERNELS] = {
	"adamw", "squares", "sum_parts", "rms_norm", "rms_norm_grad", "sum_rows", "swiglu", "swiglu_grad", "attend_join", "masked_softmax", "softmax_grad", "choose", "head_sums", "head_grad", "turn", "gather", "causal_sum",
	"causal_forward_64", "causal_forward_128", "causal_queries_64", "causal_queries_128", "causal_keys_64", "causal_keys_128", "attend_64", "attend_128",
};

// Slots of ONNX Runtime's functions, as in ort.h of package runtime.
enum {
	ORT_CreateStatus = 0,
	ORT_GetErrorMessage = 2,
	ORT_CreateCustomOpDomain = 26,
	ORT_CustomOpDomain_Add = 27,
	ORT_AddCustomOpDomain = 28,
	ORT_GetTensorMutableData = 51,
	ORT_GetTensorElementType = 60,
	ORT_GetDimensionsCount = 61,
	ORT_GetDimensions = 62,
	ORT_GetTensorTypeAndShape = 65,
	ORT_KernelInfoGetAttribute_float = 85,
	ORT_KernelInfoGetAttribute_int64 = 86,
	ORT_KernelContext_GetInputCount = 88,
	ORT_KernelContext_GetInput = 90,
	ORT_KernelContext_GetOutput = 91,
	ORT_ReleaseStatus = 93,
	ORT_ReleaseTensorTypeAndShapeInfo = 99,
	ORT_KernelContext_GetGPUComputeStream = 193,
};
#define ORT(functions, ret, name, ...) ((ret (*)(__VA_ARGS__))(functions)[ORT_##name])

enum { ANY = 0, FLOAT = 1, UINT8 = 2, INT8 = 3, INT32 = 6, INT64 = 7, FLOAT16 = 10, BFLOAT16 = 16 }; // element types
enum { REQUIRED = 0, OPTIONAL = 1 };
enum { ON_DEVICE = 0, ON_HOST = -2 };

// ONNX Runtime's OrtCustomOp of version 17.
typedef struct ort_op {
	uint32_t version;
	void *create_1;
	const char *(*name)(const struct ort_op *);
	const char *(*provider)(const struct ort_op *);
	int (*input_type)(const struct ort_op *, size_t);
	size_t (*inputs)(const struct ort_op *);
	int (*output_type)(const struct ort_op *, size_t);
	size_t (*outputs)(const struct ort_op *);
	void *compute_1;
	void (*destroy)(void *);
	int (*input_kind)(const struct ort_op *, size_t);
	int (*output_kind)(const struct ort_op *, size_t);
	int (*input_memory)(const struct ort_op *, size_t);
	int (*min_in)(const struct ort_op *), (*same_in)(const struct ort_op *), (*min_out)(const struct ort_op *), (*same_out)(const struct ort_op *);
	void *(*create)(const struct ort_op *, void *const *api, const void *info, void **kernel);
	void *(*compute)(void *kernel, void *context);
	void *infer;
	int (*start)(const struct ort_op *), (*end)(const struct ort_op *);
} ort_op;

enum { MOST_PARTS = 1024 }; // of a sum over all elements
enum { MOST_INPUTS = 7, MOST_OUTPUTS = 3, MOST_RANK = 4 };

typedef struct tensor {
	void *data;
	int64_t dims[MOST_RANK];
	size_t rank;
	int type;
} tensor;

struct call;

// An op is an operator in one type of 16 bits. H among its types stands for that type, and it has one type only without.
typedef struct op {
	ort_op base; // first, as ONNX Runtime gives it back
	onering_device *device;
	int half;
	const char *name, *in, *out; // its types: F float32, H, L int64, I int32 on the device, C int32 on the host; W is H, and on the host any that holds a matrix
	int required;                // how many inputs there must be
	const char *(*run)(struct call *);
	char full[40];
} op;

// A kernel is a node of a graph.
typedef struct {
	op *op;
	void *const *api;
	float epsilon, scale, cap;
	int64_t heads, groups, turned, window;
} kernel;

// A call is one computation of a node.
typedef struct call {
	kernel *k;
	void *context, *stream;
	tensor in[MOST_INPUTS];
	size_t inputs;
} call;

#define TRY(x) \
	do { \
		const char *problem = (x); \
		if (problem) return problem; \
	} while (0)

// told keeps the message of a status of ONNX Runtime, and releases it.
static const char *told(void *const *api, void *status) {
	static __thread char text[512];
	if (!status) return NULL;
	snprintf(text, sizeof text, "%s", ORT(api, const char *, GetErrorMessage, void *)(status));
	ORT(api, void, ReleaseStatus, void *)(status);
	return text;
}

// output makes output i of the given dimensions.
static const char *output(call *c, size_t i, const int64_t *dims, size_t rank, void **data) {
	void *const *api = c->k->api;
	void *value = NULL;
	TRY(told(api, ORT(api, void *, KernelContext_GetOutput, void *, size_t, const int64_t *, size_t, void **)(c->context, i, dims, rank, &value)));
	return told(api, ORT(api, void *, GetTensorMutableData, void *, void **)(value, data));
}

static const char *input(call *c, size_t i) {
	void *const *api = c->k->api;
	void *value = NULL, *shape = NULL;
	tensor *t = c->in + i;
	TRY(told(api, ORT(api, void *, KernelContext_GetInput, void *, size_t, void **)(c->context, i, &value)));
	if (!value) return NULL; // one that was left out
	TRY(told(api, ORT(api, void *, GetTensorMutableData, void *, void **)(value, &t->data)));
	TRY(told(api, ORT(api, void *, GetTensorTypeAndShape, void *, void **)(value, &shape)));
	const char *problem = told(api, ORT(api, void *, GetDimensionsCount, void *, size_t *)(shape, &t->rank));
	if (!problem && t->rank > MOST_RANK) problem = "a tensor has too many dimensions";
	if (!problem) problem = told(api, ORT(api, void *, GetTensorElementType, void *, int *)(shape, &t->type));
	if (!problem) problem = told(api, ORT(api, void *, GetDimensions, void *, int64_t *, size_t)(shape, t->dims, t->rank));
	ORT(api, void, ReleaseTensorTypeAndShapeInfo, void *)(shape);
	return problem;
}

static int64_t size(const tensor *t) {
	int64_t n = 1;
	for (size_t i = 0; i < t->rank; i++) n *= t->dims[i];
	return n;
}

static const char *launch(call *c, int number, unsigned x, unsigned y, unsigned z, unsigned block, void **args) {
	op *o = c->k->op;
	return o->device->launch(o->device, o->half, number, (unsigned[]){x, y, z}, block, args, c->stream);
}

// blocks is how many blocks of 256 threads work on n things, each of several.
static unsigned blocks(int64_t n) {
	int64_t b = (n + 255) / 256;
	return b < 1 ? 1 : b > 4096 ? 4096 : b;
}

// threads is how many have a row of n numbers of which each takes share, at least.
static unsigned threads(int64_t n, int64_t share) {
	int64_t t = ((n + share - 1) / share + 31) / 32 * 32;
	return t < 32 ? 32 : t > 1024 ? 1024 : t;
}

// Norm: x [N,D], w [D] -> y [N,D] of 16 bits.
static const char *run_norm(call *c) {
	tensor *x = c->in;
	int d = x->dims[x->rank - 1];
	void *y;
	TRY(output(c, 0, x->dims, x->rank, &y));
	int64_t rows = size(x) / d;
	if (rows == 0) return NULL;
	void *args[] = {&x->data, &c->in[1].data, &y, &d, &c->k->epsilon};
	return launch(c, KERNEL_RMS_NORM, rows, 1, 1, threads(d, 4), args);
}

// NormGrad: x [N,D], w [D], dy [N,D] of 16 bits, onto [N,D] -> onto + dx, dw [D].
static const char *run_norm_grad(call *c) {
	tensor *x = c->in;
	int d = x->dims[1];
	int64_t rows = x->dims[0];
	unsigned share = rows < 512 ? (rows ? rows : 1) : 512;
	void *dx, *dw, *parts;
	TRY(output(c, 0, x->dims, 2, &dx));
	TRY(output(c, 1, x->dims + 1, 1, &dw));
	op *o = c->k->op;
	TRY(o->device->scratch(o->device, (size_t)share * d * 4, &parts));
	void *args[] = {&x->data, &c->in[1].data, &c->in[2].data, &c->in[3].data, &dx, &parts, &rows, &d, &c->k->epsilon};
	TRY(launch(c, KERNEL_RMS_NORM_GRAD, share, 1, 1, threads(d, 4), args));
	int n = share;
	void *sum[] = {&parts, &dw, &n, &d};
	return launch(c, KERNEL_SUM_ROWS, (d + 31) / 32, 1, 1, 256, sum);
}

static const char *swiglu(call *c, void *gate, void *up, void *y, int64_t rows, int f, int64_t step) {
	if (rows == 0) return NULL;
	void *args[] = {&gate, &up, &y, &rows, &f, &step};
	return launch(c, KERNEL_SWIGLU, blocks(rows * f / 8), 1, 1, 256, args);
}

// SwiGLU: gate, up [N,F] -> silu(gate) * up.
static const char *run_swiglu(call *c) {
	tensor *gate = c->in;
	void *y;
	TRY(output(c, 0, gate->dims, 2, &y));
	return swiglu(c, gate->data, c->in[1].data, y, gate->dims[0], gate->dims[1], gate->dims[1]);
}

// SwiGLUGrad: gate, up, dy [N,F] -> dgate, dup.
static const char *run_swiglu_grad(call *c) {
	tensor *gate = c->in;
	int64_t n = size(gate);
	void *dgate, *dup;
	TRY(output(c, 0, gate->dims, 2, &dgate));
	TRY(output(c, 1, gate->dims, 2, &dup));
	if (n == 0) return NULL;
	void *args[] = {&gate->data, &c->in[1].data, &c->in[2].data, &dgate, &dup, &n};
	return launch(c, KERNEL_SWIGLU_GRAD, blocks(n / 8), 1, 1, 256, args);
}

static const char *multiply(call *c, onering_product p) {
	op *o = c->k->op;
	p.half = o->half;
	if (p.m == 0 || p.n == 0) return NULL;
	return o->device->product(o->device, &p, c->stream);
}

// held says how a matrix is held, and width how many numbers its rows have.
static int held(const tensor *w) {
	return w->type == INT8 ? HELD_INT8 : w->type == UINT8 ? HELD_NF4 : w->type == FLOAT ? HELD_FLOAT : w->type == FLOAT16 ? HELD_HALF : HELD_SHORT;
}
static int64_t width(const tensor *w) { return w->dims[1] * (w->type == UINT8 ? 2 : 1); }

// Product: x [N,in], w [out,in] or where it is turned [in,out], perhaps b [out] or on the host
// [N,out], and w's scales -> x w^T + b in 16 bits. Logits is the same without b, in float32, and
// FloatProduct has x, b and the result in float32.
static const char *run_product(call *c) {
	tensor *x = c->in, *w = c->in + 1, *b = c->in + 2;
	int turned = c->k->turned != 0;
	int64_t dims[] = {x->dims[0], turned ? width(w) : w->dims[0]};
	void *y;
	TRY(output(c, 0, dims, 2, &y));
	onering_product p = {.a = x->data, .b = w->data, .y = y, .m = dims[0], .n = dims[1], .k = x->dims[1], .y_step = dims[1], .turn_b = !turned, .wide = c->k->op->out[0] == 'F',
		.floats = c->k->op->in[0] == 'F', .held = held(w), .scales = c->in[3].data};
	if (b->rank == 1) p.bias = b->data;
	else if (p.floats) p.sum = b->data;
	else p.plus = b->data;
	return multiply(c, p);
}

// Unpack: w [out,in] as it is held, perhaps its scales -> w in 16 bits, or as FloatUnpack in float32.
static const char *run_unpack(call *c) {
	tensor *w = c->in;
	int64_t dims[] = {w->dims[0], width(w)};
	int how = held(w), wide = c->k->op->out[0] == 'F';
	void *y;
	TRY(output(c, 0, dims, 2, &y));
	void *args[] = {&w->data, &c->in[1].data, &y, &how, dims, dims + 1, &wide};
	return dims[0] ? launch(c, KERNEL_UNPACK, dims[0], 1, 1, 32, args) : NULL;
}

// RowDots: x [R,D], e [V,D], tokens [R] -> [R,1], the products of each row and its token's.
static const char *run_row_dots(call *c) {
	tensor *x = c->in;
	int64_t dims[] = {x->dims[0], 1};
	void *y;
	TRY(output(c, 0, dims, 2, &y));
	void *args[] = {&x->data, &c->in[1].data, &c->in[2].data, &y, x->dims, x->dims + 1};
	return dims[0] ? launch(c, KERNEL_ROW_DOTS, dims[0], 1, 1, 32, args) : NULL;
}

// ProductOnto: x [N,in], w [out,in], or where it is turned [in,out], sum [N,out], perhaps w's
// scales -> sum + the product in float32.
static const char *run_product_onto(call *c) {
	tensor *x = c->in, *w = c->in + 1, *sum = c->in + 2;
	int64_t out = sum->dims[1];
	void *y;
	TRY(output(c, 0, sum->dims, 2, &y));
	return multiply(c, (onering_product){.a = x->data, .b = w->data, .sum = sum->data, .y = y, .m = x->dims[0], .n = out, .k = x->dims[1], .y_step = out, .turn_b = !c->k->turned, .wide = 1, .held = held(w), .scales = c->in[3].data});
}

// OuterOnto: dy [N,out], x [N,in], sum [out,in] -> sum + dy^T x in float32.
static const char *run_outer_onto(call *c) {
	tensor *dy = c->in, *x = c->in + 1, *sum = c->in + 2;
	void *y;
	TRY(output(c, 0, sum->dims, 2, &y));
	return multiply(c, (onering_product){.a = dy->data, .b = x->data, .sum = sum->data, .y = y, .m = dy->dims[1], .n = x->dims[1], .k = dy->dims[0], .y_step = x->dims[1], .turn_a = 1, .wide = 1});
}

// GateUp: h [N,in], gate, up [F,in], perhaps the scales of both -> silu(h gate^T) * (h up^T). The two
// matrices are one where the second lies behind the first.
static const char *run_gate_up(call *c) {
	tensor *h = c->in, *gate = c->in + 1, *up = c->in + 2;
	int64_t n = h->dims[0], f = gate->dims[0], in = h->dims[1], dims[] = {n, f}, most = 2048;
	void *y, *both;
	TRY(output(c, 0, dims, 2, &y));
	op *o = c->k->op;
	if (o->device->gate_up) {
		onering_product p = {.a = h->data, .b = gate->data, .plus = up->data, .y = y, .m = n, .n = f, .k = in, .y_step = f, .turn_b = 1, .held = held(gate), .scales = c->in[3].data, .plus_scales = c->in[4].data};
		return n && f ? o->device->gate_up(o->device, &p, c->stream) : NULL;
	}
	TRY(o->device->scratch(o->device, (size_t)(n < most ? n : most) * 2 * f * 2, &both));
	for (int64_t row = 0; row < n; row += most) {
		onering_product p = {.a = (char *)h->data + row * in * 2, .b = gate->data, .y = both, .m = n - row < most ? n - row : most, .n = f, .k = in, .y_step = 2 * f, .turn_b = 1};
		if ((char *)gate->data + f * in * 2 == up->data) {
			p.n = 2 * f;
			TRY(multiply(c, p));
		} else {
			TRY(multiply(c, p));
			p.b = up->data;
			p.y = (char *)both + f * 2;
			TRY(multiply(c, p));
		}
		TRY(swiglu(c, both, (char *)both + f * 2, (char *)y + row * f * 2, p.m, f, 2 * f));
	}
	return NULL;
}

// The argument of the kernels attend, as in attention.cu.
typedef struct {
	const void *qkv, *before, *cos, *sin;
	void *keys, *values, *out, *parts;
	int64_t capacity;
	int heads, groups, width, split;
	float scale;
	int tokens, total, window; // the host's, as what follows
	float cap;
	int floats;
} attention;

// Attend: qkv [B*T,(H+2G)*K], before [B], total [], keys, values [B,G,S,K], cos, sin [P,K/2] ->
// [B*T,H*K], and the cache with the new tokens, in its place. T is 1 but on the host, where
// before and total of a prompt are what GroupQueryAttention has. FloatAttend is the same in float32.
static const char *run_attend(call *c) {
	kernel *k = c->k;
	tensor *keys = c->in + 3, *values = c->in + 4;
	int split = k->op->device->split;
	int64_t all = size(c->in), one = (k->heads + 2 * k->groups) * keys->dims[3];
	int64_t rows = keys->dims[0], dims[] = {all / one, k->heads * keys->dims[3]};
	attention a = {
		.qkv = c->in[0].data, .before = c->in[1].data, .capacity = keys->dims[2],
		.heads = k->heads, .groups = k->groups, .width = keys->dims[3], .split = split, .scale = k->scale, .tokens = rows ? dims[0] / rows : 0, .total = *(int32_t *)c->in[2].data, .window = k->window, .cap = k->cap, .floats = k->op->in[0] == 'F',
	};
	if (k->turned) a.cos = c->in[5].data, a.sin = c->in[6].data;
	TRY(output(c, 0, dims, 2, &a.out));
	TRY(output(c, 1, keys->dims, 4, &a.keys));
	TRY(output(c, 2, values->dims, 4, &a.values));
	if (a.keys != keys->data || a.values != values->data) return "the cache with the new tokens must lie where the cache does";
	if (dims[0] == 0) return NULL;
	int splits = split ? (a.total + split - 1) / split : 1, most = splits;
	if (splits > 1) TRY(k->op->device->scratch(k->op->device, (size_t)rows * k->heads * splits * (a.width + 2) * 4, &a.parts));
	void *args[] = {&a, &most};
	TRY(launch(c, KERNEL_ATTEND + (a.width > 64), splits, k->groups, rows, 128, args));
	if (splits == 1) return NULL;
	return launch(c, KERNEL_ATTEND_JOIN, k->heads, rows, 1, a.width < 32 ? 32 : a.width, args);
}

// The argument of the kernels causal, as in attention.cu.
typedef struct {
	const void *q, *k, *v, *o, *dy;
	void *out, *dq, *dk, *dv, *ends, *delta, *part_k, *part_v;
	int tokens, heads, groups, width;
	float scale;
	int batch, window; // the host's, as the next
	float cap;
} causal;

// causal_of is what q [B,T,H*K], k and v [B,T,G*K], the inputs, say. The host also takes the mask
// [T,T], whose last row says how many keys a query sees.
static causal causal_of(call *c, tensor *mask) {
	kernel *k = c->k;
	tensor *q = c->in;
	int window = 0;
	if (mask->data)
		for (int64_t t = mask->dims[0], i = t - 1; i >= 0 && ((float *)mask->data)[(t - 1) * t + i] == 0; i--) window++;
	return (causal){.q = q->data, .k = c->in[1].data, .v = c->in[2].data, .tokens = q->dims[1], .heads = k->heads, .groups = k->groups, .width = q->dims[2] / k->heads, .scale = k->scale, .batch = q->dims[0], .window = window, .cap = k->cap};
}

// attend_all launches one of the kernels causal, by its number for heads of up to 64.
static const char *attend_all(call *c, causal *a, int number) {
	void *args[] = {a};
	return launch(c, number + (a->width > 64), (a->tokens + 63) / 64, a->heads, c->in->dims[0], 128, args);
}

// CausalAttention: q [B,T,H*K], k, v [B,T,G*K], perhaps the mask -> [B,T,H*K].
static const char *run_causal(call *c) {
	causal a = causal_of(c, c->in + 3);
	TRY(output(c, 0, c->in->dims, 3, &a.out));
	return size(c->in) ? attend_all(c, &a, KERNEL_CAUSAL_FORWARD) : NULL;
}

// CausalAttentionGrad: q, k, v, the result and its gradient, perhaps the mask -> the gradients of
// q, k and v.
static const char *run_causal_grad(call *c) {
	causal a = causal_of(c, c->in + 5);
	a.o = c->in[3].data, a.dy = c->in[4].data;
	TRY(output(c, 0, c->in->dims, 3, &a.dq));
	TRY(output(c, 1, c->in[1].dims, 3, &a.dk));
	TRY(output(c, 2, c->in[1].dims, 3, &a.dv));
	int64_t n = size(c->in), rows = n / a.width, fours = size(c->in + 1) / 4;
	char *room;
	if (n == 0) return NULL;
	TRY(c->k->op->device->scratch(c->k->op->device, (2 * n + 2 * rows) * 4, (void **)&room));
	a.part_k = room, a.part_v = room + 4 * n, a.ends = room + 8 * n, a.delta = room + 8 * n + 4 * rows;
	TRY(attend_all(c, &a, KERNEL_CAUSAL_QUERIES));
	TRY(attend_all(c, &a, KERNEL_CAUSAL_KEYS));
	void *args[] = {&a, &fours};
	return launch(c, KERNEL_CAUSAL_SUM, blocks(fours), 1, 1, 256, args);
}

// MaskedSoftmax: s [...,T,n], mask [T,n] -> softmax(s + mask).
static const char *run_masked_softmax(call *c) {
	tensor *s = c->in, *mask = c->in + 1;
	int64_t t = mask->dims[0];
	int n = mask->dims[1];
	void *p;
	TRY(output(c, 0, s->dims, s->rank, &p));
	if (s->rank < 2 || s->dims[s->rank - 1] != n || s->dims[s->rank - 2] != t) return "a mask that is not that of the scores";
	int64_t rows = n ? size(s) / n : 0;
	if (rows == 0) return NULL;
	void *args[] = {&s->data, &mask->data, &p, &t, &n};
	return launch(c, KERNEL_MASKED_SOFTMAX, rows, 1, 1, threads(n, 4), args);
}

// SoftmaxGrad: p, dp [...,n], d [...,1] -> p (dp - d).
static const char *run_softmax_grad(call *c) {
	tensor *p = c->in, *d = c->in + 2;
	int n = p->dims[p->rank - 1];
	int64_t rows = size(d);
	void *ds;
	TRY(output(c, 0, p->dims, p->rank, &ds));
	if (rows * n != size(p) || size(c->in + 1) != size(p)) return "a gradient of another shape";
	if (rows * n == 0) return NULL;
	void *args[] = {&p->data, &c->in[1].data, &d->data, &ds, &n};
	return launch(c, KERNEL_SOFTMAX_GRAD, rows, 1, 1, threads(n, 4), args);
}

// Choose: logits [B,V], inverse temperature, perhaps uniforms [B] -> next, logp, entropy [B].
static const char *run_choose(call *c) {
	tensor *logits = c->in;
	int64_t rows = logits->dims[0];
	int n = logits->dims[1];
	void *next, *logp, *entropy;
	TRY(output(c, 0, &rows, 1, &next));
	TRY(output(c, 1, &rows, 1, &logp));
	TRY(output(c, 2, &rows, 1, &entropy));
	if (rows == 0) return NULL;
	void *args[] = {&logits->data, &c->in[1].data, &c->in[2].data, &next, &logp, &entropy, &n};
	return launch(c, KERNEL_CHOOSE, rows, 1, 1, 512, args);
}

// HeadSums: logits [R,v], z, u [R,1] -> z, u [R,1] with these logits. The host begins without z.
static const char *run_head_sums(call *c) {
	tensor *logits = c->in, *z = c->in + 1;
	int n = logits->dims[1];
	int64_t dims[] = {logits->dims[0], 1};
	void *z1, *u1;
	TRY(output(c, 0, dims, 2, &z1));
	TRY(output(c, 1, dims, 2, &u1));
	if (!z->data && !c->k->op->device->single) return "there are no sums to add to";
	if (logits->dims[0] == 0) return NULL;
	void *args[] = {&logits->data, &z->data, &c->in[2].data, &z1, &u1, &n};
	return launch(c, KERNEL_HEAD_SUMS, logits->dims[0], 1, 1, 512, args);
}

// HeadGrad: logits [R,v], z, w [R,1], at [R,2], own [R] -> own onehot(at) - w exp(logits - z).
// Row i of at is a place in row i. HeadGradShort is the same, rounded to 16 bits.
static const char *run_head_grad(call *c) {
	tensor *logits = c->in;
	int n = logits->dims[1], rounded = c->k->op->out[0] == 'H';
	void *y[2] = {NULL}; // in float32 and in 16 bits
	TRY(output(c, 0, logits->dims, 2, y + rounded));
	if (size(logits) == 0) return NULL;
	void *args[] = {&logits->data, &c->in[1].data, &c->in[2].data, &c->in[3].data, &c->in[4].data, y, y + 1, &n};
	return launch(c, KERNEL_HEAD_GRAD, logits->dims[0], 1, 1, 512, args);
}

// Turn: x [N,heads*K], pos [N,1], cos, sin [P,K/2] -> the heads turned by their angles, or with
// turned < 0 turned back.
static const char *run_turn(call *c) {
	tensor *x = c->in;
	int width = c->in[2].dims[1] * 2, heads = x->dims[1] / width;
	int64_t n = (size(x) + 15) / 16;
	float sign = c->k->turned < 0 ? -1 : 1;
	void *y;
	TRY(output(c, 0, x->dims, 2, &y));
	if (n == 0) return NULL;
	void *args[] = {&x->data, &c->in[1].data, &c->in[2].data, &c->in[3].data, &y, &n, &heads, &width, &sign, x->dims};
	return launch(c, KERNEL_TURN, blocks(n), 1, 1, 256, args);
}

// Rows: x [N,D], at [...], perhaps valid with as many elements as at -> [...,D], zeros where valid is 0.
static const char *run_rows(call *c) {
	tensor *x = c->in, *at = c->in + 1;
	int d = x->dims[1];
	int64_t rows = size(at), n = (rows * d + 7) / 8, dims[MOST_RANK];
	void *y;
	if (x->rank != 2 || at->rank >= MOST_RANK) return "rows are taken of a matrix";
	memcpy(dims, at->dims, sizeof at->dims);
	dims[at->rank] = d;
	TRY(output(c, 0, dims, at->rank + 1, &y));
	if (n == 0) return NULL;
	void *args[] = {&x->data, &at->data, &c->in[2].data, &y, &n, &d, &rows};
	return launch(c, KERNEL_GATHER, blocks(n), 1, 1, 256, args);
}

static const op table[] = {
	{.name = "Norm", .in = "FF", .out = "H", .run = run_norm},
	{.name = "NormGrad", .in = "FFHF", .out = "FF", .required = 3, .run = run_norm_grad},
	{.name = "SwiGLU", .in = "HH", .out = "H", .run = run_swiglu},
	{.name = "SwiGLUGrad", .in = "HHH", .out = "HH", .run = run_swiglu_grad},
	{.name = "Product", .in = "HWHF", .out = "H", .required = 2, .run = run_product},
	{.name = "Logits", .in = "HWHF", .out = "F", .required = 2, .run = run_product},
	{.name = "RowDots", .in = "HHL", .out = "F", .run = run_row_dots},
	{.name = "ProductOnto", .in = "HWFF", .out = "F", .required = 3, .run = run_product_onto},
	{.name = "OuterOnto", .in = "HHF", .out = "F", .run = run_outer_onto},
	{.name = "GateUp", .in = "HWWFF", .out = "H", .required = 3, .run = run_gate_up},
	{.name = "Attend", .in = "HICHHFF", .out = "HHH", .required = 5, .run = run_attend},
	{.name = "CausalAttention", .in = "HHHF", .out = "H", .required = 3, .run = run_causal},
	{.name = "CausalAttentionGrad", .in = "HHHHHF", .out = "HHH", .required = 5, .run = run_causal_grad},
	{.name = "MaskedSoftmax", .in = "FF", .out = "F", .run = run_masked_softmax},
	{.name = "SoftmaxGrad", .in = "FFF", .out = "F", .run = run_softmax_grad},
	{.name = "Choose", .in = "FFF", .out = "LFF", .required = 2, .run = run_choose},
	{.name = "HeadSums", .in = "FFF", .out = "FF", .required = 1, .run = run_head_sums},
	{.name = "HeadGrad", .in = "FFFLF", .out = "F", .run = run_head_grad},
	{.name = "HeadGradShort", .in = "FFFLF", .out = "H", .run = run_head_grad},
	{.name = "Turn", .in = "HLFF", .out = "H", .run = run_turn},
	{.name = "Rows", .in = "HLF", .out = "H", .required = 2, .run = run_rows},
	// The host's alone:
	{.name = "FloatProduct", .in = "FWFF", .out = "F", .required = 2, .run = run_product},
	{.name = "FloatAttend", .in = "FICFFFF", .out = "FFF", .required = 5, .run = run_attend},
	{.name = "FloatUnpack", .in = "WF", .out = "F", .required = 1, .run = run_unpack},
	{.name = "Unpack", .in = "WF", .out = "H", .required = 1, .run = run_unpack},
};
enum { OPS = sizeof table / sizeof *table, HOST_OPS = 4 };

static int type(const op *o, char letter) {
	if (letter == 'W' && o->device->single) return ANY;
	if (letter == 'H' || letter == 'W') return o->half ? FLOAT16 : BFLOAT16;
	if (letter == 'L') return INT64;
	return letter == 'F' ? FLOAT : INT32;
}

static const char *name_of(const ort_op *o) { return ((const op *)o)->full; }
static const char *provider_of(const ort_op *o) { return ((const op *)o)->device->provider; }
static int input_type(const ort_op *o, size_t i) { return type((const op *)o, ((const op *)o)->in[i]); }
static size_t inputs(const ort_op *o) { return strlen(((const op *)o)->in); }
static int output_type(const ort_op *o, size_t i) { return type((const op *)o, ((const op *)o)->out[i]); }
static size_t outputs(const ort_op *o) { return strlen(((const op *)o)->out); }
static int input_kind(const ort_op *o, size_t i) {
	int required = ((const op *)o)->required;
	return required && i >= (size_t)required ? OPTIONAL : REQUIRED;
}
static int output_kind(const ort_op *o, size_t i) { return REQUIRED; }
static int input_memory(const ort_op *o, size_t i) { return ((const op *)o)->in[i] == 'C' ? ON_HOST : ON_DEVICE; }
static int one(const ort_op *o) { return 1; }
static int newest(const ort_op *o) { return 0x7fffffff; }

static void number(void *const *api, const void *info, const char *name, int64_t *to) {
	told(api, ORT(api, void *, KernelInfoGetAttribute_int64, const void *, const char *, int64_t *)(info, name, to));
}

// create makes the kernel of a node. Attributes that a node lacks are 0.
static void *create(const ort_op *o, void *const *api, const void *info, void **out) {
	kernel *k = calloc(1, sizeof *k);
	if (!k) return ORT(api, void *, CreateStatus, int, const char *)(1, "out of memory");
	k->op = (op *)o;
	k->api = api;
	told(api, ORT(api, void *, KernelInfoGetAttribute_float, const void *, const char *, float *)(info, "epsilon", &k->epsilon));
	told(api, ORT(api, void *, KernelInfoGetAttribute_float, const void *, const char *, float *)(info, "scale", &k->scale));
	told(api, ORT(api, void *, KernelInfoGetAttribute_float, const void *, const char *, float *)(info, "cap", &k->cap));
	number(api, info, "heads", &k->heads);
	number(api, info, "groups", &k->groups);
	number(api, info, "turned", &k->turned);
	number(api, info, "window", &k->window);
	*out = k;
	return NULL;
}

static void *compute(void *state, void *context) {
	call c = {.k = state, .context = context};
	op *o = c.k->op;
	void *const *api = c.k->api;
	const char *problem = told(api, ORT(api, void *, KernelContext_GetInputCount, void *, size_t *)(context, &c.inputs));
	for (size_t i = 0; !problem && i < c.inputs && i < MOST_INPUTS; i++) problem = input(&c, i);
	c.stream = context;
	if (!problem && strcmp(o->device->provider, "CPUExecutionProvider")) problem = told(api, ORT(api, void *, KernelContext_GetGPUComputeStream, void *, void **)(context, &c.stream));
	if (!problem) problem = o->run(&c);
	if (o->device->done) o->device->done(o->device);
	return problem ? ORT(api, void *, CreateStatus, int, const char *)(1, problem) : NULL;
}

char *onering_ops(onering_device *d, void *const *api, void *options) {
	const char *problem = NULL;
	d->functions = api;
	if (!d->domain) {
		op *all = calloc(2 * OPS, sizeof *all); // as long as the process
		void *domain = NULL;
		if (!all) return strdup("out of memory");
		problem = told(api, ORT(api, void *, CreateCustomOpDomain, const char *, void **)("onering", &domain));
		for (int i = 0; !problem && i < 2 * OPS; i++) {
			op *o = all + i;
			*o = table[i / 2];
			int narrow = strchr(o->in, 'H') || strchr(o->out, 'H');
			if (i % 2 && (!narrow || d->single) || !d->single && i / 2 >= OPS - HOST_OPS) continue;
			o->base = (ort_op){
				.version = 17, .name = name_of, .provider = provider_of, .input_type = input_type, .inputs = inputs, .output_type = output_type, .outputs = outputs,
				.destroy = free, .input_kind = input_kind, .output_kind = output_kind, .input_memory = input_memory,
				.min_in = one, .same_in = one, .min_out = one, .same_out = one, .create = create, .compute = compute, .start = one, .end = newest,
			};
			o->device = d;
			o->half = i % 2;
			snprintf(o->full, sizeof o->full, "%s%s", o->name, !narrow ? "" : o->half ? "Float16" : "BFloat16");
			problem = told(api, ORT(api, void *, CustomOpDomain_Add, void *, const void *)(domain, o));
		}
		if (!problem) d->domain = domain;
	}
	if (!problem) problem = told(api, ORT(api, void *, AddCustomOpDomain, void *, void *)(options, d->domain));
	return problem ? strdup(problem) : NULL;
}

const char *onering_adamw(onering_device *d, float *p, const float *g, float *m, float *v, void *copy, int64_t n, const float *numbers, int half, void *stream) {
	void *args[] = {&p, &g, &m, &v, &copy, &n, (void *)numbers};
	if (n == 0) return NULL;
	return d->launch(d, half, KERNEL_ADAMW, (unsigned[]){blocks((n + 3) / 4), 1, 1}, 256, args, stream);
}

const char *onering_squares(onering_device *d, const float *g, int64_t n, float scale, float *sum, void *stream) {
	int parts = blocks((n + 3) / 4) < MOST_PARTS ? blocks((n + 3) / 4) : MOST_PARTS;
	void *part;
	TRY(d->scratch(d, MOST_PARTS * 4, &part));
	void *first[] = {&g, &n, &scale, &part}, *then[] = {&part, &parts, &sum};
	TRY(d->launch(d, 0, KERNEL_SQUARES, (unsigned[]){parts, 1, 1}, 256, first, stream));
	return d->launch(d, 0, KERNEL_SUM_PARTS, (unsigned[]){1, 1, 1}, 256, then, stream);
}
