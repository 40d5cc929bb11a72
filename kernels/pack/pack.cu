// Numbers of up to SOURCES tensors side by side, one thread a number. e<i>: where the numbers of source i end in out,
// times eight, plus its type as kernel.py numbers them. Whole numbers become int64; floats become float64 and out gets
// their bits.

#define SOURCES 8

extern "C" __global__ void pack_words(const unsigned char* s0, const unsigned char* s1, const unsigned char* s2,
                                      const unsigned char* s3, const unsigned char* s4, const unsigned char* s5,
                                      const unsigned char* s6, const unsigned char* s7, long long e0, long long e1,
                                      long long e2, long long e3, long long e4, long long e5, long long e6,
                                      long long e7, long long* __restrict__ out)
{
    const unsigned char* sources[] = {s0, s1, s2, s3, s4, s5, s6, s7};
    long long spans[] = {e0, e1, e2, e3, e4, e5, e6, e7};
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x, first = 0;
    int s = 0;
    for (; s < SOURCES && i >= spans[s] / 8; ++s) first = spans[s] / 8;
    if (s == SOURCES) return;
    const void* from = sources[s];
    double* floats = (double*)out;
    switch (spans[s] % 8) {
    case 0: floats[i] = ((const float*)from)[i - first]; break;
    case 1: floats[i] = ((const double*)from)[i - first]; break;
    case 2: out[i] = ((const int*)from)[i - first]; break;
    case 3: out[i] = ((const long long*)from)[i - first]; break;
    case 4: out[i] = ((const signed char*)from)[i - first]; break;
    default: out[i] = ((const unsigned char*)from)[i - first];
    }
}
