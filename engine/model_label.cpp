// llama.cpp's names for the mixtures of types that files are written in, and what the tensors tell when the metadata do
// not.
#include "engine/model_label.h"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <variant>

#include "gguf/error.h"

namespace lamina {
namespace {

/// general.file_type in words, as llama.cpp prints it.
constexpr struct {
  uint64_t number;
  std::string_view name;
} kFileTypes[] = {
    {0, "all F32"},
    {1, "F16"},
    {2, "Q4_0"},
    {3, "Q4_1"},
    {7, "Q8_0"},
    {8, "Q5_0"},
    {9, "Q5_1"},
    {10, "Q2_K - Medium"},
    {11, "Q3_K - Small"},
    {12, "Q3_K - Medium"},
    {13, "Q3_K - Large"},
    {14, "Q4_K - Small"},
    {15, "Q4_K - Medium"},
    {16, "Q5_K - Small"},
    {17, "Q5_K - Medium"},
    {18, "Q6_K"},
    {19, "IQ2_XXS - 2.0625 bpw"},
    {20, "IQ2_XS - 2.3125 bpw"},
    {21, "Q2_K - Small"},
    {22, "IQ3_XS - 3.3 bpw"},
    {23, "IQ3_XXS - 3.0625 bpw"},
    {24, "IQ1_S - 1.5625 bpw"},
    {25, "IQ4_NL - 4.5 bpw"},
    {26, "IQ3_S - 3.4375 bpw"},
    {27, "IQ3_S mix - 3.66 bpw"},
    {28, "IQ2_S - 2.5 bpw"},
    {29, "IQ2_M - 2.7 bpw"},
    {30, "IQ4_XS - 4.25 bpw"},
    {31, "IQ1_M - 1.75 bpw"},
    {32, "BF16"},
    {36, "TQ1_0 - 1.69 bpw ternary"},
    {37, "TQ2_0 - 2.06 bpw ternary"},
    {38, "MXFP4 MoE"},
};

std::string_view file_type(const gguf::File& file) {
  if (const gguf::Value* value = file.find("general.file_type")) {
    const auto* number = std::get_if<uint64_t>(value);
    for (const auto& row : kFileTypes) {
      if (number != nullptr && row.number == *number) return row.name;
    }
  }
  // Not said: the type that most bytes have.
  std::map<std::string_view, uint64_t> bytes;
  std::string_view best = "unknown";
  for (const gguf::Tensor& tensor : file.tensors()) {
    const uint64_t sum = bytes[tensor.type->name] += tensor.data.size();
    if (!bytes.contains(best) || sum > bytes[best]) best = tensor.type->name;
  }
  return best;
}

std::string size_label(const gguf::File& file) {
  if (const gguf::Value* value = file.find("general.size_label")) {
    if (const auto* label = std::get_if<std::string_view>(value)) return printable(*label, 20);
  }
  const auto n = static_cast<double>(n_params(file));
  if (n >= 1e9) return fmt::format("{:.1f}B", n / 1e9);
  return n >= 1e6 ? fmt::format("{:.0f}M", n / 1e6) : fmt::format("{:.0f}K", n / 1e3);
}

}  // namespace

std::string model_label(const gguf::File& file) {
  std::string architecture = "unknown";
  if (const gguf::Value* value = file.find("general.architecture")) {
    if (const auto* name = std::get_if<std::string_view>(value)) architecture = printable(*name, 40);
  }
  return fmt::format("{} {} {}", architecture, size_label(file), file_type(file));
}

uint64_t n_params(const gguf::File& file) {
  uint64_t n = 0;
  for (const gguf::Tensor& tensor : file.tensors()) n += tensor.n_elements();
  return n;
}

}  // namespace lamina
