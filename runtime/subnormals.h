// The mode in which a thread treats subnormal numbers as zero.
#ifndef ONERING_SUBNORMALS_H
#define ONERING_SUBNORMALS_H

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
// x86 takes twenty times longer for subnormal numbers than for others, and the
// moments of a parameter without gradients decay to subnormal numbers. ONNX
// Runtime's threads treat them as zero (FTZ and DAZ). The calling thread does a part
// of the work, so it must do so too, but only for the run: Go code keeps its mode.
// The loops of package tiles do the same, since their results are ONNX Runtime's.
static unsigned flush_subnormals(void) {
	unsigned state = _mm_getcsr();
	_mm_setcsr(state | 0x8040);
	return state;
}
static void restore(unsigned state) { _mm_setcsr(state); }
#else
static unsigned flush_subnormals(void) { return 0; }
static void restore(unsigned state) { (void)state; }
#endif

#endif
