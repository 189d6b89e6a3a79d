// The SHA-256 of a file. In: a path. Out: 64 hexadecimal digits.
#pragma once
#include <filesystem>
#include <string>

#include "tools/signal_flag.h"

namespace lamina {

/// Throws Error(kRuntime) when `path` cannot be read, Interrupted when a signal comes.
std::string sha256_of(const std::filesystem::path& path, const SignalFlag& signals);

}  // namespace lamina
