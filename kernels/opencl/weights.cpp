// Plans and fills the buffers of weights: see weights.h.
#include "kernels/opencl/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "gguf/error.h"

namespace lamina::opencl {

namespace {

constexpr uint64_t kAlignment = 64;

/// Rows of a matrix, a multiple of 16, whose planes fit `most` bytes.
uint32_t rows_that_fit(const gguf::Type& type, uint32_t n_rows, uint32_t n_cols, uint64_t most) {
  const uint64_t per_tile = plane_bytes(type, 2 * kRowTile, n_cols) - plane_bytes(type, kRowTile, n_cols);
  constexpr uint64_t kSlack = 8 * kAlignment;  // planes start on 64 bytes
  const uint64_t tiles = most > kSlack ? (most - kSlack) / per_tile : 0;
  if (tiles == 0) {
    fail(ErrorKind::kDevice, "16 rows of {} columns of {} take {} bytes: more than a buffer of the device's, {} bytes",
         n_cols, type.name, per_tile, most);
  }
  return static_cast<uint32_t>(std::min<uint64_t>(n_rows, tiles * kRowTile));
}

launch::PlaneArgs plane_args(const gguf::Type& type, uint32_t n_rows, uint32_t n_cols) {
  std::byte* const start = reinterpret_cast<std::byte*>(kAlignment);  // any aligned address: only differences are used
  const Planes planes(type, n_rows, n_cols, start);
  const PlaneView& view = planes.view();
  const auto at = [&](const void* plane) {
    return plane == nullptr ? 0 : static_cast<uint32_t>((static_cast<const std::byte*>(plane) - start) / kAlignment);
  };
  launch::PlaneArgs args = {};
  args.lo = at(type.kind == gguf::TypeKind::kFloat ? view.floats : view.lo);
  args.hi = at(view.hi);
  args.scale = at(view.scale);
  args.min = at(view.min);
  args.d = at(view.d);
  args.dmin = at(view.dmin);
  args.expert_stride = static_cast<uint32_t>(planes.bytes() / kAlignment);
  args.n_row_tiles = view.n_row_tiles;
  args.n_cols = n_cols;
  return args;
}

}  // namespace

uint64_t Matrix::bytes() const {
  uint64_t n = 0;
  for (const Part& part : parts) n += part.bytes;
  return n;
}

std::string type_defines(const gguf::Type& type) {
  const int float_kind = type.id == gguf::TypeId::kF32    ? 1
                         : type.id == gguf::TypeId::kF16  ? 2
                         : type.id == gguf::TypeId::kBF16 ? 3
                                                          : 0;
  if (float_kind != 0) return fmt::format(" -DFLOAT_KIND={}", float_kind);
  const gguf::PlaneForm& form = type.form;
  std::string values;
  for (const int8_t value : type.values) values += fmt::format("{}{}", values.empty() ? "" : ",", value + type.offset);
  return fmt::format(
      " -DFLOAT_KIND=0 -DLO_BITS={} -DHI_BITS={} -DTABLE={} -DVALUES={} -DOFFSET={} -DMAX_CODE={} -DD_KIND={} "
      "-DD_GROUP={} -DSCALE_KIND={} -DMIN_KIND={} -DSUB_GROUP={} -DD_FACTOR={:a}f",
      form.lo_bits, form.hi_bits, form.table ? 1 : 0, form.table ? values : "0", type.offset, form.max_code,
      static_cast<int>(form.d_kind), form.d_group, static_cast<int>(form.scale), static_cast<int>(form.min),
      form.sub_group, type.d_factor);
}

const Matrix& Weights::matrix(const Weight& weight) {
  Matrix& matrix = matrices_[{weight.tensor, weight.first_row, weight.n_rows}];
  if (matrix.weight != nullptr) return matrix;
  matrix.weight = &weight;
  const gguf::Type& type = *weight.tensor->type;
  const uint64_t whole = plane_bytes(type, weight.n_rows, weight.n_cols), most = target_.info.most_bytes;
  const auto experts = static_cast<uint32_t>(std::clamp<uint64_t>(most / whole, 1, weight.n_expert));
  const uint32_t rows = whole <= most ? weight.n_rows : rows_that_fit(type, weight.n_rows, weight.n_cols, most);
  for (uint32_t e = 0; e < weight.n_expert; e += experts) {
    for (uint32_t r = 0; r < weight.n_rows; r += rows) {
      Part& part = matrix.parts.emplace_back();
      part.first_expert = e;
      part.n_expert = std::min(experts, weight.n_expert - e);
      part.first_row = r;
      part.n_rows = std::min(rows, weight.n_rows - r);
      part.planes = plane_args(type, part.n_rows, weight.n_cols);
      part.bytes = uint64_t{part.planes.expert_stride} * kAlignment * part.n_expert;
    }
  }
  return matrix;
}

uint32_t Weights::vector(const Vector& v, uint32_t n, uint32_t n_expert) {
  if (!v) return LAMINA_NONE;
  const auto [found, is_new] = vector_at_.try_emplace({v.tensor, v.first, n}, static_cast<uint32_t>(values_.size()));
  if (!is_new) return found->second;
  const uint64_t total = v.tensor->n_elements(), step = total / n_expert;
  std::vector<float> all(total);
  gguf::dequantize(*v.tensor->type, v.tensor->data.data(), total, all.data());
  for (uint64_t e = 0; e < n_expert; e++) {
    LAMINA_CHECK(v.first + e * step + n <= total);
    const auto first = all.begin() + static_cast<ptrdiff_t>(v.first + e * step);
    values({first, first + n});
  }
  return found->second;
}

uint32_t Weights::values(const std::vector<float>& values) {
  const size_t at = values_.size();
  values_.insert(values_.end(), values.begin(), values.end());
  values_.resize((values_.size() + kRowTile - 1) / kRowTile * kRowTile);
  LAMINA_CHECK(values_.size() < LAMINA_NONE);
  return static_cast<uint32_t>(at);
}

uint64_t Weights::bytes() const {
  uint64_t n = values_.size() * sizeof(float);
  for (const auto& [key, matrix] : matrices_) n += matrix.bytes();
  return n;
}

void Weights::allocate() {
  for (auto& [key, matrix] : matrices_)
    for (Part& part : matrix.parts) part.buffer = Buffer(target_.context.get(), part.bytes, "weights");
  vector_buffer_ = Buffer(target_.context.get(), values_.size() * sizeof(float), "weights");
  if (values_.empty()) return;
  check(clEnqueueWriteBuffer(target_.queue.get(), vector_buffer_.get(), CL_TRUE, 0, values_.size() * sizeof(float),
                             values_.data(), 0, nullptr, nullptr),
        "clEnqueueWriteBuffer");
}

void Weights::load(const gguf::File& file, Pool& pool, const Progress& progress) {
  uint64_t done = 0, all = 0;
  for (const auto& [key, matrix] : matrices_) all += matrix.bytes();
  for (const auto& [key, matrix] : matrices_) {
    for (const Part& part : matrix.parts) {
      fill(matrix, part, file, pool);
      done += part.bytes;
      if (progress) progress(done, all);
    }
  }
}

void Weights::fill(const Matrix& matrix, const Part& part, const gguf::File& file, Pool& pool) {
  const Weight& weight = *matrix.weight;
  const gguf::Tensor& tensor = *weight.tensor;
  const uint64_t row_bytes = uint64_t{weight.n_cols} / tensor.type->block * tensor.type->bytes;
  const uint64_t expert_bytes = tensor.data.size() / weight.n_expert;
  cl_int code = CL_SUCCESS;
  auto* mapped = static_cast<std::byte*>(clEnqueueMapBuffer(target_.queue.get(), part.buffer.get(), CL_TRUE,
                                                            CL_MAP_WRITE_INVALIDATE_REGION, 0, part.bytes, 0, nullptr,
                                                            nullptr, &code));
  check(code, "clEnqueueMapBuffer");
  if (tensor.type->kind == gguf::TypeKind::kFloat) std::memset(mapped, 0, part.bytes);  // rows that the last tile lacks
  for (uint32_t e = 0; e < part.n_expert; e++) {
    Planes planes(*tensor.type, part.n_rows, weight.n_cols,
                  mapped + uint64_t{e} * part.planes.expert_stride * kAlignment);
    const uint64_t at = (part.first_expert + e) * expert_bytes + (weight.first_row + part.first_row) * row_bytes;
    const std::span<const std::byte> rows = tensor.data.subspan(at, part.n_rows * row_bytes);
    constexpr uint32_t kTilesAtOnce = 4;
    const uint32_t n_tiles = part.planes.n_row_tiles;
    std::atomic<uint32_t> next{0};
    pool.run([&](int) {
      for (uint32_t first; (first = next.fetch_add(kTilesAtOnce)) < n_tiles;)
        planes.fill(rows.data(), first, std::min(first + kTilesAtOnce, n_tiles));
    });
    file.release(rows);
  }
  check(clEnqueueUnmapMemObject(target_.queue.get(), part.buffer.get(), mapped, 0, nullptr, nullptr),
        "clEnqueueUnmapMemObject");
  check(clFinish(target_.queue.get()), "clFinish");
}

}  // namespace lamina::opencl
