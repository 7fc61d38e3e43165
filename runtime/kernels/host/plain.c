#define KIND 0
#include "kind.h"

TABLE(plain)
