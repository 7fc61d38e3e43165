#ifndef ONERING_ONHOST_H
#define ONERING_ONHOST_H
#include "../../../kernels/kernels.h"

// onering_stand_in computes on the CPU.
extern onering_device onering_stand_in;

#endif
