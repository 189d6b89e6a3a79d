// All CPU kernels, compiled for avx512 (flags: CMakeLists.txt).
#include <immintrin.h>

#include "kernels/cpu/words_avx512.h"
//
#define LAMINA_ISA_NAME "avx512"
#define LAMINA_ISA_TABLE kAvx512Kernels
#include "kernels/cpu/isa_kernels.inl"
