// A model as a program: a flat list of fused ops with all shapes, weights and buffers bound. model/ emits it, a Device
// compiles and runs it. An op ends where every thread must see its result.
//
// Activations live in numbered buffers [rows, width] of float32. What a row stands for is the buffer's RowSet.
// Positions, sequences and page tables are not in the program but in each Step (device.h), so the list never changes.
// A residual may be the op's own output, never its input: x += f(y) reads each element of x before it writes it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gguf/file.h"

namespace lamina {

/// Index into Program::buffers.
using Buf = int32_t;
constexpr Buf kNoBuf = -1;

/// What the rows of a buffer stand for.
enum class RowSet : uint8_t {
  kTokens,   ///< one row a token of the step
  kOutputs,  ///< one row a token whose logits are asked for
  kPairs     ///< one row a (token, chosen expert) pair: row token * n_expert_used + slot, experts ascending
};

struct Buffer {
  std::string name;
  uint32_t width = 0;
  RowSet rows = RowSet::kTokens;
};

/// Rows [first_row, first_row + n_rows) of a matrix tensor [n_cols, all rows], for each of n_expert matrices side by
/// side.
struct Weight {
  const gguf::Tensor* tensor = nullptr;
  uint32_t first_row = 0;
  uint32_t n_rows = 0;
  uint32_t n_cols = 0;
  uint32_t n_expert = 1;
};

/// Elements [first, first + n) of a small tensor, used as float32. For experts: n a matrix, n_expert of them.
struct Vector {
  const gguf::Tensor* tensor = nullptr;  ///< nullptr: absent
  uint32_t first = 0;
  uint32_t n = 0;
  explicit operator bool() const { return tensor != nullptr; }
};

enum class NormKind : uint8_t { kRms, kLayer };

/// RMS: y = (x * 1/sqrt(mean(x^2) + eps)) * weight. Layer: y = ((x - mean) * 1/sqrt(var + eps)) * weight + bias.
struct Norm {
  NormKind kind = NormKind::kRms;
  float eps = 0;
  Vector weight = {};  ///< absent: 1
  Vector bias = {};    ///< absent: 0
};

enum class Activation : uint8_t { kSilu, kGelu, kRelu, kReluSquared };  ///< kGelu: the tanh form

/// token_embd rows (times scale), plus learned position rows.
struct EmbedOp {
  Weight table;
  float scale = 1;
  std::optional<Weight> positions = {};  ///< [n_embd, n_ctx]
  Buf out = kNoBuf;
};

/// One matrix product of a LinearOp: out = softcap((W x * scale + bias) * multiply + residual); one rounding each,
/// absent parts skipped. softcap(y) = c * tanh(y / c).
struct Product {
  Weight weight;
  Vector scale = {};  ///< 1 element (per expert: n_expert), the tensor NAME.scale
  Vector bias = {};   ///< n_rows (per expert: n_expert * n_rows)
  float multiply = 1;
  Buf residual = kNoBuf;
  float softcap = 0;
  Buf out = kNoBuf;
};

/// Products that share one input. The input is `in`, or norm(in), or act(gate) * in, or act(in) without a gate; it is
/// brought into the form that the weights want (int8, bf16, f32) once.
struct LinearOp {
  Buf in = kNoBuf;
  std::optional<Norm> norm = {};
  std::optional<Activation> activation = {};
  Buf gate = kNoBuf;
  std::vector<Product> products = {};
};

/// out = norm(in) + residual: the norm behind a sub-layer.
struct NormOp {
  Buf in = kNoBuf;
  Norm norm;
  Buf residual = kNoBuf;
  Buf out = kNoBuf;
};

/// Normalises and rotates q (in place) and k, then appends k and v of each row to the KV pages as float16.
struct AppendOp {
  uint32_t layer = 0;  ///< index into Program::kv
  Buf q = kNoBuf, k = kNoBuf, v = kNoBuf;
  uint32_t n_head = 0;
  std::optional<Norm> q_norm = {}, k_norm = {};  ///< over each head
  int32_t rope = -1;                             ///< index into Program::ropes; -1: none
};

/// Scores grow with the position of the query: by 1 + scale * ln(1 + floor(pos / length)), computed in double. Scale 0:
/// they do not.
struct Temperature {
  double scale = 0;
  uint32_t length = 1;
};

/// out = softmax(softcap(q k^T * scale * temperature) + causal mask) v; scale * temperature is rounded once. Query head
/// h reads KV head h / (n_head / n_head_kv).
struct AttendOp {
  uint32_t layer = 0;
  Buf q = kNoBuf, out = kNoBuf;
  uint32_t n_head = 0;
  float scale = 1;
  float softcap = 0;    ///< 0: none
  uint32_t window = 0;  ///< hides keys with pos_q - pos_k >= window; 0: none
  Temperature temperature = {};
};

enum class Gating : uint8_t { kSoftmax, kSigmoid, kSoftmaxOfChosen };

/// Chooses n_used experts a token from router logits [n_expert]: the highest probabilities, ties to the lowest index.
/// The choice holds until the next RouteOp.
struct RouteOp {
  Buf logits = kNoBuf;
  uint32_t n_expert = 0, n_used = 0;
  Gating gating = Gating::kSoftmax;
  bool normalize = true;  ///< divide the chosen weights by their sum
  float scale = 1;        ///< of the weights
};

/// y = fma(w_e, in_e, y) from 0 over the chosen experts, ascending; out = y + residual.
struct CombineOp {
  Buf in = kNoBuf;  ///< RowSet::kPairs
  uint32_t n_used = 0;
  Buf residual = kNoBuf;
  Buf out = kNoBuf;
};

/// out = rows of `in` whose logits are asked for (RowSet::kTokens to kOutputs).
struct SelectOp {
  Buf in = kNoBuf, out = kNoBuf;
};

/// Index of the highest logit of each output row; ties to the lowest index.
struct ArgmaxOp {
  Buf logits = kNoBuf;
};

using Op = std::variant<EmbedOp, LinearOp, NormOp, AppendOp, AttendOp, RouteOp, CombineOp, SelectOp, ArgmaxOp>;

/// Which dimensions form a rotated pair: (2i, 2i + 1) or (i, i + n_rot / 2).
enum class RopePairs : uint8_t { kAdjacent, kHalves };

/// Angle of pair i at position p is p * inv_freq[i], in double; cos and sin are multiplied by magnitude, then rounded
/// once.
struct Rope {
  RopePairs pairs = RopePairs::kAdjacent;
  std::vector<double> inv_freq;  ///< [n_rot / 2], all scaling (linear, YaRN, factors) folded in
  double magnitude = 1;
  uint32_t n_rot() const { return static_cast<uint32_t>(2 * inv_freq.size()); }
};

/// Shape of one layer's keys and values.
struct KvShape {
  uint32_t n_head_kv = 0;
  uint32_t head_dim_k = 0, head_dim_v = 0;
};

struct Program {
  std::vector<Buffer> buffers;
  std::vector<Rope> ropes;
  std::vector<KvShape> kv;  ///< a layer each
  std::vector<Op> ops;
  uint32_t n_vocab = 0;
  uint32_t n_expert_used = 1;  ///< rows a token in kPairs buffers
  Buf logits = kNoBuf;         ///< [outputs, n_vocab]
};

/// The program as text, one op a line: what `lamina inspect --program` prints and golden tests compare.
std::string to_text(const Program& program);

/// The line of one op.
std::string to_text(const Program& program, const Op& op);

}  // namespace lamina
