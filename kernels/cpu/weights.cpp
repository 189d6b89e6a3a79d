// Loads the weights of a program into planes: see weights.h.
#include "kernels/cpu/weights.h"

#include <algorithm>
#include <atomic>
#include <filesystem>

#include "gguf/error.h"
#include "kernels/hash.h"

namespace lamina::cpu {

namespace {

/// The product kernels of a type, by index into kTokenTiles; nullptr when it cannot be multiplied.
const ProductKernels* find_kernels(const gguf::Type& type, const Kernels& kernels) {
  switch (type.id) {
    case gguf::TypeId::kF32: return &kernels.f32;
    case gguf::TypeId::kF16: return &kernels.f16;
    case gguf::TypeId::kBF16: return &kernels.bf16;
    default: break;
  }
  if (type.kind != gguf::TypeKind::kQuant) return nullptr;
  const auto form = std::find(gguf::kForms.begin(), gguf::kForms.end(), type.form);
  LAMINA_CHECK(form != gguf::kForms.end());
  return &kernels.quant[form - gguf::kForms.begin()];
}

}  // namespace

uint64_t Matrix::bytes() const {
  uint64_t n = 0;
  for (const Planes& p : planes) n += p.bytes();
  return n;
}

Weights::Weights(const Program& program, const gguf::File& file, const Kernels& kernels, Pool& pool,
                 const std::string& cache_folder) {
  for (size_t i = 0; i < program.ops.size(); i++) {
    const auto* linear = std::get_if<LinearOp>(&program.ops[i]);
    if (linear == nullptr) continue;
    for (const Product& product : linear->products) {
      const Weight& w = product.weight;
      const gguf::Type& type = *w.tensor->type;
      const ProductKernels* found = find_kernels(type, kernels);
      if (found == nullptr) {
        fail(ErrorKind::kDevice, "op {} (linear): tensor {} has type {}, which the CPU device cannot multiply", i,
             printable(w.tensor->name), type.name);
      }
      Matrix& matrix = matrices_[{w.tensor, w.first_row, w.n_rows}];
      if (matrix.kernels != nullptr) continue;
      matrix.kernels = found;
      wanted_.emplace_back(&w, &matrix);
      plane_bytes_ += plane_bytes(type, w.n_rows, w.n_cols) * w.n_expert;
    }
  }
  if (!cache_folder.empty()) {
    cache_key_ = key_of_planes(file);
    const std::string stem = std::filesystem::path(file.path()).stem().string();
    cache_path_ = fmt::format("{}/{}-{:016x}.planes", cache_folder, stem, hash(cache_key_));
    cached_ = map_planes(cache_path_, cache_key_, plane_bytes_, pool);
  }
  if (!cached_) memory_ = Memory(plane_bytes_, "weights");
  // Planes in a cache are never written to.
  std::byte* at = cached_ ? const_cast<std::byte*>(cached_->planes.data()) : memory_.data();
  for (const auto& [w, matrix] : wanted_) {
    for (uint32_t e = 0; e < w->n_expert; e++) {
      matrix->planes.emplace_back(*w->tensor->type, w->n_rows, w->n_cols, at);
      at += matrix->planes.back().bytes();
    }
  }
}

std::string Weights::key_of_planes(const gguf::File& file) const {
  std::string key = file.identity();
  for (const auto& [w, matrix] : wanted_) {
    const auto start = std::min<size_t>(w->tensor->data.size(), 64);
    key += fmt::format("{} {} {}+{} {} {} {:x}\n", w->tensor->name, w->tensor->type->name, w->first_row, w->n_rows,
                       w->n_cols, w->n_expert, hash({reinterpret_cast<const char*>(w->tensor->data.data()), start}));
  }
  return key;
}

void Weights::load(const gguf::File& file, Pool& pool, const Progress& progress) {
  if (cached_) return;
  constexpr uint64_t kBytesAtOnce = uint64_t{16} << 20;  // of planes, then file pages go and `progress` is told
  const std::vector<TileRange> ranges = tile_ranges();
  uint64_t done = 0;
  for (size_t first = 0, last = 0; first < ranges.size(); first = last) {
    for (const uint64_t end = done + kBytesAtOnce; last < ranges.size() && done < end;) done += ranges[last++].bytes;
    std::atomic<size_t> next{first};
    pool.run([&](int) {
      for (size_t i; (i = next++) < last;) {
        const TileRange& range = ranges[i];
        range.planes->fill(range.file_rows, range.first_tile, range.last_tile);
      }
    });
    // One call for ranges side by side: each interrupts all threads, and reading maps some pages around as well.
    for (size_t i = first; i < last;) {
      std::span<const std::byte> read = ranges[i].read;
      for (++i; i < last && ranges[i].read.data() == read.data() + read.size(); ++i) {
        read = {read.data(), read.size() + ranges[i].read.size()};
      }
      file.release(read);
    }
    if (progress) progress(done, plane_bytes_);
  }
  if (cache_path_.empty()) return;
  file.check_unchanged();  // planes of two versions must not be kept
  write_planes(cache_path_, cache_key_, {memory_.data(), plane_bytes_}, pool);
}

std::vector<Weights::TileRange> Weights::tile_ranges() {
  constexpr uint64_t kBytesAtOnce = uint64_t{512} << 10;  // of the file, which are in memory meanwhile; at least a tile
  std::vector<TileRange> ranges;
  for (const auto& [weight, matrix] : wanted_) {
    const gguf::Tensor& tensor = *weight->tensor;
    const uint64_t row_bytes = uint64_t{weight->n_cols} / tensor.type->block * tensor.type->bytes;
    const uint64_t expert_bytes = tensor.data.size() / weight->n_expert;
    uint64_t at = weight->first_row * row_bytes;
    for (Planes& planes : matrix->planes) {
      const std::span<const std::byte> rows = tensor.data.subspan(at, weight->n_rows * row_bytes);
      const uint32_t n_tiles = planes.view().n_row_tiles;
      const auto n_at_once = static_cast<uint32_t>(std::max<uint64_t>(1, kBytesAtOnce / (kRowTile * row_bytes)));
      const auto bytes_before = [&](uint32_t tile) { return planes.bytes() * tile / n_tiles; };
      for (uint32_t first = 0, last = 0; first < n_tiles; first = last) {
        last = std::min(first + n_at_once, n_tiles);
        const uint64_t begin = first * kRowTile * row_bytes, end = std::min(last * kRowTile * row_bytes, rows.size());
        ranges.push_back({&planes, rows.data(), rows.subspan(begin, end - begin), first, last,
                          bytes_before(last) - bytes_before(first)});
      }
      at += expert_bytes;
    }
  }
  return ranges;
}

const Matrix& Weights::matrix(const Weight& weight) const {
  return matrices_.at({weight.tensor, weight.first_row, weight.n_rows});
}

const Planes* Weights::whole(const gguf::Tensor* tensor) const {
  const auto found = matrices_.find({tensor, 0, static_cast<uint32_t>(tensor->n_rows())});
  return found == matrices_.end() || found->second.planes.size() != 1 ? nullptr : found->second.planes.data();
}

const float* Weights::vector(const Vector& v, uint32_t n, uint32_t n_expert) {
  if (!v) return nullptr;
  std::vector<float>& padded = vectors_[{v.tensor, v.first, n}];
  if (padded.empty()) {
    const uint64_t total = v.tensor->n_elements();
    std::vector<float> all(total);
    gguf::dequantize(*v.tensor->type, v.tensor->data.data(), total, all.data());
    const uint64_t stride = (uint64_t{n} + kRowTile - 1) / kRowTile * kRowTile;
    padded.resize(stride * n_expert);
    for (uint64_t e = 0; e < n_expert; e++) {
      LAMINA_CHECK(v.first + e * (total / n_expert) + n <= total);
      std::copy_n(all.begin() + static_cast<ptrdiff_t>(v.first + e * (total / n_expert)), n,
                  padded.begin() + static_cast<ptrdiff_t>(e * stride));
    }
  }
  return padded.data();
}

uint64_t Weights::bytes() const {
  uint64_t n = plane_bytes_;
  for (const auto& [key, values] : vectors_) n += values.size() * sizeof(float);
  return n;
}

uint64_t Weights::memory_bytes() const { return cached_ ? bytes() - plane_bytes_ : bytes(); }

}  // namespace lamina::cpu
