#ifndef ONERING_ONHOST_H
#define ONERING_ONHOST_H
#include "../../../kernels/kernels.h"

// onering_host computes on the CPU.
extern onering_device onering_host;

#endif
