// How model/ rejects a file. In: the File and a sentence about a key or tensor. Out: Error(kModel) that also names the
// file.
#pragma once
#include "gguf/error.h"
#include "gguf/file.h"

namespace lamina {

/// Throws Error(kModel): "<path>: <sentence>".
template <class... Args>
[[noreturn]] void refuse(const gguf::File& file, fmt::format_string<Args...> format, Args&&... args) {
  fail(ErrorKind::kModel, "{}: {}", printable(file.path(), 1000), fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace lamina
