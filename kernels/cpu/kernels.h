// The CPU kernels of one instruction set, as a table of functions. The same text (matmul.inl, rows.inl, attention.inl)
// is compiled once per instruction set over a small vocabulary of 16-lane words (words_*.h); this header is all that
// the device and the kernels share, and holds plain data only: a file compiled for an instruction set shares no inline
// functions with others.
#pragma once
#include <cstddef>
#include <cstdint>

#include "gguf/type_table.h"
#include "kernels/planes.h"

namespace lamina::cpu {

constexpr int kMaxTokenTile = 12;  ///< tokens that share one pass over the weights
constexpr int kMaxRowTiles = 4;    ///< row tiles of one matmul call
constexpr uint32_t kSplitPositions = 512;

/// Widths of token tiles that kernels exist for; a tile of n tokens is padded to the next.
constexpr int kTokenTiles[] = {1, 2, 4, 8, 12};
constexpr int kWidthCount = 5;
constexpr size_t kFormCount = gguf::kForms.size();

/// Per 32 columns and token, float32: what a quantised product needs beside the int8 codes q.
enum PackField {
  kPackA,      ///< a: x = a * q
  kPackSum,    ///< sum of q, exact
  kPackXs,     ///< a * sum
  kPackSumLo,  ///< sums and a * sum of columns 0..15 and 16..31
  kPackSumHi,
  kPackXsLo,
  kPackXsHi,
  kPackFields
};

/// The forms of activations that the kernels of an op's weights read.
struct PackForms {
  bool quant = false, floats = false, rounded = false, pairs = false;
};

/// Activations of one token tile of `width` tokens, in the forms that kernels read; absent forms are nullptr.
struct PackedTile {
  int8_t* q = nullptr;        ///< [n_cols / 32][width][32]
  float* fields = nullptr;    ///< [n_cols / 32][kPackFields][width], 64 bytes more are readable
  float* floats = nullptr;    ///< [n_cols][width]
  float* rounded = nullptr;   ///< [n_cols, made even with 0][width] rounded to bf16
  uint32_t* pairs = nullptr;  ///< [(n_cols + 1) / 2][width] bf16 pairs, even column low
  int width = 1;
};

/// out[n_tiles][width][16] = rows of row tiles [first_tile, first_tile + n_tiles) times the packed tokens.
using MatmulFn = void (*)(const PlaneView& w, uint32_t first_tile, uint32_t n_tiles, const PackedTile& x, float* out);

/// Codes of one row tile as bytes: panel [n_col_tiles][8][16] u32, 64-byte aligned.
using UnpackFn = void (*)(const PlaneView& w, uint32_t row_tile, uint32_t* panel);
/// out[kMaxTokenTile][16] = that row tile times a token tile of kMaxTokenTile.
using PanelFn = void (*)(const PlaneView& w, uint32_t row_tile, const uint32_t* panel, const PackedTile& x, float* out);

/// The product kernels of one kind of weight. Quantised weights meet the widest token tiles by way of a panel.
struct ProductKernels {
  MatmulFn matmul[kWidthCount] = {};  ///< by token tile width, index into kTokenTiles
  UnpackFn unpack = nullptr;          ///< nullptr: matmul does all widths
  PanelFn panel = nullptr;
};

/// What happens to 16 rows of a product before they are stored; absent parts are nullptr or neutral (see Product).
struct Epilogue {
  const float* scale = nullptr;  ///< one number
  const float* bias = nullptr;   ///< 16 rows
  float multiply = 1;
  const float* residual = nullptr;  ///< 16 rows of this token
  float softcap = 0;
};

/// A norm over n values.
struct NormArgs {
  bool layer = false;  ///< LayerNorm, else RMS
  float eps = 0;
  const float* weight = nullptr;  ///< [n] or nullptr
  const float* bias = nullptr;    ///< [n] or nullptr
  uint32_t n_weight = 0;          ///< over heads: values in weight and bias, one head's or all heads'
};

enum class Gate : uint8_t { kSilu, kGelu, kRelu, kReluSquared };

constexpr uint32_t kPage = 64;         ///< positions in a KV page
constexpr uint32_t kKvGroup = 32;      ///< dimensions that share a scale in q8_0 pages
constexpr uint32_t kMostQueries = 64;  ///< of one AttendArgs

/// One query head of one row.
struct AttendQuery {
  const float* q;        ///< [head_dim_k]
  float scale;           ///< of its scores
  uint32_t first, last;  ///< visible positions [first, last)
};

/// Softmax attention of some queries over one KV head's pages.
struct AttendArgs {
  const AttendQuery* queries;
  uint32_t n_queries;
  const std::byte *k_pages, *v_pages;   ///< page p of the head at p * stride
  size_t k_page_stride, v_page_stride;  ///< bytes
  const uint32_t* page_table;           ///< of the sequence
  uint32_t head_dim_k, head_dim_v;
  float softcap;
};

/// Floats of a part: what a query has gathered from some positions. [head_dim_v, padded to 16] weighted values, then
/// the highest score and the sum of weights.
constexpr size_t part_stride(uint32_t head_dim_v) { return (size_t{head_dim_v} + 15) / 16 * 16 + 16; }

/// parts[n_queries][part_stride] = attention over the positions of split `split`.
using AttendFn = void (*)(const AttendArgs& args, uint32_t split, float* parts);

/// Products as fast as they go, for the roofs of `lamina ops`: `rounds` rounds of `chains` independent words. The
/// result means nothing.
struct PeakKernel {
  int chains;
  float (*run)(const uint32_t* operands, uint64_t rounds);  ///< operands [kPeakWords][16], 64-byte aligned
};
constexpr uint64_t kPeakWords = 64;
constexpr int kPeakCount = 2;  ///< few chains for few registers, many for long latencies

struct Kernels {
  const char* isa;

