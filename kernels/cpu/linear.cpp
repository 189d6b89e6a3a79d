// Linear ops on the CPU: all threads bring the input rows into the kernels' forms, meet, then draw chunks of row tiles
// and multiply them with every token tile.
#include <algorithm>

#include "kernels/cpu/executable.h"

namespace lamina::cpu {

namespace {

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

void CpuExecutable::run_op(const LinearOp& op, size_t index, int thread) {
  const BoundLinear& bound = linears_[index];
  const TileList& list = tiles(bound.out);
  pack_input(op, bound, list, thread);
  pool_.barrier();
  // With few tokens a chunk is a matmul call. With many it is large enough that packed tokens are read from a near
  // cache, and small enough that the threads end together.
  const bool few = list.tiles.size() <= 1 || bound.out == RowSet::kPairs;
  const uint32_t chunk = few ? kMaxRowTiles : 2 * kMaxRowTiles;
  std::atomic<uint32_t>& next = counters_[index].next;
  for (uint32_t first; (first = next.fetch_add(chunk, std::memory_order_relaxed)) < bound.n_row_tiles;) {
    multiply(bound, list, first, std::min(first + chunk, bound.n_row_tiles), thread);
  }
}

/// Norm or gate, then packing, row by row.
void CpuExecutable::pack_input(const LinearOp& op, const BoundLinear& bound, const TileList& list, int thread) {
  const Rows& in = buffer(op.in);
  // Rows of experts' first products come from the token that chose the expert.
  const bool from_token = bound.out == RowSet::kPairs && in.set == RowSet::kTokens;
  const auto [begin, end] = share(static_cast<uint32_t>(list.rows.size()), thread);
  float* row = scratch(thread);
  for (const TokenTile& tile : list.tiles) {
    if (tile.begin + tile.count <= begin || tile.begin >= end) continue;
    const PackedTile packed = packed_.tile(tile, bound.n_cols, bound.forms);
    for (uint32_t i = std::max(begin, tile.begin); i < std::min(end, tile.begin + tile.count); i++) {
      const uint32_t r = from_token ? list.rows[i] / program_.n_expert_used : list.rows[i];
      const float* x = in.row(r);
      if (op.norm) {
        kernels_.norm(x, bound.n_cols, bound.norm, nullptr, row);
        x = row;
      } else if (op.activation) {
        const bool gated = op.gate != kNoBuf;
        kernels_.gate(gate_of(*op.activation), gated ? buffer(op.gate).row(r) : x, gated ? x : nullptr, bound.n_cols,
                      row);
        x = row;
      }
      kernels_.pack(x, bound.n_cols, packed, static_cast<int>(i - tile.begin));
    }
  }
}

/// Row tiles [first, last), counted over all products, times every token tile.
void CpuExecutable::multiply(const BoundLinear& bound, const TileList& list, uint32_t first, uint32_t last,
                             int thread) {
  uint32_t before = 0;  // row tiles of earlier products
  for (const BoundProduct& p : bound.products) {
    const uint32_t begin = std::max(first, before), end = std::min(last, before + p.n_row_tiles);
    const uint32_t together = p.matrix->kernels->unpack != nullptr ? panel_tiles(bound.n_cols) : kMaxRowTiles;
    for (uint32_t at = begin; at < end; at += together) {
      multiply(bound, p, list, at - before, std::min(together, end - at), thread);
    }
    before += p.n_row_tiles;
  }
}

/// Row tiles [row_tile, row_tile + n) of one product. Tiles of an expert are neighbours, its widest first.
void CpuExecutable::multiply(const BoundLinear& bound, const BoundProduct& p, const TileList& list, uint32_t row_tile,
                             uint32_t n, int thread) {
  const ProductKernels& kernels = *p.matrix->kernels;
  const size_t panel_words = cpu::panel_words(bound.n_cols);
  float* acc = scratch(thread);
  int64_t unpacked = -1;  // expert whose row tiles are in the panels
  for (const TokenTile& tile : list.tiles) {
    const PackedTile packed = packed_.tile(tile, bound.n_cols, bound.forms);
    const PlaneView& w = p.matrix->planes[tile.expert].view();
    if (tile.width() == kMaxTokenTile && kernels.unpack != nullptr) {
      for (uint32_t i = 0; i < n && unpacked != tile.expert; i++) {
        kernels.unpack(w, row_tile + i, panel(thread) + i * panel_words);
      }
      unpacked = tile.expert;
      for (uint32_t i = 0; i < n; i++) {
        kernels.panel(w, row_tile + i, panel(thread) + i * panel_words, packed, acc + i * kMaxTokenTile * kRowTile);
      }
    } else {
      kernels.matmul[tile.width_index](w, row_tile, n, packed, acc);
    }
    for (uint32_t i = 0; i < n; i++) {
      for (uint32_t t = 0; t < tile.count; t++) {
        finish(p, tile.expert, row_tile + i, list.rows[tile.begin + t],
               acc + (i * static_cast<uint32_t>(tile.width()) + t) * kRowTile);
      }
    }
  }
}

void CpuExecutable::finish(const BoundProduct& p, uint32_t expert, uint32_t row_tile, uint32_t row, const float* acc) {
  const Product& product = *p.product;
  const uint32_t column = row_tile * kRowTile;
  Epilogue epilogue;
  if (p.scale != nullptr) epilogue.scale = p.scale + size_t{expert} * kRowTile;
  if (p.bias != nullptr) epilogue.bias = p.bias + size_t{expert} * p.bias_stride + column;
  epilogue.multiply = product.multiply;
  if (product.residual != kNoBuf) epilogue.residual = buffer(product.residual).row(row) + column;
  epilogue.softcap = product.softcap;
  kernels_.finish(acc, epilogue, buffer(product.out).row(row) + column);
}

}  // namespace lamina::cpu
