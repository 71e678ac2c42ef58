// What the kernels need of the host. Threads come one after the other: upwards, or with BACKWARDS downwards, as
// nothing may depend on their order.

#include <math.h>
#include <string.h>

#define FUNCTION static inline

#ifdef BACKWARDS
#define TURN(i, count) ((count) - 1 - (i))
#else
#define TURN(i, count) (i)
#endif

#define EACH(name, Arguments)                                                                    \
    static void each_##name(const Arguments* a, unsigned long long i);                           \
    void name(const Arguments* arguments) {                                                      \
        for (unsigned long long i = 0; i < arguments->count; i++) {                              \
            each_##name(arguments, TURN(i, arguments->count));                                   \
        }                                                                                        \
    }                                                                                            \
    static void each_##name(const Arguments* a, unsigned long long i)

FUNCTION unsigned int bits_of(float value) {
    unsigned int bits;
    memcpy(&bits, &value, 4);
    return bits;
}

FUNCTION float float_of(unsigned int bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

FUNCTION void add(unsigned long long* at, unsigned long long value) {
    *at += value;
}

FUNCTION void raise_to(unsigned long long* at, unsigned long long value) {
    if (value > *at) {
        *at = value;
    }
}

#include KERNELS

// A product of matrices as cuBLAS computes it: c = a b, where matrices lie column after column, and `a` or `b` are
// transposed where told so.
void product(
    u64 a_transposed, u64 b_transposed, u64 m, u64 n, u64 k,
    const real* a, u64 lda, const real* b, u64 ldb, float* c, u64 ldc
) {
    for (u64 column = 0; column < n; column++) {
        for (u64 row = 0; row < m; row++) {
            float sum = 0.0f;
            for (u64 at = 0; at < k; at++) {
                float left = to_float(a[a_transposed ? row * lda + at : at * lda + row]);
                float right = to_float(b[b_transposed ? at * ldb + column : column * ldb + at]);
                sum += left * right;
            }
            c[column * ldc + row] = sum;
        }
    }
}
