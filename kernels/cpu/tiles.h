// How the rows of a step are cut into token tiles, and the packed activations of all tiles.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/memory.h"

namespace lamina::cpu {

/// Up to kMaxTokenTile rows that share one pass over the weights of one expert.
struct TokenTile {
  uint32_t expert = 0;
  uint32_t begin = 0;  ///< index of its first row in TileList::rows
  uint32_t count = 0;
  uint32_t slot = 0;    ///< packed tokens before it, padding included
  int width_index = 0;  ///< into kTokenTiles
  int width() const { return kTokenTiles[width_index]; }
};

/// Row tiles whose panels are unpacked together, to share each reading of the activations, and stay in a near cache.
constexpr size_t panel_words(uint32_t n_cols) { return size_t{n_cols} / 4 * kRowTile; }
constexpr uint32_t panel_tiles(uint32_t n_cols) {
  constexpr size_t kNearCache = size_t{512} << 10;
  const size_t fit = kNearCache / (panel_words(n_cols) * sizeof(uint32_t));
  return fit >= kMaxRowTiles ? kMaxRowTiles : fit > 1 ? static_cast<uint32_t>(fit) : 1;
}

/// The tiles [begin, end) of one expert that has any.
struct TileGroup {
  uint32_t begin, end;
};

/// Row numbers in tile order, and the tiles. Makes no allocation for up to as many rows as it has held.
struct TileList {
  std::vector<uint32_t> rows;
  std::vector<TokenTile> tiles;
  std::vector<TileGroup> groups;

  /// Room for n rows of up to n_expert experts.
  void reserve(uint32_t n, uint32_t n_expert);
  /// Rows 0 .. n - 1 in order, all of one expert.
  void set_identity(uint32_t n);
  /// Rows 0 .. n - 1 ordered by expert; expert_of_row[n].
  void sort_by_expert(std::span<const uint32_t> expert_of_row, uint32_t n_expert);

 private:
  void clear();
  void add_group(uint32_t expert, uint32_t begin, uint32_t end);
  std::vector<uint32_t> ends_;  ///< of each expert's rows
};

/// Memory for the packed activations of one linear op at a time, in the forms that its weights want.
class PackedRows {
 public:
  /// Packed tokens that n rows take at most, padding included, when they fall into tiles of `n_experts` kinds.
  static uint64_t slots(uint32_t n_rows, bool experts);

  /// Room for `slots` tokens of n_cols in these forms.
  void reserve(uint64_t slots, uint32_t n_cols, PackForms forms);
  void allocate();

  /// The tile whose first token is packed in `slot`.
  PackedTile tile(const TokenTile& at, uint32_t slot, uint32_t n_cols, PackForms forms) const;
  uint64_t bytes() const { return q_.bytes() + fields_.bytes() + floats_.bytes() + rounded_.bytes() + pairs_.bytes(); }

 private:
  uint64_t q_bytes_ = 0, field_bytes_ = 0, float_bytes_ = 0, rounded_bytes_ = 0, pair_bytes_ = 0;
  Memory q_, fields_, floats_, rounded_, pairs_;
};

/// The columns of a packed tile from `first` on, a multiple of 32.
PackedTile columns_from(PackedTile tile, uint32_t first);

}  // namespace lamina::cpu
