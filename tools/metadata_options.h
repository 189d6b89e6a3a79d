// Options that change a model's metadata before anything else reads them.
// In: --override-kv and --rope-*. Out: a File whose keys say what the options say.
#pragma once
#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "gguf/file.h"

namespace lamina {

struct MetadataOptions {
  std::vector<std::string> overrides;  ///< KEY=TYPE:VALUE
  std::string rope_scaling;            ///< empty: as the file says
  std::optional<double> rope_freq_base, rope_scale;
};

/// Adds --override-kv to `verb`; a value that is malformed is a usage error.
void add_override_option(CLI::App& verb, MetadataOptions& options);

/// Adds --override-kv, --rope-scaling, --rope-scale and --rope-freq-base.
void add_metadata_options(CLI::App& verb, MetadataOptions& options);

/// Sets the keys in `file`: first those of --override-kv in their order, then those of --rope-*.
void set_metadata(gguf::File& file, const MetadataOptions& options);

}  // namespace lamina
