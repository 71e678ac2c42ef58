// What `kernels.cu` needs of a GPU.

#define FUNCTION static __device__ __forceinline__

#define EACH(name, Arguments)                                                                    \
    FUNCTION void each_##name(const Arguments* a, unsigned long long i);                         \
    extern "C" __global__ void name(const Arguments arguments) {                                 \
        unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;        \
        if (i < arguments.count) {                                                               \
            each_##name(&arguments, i);                                                          \
        }                                                                                        \
    }                                                                                            \
    FUNCTION void each_##name(const Arguments* a, unsigned long long i)

FUNCTION unsigned int bits_of(float value) {
    return __float_as_uint(value);
}

FUNCTION float float_of(unsigned int bits) {
    return __uint_as_float(bits);
}

FUNCTION void add(unsigned long long* at, unsigned long long value) {
    atomicAdd(at, value);
}

FUNCTION void raise_to(unsigned long long* at, unsigned long long value) {
    atomicMax(at, value);
}
