// One libFuzzer target: LAMINA_FUZZ_INPUT names the function of inputs.h that gets each input (see CMakeLists.txt).
// In: bytes from libFuzzer. Out: nothing, or a crash that libFuzzer reports with the input that made it.
#include <cstdint>

#include "tests/fuzz/inputs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lamina::fuzz::LAMINA_FUZZ_INPUT({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
