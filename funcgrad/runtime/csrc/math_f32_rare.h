/* The rarer functions of float32, computed in float64 with polynomials good to 1e-9 or better, so that the result is in
 * nearly every case the correctly rounded one. See math_f32.h. */
#ifndef FG_MATH_F32_RARE_H
#define FG_MATH_F32_RARE_H
#include "math_f32.h"

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
    return (x == 1.0f || y == 0.0f) ? 1.0f : r;
}

/* ---- trigonometric ---- */

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

#endif
