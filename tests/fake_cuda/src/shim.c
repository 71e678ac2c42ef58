// What CUDA C has and C has not: for one thread of a kernel at a time.

#include <math.h>
#include <string.h>

#define __device__
#define __global__
#define __forceinline__ inline

typedef struct {
    unsigned int x, y, z;
} Index;

static _Thread_local Index blockIdx, threadIdx, blockDim, gridDim;

static inline unsigned int __float_as_uint(float value) {
    unsigned int bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float __uint_as_float(unsigned int bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}

static inline unsigned long long atomicMax(unsigned long long* at, unsigned long long value) {
    unsigned long long old = *at;
    if (value > old) {
        *at = value;
    }
    return old;
}

// A kernel with one argument takes a struct of up to 24 words, one with more takes words.
typedef struct {
    unsigned long long words[24];
} Struct;

typedef void (*TakesStruct)(Struct);
typedef void (*TakesWords)(unsigned long long, unsigned long long, unsigned long long);

// Runs all blocks of a kernel, beginning with block `first` and then in steps of `step`, which has no divisor in
// common with the number of blocks.
void fake_launch(
    void* kernel, const Struct* words, int takes_words, unsigned int grid, unsigned int block, unsigned long long first,
    unsigned long long step
) {
    gridDim = (Index){grid, 1, 1};
    blockDim = (Index){block, 1, 1};
    for (unsigned long long turn = 0; turn < grid; turn++) {
        blockIdx = (Index){(unsigned int)((first + turn * step) % grid), 0, 0};
        for (unsigned int thread = 0; thread < block; thread++) {
            threadIdx = (Index){thread, 0, 0};
            if (takes_words) {
                ((TakesWords)kernel)(words->words[0], words->words[1], words->words[2]);
            } else {
                ((TakesStruct)kernel)(*words);
            }
        }
    }
}
