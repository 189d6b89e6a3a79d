// Fetches a model of models.txt.
// In: a row. Out: its file in the cache folder, whose size and SHA-256 were checked before it got its name.
#pragma once
#include <string>

#include "tools/listed_models.h"
#include "tools/signal_flag.h"

namespace lamina {

/// Returns the path of the file of `row`; fetches what is missing of it. HF_ENDPOINT names another server for hf: rows,
/// HF_TOKEN what it is given. Throws Error(kNetwork) when data cannot be had or are wrong, Error(kRuntime) for the
/// disk, Interrupted when a signal comes: what arrived stays for the next call.
std::string fetch_model(const ModelRow& row, const SignalFlag& signals);

}  // namespace lamina
