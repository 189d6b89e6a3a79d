// What a kernel is told by value at each launch: the same structs in C++ and in kernel text, of 32-bit fields only.
// Strides and offsets count elements unless said otherwise; kNone means absent. `step` is the buffer that holds what
// changes from step to step (tokens, positions, page tables); fields named *_at index into it.
#ifdef LAMINA_KERNEL_TEXT
#else
#pragma once
#include <cstdint>
namespace lamina::launch {
using uint = uint32_t;
#endif

#define LAMINA_NONE 0xffffffffu

// clang-format off
/// Where the planes of a matrix stand in its buffer, in units of 64 bytes (see planes.h). Float types: all in `lo`.
typedef struct {
  uint lo, hi, scale, min, d, dmin;
  uint expert_stride;    ///< from one expert's planes to the next one's, 64-byte units
  uint n_row_tiles, n_cols;
} PlaneArgs;

/// kind: 0 none, 1 RMS, 2 LayerNorm. weight and bias: offsets into `vectors` or kNone, repeated every n_weight values.
typedef struct {
  uint kind;
  float eps;
  uint weight, bias, n_weight;
} NormArgs;

/// out[row] = table[index[row]] * scale, or with `add` out[row] + table[index[row]]; only for indices in [first_row,
/// first_row + n_table_rows), which the planes hold.
typedef struct {
  PlaneArgs planes;
  uint n_rows, width, stride;
  uint index_at, first_row, n_table_rows, add;
  float scale;
} EmbedArgs;

/// Input of a product: norm(in), act(gate) * in, act(in) or in, n_cols of each row. activation: 0 none, 1 SiLU, 2
/// GELU, 3 ReLU, 4 ReLU squared.
typedef struct {
  uint n_rows, n_cols, in_stride;
  NormArgs norm;
  uint activation, has_gate, gate_stride;
} PackArgs;

/// One product of a launch: out[row][first_row + r] for the rows r of its planes, through the epilogue of
/// program.h's Product. Experts: the matrix of output row i is chosen[i], skipped outside of [first_expert,
/// first_expert + n_expert).
typedef struct {
  PlaneArgs planes;
  uint first_row, n_out;      ///< of the planes' rows: where they go, and how many there are without padding
  uint out_stride;
  uint scale, bias;           ///< offsets into `vectors` or kNone, of expert 0
  uint scale_stride, bias_stride;  ///< from expert to expert
  float multiply, softcap;
  uint has_residual, residual_stride;
} ProductArgs;

#define LAMINA_MOST_PRODUCTS 3
/// Forms of a packed row. Quant: for each 32 columns LAMINA_BLOCK_WORDS words: 16 of codes in the device's form, then as
/// floats a, sum(q), xs and for the two halves of 16 columns sum(q) lo and hi, xs lo and hi. Float: a float a column,
/// padded to 16. Bf16: the same, rounded to bf16.
#define LAMINA_FORM_QUANT 0
#define LAMINA_FORM_FLOAT 1
#define LAMINA_FORM_BF16 2
#define LAMINA_BLOCK_WORDS 24
#define LAMINA_PACKED_WORDS(form, n_cols) \
  ((form) == LAMINA_FORM_QUANT ? (n_cols) / 32 * LAMINA_BLOCK_WORDS : ((n_cols) + 15) / 16 * 16)
/// Products of one type that share an input. Row i of the outputs reads packed row i / rows_per_input.
typedef struct {
  uint n_products, n_rows, n_cols;
  uint rows_per_input;
  uint experts, first_expert, n_expert;  ///< experts: 0 or 1
  ProductArgs product[LAMINA_MOST_PRODUCTS];
} LinearArgs;

/// out = norm(in) (+ residual).
typedef struct {
  uint n_rows, width, in_stride, residual_stride, out_stride, has_residual;
  NormArgs norm;
} NormOpArgs;

#define LAMINA_PAGE 64            ///< positions of a KV page
#define LAMINA_SPLIT 512          ///< positions that are attended to one page after the other
#define LAMINA_MOST_HEAD_DIM 576  ///< what a work-group has local memory for
/// Heads of queries, and of keys and values. pages_at: [rows], indices into `step` of the rows' page tables.
typedef struct {
  uint n_head, n_head_kv, head_dim_k, head_dim_v;
  uint position_at, pages_at;
} HeadArgs;

/// Rotations: `rotations` [position][2][n_pairs], cosines then sines.
typedef struct {
  uint n_rows;
  HeadArgs heads;
  uint q_stride, k_stride, v_stride;
  NormArgs q_norm, k_norm;
  uint n_pairs, halves;        ///< n_pairs 0: no rotation
  uint has_k;
} AppendArgs;

/// Most query heads of one KV head that a work-group attends with together: HEADS of attend.cl.
#define LAMINA_HEADS_TOGETHER 4
/// Floats of a part of attention: sums of a head's values, padded, then maximum and denominator.
#define LAMINA_PART_FLOATS(head_dim_v) (((head_dim_v) + 31) / 16 * 16)
/// Row i of a launch is row first_row + i of the step. temperature: offset into `vectors` of the scale of the scores by
/// position, or kNone: `scale`.
typedef struct {
  uint n_rows, first_row;
  HeadArgs heads;
  uint q_stride, out_stride;
  float scale, softcap;
  uint window, temperature;
  uint n_splits;               ///< of the longest row; 1: no merge follows
} AttendArgs;

#define LAMINA_MOST_EXPERTS 1024  ///< what a work-group has local memory for
/// gating: 0 softmax, 1 sigmoid, 2 softmax of the chosen.
typedef struct {
  uint n_rows, n_expert, n_used, stride, gating, normalize;
  float scale;
} RouteArgs;

typedef struct {
  uint n_rows, n_used, width, in_stride, residual_stride, out_stride, has_residual;
} CombineArgs;

typedef struct {
  uint n_rows, width, in_stride, out_stride, outputs_at;
} SelectArgs;

/// n_parts: candidates of each row that the second stage merges.
typedef struct {
  uint n_rows, width, stride, n_parts;
} ArgmaxArgs;
// clang-format on

#ifndef LAMINA_KERNEL_TEXT
}  // namespace lamina::launch
#endif
