// The starts of files that are often mistaken for GGUF, and what to say about each.
// In: a file's first bytes. Out: an Error(kModel) with the best guess.
#include "gguf/signature.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>

#include "gguf/error.h"

namespace lamina::gguf {
namespace {

struct Signature {
  std::string_view start;  // lower case
  const char* what;
};

constexpr const char* kOldFormat = "a model in a format older than GGUF (2023); convert the original model again";

// The old magics are numbers, so on disk their letters stand in reverse.
constexpr Signature kSignatures[] = {
    {"lmgg", kOldFormat},
    {"fmgg", kOldFormat},
    {"tjgg", kOldFormat},
    {"algg", "a GGLA adapter, a format older than GGUF"},
    {"ggml", kOldFormat},
    {"ggmf", kOldFormat},
    {"ggjt", kOldFormat},
    {"ggla", "a GGLA adapter, a format older than GGUF"},
    {"fugg", "a GGUF file with its magic reversed (byte-swapped)"},
    {"version https://git-lfs", "a Git LFS pointer, not the model itself; fetch it with `git lfs pull`"},
    {"<!doctype", "an HTML page; the download got a web page instead of the file"},
    {"<html", "an HTML page; the download got a web page instead of the file"},
    {"<?xml", "an XML document; the download got an error page instead of the file"},
    {"pk\x03\x04", "a ZIP archive (perhaps a PyTorch checkpoint)"},
    {"\x80\x02", "a pickle (perhaps a PyTorch checkpoint)"},
    {"\x1f\x8b", "a gzip archive; unpack it first"},
};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/// safetensors: a header length, then a JSON object of that length.
bool is_safetensors(std::span<const std::byte> bytes) {
  uint64_t length;
  if (bytes.size() < sizeof(length) + 2 || bytes[sizeof(length)] != std::byte{'{'}) return false;
  std::memcpy(&length, bytes.data(), sizeof(length));
  return length >= 2 && length <= bytes.size() - sizeof(length);
}

}  // namespace

void require_gguf_magic(std::span<const std::byte> bytes, std::string_view shown) {
  const std::string_view start(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 64));
  if (start.starts_with("GGUF")) return;
  if (std::string_view("GGUF").starts_with(start)) {
    fail(ErrorKind::kModel, "{}: the file is truncated: it has only {} bytes", shown, start.size());
  }
  if (is_safetensors(bytes)) fail(ErrorKind::kModel, "{} is a safetensors file, not a GGUF file", shown);
  std::string lower(std::find_if_not(start.begin(), start.end(), is_space), start.end());
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  for (const Signature& signature : kSignatures) {
    if (!lower.starts_with(signature.start)) continue;
    fail(ErrorKind::kModel, "{} is not a GGUF file: it starts with \"{}\" and seems to be {}", shown,
         printable(start.substr(0, std::max<size_t>(signature.start.size(), 4))), signature.what);
  }
  fail(ErrorKind::kModel, "{} is not a GGUF file: it starts with \"{}\" instead of \"GGUF\"", shown,
       printable(start.substr(0, 4)));
}

}  // namespace lamina::gguf
