// Linear ops on the CPU. All threads bring the input rows into the kernels' forms, each for itself where that is little
// work and else together, with a barrier behind it. Then they draw row tiles, of one expert's matrices after the other,
// and multiply them with all token tiles of the expert. With few rows the op's tail (executable.h) follows.
#include <algorithm>

#include "kernels/cpu/executable.h"

namespace lamina::cpu {

namespace {

/// Columns that a thread packs at once where threads share the rows of an input.
constexpr uint32_t kSlice = 256;
static_assert(kSlice % kColTile == 0);

/// What it takes to gate a value, in values packed.
constexpr uint32_t kGateCost = 3;

Gate gate_of(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return Gate::kSilu;
    case Activation::kGelu: return Gate::kGelu;
    case Activation::kRelu: return Gate::kRelu;
    case Activation::kReluSquared: return Gate::kReluSquared;
  }
  return Gate::kSilu;
}

}  // namespace

PackedTile CpuExecutable::Multiplication::tile(const TokenTile& at) const {
  return packed.tile(at, one_input ? 0 : at.slot, bound.n_cols, bound.forms);
}

void CpuExecutable::run_op(const LinearOp& op, size_t index, Worker worker) {
  const BoundLinear& bound = linears_[index];
  const TileList& list = tiles(bound.out);
  const bool one_input =
      bound.out == RowSet::kPairs && buffer(op.in).set == RowSet::kTokens && step_->token.size() == 1;
  const uint64_t n_values = (one_input ? 1 : list.rows.size()) * uint64_t{bound.n_cols};
  const bool alone = n_values * (op.activation ? kGateCost : 1) <= kPackAlone;
  const PackedRows& packed = alone ? own_packed_[static_cast<size_t>(worker.thread)] : packed_;
  const Multiplication work{bound, list, packed, one_input};
  pack_input(op, work, alone ? Worker{worker.thread, 0, 1} : worker);
  if (!alone) pool_.barrier();

  // Where each expert has one token tile, what is drawn at once is a matmul call. With more it is large enough that
  // packed tokens are read from a near cache.
  const uint32_t most = list.groups.size() == list.tiles.size() ? kMaxRowTiles : 2 * kMaxRowTiles;
  const auto n_tiles = static_cast<uint32_t>(list.groups.size()) * bound.n_row_tiles;
  uint32_t n_done = 0;
  draw(index, worker.thread, n_tiles, most, [&](uint32_t first, uint32_t last) {
    n_done += last - first;
    for (uint32_t at = first, stop; at < last; at = stop) {
      const uint32_t group = at / bound.n_row_tiles, before = group * bound.n_row_tiles;
      stop = std::min(last, before + bound.n_row_tiles);
      multiply(work, list.groups[group], at - before, stop - before, worker.thread);
    }
    if (tails_ && bound.append != nullptr) append_heads(*bound.append, index + 1, first, last);
  });
  if (!tails_ || bound.append != nullptr || bound.n_tail == 0 || n_done == 0) return;
  if (!done_[0].complete(n_done, n_tiles)) return;
  for (uint32_t i = 1; i <= bound.n_tail; i++) run_op(index + i, Worker{worker.thread, 0, 1});
}

/// Norm or gate, then packing. A norm needs whole rows; others go by slices of columns.
void CpuExecutable::pack_input(const LinearOp& op, const Multiplication& work, Worker worker) {
  const Rows& in = buffer(op.in);
  const TileList& list = work.list;
  const uint32_t n_cols = work.bound.n_cols, slice = op.norm ? n_cols : std::min(n_cols, kSlice);
  const uint32_t n_slices = (n_cols + slice - 1) / slice;
  // Rows of experts' first products come from the token that chose the expert.
  const bool from_token = work.bound.out == RowSet::kPairs && in.set == RowSet::kTokens;
  const auto [begin, end] = worker.share(uint64_t{n_slices} * (work.one_input ? 1 : list.rows.size()));
  float* made = scratch(worker.thread);
  const TokenTile* tile = list.tiles.data();
  for (uint32_t item = begin; item < end; item++) {
    const uint32_t i = item / n_slices, column = item % n_slices * slice, n = std::min(slice, n_cols - column);
    while (i >= tile->begin + tile->count) tile++;
    const uint32_t row = from_token ? list.rows[i] / program_.n_expert_used : list.rows[i];
    const float* x = in.row(row) + column;
    if (op.norm) {
      kernels_.norm(x, n, work.bound.norm, nullptr, made);
      x = made;
    } else if (op.activation) {
      const float* gate = op.gate != kNoBuf ? buffer(op.gate).row(row) + column : nullptr;
      kernels_.gate(gate_of(*op.activation), gate != nullptr ? gate : x, gate != nullptr ? x : nullptr, n, made);
      x = made;
    }
    kernels_.pack(x, n, columns_from(work.tile(*tile), column), static_cast<int>(i - tile->begin));
  }
}

