// What a generation leaves to say on standard error when its text is out: why it ended early, and how fast it was.
#pragma once
#include "engine/generate.h"
#include "tools/model_options.h"

namespace lamina {

/// Says that the context is full if it is, unless -q; rates on a terminal or with -v.
void report_generation(const Generation& result, const Engine& engine, const ModelOptions& options);

}  // namespace lamina
