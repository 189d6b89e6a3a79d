// `lamina inspect MODEL`: what a GGUF file holds.
// In: a file of any architecture, with or without tensors. Out on stdout: a summary for people, or with --json one
// object with all metadata and tensors, or with --program the ops of a forward pass. Oddities go to stderr.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "gguf/error.h"
#include "gguf/file.h"
#include "model/builder.h"
#include "model/config.h"
#include "tools/metadata_options.h"
#include "tools/model_options.h"
#include "tools/terminal.h"
#include "tools/verbs.h"

namespace lamina {
namespace {

using gguf::File;
using gguf::Tensor;
using gguf::Value;
using Json = nlohmann::ordered_json;

constexpr size_t kShownItems = 6;  // of an array
constexpr size_t kShownStringBytes = 72;
constexpr size_t kShownItemBytes = 24;  // of a string in an array

struct Options {
  std::string model;
  MetadataOptions metadata;
  bool tensors = false;
  bool json = false;
  bool program = false;
};

/// Tensors of one type together.
struct TypeTotal {
  const char* name = "";
  uint64_t n_tensors = 0;
  uint64_t n_elements = 0;
  uint64_t bytes = 0;
};

struct Totals {
  uint64_t n_elements = 0;
  uint64_t bytes = 0;
  std::vector<TypeTotal> types;  // largest first
};

Totals totals_of(const File& file) {
  Totals totals;
  std::map<gguf::TypeId, TypeTotal> by_type;
  for (const Tensor& tensor : file.tensors()) {
    TypeTotal& type = by_type[tensor.type->id];
    type.name = tensor.type->name;
    ++type.n_tensors;
    type.n_elements += tensor.n_elements();
    type.bytes += tensor.data.size();
    totals.n_elements += tensor.n_elements();
    totals.bytes += tensor.data.size();
  }
  for (const auto& [id, type] : by_type) totals.types.push_back(type);
  std::ranges::stable_sort(totals.types, std::greater(), &TypeTotal::bytes);
  return totals;
}

/// A quantity in the largest fitting unit: 134.52 M.
std::string scaled(uint64_t quantity, double step, std::span<const char* const> units) {
  auto scaled_quantity = static_cast<double>(quantity);
  size_t unit = 0;
  while (scaled_quantity >= step && unit + 1 < units.size()) {
    scaled_quantity /= step;
    ++unit;
  }
  return fmt::format("{:.{}f}{}", scaled_quantity, unit == 0 ? 0 : 2, units[unit]);
}

std::string shown_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  return scaled(bytes, 1024, kUnits);
}

std::string shown_count(uint64_t count) {
  static constexpr const char* kUnits[] = {"", " K", " M", " G", " T"};
  return scaled(count, 1000, kUnits);
}

std::string shown_shape(const Tensor& tensor) { return fmt::format("{}", fmt::join(tensor.shape, " x ")); }

std::string shown(const gguf::Array& array);
std::string shown(uint64_t number) { return fmt::to_string(number); }
std::string shown(int64_t number) { return fmt::to_string(number); }
std::string shown(uint8_t boolean) { return boolean != 0 ? "true" : "false"; }
std::string shown(bool boolean) { return boolean ? "true" : "false"; }
std::string shown(std::string_view text) { return fmt::format("\"{}\"", printable(text, kShownStringBytes)); }

/// As a float where the number is one: most come from float32 values and print shorter so.
std::string shown(double number) {
  if (const auto narrow = static_cast<float>(number); static_cast<double>(narrow) == number)
    return fmt::to_string(narrow);
  return fmt::to_string(number);
}

std::string shown(const gguf::Array& array) {
  return std::visit(
      [](const auto& items) {
        std::string out = "[";
        for (size_t i = 0; i < std::min(items.size(), kShownItems); ++i) {
          if (i > 0) out += ", ";
          if constexpr (std::is_same_v<std::decay_t<decltype(items[i])>, std::string_view>) {
            out += fmt::format("\"{}\"", printable(items[i], kShownItemBytes));
          } else {
            out += shown(items[i]);
          }
        }
        if (items.size() > kShownItems) out += fmt::format(", ... {} items", items.size());
        return out + "]";
      },
      array.items);
}

std::string shown(const Value& value) {
  return std::visit([](const auto& held) { return shown(held); }, value);
}

/// The value of a string key, printable; `missing` when it is not there or no string.
std::string shown_string(const File& file, std::string_view key, const char* missing) {
  const Value* value = file.find(key);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string_view>(value);
  return text == nullptr ? missing : printable(*text);
}

void print_tensors(const File& file) {
  size_t width = 0;
  for (const Tensor& tensor : file.tensors()) width = std::max(width, printable(tensor.name).size());
  print_stdout("\ntensors\n");
  for (const Tensor& tensor : file.tensors()) {
    print_stdout(fmt::format("  {:<{}}  {:<7}  {:>12}  {}\n", printable(tensor.name), width, tensor.type->name,
                             shown_bytes(tensor.data.size()), shown_shape(tensor)));
  }
}

void print_text(const File& file, bool with_tensors) {
  const Totals totals = totals_of(file);
  print_stdout(fmt::format("file          {}{}\n", printable(file.path(), 1000),
                           file.n_parts() > 1 ? fmt::format(" (first of {} parts)", file.n_parts()) : ""));
  print_stdout(fmt::format("format        GGUF version {}\n", file.version()));
  print_stdout(fmt::format("size          {} ({} bytes)\n", shown_bytes(file.size_bytes()), file.size_bytes()));
  print_stdout(fmt::format("architecture  {}\n", shown_string(file, "general.architecture", "(none)")));
  print_stdout(fmt::format("name          {}\n", shown_string(file, "general.name", "(none)")));
  print_stdout(fmt::format("parameters    {} ({})\n", shown_count(totals.n_elements), totals.n_elements));
  print_stdout(fmt::format("tensors       {}\n", file.tensors().size()));
  for (const TypeTotal& type : totals.types) {
    print_stdout(fmt::format("  {:<8}  {:>5}  {:>12}  {:5.1f} %  {:.2f} bits/weight\n", type.name, type.n_tensors,
                             shown_bytes(type.bytes),
                             100.0 * static_cast<double>(type.bytes) / static_cast<double>(totals.bytes),
                             8.0 * static_cast<double>(type.bytes) / static_cast<double>(type.n_elements)));
  }
  size_t width = 0;
  for (const auto& [key, type, value] : file.metadata()) width = std::max(width, printable(key).size());
  print_stdout(fmt::format("\nmetadata      {}\n", file.metadata().size()));
  for (const auto& [key, type, value] : file.metadata())
    print_stdout(fmt::format("  {:<{}}  {}\n", printable(key), width, shown(value)));
  if (with_tensors) print_tensors(file);
}

Json json_of(const Value& value);

Json json_of(const gguf::Array& array) {
  Json out = Json::array();
  std::visit(
      [&](const auto& items) {
        for (const auto& item : items) {
          if constexpr (std::is_same_v<std::decay_t<decltype(item)>, gguf::Array>) {
            out.push_back(json_of(item));
          } else if constexpr (std::is_same_v<std::decay_t<decltype(item)>, uint8_t>) {
            out.push_back(item != 0);
          } else {
            out.push_back(item);
          }
        }
      },
      array.items);
  return out;
}

Json json_of(const Value& value) {
  return std::visit(
      [](const auto& held) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(held)>, gguf::Array>) return json_of(held);
        else return held;
      },
      value);
}

