/* The instruction set of MAP: X(name, number of sources, cost relative to an addition). f is float32, i int32, u uint32,
 * b an int32 that is 0 or 1. The position in this list is the number of the instruction. */
#ifndef FG_MAP_OPS_H
#define FG_MAP_OPS_H

#define FG_MAP_OPS(X)                                                                                                 \
    X(mov, 1, 1) X(const, 0, 0)                                                                                       \
    X(add_f, 2, 1) X(sub_f, 2, 1) X(mul_f, 2, 1) X(div_f, 2, 4) X(neg_f, 1, 1) X(abs_f, 1, 1) X(sign_f, 1, 1)         \
    X(max_f, 2, 1) X(min_f, 2, 1) X(pow_f, 2, 40) X(atan2_f, 2, 30) X(rem_f, 2, 20)                                   \
    X(exp_f, 1, 6) X(exp2_f, 1, 6) X(expm1_f, 1, 6) X(log_f, 1, 8) X(log2_f, 1, 8) X(log1p_f, 1, 8)                   \
    X(sqrt_f, 1, 6) X(rsqrt_f, 1, 8) X(cbrt_f, 1, 30) X(sin_f, 1, 16) X(cos_f, 1, 16) X(tan_f, 1, 24)                 \
    X(asin_f, 1, 20) X(acos_f, 1, 20) X(atan_f, 1, 20) X(sinh_f, 1, 24) X(cosh_f, 1, 20) X(tanh_f, 1, 8)              \
    X(asinh_f, 1, 32) X(acosh_f, 1, 32) X(atanh_f, 1, 32) X(logistic_f, 1, 8)                                         \
    X(erf_f, 1, 10) X(erfc_f, 1, 32) X(erf_inv_f, 1, 40) X(lgamma_f, 1, 100) X(digamma_f, 1, 100)                     \
    X(floor_f, 1, 1) X(ceil_f, 1, 1) X(trunc_f, 1, 1) X(round_f, 1, 1)                                                \
    X(isfinite_f, 1, 1) X(isnan_f, 1, 1) X(nextafter_f, 2, 2) X(square_f, 1, 1) X(recip_f, 1, 4)                      \
    X(eq_f, 2, 1) X(ne_f, 2, 1) X(lt_f, 2, 1) X(le_f, 2, 1) X(gt_f, 2, 1) X(ge_f, 2, 1)                               \
    X(add_i, 2, 1) X(sub_i, 2, 1) X(mul_i, 2, 1) X(div_i, 2, 12) X(rem_i, 2, 14)                                      \
    X(neg_i, 1, 1) X(abs_i, 1, 1) X(sign_i, 1, 1) X(max_i, 2, 1) X(min_i, 2, 1)                                       \
    X(eq_i, 2, 1) X(ne_i, 2, 1) X(lt_i, 2, 1) X(le_i, 2, 1) X(gt_i, 2, 1) X(ge_i, 2, 1)                               \
    X(div_u, 2, 12) X(rem_u, 2, 14) X(max_u, 2, 1) X(min_u, 2, 1)                                                     \
    X(lt_u, 2, 1) X(le_u, 2, 1) X(gt_u, 2, 1) X(ge_u, 2, 1)                                                           \
    X(and, 2, 1) X(or, 2, 1) X(xor, 2, 1) X(not, 1, 1) X(not_b, 1, 1)                                                 \
    X(shl, 2, 1) X(shr_i, 2, 1) X(shr_u, 2, 1) X(popcount, 1, 2) X(clz, 1, 3)                                         \
    X(select, 3, 1)                                                                                                   \
    X(f2i, 1, 2) X(f2u, 1, 2) X(u2f, 1, 1) X(i2f, 1, 1) X(f2b, 1, 1) X(i2b, 1, 1)                                     \
    X(round_f16, 1, 3) X(round_bf16, 1, 2)                                                                            \
    X(mul_nz_f, 2, 1) X(div_nz_f, 2, 4)                                                                               \
    X(muladd_f, 3, 1) X(mulsub_f, 3, 1) X(submul_f, 3, 1) X(mulmul_f, 3, 1) X(addadd_f, 3, 1)                         \
    X(threefry, 4, 40) X(threefry1, 4, 40) X(threefryx, 4, 40)

enum {
#define X(name, n, cost) FG_OP_##name,
    FG_MAP_OPS(X)
#undef X
        FG_N_OPS
};

#endif
