// All CPU kernels, compiled for scalar (flags: CMakeLists.txt).
#include <immintrin.h>

#include "kernels/cpu/words_scalar.h"
// The kernel text comes last: it is written in the words above.
#define LAMINA_ISA_NAME "scalar"
#define LAMINA_ISA_TABLE kScalarKernels
#include "kernels/cpu/isa_kernels.inl"