void print_json(const File& file) {
  const Totals totals = totals_of(file);
  Json out;
  out["file"] = file.path();
  out["n_parts"] = file.n_parts();
  out["version"] = file.version();
  out["size_bytes"] = file.size_bytes();
  out["n_parameters"] = totals.n_elements;
  out["types"] = Json::object();
  for (const TypeTotal& type : totals.types) {
    out["types"][type.name] = {{"n_tensors", type.n_tensors}, {"n_elements", type.n_elements}, {"bytes", type.bytes}};
  }
  out["metadata"] = Json::object();
  // Keys are unique, so they need no look-up: an ordered object is a list, and a search per key would be quadratic.
  auto& metadata = out["metadata"].get_ref<Json::object_t&>();
  for (const auto& [key, type, value] : file.metadata()) metadata.Container::emplace_back(key, json_of(value));
  out["tensors"] = Json::array();
  for (const Tensor& tensor : file.tensors()) {
    out["tensors"].push_back(
        {{"name", tensor.name}, {"type", tensor.type->name}, {"shape", tensor.shape}, {"bytes", tensor.data.size()}});
  }
  print_stdout(fmt::format("{}\n", out.dump(-1, ' ', false, Json::error_handler_t::replace)));
}

/// The ops of one forward pass in the context that `run` would take.
void print_program(const File& file) {
  const Config config = read_config(file);
  print_stdout(to_text(build_program(file, config, {.n_ctx = default_n_ctx(config)})));
}

void inspect(const Options& options) {
  File file = File::open(find_model(options.model));
  set_metadata(file, options.metadata);
  for (const std::string& warning : file.warnings()) fmt::print(stderr, "lamina: warning: {}\n", warning);
  if (options.program) print_program(file);
  else if (options.json) print_json(file);
  else print_text(file, options.tensors);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* verb = app.add_subcommand("inspect", "Show what a GGUF file holds");
  verb->add_option("MODEL", options->model, "a GGUF file, or the name of a fetched model")->required();
  add_metadata_options(*verb, options->metadata);
  verb->add_flag("--tensors", options->tensors, "list the tensors too");
  CLI::Option* json = verb->add_flag("--json", options->json, "print one JSON object with all metadata and tensors");
  verb->add_flag("--program", options->program, "print the model's forward pass instead, one op a line")
      ->excludes(json);
  verb->callback([options] { inspect(*options); });
}

}  // namespace lamina