  ProductKernels quant[kFormCount];  ///< by plane form, index into gguf::kForms
  ProductKernels f32, f16, bf16;
  bool bf16_pairs;  ///< bf16 reads PackedTile::pairs, else PackedTile::rounded

  /// Stores 16 rows of a product through its epilogue.
  void (*finish)(const float* acc, const Epilogue& epilogue, float* out);

  /// Packs x[n] as token `t` of a tile, in every form that the tile has.
  void (*pack)(const float* x, uint32_t n, const PackedTile& tile, int t);

  /// y = norm(x) (+ residual). x and y may be the same.
  void (*norm)(const float* x, uint32_t n, const NormArgs& args, const float* residual, float* y);

  /// y = act(z) * u, or act(z) when u is nullptr.
  void (*gate)(Gate act, const float* z, const float* u, uint32_t n, float* y);

  /// Rotates x[2 * n_pairs ..] in place; halves: pair (i, i + n_pairs), else (2i, 2i + 1). cos, sin: [n_pairs].
  void (*rotate)(float* x, uint32_t n_pairs, bool halves, const float* cosines, const float* sines);

  /// f16 (round to nearest even) of x[n] at out[i * stride].
  void (*store_f16)(const float* x, uint32_t n, uint16_t* out, size_t stride);
  /// The same as codes at codes[i * stride] and scales at scales[i / 32 * scale_stride].
  void (*store_q8)(const float* x, uint32_t n, uint8_t* codes, size_t stride, uint16_t* scales, size_t scale_stride);

  /// f16 or q8_0 pages.
  AttendFn attend_f16, attend_q8;
  /// Adds the part of a split to those before it. total of nothing: zeros, with -inf as highest score.
  void (*merge_part)(const float* part, uint32_t head_dim_v, float* total);
  void (*finish_attend)(const float* total, uint32_t head_dim_v, float* out);

  /// p = softmax(x) over n values, or sigmoid of each.
  void (*softmax)(const float* x, uint32_t n, float* p);
  void (*sigmoid)(const float* x, uint32_t n, float* p);

  /// y = fma(w, x, y)
  void (*axpy)(float w, const float* x, uint32_t n, float* y);
  /// y = x * s; y = x + z
  void (*scale)(const float* x, float s, uint32_t n, float* y);
  void (*add)(const float* x, const float* z, uint32_t n, float* y);

  /// Sum in the promised order: 16 lanes i mod 16, then the tree.
  float (*sum)(const float* x, uint32_t n);

  PeakKernel peak_dot[kPeakCount];  ///< 256 products of int8 a chain and round
  PeakKernel peak_fma[kPeakCount];  ///< 16 products of float32 a chain and round
};

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvxVnniKernels;
extern const Kernels kAvx512Kernels;
extern const ProductKernels kAvx512Bf16;  ///< for kAvx512Kernels.bf16 where the CPU has AVX512_BF16; reads pairs

}  // namespace lamina::cpu
