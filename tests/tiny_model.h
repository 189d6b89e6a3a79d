// Tiny models for tests of ops: weights of any type with random valid blocks in a real GGUF file, and the few lines
// that every test program shares. In: tensors by name, type and shape. Out: a gguf::File, views of its tensors as
// Weight and Vector, and the logits of a Program on a Device.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "kernels/device.h"
#include "kernels/program.h"
#include "tests/gguf/file_builder.h"

namespace lamina {

class TinyModel {
 public:
  explicit TinyModel(uint32_t seed) : random_(seed) {}

  /// A tensor with random contents: floats uniform in [-1, 1), blocks of random bytes with scales of moderate size.
  void add(const std::string& name, std::string_view type, const std::vector<uint64_t>& shape);

  /// An F32 tensor with the given contents.
  void add(const std::string& name, const std::vector<uint64_t>& shape, const std::vector<float>& values);

  /// A tensor with the given bytes.
  void add_bytes(const std::string& name, std::string_view type, const std::vector<uint64_t>& shape,
                 const std::string& bytes);

  /// Writes and opens the file; all tensors must have been added.
  void open();

  const gguf::File& file() const { return *file_; }
  const gguf::Tensor& tensor(const std::string& name) const;
  Weight weight(const std::string& name) const;   ///< all rows of a matrix
  Weight experts(const std::string& name) const;  ///< [n_cols, n_rows, n_expert]
  Vector vector(const std::string& name) const;

  /// A tensor's contents as the exact dequantiser gives them.
  std::vector<float> values(const std::string& name) const;

  float uniform();                 ///< in [-1, 1)
  uint32_t below(uint32_t limit);  ///< in [0, limit)
  std::vector<float> uniform(size_t n, float scale = 1);

 private:
  std::string random_blocks(const gguf::Type& type, size_t n);

  std::mt19937 random_;
  gguf::FileBuilder builder_;
  std::optional<gguf::File> file_;
};

/// A new buffer of the program.
Buf add_buffer(Program& program, const std::string& name, uint32_t width, RowSet rows = RowSet::kTokens);

/// Adds an embedding of `table` into a new buffer.
Buf add_embed(Program& program, const Weight& table);

/// Adds a product without an epilogue into a new buffer.
Buf add_product(Program& program, Buf in, const Weight& weight, RowSet rows = RowSet::kTokens);

/// Makes a buffer of tokens the program's result: select, then argmax.
void finish(Program& program, Buf result);

/// A step of tokens `token` at positions 0.. of one sequence, all of whose rows are outputs. Page i of the sequence is
/// page i.
Step one_sequence(const std::vector<int32_t>& token);

/// `n` tokens below n_vocab, varied.
std::vector<int32_t> some_tokens(size_t n, int32_t n_vocab);

/// Compiles for steps of up to 32 rows.
std::unique_ptr<Executable> compile(Device& device, const Program& program, const TinyModel& model,
                                    uint32_t n_pages = 1, KvType kv_type = KvType::kF16);

/// Runs a step; logits [outputs, n_vocab].
std::vector<float> run(Executable& executable, const Step& step);

}  // namespace lamina
