/* Elementary functions of float32, free of branches and of calls, so that a loop over them becomes vector code.
 *
 * The method is the usual one (see J.-M. Muller, "Elementary Functions", 3rd ed., 2016): Cody-Waite reduction of the
 * argument, a minimax polynomial on the reduced interval (Remez exchange, weighted for relative error, coefficients
 * rounded from the lowest order on and the rest fitted again), and an exact reconstruction. The functions here work in
 * float32 with FMA; the rarer ones are in math_f32_rare.h. */
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

/* e^x for x that fgm_scale can scale. */
FGM float fgm_exp_clamped(float x, int positive) {
    float t = fgm_fma(x, 0x1.715476p+0f, FGM_MAGIC), n = t - FGM_MAGIC;
    float r = fgm_fma(n, -0x1.62e43p-1f, x);
    r = fgm_fma(n, 0x1.05c61p-29f, r);
    float p = fgm_fma(r * r, fgm_exp_tail(r), r) + 1.0f;
    return fgm_scale(p, t, positive);
}

FGM float fgm_exp(float x) {
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    return fgm_exp_clamped(x, x > 0.0f);
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
    float a = fgm_abs(x), z = fgm_exp_clamped(a > 104.0f ? -104.0f : -a, 0);
    float d = 1.0f + z, d_low = z - (d - 1.0f), one = x >= 0.0f ? 1.0f : z;
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
/* ---- error function ---- */

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
