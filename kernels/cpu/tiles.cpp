// Cutting rows into token tiles: see tiles.h.
#include "kernels/cpu/tiles.h"

#include <algorithm>
#include <numeric>

namespace lamina::cpu {

void TileList::reserve(uint32_t n, uint32_t n_expert) {
  rows.reserve(n);
  const uint32_t n_groups = std::min(n, n_expert);
  tiles.reserve(n_groups + n / kMaxTokenTile);
  groups.reserve(n_groups);
  ends_.reserve(n_expert);
}

void TileList::clear() {
  rows.clear();
  tiles.clear();
  groups.clear();
}

void TileList::add_group(uint32_t expert, uint32_t begin, uint32_t end) {
  const auto first = static_cast<uint32_t>(tiles.size());
  uint32_t slot = tiles.empty() ? 0 : tiles.back().slot + static_cast<uint32_t>(tiles.back().width());
  while (begin < end) {
    const uint32_t count = std::min<uint32_t>(end - begin, kMaxTokenTile);
    int index = 0;
    while (static_cast<uint32_t>(kTokenTiles[index]) < count) index++;
    tiles.push_back({expert, begin, count, slot, index});
    begin += count;
    slot += static_cast<uint32_t>(kTokenTiles[index]);
  }
  groups.push_back({first, static_cast<uint32_t>(tiles.size())});
}

void TileList::set_identity(uint32_t n) {
  clear();
  rows.resize(n);
  std::iota(rows.begin(), rows.end(), 0u);
  if (n > 0) add_group(0, 0, n);
}

void TileList::sort_by_expert(std::span<const uint32_t> expert_of_row, uint32_t n_expert) {
  clear();
  rows.resize(expert_of_row.size());
  ends_.assign(n_expert, 0);
  for (const uint32_t expert : expert_of_row) ends_[expert]++;
  std::exclusive_scan(ends_.begin(), ends_.end(), ends_.begin(), 0u);
  for (uint32_t row = 0; row < rows.size(); row++) rows[ends_[expert_of_row[row]]++] = row;
  for (uint32_t expert = 0, begin = 0; expert < n_expert; begin = ends_[expert++])
    if (begin < ends_[expert]) add_group(expert, begin, ends_[expert]);
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

PackedTile PackedRows::tile(const TokenTile& at, uint32_t first_slot, uint32_t n_cols, PackForms forms) const {
  const uint64_t slot = first_slot;
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

PackedTile columns_from(PackedTile tile, uint32_t first) {
  const size_t values = size_t{first} * static_cast<size_t>(tile.width);
  if (tile.q != nullptr) {
    tile.q += values;
    tile.fields += values / kColTile * kPackFields;
  }
  if (tile.floats != nullptr) tile.floats += values;
  if (tile.rounded != nullptr) tile.rounded += values;
  if (tile.pairs != nullptr) tile.pairs += values / 2;
  return tile;
}

}  // namespace lamina::cpu
