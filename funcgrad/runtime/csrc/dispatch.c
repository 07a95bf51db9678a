/* Which of the compiled variants of the k_*.c files this CPU runs. */
#include "internal.h"

#define KINDS(v)                                                                                                      \
    {                                                                                                                 \
        {                                                                                                             \
            fg_map_new_##v, fg_reduce_new_##v, fg_dot_new_##v, fg_take_new_##v, fg_scatter_new_##v,                   \
                fg_dynamic_slice_new_##v, fg_dynamic_update_new_##v, fg_cumulative_new_##v, fg_sort_new_##v,          \
                fg_rows_new_##v, NULL, fg_matrix_new_##v                                                              \
        }                                                                                                             \
    }

static const fg_variant base_variant = KINDS(base);

#ifdef FG_HAVE_X86_VARIANTS
static const fg_variant avx2_variant = KINDS(avx2), avx512_variant = KINDS(avx512);

static int cpu_level(void) {
    __builtin_cpu_init();
    /* the features of x86-64-v3 and v4 that the compiler makes use of */
    int v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
             __builtin_cpu_supports("bmi2");
    int v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
    return v4 ? 2 : v3 ? 1 : 0;
}

const fg_variant *fg_pick_variant(void) {
    int level = cpu_level();
    const char *asked = getenv("FUNCGRAD_CPU");
    if (asked && !strcmp(asked, "base")) level = 0;
    if (asked && !strcmp(asked, "avx2") && level > 1) level = 1;
    return level == 2 ? &avx512_variant : level == 1 ? &avx2_variant : &base_variant;
}
#else
const fg_variant *fg_pick_variant(void) { return &base_variant; }
#endif
