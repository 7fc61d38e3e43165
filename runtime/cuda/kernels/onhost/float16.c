#define HALF 1
#define TABLE onering_stand_in_float16
#include "table.h"
