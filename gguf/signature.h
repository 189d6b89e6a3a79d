// Recognises files that people give in place of a GGUF file.
// In: a file's first bytes. Out: nothing, or an Error(kModel) that says what the file is.
#pragma once
#include <cstddef>
#include <span>
#include <string_view>

namespace lamina::gguf {

/// Throws unless `bytes` start with the GGUF magic; `shown` is the path as messages show it.
void require_gguf_magic(std::span<const std::byte> bytes, std::string_view shown);

}  // namespace lamina::gguf
