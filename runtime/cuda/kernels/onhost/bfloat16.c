#define HALF 0
#define TABLE onering_stand_in_bfloat16
#include "table.h"
