// All CPU kernels, compiled for avx2 (flags: CMakeLists.txt).
#include <immintrin.h>

#include "kernels/cpu/words_avx2.h"
// The kernel text comes last: it is written in the words above.
#define LAMINA_ISA_NAME "avx2"
#define LAMINA_ISA_TABLE kAvx2Kernels
#include "kernels/cpu/isa_kernels.inl"
