// All CPU kernels, compiled for avx512 (flags: CMakeLists.txt).
#include <immintrin.h>

#include "kernels/cpu/words_avx512.h"
// The kernel text comes last: it is written in the words above.
#define LAMINA_ISA_NAME "avx512"
#define LAMINA_ISA_TABLE kAvx512Kernels
#include "kernels/cpu/isa_kernels.inl"
