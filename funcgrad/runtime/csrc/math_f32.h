/* Elementary functions of float32, free of branches and of calls, so that a loop over them becomes vector code.
 *
 * The method is the usual one (see J.-M. Muller, "Elementary Functions", 3rd ed., 2016): Cody-Waite reduction of the
 * argument, a minimax polynomial on the reduced interval (Remez exchange, weighted for relative error, coefficients
 * rounded from the lowest order on and the rest fitted again), and an exact reconstruction. Common functions work in
 * float32 with FMA; rare ones, and those that would lose bits, in float64 with polynomials good to 1e-9 or better, so
 * that their result is in nearly every case the correctly rounded one. */
#ifndef FG_MATH_F32_H
#define FG_MATH_F32_H
#include <math.h>

#include "internal.h"

#define FGM static inline __attribute__((always_inline))

/* a * b + c. Without an instruction for it fgm_fma has an exact product in double, so nearly the same result; fgm_mad is
 * for the inner terms of polynomials, where two roundings are as good as one. */
#if defined(__FMA__) || defined(__aarch64__)
FGM float fgm_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
FGM double fgm_dfma(double a, double b, double c) { return __builtin_fma(a, b, c); }
FGM float fgm_mad(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#else
FGM float fgm_fma(float a, float b, float c) { return (float)((double)a * (double)b + (double)c); }
FGM double fgm_dfma(double a, double b, double c) { return a * b + c; }
FGM float fgm_mad(float a, float b, float c) { return a * b + c; }
#endif

FGM uint64_t fgm_dbits(double x) {
    uint64_t u;
    memcpy(&u, &x, 8);
    return u;
}

FGM double fgm_double(uint64_t u) {
    double x;
    memcpy(&x, &u, 8);
    return x;
}

#define FGM_INF fg_float(0x7f800000u)
#define FGM_NAN fg_float(0x7fc00000u)
#define FGM_MAGIC 0x1.8p23f  /* adding it rounds to an integer, to even, and leaves that integer in the low bits */
#define FGM_DMAGIC 0x1.8p52

FGM float fgm_abs(float x) { return fg_float(fg_bits(x) & 0x7fffffffu); }
FGM float fgm_copysign(float x, float s) {
    return fg_float((fg_bits(x) & 0x7fffffffu) | (fg_bits(s) & 0x80000000u));
}
FGM double fgm_dabs(double x) { return fgm_double(fgm_dbits(x) & 0x7fffffffffffffffu); }
FGM double fgm_dcopysign(double x, double s) {
    return fgm_double((fgm_dbits(x) & 0x7fffffffffffffffu) | (fgm_dbits(s) & 0x8000000000000000u));
}

/* ---- rounding to integers: below 2^23 the addition of 2^23 does it, above every float is an integer ---- */
FGM float fgm_round(float x) {
    float a = fgm_abs(x), r = (a + 0x1p23f) - 0x1p23f;
    return fgm_copysign(a < 0x1p23f ? r : a, x);
}
FGM float fgm_trunc(float x) {
    float a = fgm_abs(x), r = (a + 0x1p23f) - 0x1p23f;
    r = r > a ? r - 1.0f : r;
    return fgm_copysign(a < 0x1p23f ? r : a, x);
}
FGM float fgm_floor(float x) {
    float r = fgm_round(x);
    return fgm_copysign(r > x ? r - 1.0f : r, x);
}
FGM float fgm_ceil(float x) {
    float r = fgm_round(x);
    return fgm_copysign(r < x ? r + 1.0f : r, x);
}

/* ---- exponentials ---- */

/* e^r - 1 - r over r^2 for |r| <= ln(2)/2; error of e^r 3.4e-9. */
FGM float fgm_exp_tail(float r) {
    float q = 0x1.6a6c6cp-10f;
    q = fgm_mad(q, r, 0x1.123852p-7f);
    q = fgm_mad(q, r, 0x1.55589ap-5f);
    q = fgm_mad(q, r, 0x1.555494p-3f);
    return fgm_mad(q, r, 0x1.fffffcp-2f);
}

/* p * 2^n, n the low bits of t (a number plus FGM_MAGIC), -170 < n <= 128: scaled in two steps, so that the first is
 * exact and only the second overflows or rounds to a denormal. */
FGM float fgm_scale(float p, float t, int positive) {
    float s = fg_float((fg_bits(t) << 23) + (positive ? 125u << 23 : 207u << 23));
    return p * s * (positive ? 0x1p2f : 0x1p-80f);
}

FGM float fgm_exp(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    float t = fgm_fma(x, 0x1.715476p+0f, FGM_MAGIC), n = t - FGM_MAGIC;
    float r = fgm_fma(n, -0x1.62e43p-1f, x);
    r = fgm_fma(n, 0x1.05c61p-29f, r);
    float p = fgm_fma(r * r, fgm_exp_tail(r), r) + 1.0f;
    return fgm_scale(p, t, x > 0.0f);
}

/* 2^x: the fraction is exact; relative error of the polynomial 2.1e-8. */
FGM float fgm_exp2(float x) {
    x = x > 129.0f ? 129.0f : x;
    x = x < -151.0f ? -151.0f : x;
    float t = x + FGM_MAGIC, r = x - (t - FGM_MAGIC), q = 0x1.470b48p-13f;
    q = fgm_mad(q, r, 0x1.5f7274p-10f);
    q = fgm_mad(q, r, 0x1.3b270ep-7f);
    q = fgm_mad(q, r, 0x1.c6ae72p-5f);
    q = fgm_mad(q, r, 0x1.ebfbe2p-3f);
    q = fgm_mad(q, r, 0x1.62e432p-1f);
    return fgm_scale(fgm_fma(q, r, 1.0f), t, x > 0.0f);
}

/* e^r - 1 for |r| <= ln(2)/2, relative error 2e-9. */
FGM float fgm_expm1_core(float r) {
    float q = 0x1.9d9c9cp-13f;
    q = fgm_mad(q, r, 0x1.6d2854p-10f);
    q = fgm_mad(q, r, 0x1.111316p-7f);
    q = fgm_mad(q, r, 0x1.5554f4p-5f);
    q = fgm_mad(q, r, 0x1.555554p-3f);
    q = fgm_mad(q, r, 0.5f);
    return fgm_fma(r * r, q, r);
}

/* 2^n (1 + p) - 1 = 2^n p + (2^n - 1), at half the scale because 2^128 is no float. */
FGM float fgm_expm1(float x) {
    float c = x > 89.0f ? 89.0f : x;
    c = c < -25.0f ? -25.0f : c;
    float t = fgm_fma(c, 0x1.715476p+0f, FGM_MAGIC), n = t - FGM_MAGIC;
    float r = fgm_fma(n, -0x1.62e43p-1f, c);
    r = fgm_fma(n, 0x1.05c61p-29f, r);
    float p = fgm_expm1_core(r), s = fg_float((fg_bits(t) << 23) + (126u << 23));
    float y = 2.0f * fgm_fma(s, p, s - 0.5f);
    return fgm_copysign(n == 0.0f ? p : y, x);
}

/* With z = e^-|x| nothing overflows: q = 1 / (1 + z), or z / (1 + z) for negative x. One Newton step takes back the
 * rounding of 1 + z and of the division; 1 / (1 + z) is q or 1 - q. */
FGM float fgm_logistic(float x) {
    float z = fgm_exp(-fgm_abs(x)), d = 1.0f + z, d_low = z - (d - 1.0f), one = x >= 0.0f ? 1.0f : z;
    float q = one / d, inverse = x >= 0.0f ? q : 1.0f - q;
    float rest = fgm_fma(-q, d_low, fgm_fma(-q, d, one));
    return fgm_fma(rest, inverse, q);
}

/* 1 - 2 / (e^(2 |x|) + 1), and for |x| < 0.6, where that would lose bits, a polynomial with relative error 3e-9.
 * 1 - tanh(10) is below half an ulp. */
FGM float fgm_tanh(float x) {
    float a = fgm_abs(x), z = a * a, q = -0x1.846ee4p-8f, y = a > 10.0f ? 20.0f : 2.0f * a;
    float t = fgm_fma(y, 0x1.715476p+0f, FGM_MAGIC), n = t - FGM_MAGIC;
    float r = fgm_fma(n, -0x1.62e43p-1f, y);
    r = fgm_fma(n, 0x1.05c61p-29f, r);
    float s = fg_float((fg_bits(t) << 23) + (127u << 23));
    float p = fgm_fma(r * r, fgm_exp_tail(r), r), e = fgm_fma(s, p, s);
    q = fgm_mad(q, z, 0x1.553780p-6f);
    q = fgm_mad(q, z, -0x1.b8ae2cp-5f);
    q = fgm_mad(q, z, 0x1.110a6ap-3f);
    q = fgm_mad(q, z, -0x1.555542p-2f);
    float small = fgm_fma(a * z, q, a), big = 1.0f - 2.0f / (e + 1.0f);
    return fgm_copysign(a < 0.6f ? small : big, x);
}

/* ---- logarithms ---- */

/* log(1 + f) - f for sqrt(1/2) - 1 <= f <= sqrt(2) - 1: -f^2/2 + f^3 R(f), relative error of the logarithm 1.9e-9. */
FGM float fgm_log_tail(float f) {
    float q = 0x1.1c063ep-4f, f2 = f * f;
    q = fgm_mad(q, f, -0x1.e53286p-4f);
    q = fgm_mad(q, f, 0x1.e6feb6p-4f);
    q = fgm_mad(q, f, -0x1.fafd9ep-4f);
    q = fgm_mad(q, f, 0x1.232a5p-3f);
    q = fgm_mad(q, f, -0x1.556408p-3f);
    q = fgm_mad(q, f, 0x1.99a514p-3f);
    q = fgm_mad(q, f, -0x1.ffffeap-3f);
    q = fgm_mad(q, f, 0x1.555548p-2f);
    return fgm_fma(q * f, f2, -0.5f * f2);
}

/* x = 2^e (1 + f) for a positive finite x. */
FGM float fgm_split(float x, float *e) {
    int tiny = x < 0x1p-126f;
    uint32_t u = fg_bits(tiny ? x * 0x1p23f : x);
    int32_t k = (int32_t)(u - 0x3f3504f3u) >> 23;
    *e = (float)k - (tiny ? 23.0f : 0.0f);
    return fg_float(u - ((uint32_t)k << 23)) - 1.0f;
}

/* The result r of a logarithm where x > 0 is finite, else the special value. */
FGM float fgm_log_special(float x, float r) {
    float s = x == 0.0f ? -FGM_INF : FGM_NAN;
    return x > 0.0f ? (x < FGM_INF ? r : x) : s;
}

FGM float fgm_log(float x) {
    float e, f = fgm_split(x, &e), y = fgm_fma(e, -0x1.05c61p-29f, fgm_log_tail(f));
    return fgm_log_special(x, fgm_fma(e, 0x1.62e43p-1f, f + y));
}

FGM float fgm_log2(float x) {
    const float l = 0x1.715476p+0f, l_low = 0x1.4ae0cp-26f; /* 1 / ln(2) */
    float e, f = fgm_split(x, &e), y = fgm_log_tail(f), hi = f * l;
    float lo = fgm_fma(f, l, -hi) + fgm_fma(f, l_low, y * l);
    return fgm_log_special(x, e + (hi + lo));
}

/* u = 1 + x gives the exponent only; f = (1 + x) 2^-e - 1 is then one FMA away from exact. */
FGM float fgm_log1p(float x) {
    float u = 1.0f + x;
    int32_t k = (int32_t)(fg_bits(u) - 0x3f3504f3u) >> 23;
    float e = (float)k, s = fg_float((uint32_t)(127 - (k > 126 ? 126 : k)) << 23);
    float scaled = k > 126 ? x * 0.25f : x * 1.0f;
    s = k > 126 ? fg_float((uint32_t)(129 - k) << 23) : s; /* 2^-127 is denormal: keep to normal numbers */
    float f = fgm_fma(scaled, s, k > 126 ? -1.0f : s - 1.0f);
    float y = fgm_fma(e, -0x1.05c61p-29f, fgm_log_tail(f));
    float r = fgm_copysign(fgm_fma(e, 0x1.62e43p-1f, f + y), x);
    float special = x == -1.0f ? -FGM_INF : FGM_NAN;
    return x > -1.0f ? (x < FGM_INF ? r : x) : special;
}

/* ---- float64 cores ---- */

/* e^x for |x| < 700, relative error 4e-14. */
FGM double fgm_dexp(double x) {
    double t = fgm_dfma(x, 0x1.71547652b82fep+0, FGM_DMAGIC), n = t - FGM_DMAGIC;
    double r = fgm_dfma(n, -0x1.62e42feep-1, x);
    r = fgm_dfma(n, -0x1.a39ef35793c76p-33, r);
    double q = 0x1.72e5d02ed9bf2p-19;
    q = fgm_dfma(q, r, 0x1.a17ec766cd34cp-16);
    q = fgm_dfma(q, r, 0x1.a01993a0730adp-13);
    q = fgm_dfma(q, r, 0x1.6c162f4ff0fafp-10);
    q = fgm_dfma(q, r, 0x1.11111122a6282p-7);
    q = fgm_dfma(q, r, 0x1.55555582df225p-5);
    q = fgm_dfma(q, r, 0x1.55555555521d2p-3);
    q = fgm_dfma(q, r, 0x1.fffffffff00cbp-2);
    double p = fgm_dfma(r * r, q, r) + 1.0;
    return fgm_double(fgm_dbits(p) + (fgm_dbits(t) << 52));
}

/* log x for a positive normal x: x = 2^e m, s = (m - 1) / (m + 1), log m = 2 atanh s; absolute error 7e-16. */
FGM double fgm_dlog(double x) {
    uint64_t u = fgm_dbits(x), k = (u - 0x3fe6a09e667f3bcdu + ((uint64_t)1024 << 52)) >> 52; /* e + 1024 */
    double e = fgm_double(k | 0x4330000000000000u) - 0x1.00000000004p52;
    double m = fgm_double(u - ((k - 1024) << 52)), s = (m - 1.0) / (m + 1.0), z = s * s;
    double q = 0x1.58e437317cc6ep-3;
    q = fgm_dfma(q, z, 0x1.732626f0ad459p-3);
    q = fgm_dfma(q, z, 0x1.c72286e1b1f42p-3);
    q = fgm_dfma(q, z, 0x1.249241ad82a9bp-2);
    q = fgm_dfma(q, z, 0x1.999999a18f245p-2);
    q = fgm_dfma(q, z, 0x1.5555555554191p-1);
    double r = fgm_dfma(q * z, s, 2.0 * s);
    return fgm_dfma(e, 0x1.62e42feep-1, fgm_dfma(e, 0x1.a39ef35793c76p-33, r));
}

/* sin r and cos r for |r| <= pi/4. */
FGM double fgm_dsin(double r) {
    double z = r * r, q = 0x1.5d863cb7ef1c8p-33;
    q = fgm_dfma(q, z, -0x1.ae5e4845ca2efp-26);
    q = fgm_dfma(q, z, 0x1.71de356a7d8fep-19);
    q = fgm_dfma(q, z, -0x1.a01a019c2b7p-13);
    q = fgm_dfma(q, z, 0x1.111111110fb2bp-7);
    q = fgm_dfma(q, z, -0x1.555555555554cp-3);
    return fgm_dfma(r * z, q, r);
}
FGM double fgm_dcos(double r) {
    double z = r * r, q = 0x1.1c05587ca0c65p-29;
    q = fgm_dfma(q, z, -0x1.27e105f5438d6p-22);
    q = fgm_dfma(q, z, 0x1.a019fcd49d0b2p-16);
    q = fgm_dfma(q, z, -0x1.6c16c169ab52ep-10);
    q = fgm_dfma(q, z, 0x1.5555555554a15p-5);
    return fgm_dfma(q * z, z, fgm_dfma(z, -0.5, 1.0));
}

/* atan t for |t| <= 1, relative error 1.2e-10. */
FGM double fgm_datan(double t) {
    double z = t * t, q = -0x1.64692e3df5e2fp-11;
    q = fgm_dfma(q, z, 0x1.3de0d6ca2ce4ap-8);
    q = fgm_dfma(q, z, -0x1.0921aff0e7fc5p-6);
    q = fgm_dfma(q, z, 0x1.19ea2739ce66fp-5);
    q = fgm_dfma(q, z, -0x1.bee4a56aac2f9p-5);
    q = fgm_dfma(q, z, 0x1.29a50612a530ep-4);
    q = fgm_dfma(q, z, -0x1.703afe94139a6p-4);
    q = fgm_dfma(q, z, 0x1.c67dbb84d66f5p-4);
    q = fgm_dfma(q, z, -0x1.248b7de44a3efp-3);
    q = fgm_dfma(q, z, 0x1.99995344b0626p-3);
    q = fgm_dfma(q, z, -0x1.555554e7625c5p-2);
    return fgm_dfma(t * z, q, t);
}

/* ---- powers and roots ---- */

FGM float fgm_cbrt(float x) {
    double a = fgm_dabs((double)x);
    float r = (float)fgm_dexp(fgm_dlog(a) * (1.0 / 3.0));
    return a > 0.0 && a < HUGE_VAL ? fgm_copysign(r, x) : x;
}

FGM float fgm_pow(float x, float y) {
    float ax = fgm_abs(x), ay = fgm_abs(y);
    double l = fgm_dlog((double)ax);
    l = ax == 0.0f ? -HUGE_VAL : l;
    l = ax == FGM_INF ? HUGE_VAL : l;
    double t = (double)y * l, size = fgm_dabs(t);
    float r = (float)fgm_dexp(fgm_dcopysign(size < 200.0 ? size : 200.0, t));
    r = ax == 1.0f ? 1.0f : r;
    /* integers have no fraction below 2^23 and are all even from 2^24 on; as masks, because branches would not vectorise */
    float sum = ay < 0x1p23f ? ay + 0x1p23f : ay, rounded = ay < 0x1p23f ? sum - 0x1p23f : ay;
    uint32_t integer = 0u - (uint32_t)(rounded == ay), small = 0u - (uint32_t)(ay < 0x1p24f);
    uint32_t odd = (fg_bits(sum) << 31) & integer & small;
    uint32_t negative = 0u - (uint32_t)((x < 0.0f) & (ax < FGM_INF)), nan = 0u - (uint32_t)((x != x) | (y != y));
    r = fg_float(fg_bits(r) | (odd & fg_bits(x)) | (((negative & ~integer) | nan) & 0x7fffffffu));
    return (x == 1.0f) | (y == 0.0f) ? 1.0f : r;
}

/* ---- trigonometric ---- */

/* x = n pi/2 + r in float64 for |x| < 2^26: pi/2 in three parts, the first two of 25 bits so that n times them is exact.
 * The quadrant n mod 4 is in the low bits of *quadrant. */
#define FGM_TRIG_LIMIT 0x1p26f
FGM double fgm_reduce_pio2(double x, uint32_t *quadrant) {
    double t = fgm_dfma(x, 0x1.45f306dc9c883p-1, FGM_DMAGIC), n = t - FGM_DMAGIC;
    *quadrant = (uint32_t)fgm_dbits(t);
    double r = fgm_dfma(n, -0x1.921fb5p+0, x);
    r = fgm_dfma(n, -0x1.110b46p-26, r);
    return fgm_dfma(n, -0x1.1a62633145c07p-54, r);
}

/* The same for 2^26 <= |x| < inf (Payne and Hanek, 1983): of 2/pi only the 128 bits matter that are not a multiple of 4
 * after the multiplication by x. */
static inline double fgm_reduce_huge(float x, uint32_t *quadrant) {
    static const uint64_t two_over_pi[4] = {0xa2f9836e4e441529u, 0xfc2757d1f534ddc0u, 0xdb6295993c439041u,
                                            0xfe5163abdebbc561u};
    uint32_t u = fg_bits(x), m = (u & 0x7fffffu) | 0x800000u;
    int first = (int)((u >> 23) & 0xffu) - 152, word = first >> 6, shift = first & 63;
    uint64_t w[3] = {two_over_pi[word], two_over_pi[word + 1], two_over_pi[word + 2]};
    uint64_t hi = shift ? w[0] << shift | w[1] >> (64 - shift) : w[0];
    uint64_t lo = shift ? w[1] << shift | w[2] >> (64 - shift) : w[1];
    __extension__ typedef unsigned __int128 wide;
    wide p = (((wide)hi << 64) | lo) * m;
    uint32_t n = (uint32_t)(p >> 126);
    int64_t fraction = (int64_t)(uint64_t)(p >> 62); /* of a quarter turn, in units of 2^-64; rounds to nearest below */
    int64_t low = (int64_t)((uint64_t)(p >> 30) & 0xffffffffu);
    n += fraction < 0;
    double r = ((double)fraction + (double)low * 0x1p-32) * 0x1p-64 * 0x1.921fb54442d18p+0;
    *quadrant = u >> 31 ? 0u - n : n;
    return u >> 31 ? -r : r;
}

/* sin (shift 0) or cos (shift 1) from the reduced argument: both polynomials, then the one that the quadrant asks for. */
FGM float fgm_sin_cos(float r, uint32_t quadrant) {
    float z = r * r, s = 0x1.7e605p-19f, c = -0x1.443e18p-22f;
    s = fgm_mad(s, z, -0x1.a061e6p-13f);
    s = fgm_mad(s, z, 0x1.11117cp-7f);
    s = fgm_mad(s, z, -0x1.555556p-3f);
    s = fgm_fma(r * z, s, r);
    c = fgm_mad(c, z, 0x1.a0acaap-16f);
    c = fgm_mad(c, z, -0x1.6c179ap-10f);
    c = fgm_mad(c, z, 0x1.555556p-5f);
    c = fgm_fma(c * z, z, fgm_fma(z, -0.5f, 1.0f));
    return fg_float(fg_bits(quadrant & 1u ? c : s) ^ ((quadrant & 2u) << 30));
}

FGM float fgm_sin(float x) {
    uint32_t n;
    double r = fgm_reduce_pio2((double)x, &n);
    float y = fgm_sin_cos((float)r, n);
    return x == 0.0f ? x : y;
}
FGM float fgm_cos(float x) {
    uint32_t n;
    double r = fgm_reduce_pio2((double)x, &n);
    return fgm_sin_cos((float)r, n + 1u);
}
FGM float fgm_tan_reduced(double r, uint32_t n) {
    double s = fgm_dsin(r), c = fgm_dcos(r);
    return (float)((n & 1u ? -c : s) / (n & 1u ? s : c));
}
FGM float fgm_tan(float x) {
    uint32_t n;
    double r = fgm_reduce_pio2((double)x, &n);
    float y = fgm_tan_reduced(r, n);
    return x == 0.0f ? x : y;
}

/* asin s for 0 <= s <= 1/2, z = s^2; relative error 3.2e-10. */
FGM double fgm_asin_core(double s, double z) {
    double q = 0x1.2ead68p-5;
    q = fgm_dfma(q, z, 0x1.e7dc18p-7);
    q = fgm_dfma(q, z, 0x1.037708p-5);
    q = fgm_dfma(q, z, 0x1.6cd654p-5);
    q = fgm_dfma(q, z, 0x1.33373ap-4);
    q = fgm_dfma(q, z, 0x1.55555p-3);
    return fgm_dfma(s * z, q, s);
}

/* Beyond 1/2: asin a = pi/2 - 2 asin sqrt((1 - a)/2). */
FGM float fgm_asin(float x) {
    double a = fgm_dabs((double)x);
    int big = a > 0.5;
    double z = big ? (1.0 - a) * 0.5 : a * a, s = big ? __builtin_sqrt(z) : a, p = fgm_asin_core(s, z);
    return fgm_copysign((float)(big ? 0x1.921fb54442d18p+0 - 2.0 * p : p), x);
}
FGM float fgm_acos(float x) {
    double d = (double)x, a = fgm_dabs(d);
    int big = a > 0.5;
    double z = big ? (1.0 - a) * 0.5 : a * a, s = big ? __builtin_sqrt(z) : a, p = fgm_asin_core(s, z);
    double middle = 0x1.921fb54442d18p+0 - (d < 0.0 ? -p : p), end = d < 0.0 ? 0x1.921fb54442d18p+1 - 2.0 * p : 2.0 * p;
    return (float)(big ? end : middle);
}

FGM float fgm_atan(float x) {
    double a = fgm_dabs((double)x);
    int big = a > 1.0;
    double r = fgm_datan(big ? 1.0 / a : a);
    return fgm_copysign((float)(big ? 0x1.921fb54442d18p+0 - r : r), x);
}

FGM float fgm_atan2(float y, float x) {
    double ay = fgm_dabs((double)y), ax = fgm_dabs((double)x);
    int steep = ay > ax, both_inf = ax == HUGE_VAL && ay == HUGE_VAL;
    double t = (steep ? ax : ay) / (steep ? ay : ax);
    t = ax == 0.0 && ay == 0.0 ? 0.0 : both_inf ? 1.0 : t;
    double r = fgm_datan(t);
    r = steep ? 0x1.921fb54442d18p+0 - r : r;
    r = fg_bits(x) >> 31 ? 0x1.921fb54442d18p+1 - r : r;
    r = x != x || y != y ? (double)FGM_NAN : r;
    return fgm_copysign((float)r, y);
}

/* ---- hyperbolic ---- */

FGM float fgm_cosh(float x) {
    double a = fgm_dabs((double)x);
    double e = fgm_dexp(a > 90.0 ? 90.0 : a);
    return (float)(0.5 * (e + 1.0 / e));
}
FGM float fgm_sinh(float x) {
    double a = fgm_dabs((double)x), z = a * a;
    double e = fgm_dexp(a > 90.0 ? 90.0 : a), big = 0.5 * (e - 1.0 / e);
    double small = fgm_dfma(a * z, fgm_dfma(z, 1.0 / 120.0, 1.0 / 6.0), a);
    return fgm_copysign((float)(a < 0.03 ? small : big), x);
}
FGM float fgm_asinh(float x) {
    double a = fgm_dabs((double)x), z = a * a;
    double big = fgm_dlog(a + __builtin_sqrt(z + 1.0)), small = fgm_dfma(a * z, -1.0 / 6.0, a);
    float r = (float)(a < 1e-3 ? small : big);
    return a < HUGE_VAL ? fgm_copysign(r, x) : x;
}
FGM float fgm_acosh(float x) {
    double d = (double)x, y = d + __builtin_sqrt(fgm_dfma(d, d, -1.0));
    float r = (float)fgm_dlog(y);
    return x >= 1.0f ? (x < FGM_INF ? r : x) : FGM_NAN;
}
FGM float fgm_atanh(float x) {
    double a = fgm_dabs((double)x), z = a * a;
    double big = 0.5 * fgm_dlog((1.0 + a) / (1.0 - a)), small = fgm_dfma(a * z, 1.0 / 3.0, a);
    float r = (float)(a < 1e-3 ? small : big);
    r = a < 1.0 ? r : a == 1.0 ? FGM_INF : FGM_NAN;
    return fgm_copysign(r, x);
}

/* ---- error function and gamma ---- */

/* |x| <= 1: x (1 + P(x^2)); beyond: 1 - e^(x Q(x)), the exponent fitted to log erfc x up to 4. */
FGM float fgm_erf(float x) {
    float a = fgm_abs(x), z = a * a, p = 0x1.4771fcp-14f, q = 0x1.4299dep-18f;
    p = fgm_mad(p, z, -0x1.a3515ep-11f);
    p = fgm_mad(p, z, 0x1.53f224p-8f);
    p = fgm_mad(p, z, -0x1.b7f71ap-6f);
    p = fgm_mad(p, z, 0x1.ce2ce6p-4f);
    p = fgm_mad(p, z, -0x1.81273ep-2f);
    p = fgm_mad(p, z, 0x1.06eba8p-3f);
    float small = fgm_fma(a, p, a), b = a > 4.0f ? 4.0f : a;
    q = fgm_mad(q, b, -0x1.2ebc84p-14f);
    q = fgm_mad(q, b, 0x1.52a106p-11f);
    q = fgm_mad(q, b, -0x1.2b92b8p-8f);
    q = fgm_mad(q, b, 0x1.9ef182p-6f);
    q = fgm_mad(q, b, -0x1.b978f6p-4f);
    q = fgm_mad(q, b, -0x1.44c5f2p-1f);
    q = fgm_mad(q, b, -0x1.20fb54p+0f) * b;
    float t = fgm_fma(q, 0x1.715476p+0f, FGM_MAGIC), n = t - FGM_MAGIC;
    float r = fgm_fma(n, 0x1.05c61p-29f, fgm_fma(n, -0x1.62e43p-1f, q));
    float e = fgm_fma(r * r, fgm_exp_tail(r), r) + 1.0f;
    e = e * fg_float((fg_bits(t) << 23) + (127u << 23));
    return fgm_copysign(a > 1.0f ? 1.0f - e : small, x);
}

/* erfc a = e^(-a^2) G(t) / (1 + 2 a) with t = (a - 3) / (a + 3); G fitted on 0 <= a <= 10.2, relative error 4e-13. */
FGM float fgm_erfc(float x) {
    double d = (double)x, a = fgm_dabs(d);
    a = a > 10.2 ? 10.2 : a;
    double t = (a - 3.0) / (a + 3.0), q = -0x1.459b0dfead8dp-18;
    q = fgm_dfma(q, t, -0x1.4897a7336500cp-16);
    q = fgm_dfma(q, t, 0x1.26d85fd00d17cp-17);
    q = fgm_dfma(q, t, 0x1.096b595dd0dc7p-13);
    q = fgm_dfma(q, t, -0x1.be57de9741528p-14);
    q = fgm_dfma(q, t, -0x1.994984d4ce0b5p-11);
    q = fgm_dfma(q, t, 0x1.ef273f5fb8142p-10);
    q = fgm_dfma(q, t, 0x1.4b8e60a9ad05dp-9);
    q = fgm_dfma(q, t, -0x1.8574cab53657p-6);
    q = fgm_dfma(q, t, 0x1.17ca2372e3c9fp-4);
    q = fgm_dfma(q, t, -0x1.e88b80553a5c2p-4);
    q = fgm_dfma(q, t, 0x1.098366c25c37cp-3);
    q = fgm_dfma(q, t, -0x1.85a15c55b0f2p-5);
    q = fgm_dfma(q, t, -0x1.15c084bbfe05dp-3);
    q = fgm_dfma(q, t, 0x1.40c522d7e47c5p+0);
    double r = fgm_dexp(-a * a) * q / (1.0 + 2.0 * a);
    return (float)(d < 0.0 ? 2.0 - r : r);
}

/* x P(w), w = -log(1 - x^2); above w = 5 a polynomial in sqrt(w). Relative errors 2.3e-9 and 1.3e-9 (the form is that of
 * M. Giles, "Approximating the erfinv function", 2010; the coefficients are our own). */
FGM float fgm_erf_inv(float x) {
    double d = (double)x, w = -fgm_dlog((1.0 - d) * (1.0 + d));
    w = fgm_dabs(d) < 1.0 ? w : 0.0;
    double u = w - 2.5, p = 0x1.716c3d5831a52p-32;
    p = fgm_dfma(p, u, -0x1.2d66aef0fe45ep-27);
    p = fgm_dfma(p, u, 0x1.35c73b5f04969p-26);
    p = fgm_dfma(p, u, 0x1.f43c6ad4a2596p-22);
    p = fgm_dfma(p, u, -0x1.ccfb8506427d8p-19);
    p = fgm_dfma(p, u, -0x1.4cfc3d3d2a253p-18);
    p = fgm_dfma(p, u, 0x1.c9c59303f8981p-13);
    p = fgm_dfma(p, u, -0x1.4866467ac6278p-10);
    p = fgm_dfma(p, u, -0x1.11c4200c31b43p-8);
    p = fgm_dfma(p, u, 0x1.f91e8b0aef6e7p-3);
    p = fgm_dfma(p, u, 0x1.805c5d073edcfp+0);
    double v = __builtin_sqrt(w) - 3.0, q = -0x1.b5d43382fb4cfp-16;
    q = fgm_dfma(q, v, 0x1.4c4ceb7a9bbd8p-13);
    q = fgm_dfma(q, v, -0x1.291081307ba31p-12);
    q = fgm_dfma(q, v, -0x1.ec568f13fda49p-14);
    q = fgm_dfma(q, v, 0x1.83a3eb4459616p-10);
    q = fgm_dfma(q, v, -0x1.d3aef6080ee06p-9);
    q = fgm_dfma(q, v, 0x1.74afcf764c819p-8);
    q = fgm_dfma(q, v, -0x1.f4de1336306a7p-8);
    q = fgm_dfma(q, v, 0x1.3581ae7f72969p-7);
    q = fgm_dfma(q, v, 0x1.006dc9c15b8a2p+0);
    q = fgm_dfma(q, v, 0x1.6a9efbd99cb03p+1);
    float r = (float)(d * (w < 5.0 ? p : q));
    r = fgm_dabs(d) == 1.0 ? fgm_copysign(FGM_INF, x) : r;
    return fgm_dabs(d) <= 1.0 ? r : FGM_NAN;
}

/* log |gamma x|: shift the argument to at least 8 by gamma(z + 1) = z gamma(z), then Stirling's series; negative
 * arguments through gamma(x) gamma(1 - x) = pi / sin(pi x). (Abramowitz and Stegun, 6.1.15, 6.1.17, 6.1.41) */
FGM float fgm_lgamma(float x) {
    double d = (double)x, z = d < 0.5 ? 1.0 - d : d, product = 1.0;
    z = z < 1e300 ? z : 1e300;
    double shifted = z;
    for (int i = 0; i < 8; i++) {
        product *= shifted < 8.0 ? shifted : 1.0;
        shifted += shifted < 8.0 ? 1.0 : 0.0;
    }
    double i1 = 1.0 / shifted, i2 = i1 * i1, s = -691.0 / 360360.0;
    s = fgm_dfma(s, i2, 1.0 / 1188.0);
    s = fgm_dfma(s, i2, -1.0 / 1680.0);
    s = fgm_dfma(s, i2, 1.0 / 1260.0);
    s = fgm_dfma(s, i2, -1.0 / 360.0);
    s = fgm_dfma(s, i2, 1.0 / 12.0);
    double l = (shifted - 0.5) * fgm_dlog(shifted) - shifted + 0x1.d67f1c864beb5p-1 + s * i1 - fgm_dlog(product);
    double u = d - ((d + FGM_DMAGIC) - FGM_DMAGIC), a = fgm_dabs(u) * 0x1.921fb54442d18p+1; /* pi times the fraction */
    double sine = a > 0x1.921fb54442d18p-1 ? fgm_dcos(0x1.921fb54442d18p+0 - a) : fgm_dsin(a);
    double reflected = 0x1.250d048e7a1bdp+0 - fgm_dlog(sine > 1e-300 ? sine : 1.0) - l; /* log pi */
    float r = (float)(d < 0.5 ? reflected : l);
    int pole = x <= 0.0f && u == 0.0;
    r = pole || fgm_abs(x) == FGM_INF ? FGM_INF : r;
    return x != x ? x : r;
}

/* The derivative: psi(z) = psi(z + 1) - 1 / z, the asymptotic series, psi(1 - x) - pi / tan(pi x). (6.3.5, 6.3.7, 6.3.18)
 * The poles at negative integers give NaN, those at +-0 the limit -+inf. */
FGM float fgm_digamma(float x) {
    double d = (double)x, z = d < 0.5 ? 1.0 - d : d, sum = 0.0;
    z = z < 1e300 ? z : 1e300;
    for (int i = 0; i < 4; i++) { /* two steps at a time: 1/z + 1/(z + 1) = (2 z + 1) / (z (z + 1)) */
        double two = (2.0 * z + 1.0) / (z * (z + 1.0));
        sum += z < 8.0 ? two : 0.0;
        z += z < 8.0 ? 2.0 : 0.0;
    }
    double i1 = 1.0 / z, i2 = i1 * i1, s = 1.0 / 132.0;
    s = fgm_dfma(s, i2, -1.0 / 240.0);
    s = fgm_dfma(s, i2, 1.0 / 252.0);
    s = fgm_dfma(s, i2, -1.0 / 120.0);
    s = fgm_dfma(s, i2, 1.0 / 12.0);
    double l = fgm_dlog(z) - 0.5 * i1 - s * i2 - sum;
    double u = d - ((d + FGM_DMAGIC) - FGM_DMAGIC), a = fgm_dabs(u) * 0x1.921fb54442d18p+1;
    int steep = a > 0x1.921fb54442d18p-1;
    double b = steep ? 0x1.921fb54442d18p+0 - a : a, si = fgm_dsin(b), co = fgm_dcos(b);
    double cot = fgm_dcopysign((steep ? si : co) / (steep ? co : si), u);
    float r = (float)(d < 0.5 ? l - 0x1.921fb54442d18p+1 * cot : l);
    r = x < 0.0f && u == 0.0 ? FGM_NAN : x == 0.0f ? -fgm_copysign(FGM_INF, x) : r;
    r = x == FGM_INF ? x : r;
    return x != x || x == -FGM_INF ? FGM_NAN : r;
}

/* ---- comparisons and steps ---- */

FGM float fgm_sign(float x) {
    float one = x < 0.0f ? -1.0f : 1.0f;
    return x != x ? x : x == 0.0f ? 0.0f : one;
}
/* NaN wins; of equal values the bits decide, which only matters for -0 and +0. */
FGM float fgm_max(float a, float b) {
    float tie = fg_float(fg_bits(a) & fg_bits(b)), r = a > b ? a : a < b ? b : tie;
    return a != a || b != b ? FGM_NAN : r;
}
FGM float fgm_min(float a, float b) {
    float tie = fg_float(fg_bits(a) | fg_bits(b)), r = a < b ? a : a > b ? b : tie;
    return a != a || b != b ? FGM_NAN : r;
}
FGM float fgm_nextafter(float x, float y) {
    uint32_t u = fg_bits(x), away = (x < y) == (x > 0.0f);
    float r = fg_float(x == 0.0f ? 1u | (fg_bits(y) & 0x80000000u) : away ? u + 1u : u - 1u);
    r = x == y ? y : r;
    return x != x || y != y ? FGM_NAN : r;
}

/* x - y trunc(x / y), exact while the quotient is below 2^29; the caller redoes the rest (see fgm_rem_far). */
FGM int fgm_rem_far(float x, float y) {
    float a = fgm_abs(x), b = fgm_abs(y);
    return a < FGM_INF && b > 0.0f && b < FGM_INF && (double)a >= (double)b * 0x1p28;
}
FGM float fgm_rem(float x, float y) {
    double a = fgm_dabs((double)x), b = fgm_dabs((double)y);
    double t = a / b, q = (t + 0x1p52) - 0x1p52, r = a - q * b;
    r = r < 0.0 ? r + b : r;
    float f = fgm_copysign((float)r, x);
    f = a < b ? x : f; /* also for an infinite y */
    return a < HUGE_VAL && b > 0.0 ? f : FGM_NAN;
}

#endif
