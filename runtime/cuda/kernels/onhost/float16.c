#define HALF 1
#define TABLE onering_host_float16
#include "table.h"
