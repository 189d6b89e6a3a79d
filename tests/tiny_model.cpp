// Tiny models: see tiny_model.h.
#include "tests/tiny_model.h"

#include <array>
#include <cmath>
#include <functional>
#include <numeric>

namespace lamina {
namespace {

/// Rows and outputs of the greatest step of a test.
constexpr uint32_t kMaxRows = 32;

std::string bytes_of(const void* data, size_t size) { return {static_cast<const char*>(data), size}; }

size_t n_elements(const std::vector<uint64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), size_t{1}, std::multiplies<size_t>());
}

/// Whether all scales of a block are neither lost in the sum nor drown it.
bool has_moderate_scales(const gguf::Type& type, const std::string& block) {
  std::array<uint8_t, 256> code, min;
  std::array<int8_t, 256> scale;
  std::array<uint16_t, 16> d{}, dmin{};
  type.unpack(reinterpret_cast<const std::byte*>(block.data()), 1,
              {code.data(), scale.data(), min.data(), d.data(), dmin.data()});
  const auto moderate = [](float x) { return std::fabs(x) >= 0x1p-8f && std::fabs(x) <= 0.5f; };
  for (size_t g = 0; g < type.block / type.form.d_group; ++g) {
    if (!moderate(gguf::d_to_f32(type.form.d_kind, d[g]))) return false;
    if (type.form.min != gguf::MinKind::kNone && !moderate(gguf::f16_to_f32(dmin[g]))) return false;
  }
  return true;
}

}  // namespace

float TinyModel::uniform() { return static_cast<float>(static_cast<int32_t>(random_())) * 0x1p-31f; }

uint32_t TinyModel::below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

std::vector<float> TinyModel::uniform(size_t n, float scale) {
  std::vector<float> out(n);
  for (float& x : out) x = uniform() * scale;
  return out;
}

std::string TinyModel::random_blocks(const gguf::Type& type, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; i += type.block) {
    const float x = uniform();
    const uint16_t f16 = gguf::f32_to_f16(x), bf16 = gguf::f32_to_bf16(x);
    switch (type.id) {
      case gguf::TypeId::kF32: out += bytes_of(&x, 4); continue;
      case gguf::TypeId::kF16: out += bytes_of(&f16, 2); continue;
      case gguf::TypeId::kBF16: out += bytes_of(&bf16, 2); continue;
      default: break;
    }
    std::string block(type.bytes, '\0');
    do {
      for (char& byte : block) byte = static_cast<char>(random_());
    } while (!has_moderate_scales(type, block));
    out += block;
  }
  return out;
}

void TinyModel::add(const std::string& name, std::string_view type, const std::vector<uint64_t>& shape) {
  const gguf::Type* row = gguf::find_type(type);
  LAMINA_CHECK(row != nullptr && shape[0] % row->block == 0);
  builder_.tensor(name, shape, static_cast<uint32_t>(row->id), random_blocks(*row, n_elements(shape)));
}

void TinyModel::add(const std::string& name, const std::vector<uint64_t>& shape, const std::vector<float>& values) {
  LAMINA_CHECK(n_elements(shape) == values.size());
  builder_.tensor(name, shape, static_cast<uint32_t>(gguf::TypeId::kF32), bytes_of(values.data(), values.size() * 4));
}

void TinyModel::add_bytes(const std::string& name, std::string_view type, const std::vector<uint64_t>& shape,
                          const std::string& bytes) {
  builder_.tensor(name, shape, static_cast<uint32_t>(gguf::find_type(type)->id), bytes);
}

void TinyModel::open() {
  const gguf::TempFolder folder;  // the mapping outlives the name
  file_ = gguf::File::open(folder.write("tiny.gguf", builder_.build().bytes));
}

const gguf::Tensor& TinyModel::tensor(const std::string& name) const {
  const gguf::Tensor* found = file_->tensor(name);
  LAMINA_CHECK(found != nullptr);
  return *found;
}

Weight TinyModel::weight(const std::string& name) const {
  const gguf::Tensor& found = tensor(name);
  return {.tensor = &found,
          .n_rows = static_cast<uint32_t>(found.n_rows()),
          .n_cols = static_cast<uint32_t>(found.n_cols())};
}

Weight TinyModel::experts(const std::string& name) const {
  Weight all = weight(name);
  all.n_expert = static_cast<uint32_t>(all.tensor->shape.at(2));
  all.n_rows /= all.n_expert;
  return all;
}

Vector TinyModel::vector(const std::string& name) const {
  const gguf::Tensor& found = tensor(name);
  return {.tensor = &found, .n = static_cast<uint32_t>(found.n_cols())};
}

std::vector<float> TinyModel::values(const std::string& name) const {
  const gguf::Tensor& found = tensor(name);
  std::vector<float> out(found.n_elements());
  gguf::dequantize(*found.type, found.data.data(), out.size(), out.data());
  return out;
}

Buf add_buffer(Program& program, const std::string& name, uint32_t width, RowSet rows) {
  program.buffers.push_back({name, width, rows});
  return static_cast<Buf>(program.buffers.size() - 1);
}

Buf add_embed(Program& program, const Weight& table) {
  const Buf out = add_buffer(program, "embedding", table.n_cols);
  program.ops.push_back(EmbedOp{.table = table, .positions = {}, .out = out});
  return out;
}

Buf add_product(Program& program, Buf in, const Weight& weight, RowSet rows) {
  const Buf out = add_buffer(program, weight.tensor->name, weight.n_rows, rows);
  LinearOp op;
  op.in = in;
  op.products = {Product{.weight = weight, .scale = {}, .bias = {}, .out = out}};
  program.ops.push_back(op);
  return out;
}

void finish(Program& program, Buf result) {
  program.n_vocab = program.buffers[result].width;
  program.logits = add_buffer(program, "logits", program.n_vocab, RowSet::kOutputs);
  program.ops.push_back(SelectOp{.in = result, .out = program.logits});
  program.ops.push_back(ArgmaxOp{.logits = program.logits});
}

Step one_sequence(const std::vector<int32_t>& token) {
  Step step;
  step.token = token;
  step.sequence.assign(token.size(), 0);
  step.position.resize(token.size());
  std::iota(step.position.begin(), step.position.end(), 0u);
  step.outputs = step.position;
  step.pages = {std::vector<uint32_t>((token.size() + kPagePositions - 1) / kPagePositions)};
  std::iota(step.pages[0].begin(), step.pages[0].end(), 0u);
  return step;
}

std::vector<int32_t> some_tokens(size_t n, int32_t n_vocab) {
  std::vector<int32_t> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<int32_t>((i * 7 + 3) % static_cast<size_t>(n_vocab));
  return out;
}

std::unique_ptr<Executable> compile(Device& device, const Program& program, const TinyModel& model, uint32_t n_pages,
                                    KvType kv_type) {
  const Capacity capacity{.max_rows = kMaxRows, .max_outputs = kMaxRows, .n_pages = n_pages, .kv_type = kv_type};
  return device.compile(program, model.file(), capacity, [](uint64_t, uint64_t) {});
}

std::vector<float> run(Executable& executable, const Step& step) {
  executable.run(step);
  std::vector<float> out;
  for (uint32_t i = 0; i < step.outputs.size(); ++i) {
    const std::span<const float> row = executable.logits(i);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

}  // namespace lamina
