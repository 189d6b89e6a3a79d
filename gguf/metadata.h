// The metadata section of a GGUF file.
// In: a cursor on the first key. Out: keys and values in file order, the cursor behind the last value.
#pragma once
#include <cstdint>
#include <vector>

#include "gguf/cursor.h"
#include "gguf/file.h"

namespace lamina::gguf {

inline constexpr uint64_t kMaxAlignment = 1 << 20;

struct Metadata {
  std::vector<KeyValue> values;
  uint64_t alignment = 32;  ///< general.alignment
};

/// Reads `count` keys with their values. Throws Error(kModel).
Metadata read_metadata(Cursor& cursor, uint64_t count);

}  // namespace lamina::gguf
