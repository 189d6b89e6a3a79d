// models.txt: columns separated by blanks, `#` starts a comment.
// In: its text. Out: rows.
#include "tools/listed_models.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include "gguf/error.h"
#include "tools/models_txt.h"
#include "tools/terminal.h"

namespace lamina {
namespace {

bool is_file_name(std::string_view text) {
  const auto plain = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
  };
  return !text.empty() && text[0] != '.' && text[0] != '-' && std::all_of(text.begin(), text.end(), plain);
}

ModelRow parse_row(const std::string& line) {
  std::istringstream columns(line);
  ModelRow row;
  std::string bytes, sha256, rest;
  columns >> row.name >> row.file >> bytes >> sha256 >> row.source >> rest;
  bool good = is_file_name(row.file) && !row.source.empty() && rest.empty();
  if (bytes != "-") {
    const auto [end, error] = std::from_chars(bytes.data(), bytes.data() + bytes.size(), row.bytes.emplace());
    good = good && error == std::errc() && end == bytes.data() + bytes.size();
  }
  if (sha256 != "-") good = good && is_sha256(row.sha256.emplace(sha256));
  if (!good) fail(ErrorKind::kRuntime, "the list of models has a malformed row: '{}'", printable(line));
  return row;
}

}  // namespace

bool is_sha256(std::string_view text) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == 64 && std::all_of(text.begin(), text.end(), digit);
}

std::vector<ModelRow> model_list() {
  const char* other = std::getenv("LAMINA_MODELS");
  std::istringstream lines(other != nullptr ? read_text(other, ErrorKind::kRuntime) : std::string(kModelsTxt));
  std::vector<ModelRow> rows;
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.size(), line.find('#')));
    if (line.find_first_not_of(" \t\r") != line.npos) rows.push_back(parse_row(line));
  }
  return rows;
}

std::optional<ModelRow> find_listed(std::string_view name) {
  const std::vector<ModelRow> rows = model_list();
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const ModelRow& row) { return row.name == name; });
  return found == rows.end() ? std::nullopt : std::optional(*found);
}

std::filesystem::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return std::filesystem::path(cache) / "lamina";
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home != nullptr ? home : "/") / ".cache" / "lamina";
}

}  // namespace lamina
