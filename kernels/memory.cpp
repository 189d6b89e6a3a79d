// Anonymous mappings behind Memory.
#include "kernels/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "gguf/error.h"
#include "kernels/memory_limits.h"

namespace lamina {

namespace {
constexpr uint64_t kPageSize = 4096;
}

Memory::Memory(uint64_t bytes, const char* purpose) : bytes_(bytes) {
  constexpr uint64_t kHugePage = uint64_t{2} << 20;
  if (bytes == 0) return;
  // Huge pages begin at multiples of their size: some address space more, and what is not needed of it given back.
  const uint64_t spare = bytes >= kHugePage ? kHugePage : 0;
  uint64_t mapped = 0;
  void* memory = MAP_FAILED;
  if (!__builtin_add_overflow(bytes, spare + kPageSize - 1, &mapped)) {
    mapped = mapped / kPageSize * kPageSize;
    memory = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  if (memory == MAP_FAILED) {
    const int reason = errno;
    require_memory(bytes, purpose);
    fail(ErrorKind::kMemory, "cannot reserve {} MiB for {}: {}", bytes >> 20, purpose, std::strerror(reason));
  }
  data_ = static_cast<std::byte*>(memory);
  if (spare == 0) return;
  const uint64_t before = (kHugePage - reinterpret_cast<uintptr_t>(memory) % kHugePage) % kHugePage;
  if (before > 0) munmap(data_, before);
  if (before < spare) munmap(data_ + before + mapped - spare, spare - before);
  data_ += before;
  madvise(data_, bytes, MADV_HUGEPAGE);  // advice: failure costs speed only
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace lamina
