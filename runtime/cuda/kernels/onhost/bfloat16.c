#define HALF 0
#define TABLE onering_host_bfloat16
#include "table.h"
