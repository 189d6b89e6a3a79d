// Cutting rows into token tiles: see tiles.h.
#include "kernels/cpu/tiles.h"

#include <algorithm>
#include <numeric>

namespace lamina::cpu {

void TileList::clear() {
  rows.clear();
  tiles.clear();
}

void TileList::add_tiles(uint32_t expert, uint32_t begin) {
  uint32_t slot = tiles.empty() ? 0 : tiles.back().slot + static_cast<uint32_t>(tiles.back().width());
  for (auto left = static_cast<uint32_t>(rows.size()) - begin; left > 0;) {
    const uint32_t count = std::min<uint32_t>(left, kMaxTokenTile);
    int index = 0;
    while (static_cast<uint32_t>(kTokenTiles[index]) < count) index++;
    tiles.push_back({expert, begin, count, slot, index});
    begin += count;
    left -= count;
    slot += static_cast<uint32_t>(kTokenTiles[index]);
  }
}

void TileList::set_identity(uint32_t n) {
  clear();
  rows.resize(n);
  std::iota(rows.begin(), rows.end(), 0u);
  add_tiles(0, 0);
}

uint64_t PackedRows::slots(uint32_t n_rows, bool experts) {
  // A lone tile is padded by less than kMaxTokenTile; any tile at most doubles (3 to 4, 5 to 8).
  return experts ? 2 * uint64_t{n_rows} : uint64_t{n_rows} + kMaxTokenTile;
}

void PackedRows::reserve(uint64_t slots, uint32_t n_cols, PackForms forms) {
  if (forms.quant) {
    q_bytes_ = std::max(q_bytes_, slots * n_cols);
    field_bytes_ = std::max(field_bytes_, slots * (n_cols / kColTile) * kPackFields * sizeof(float));
  }
  if (forms.floats) float_bytes_ = std::max(float_bytes_, slots * n_cols * sizeof(float));
  const uint64_t n_even = (uint64_t{n_cols} + 1) / 2 * 2;
  if (forms.rounded) rounded_bytes_ = std::max(rounded_bytes_, slots * n_even * sizeof(float));
  if (forms.pairs) pair_bytes_ = std::max(pair_bytes_, slots * n_even / 2 * sizeof(uint32_t));
}

void PackedRows::allocate() {
  q_ = Memory(q_bytes_, "activations");
  fields_ = Memory(field_bytes_ + 64, "activations");  // see PackedTile::fields
  floats_ = Memory(float_bytes_, "activations");
  rounded_ = Memory(rounded_bytes_, "activations");
  pairs_ = Memory(pair_bytes_, "activations");
}

PackedTile PackedRows::tile(const TokenTile& at, uint32_t n_cols, PackForms forms) const {
  const uint64_t slot = at.slot;
  PackedTile tile;
  tile.width = at.width();
  if (forms.quant) {
    tile.q = q_.as<int8_t>() + slot * n_cols;
    tile.fields = fields_.as<float>() + slot * (n_cols / kColTile) * kPackFields;
  }
  if (forms.floats) tile.floats = floats_.as<float>() + slot * n_cols;
  const uint64_t n_even = (uint64_t{n_cols} + 1) / 2 * 2;
  if (forms.rounded) tile.rounded = rounded_.as<float>() + slot * n_even;
  if (forms.pairs) tile.pairs = pairs_.as<uint32_t>() + slot * (n_even / 2);
  return tile;
}

}  // namespace lamina::cpu