/// Row tiles [first, last), counted over all products of one expert, times its token tiles.
void CpuExecutable::multiply(const Multiplication& work, const TileGroup& group, uint32_t first, uint32_t last,
                             int thread) {
  uint32_t before = 0;  // row tiles of earlier products
  for (const BoundProduct& p : work.bound.products) {
    const uint32_t begin = std::max(first, before), end = std::min(last, before + p.n_row_tiles);
    const uint32_t together = p.matrix->kernels->unpack != nullptr ? panel_tiles(work.bound.n_cols) : kMaxRowTiles;
    for (uint32_t at = begin; at < end; at += together) {
      multiply(work, p, group, at - before, std::min(together, end - at), thread);
    }
    before += p.n_row_tiles;
  }
}

/// Row tiles [row_tile, row_tile + n) of one product. The widest token tiles come first.
void CpuExecutable::multiply(const Multiplication& work, const BoundProduct& p, const TileGroup& group,
                             uint32_t row_tile, uint32_t n, int thread) {
  const ProductKernels& kernels = *p.matrix->kernels;
  const size_t panel_words = cpu::panel_words(work.bound.n_cols);
  float* acc = scratch(thread);
  bool unpacked = false;  // the row tiles are in the panels
  for (uint32_t g = group.begin; g < group.end; g++) {
    const TokenTile& tile = work.list.tiles[g];
    const PackedTile packed = work.tile(tile);
    const PlaneView& w = p.matrix->planes[tile.expert].view();
    if (tile.width() == kMaxTokenTile && kernels.unpack != nullptr) {
      for (uint32_t i = 0; i < n && !unpacked; i++) {
        kernels.unpack(w, row_tile + i, panel(thread) + i * panel_words);
      }
      unpacked = true;
      for (uint32_t i = 0; i < n; i++) {
        kernels.panel(w, row_tile + i, panel(thread) + i * panel_words, packed, acc + i * kMaxTokenTile * kRowTile);
      }
    } else {
      kernels.matmul[tile.width_index](w, row_tile, n, packed, acc);
    }
    for (uint32_t i = 0; i < n; i++) {
      for (uint32_t t = 0; t < tile.count; t++) {
        finish(work.bound, p, tile.expert, row_tile + i, work.list.rows[tile.begin + t],
               acc + (i * static_cast<uint32_t>(tile.width()) + t) * kRowTile, thread);
      }
    }
  }
}

/// 16 rows of a product for one token: through the epilogue to where they are wanted.
void CpuExecutable::finish(const BoundLinear& bound, const BoundProduct& p, uint32_t expert, uint32_t row_tile,
                           uint32_t row, float* acc, int thread) {
  const Product& product = *p.product;
  const uint32_t column = row_tile * kRowTile;
  Epilogue epilogue;
  if (p.scale != nullptr) epilogue.scale = p.scale + size_t{expert} * kRowTile;
  if (p.bias != nullptr) epilogue.bias = p.bias + size_t{expert} * p.bias_stride + column;
  epilogue.multiply = product.multiply;
  if (product.residual != kNoBuf) epilogue.residual = buffer(product.residual).row(row) + column;
  epilogue.softcap = product.softcap;
  float* out = n_best_ != 0 && bound.offers ? acc : buffer(product.out).row(row) + column;
  kernels_.finish(acc, epilogue, out);
  if (bound.offers && !traced_) {
    best_.offer(thread, row, column, out, std::min(kRowTile, product.weight.n_rows - column));
  }
}

/// Appends the heads that row tiles [first, last) of q, k and v complete.
void CpuExecutable::append_heads(const AppendOp& op, size_t index, uint32_t first, uint32_t last) {
  const KvShape& shape = program_.kv[op.layer];
  const uint32_t of_k = shape.head_dim_k / kRowTile, of_v = shape.head_dim_v / kRowTile;  // tiles of a head
  const uint32_t n_k = op.n_head + shape.n_head_kv;  // q and k heads; then come those of v
  for (uint32_t at = first, stop; at < last; at = stop) {
    const bool is_v = at >= n_k * of_k;
    const uint32_t of = is_v ? of_v : of_k, before = is_v ? n_k * of_k : 0, nth = (at - before) / of;
    const uint32_t head = is_v ? n_k + nth : nth;
    stop = std::min(last, before + (nth + 1) * of);
    if (stop - at < of && !done_[head].complete(stop - at, of)) continue;
    for (uint32_t row = 0; row < n_rows(RowSet::kTokens); row++) append_head(op, index, row, head);
  }
}

}  // namespace lamina::cpu
