// Anonymous mappings behind Memory.
#include "kernels/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "gguf/error.h"
#include "kernels/memory_limits.h"

namespace lamina {

Memory::Memory(uint64_t bytes, const char* purpose) : bytes_(bytes) {
  constexpr uint64_t kHugePage = uint64_t{2} << 20;
  if (bytes == 0) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    const int reason = errno;
    require_memory(bytes, purpose);
    fail(ErrorKind::kMemory, "cannot reserve {} MiB for {}: {}", bytes >> 20, purpose, std::strerror(reason));
  }
  if (bytes >= kHugePage) madvise(memory, bytes, MADV_HUGEPAGE);  // advice: failure costs speed only
  data_ = static_cast<std::byte*>(memory);
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace lamina
