// All CPU kernels, compiled for avx2 with its 4-way dot product, avxvnni (flags: CMakeLists.txt).
#include <immintrin.h>

#include "kernels/cpu/words_avx2.h"
// The kernel text comes last: it is written in the words above.
#define LAMINA_ISA_NAME "avxvnni"
#define LAMINA_ISA_TABLE kAvxVnniKernels
#include "kernels/cpu/isa_kernels.inl"
