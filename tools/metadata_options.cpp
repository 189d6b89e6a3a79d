// --rope-* are short for the keys of the file's architecture.
#include "tools/metadata_options.h"

#include <charconv>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "gguf/error.h"

namespace lamina {
namespace {

/// The whole of `text` as a number; throws std::invalid_argument.
template <class Number>
Number parse_number(std::string_view text, const char* what) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument(fmt::format("'{}' is not {}", printable(text), what));
  }
  return number;
}

/// The parts of KEY=TYPE:VALUE; text stays a view. Throws std::invalid_argument saying what is wrong.
std::pair<std::string_view, gguf::Value> parse_override(std::string_view text) {
  const size_t equals = text.find('='), colon = text.find(':', equals + 1);
  if (equals == 0 || equals == text.npos || colon == text.npos) {
    throw std::invalid_argument(fmt::format("'{}' is not KEY=TYPE:VALUE", printable(text)));
  }
  const std::string_view key = text.substr(0, equals), value = text.substr(colon + 1);
  const std::string_view type = text.substr(equals + 1, colon - equals - 1);
  if (type == "int") return {key, parse_number<int64_t>(value, "an integer of 64 bits")};
  if (type == "float") return {key, parse_number<double>(value, "a number")};
  if (type == "str") return {key, value};
  if (type != "bool") {
    throw std::invalid_argument(fmt::format("type '{}' is none of int, float, bool and str", printable(type)));
  }
  if (value != "true" && value != "false") {
    throw std::invalid_argument(fmt::format("'{}' is neither true nor false", printable(value)));
  }
  return {key, value == "true"};
}

}  // namespace

void add_override_option(CLI::App& verb, MetadataOptions& options) {
  verb.add_option("--override-kv", options.overrides,
                  "set a metadata key; TYPE is int, float, bool or str (repeatable)")
      ->type_name("KEY=TYPE:VALUE")
      ->allow_extra_args(false)
      ->check([](const std::string& text) -> std::string {
        try {
          parse_override(text);
        } catch (const std::invalid_argument& error) {
          return error.what();
        }
        return {};
      });
}

void add_metadata_options(CLI::App& verb, MetadataOptions& options) {
  add_override_option(verb, options);
  verb.add_option("--rope-scaling", options.rope_scaling, "how positions are scaled: none, linear or yarn")
      ->check(CLI::IsMember({"none", "linear", "yarn"}));
  verb.add_option("--rope-scale", options.rope_scale, "how many times longer the context becomes")
      ->check(CLI::PositiveNumber);
  verb.add_option("--rope-freq-base", options.rope_freq_base, "base of the rotary frequencies")
      ->check(CLI::PositiveNumber);
}

void set_metadata(gguf::File& file, const MetadataOptions& options) {
  for (const std::string& text : options.overrides) {
    auto [key, value] = parse_override(text);
    file.set(key, std::move(value));
  }
  const gguf::Value* named = file.find("general.architecture");
  if (named == nullptr || !std::holds_alternative<std::string_view>(*named)) return;  // refused by who reads it
  const std::string prefix = fmt::format("{}.rope.", std::get<std::string_view>(*named));
  if (!options.rope_scaling.empty()) file.set(prefix + "scaling.type", std::string_view(options.rope_scaling));
  if (options.rope_scale) file.set(prefix + "scaling.factor", *options.rope_scale);
  if (options.rope_freq_base) file.set(prefix + "freq_base", *options.rope_freq_base);
}

}  // namespace lamina
