#ifndef ONERING_REST_H
#define ONERING_REST_H

#include "ort.h"

// A rest keeps threads of ONNX Runtime's pool waiting.
typedef struct rest rest;

// onering_rest has n threads of the pool run a session of one input and one output, and
// then wait. names are those of the input and of the output. It sets *r also where it
// returns an error: fewer threads wait then.
OrtStatus *onering_rest(OrtSession *s, const char *const names[2], const OrtValue *input, int n, rest **r);
// onering_wake ends a rest, once all of its threads have.
void onering_wake(rest *r);

#endif
