// The kernels of GPUs.
#ifndef ONERING_GPU_H
#define ONERING_GPU_H

#include "../../kernels/kernels.h"

// onering_gpu_open makes a device of a GPU by its number, and says its compute capability.
// The library cublasLt is the one that ONNX Runtime has loaded. onering_gpu_load gives it an
// image of the kernels. Errors are the caller's to free.
onering_device *onering_gpu_open(int number, const char *cuda, const char *cublas, int *major, int *minor, char **error);
char *onering_gpu_load(onering_device *, int half, const void *image);

#endif
