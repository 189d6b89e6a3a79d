// Zeroed memory on its own pages: weights, KV pages, activations. Large blocks ask for huge pages; untouched pages cost
// nothing.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lamina {

class Memory {
 public:
  Memory() = default;
  /// Throws Error(kMemory) naming size and purpose.
  Memory(uint64_t bytes, const char* purpose);
  ~Memory();
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::byte* data() const { return data_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  uint64_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace lamina
