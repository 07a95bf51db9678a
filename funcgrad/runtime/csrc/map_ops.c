/* The names of MAP's instructions. */
#include "internal.h"
#include "map_ops.h"

static const char *const op_names[FG_N_OPS] = {
#define X(name, n, cost) #name,
    FG_MAP_OPS(X)
#undef X
};

int fg_n_ops(void) { return FG_N_OPS; }
const char *fg_op_name(int op) { return op >= 0 && op < FG_N_OPS ? op_names[op] : NULL; }
