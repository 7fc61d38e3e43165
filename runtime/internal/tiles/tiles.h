// Element-wise programs, tile by tile.
#ifndef ONERING_TILES_H
#define ONERING_TILES_H

#include <stddef.h>
#include <stdint.h>

enum { tile_mul, tile_add, tile_sub, tile_div, tile_sqrt, tile_sign };

// A tile_step is one operator. Its operands are arrays or scalars by their number,
// and its result is an array.
typedef struct {
	int op, to;
	int a, b;               // b is not used by tile_sqrt and tile_sign
	int a_scalar, b_scalar; // whether the operand is a scalar
} tile_step;

// onering_tiles runs the steps on n elements of arrays. The first `given` arrays are in
// memory, at their addresses; the others, up to `arrays`, are results between two steps
// and lie in the cache. Subnormal numbers are zero.
void onering_tiles(const tile_step *steps, size_t count, float *const *at, size_t given, size_t arrays, const float *scalars, size_t n);

// onering_tiles_one_loop tells whether onering_tiles runs the steps in one loop on this
// processor, without results in memory.
int onering_tiles_one_loop(const tile_step *steps, size_t count, size_t given);

// onering_split and onering_join convert n numbers between float32 and halves (see halves.go).
void onering_split(uint16_t *high, uint16_t *low, const float *x, size_t n);
void onering_join(float *x, const uint16_t *high, const uint16_t *low, size_t n);

enum { tile_elements = 256, tile_arrays = 32 };

#endif
