// The models that lamina knows by name.
// In: models.txt, which is part of the binary, or the file that LAMINA_MODELS names. Out: its rows, checked: a row's
// file is a plain name, never a path.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

/// A row of models.txt, which explains the columns.
struct ModelRow {
  std::string name;
  std::string file;
  std::optional<uint64_t> bytes;      ///< nothing: the server says
  std::optional<std::string> sha256;  ///< 64 hexadecimal digits; nothing: the server says
  std::string source;                 ///< hf:... or pypi:...
};

/// All rows in their order. Throws Error(kRuntime) naming a malformed one.
std::vector<ModelRow> model_list();

/// The row of `name`, nothing when there is none.
std::optional<ModelRow> find_listed(std::string_view name);

/// Where fetched models are: ${XDG_CACHE_HOME:-~/.cache}/lamina.
std::filesystem::path cache_folder();

/// Whether `text` is a SHA-256 as models.txt and servers write it.
bool is_sha256(std::string_view text);

}  // namespace lamina
