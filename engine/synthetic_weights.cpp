// Synthetic weights: see synthetic_weights.h. The file holds one tensor of bytes, of which every tensor takes the first
// that it needs.
#include "engine/synthetic_weights.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "gguf/error.h"

namespace lamina {
namespace {

constexpr const char* kName = "bytes";

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// A GGUF file with the tensor kName of `n` bytes I8.
void write_file(const std::string& path, uint64_t n) {
  std::string header = "GGUF";
  put(header, uint32_t{3});
  put(header, uint64_t{1});  // tensors
  put(header, uint64_t{0});  // keys
  put(header, uint64_t{std::strlen(kName)});
  header += kName;
  put(header, uint32_t{1});  // dimensions
  put(header, n);
  put(header, static_cast<uint32_t>(gguf::TypeId::kI8));
  put(header, uint64_t{0});  // offset
  constexpr size_t kAlignment = 32;
  header.resize((header.size() + kAlignment - 1) / kAlignment * kAlignment);

  // Bytes 0x28 to 0x37 are small normal numbers in every format (2^-6 to 2^-2 in f16), so that no denormal, infinity or
  // NaN slows a kernel down.
  std::mt19937 random(1);
  std::string block(size_t{1} << 20, '\0');
  for (char& byte : block) byte = static_cast<char>(0x28 + random() % 16);
  std::ofstream out(path, std::ios::binary);
  out << header;
  for (uint64_t done = 0; done < n; done += block.size()) {
    out.write(block.data(), static_cast<std::streamsize>(std::min<uint64_t>(block.size(), n - done)));
  }
  out.close();
  if (!out) fail(ErrorKind::kRuntime, "cannot write the temporary file '{}': {}", path, std::strerror(errno));
}

uint64_t n_bytes(const gguf::Tensor& tensor) { return tensor.n_elements() / tensor.type->block * tensor.type->bytes; }

}  // namespace

const gguf::Tensor& SyntheticWeights::add(const std::string& name, const gguf::Type& type,
                                          const std::vector<uint64_t>& shape) {
  LAMINA_CHECK(!file_ && shape.at(0) % type.block == 0);
  tensors_.push_back({.name = name, .shape = shape, .type = &type, .data = {}});
  return tensors_.back();
}

const gguf::File& SyntheticWeights::open() {
  struct TemporaryFile {
    std::string path = (std::filesystem::temp_directory_path() / ("lamina-" + std::to_string(getpid()) + ".gguf"));
    ~TemporaryFile() { std::filesystem::remove(path); }  // the mapping outlives the name
  } temporary;
  uint64_t most = 1;
  for (const gguf::Tensor& tensor : tensors_) most = std::max(most, n_bytes(tensor));
  write_file(temporary.path, most);
  file_ = gguf::File::open(temporary.path);
  for (gguf::Tensor& tensor : tensors_) tensor.data = file_->tensor(kName)->data.first(n_bytes(tensor));
  return *file_;
}

}  // namespace lamina
