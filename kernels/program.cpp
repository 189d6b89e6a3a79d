// A Program as text. First the buffers, ropes and KV shapes, then one op a line: the buffers it writes, "=", what it
// computes. The text is stable: golden tests compare it.
#include "kernels/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lamina {
namespace {

const char* text(RowSet rows) {
  switch (rows) {
    case RowSet::kTokens: return "tokens";
    case RowSet::kOutputs: return "outputs";
    case RowSet::kPairs: return "pairs";
  }
  return "?";
}

const char* text(Activation activation) {
  switch (activation) {
    case Activation::kSilu: return "silu";
    case Activation::kGelu: return "gelu";
    case Activation::kRelu: return "relu";
    case Activation::kReluSquared: return "relu^2";
  }
  return "?";
}

const char* text(Gating gating) {
  switch (gating) {
    case Gating::kSoftmax: return "softmax";
    case Gating::kSigmoid: return "sigmoid";
    case Gating::kSoftmaxOfChosen: return "softmax of chosen";
  }
  return "?";
}

/// "Q4_K [64, 96, 8 experts] blk.0.ffn_up.weight", with the rows where they are not all of the tensor's.
std::string text(const Weight& w) {
  const std::string experts = w.n_expert > 1 ? fmt::format(", {} experts", w.n_expert) : "";
  std::string result =
      fmt::format("{} {} [{}, {}{}]", w.tensor->name, w.tensor->type->name, w.n_cols, w.n_rows, experts);
  if (uint64_t{w.n_rows} * w.n_expert != w.tensor->n_rows()) result += fmt::format(" from row {}", w.first_row);
  return result;
}

std::string text(const Vector& v) {
  return v.first == 0 ? v.tensor->name : fmt::format("{}[{}..]", v.tensor->name, v.first);
}

std::string text(const Norm& norm, const std::string& in) {
  std::string result = fmt::format("{}({}, {})", norm.kind == NormKind::kRms ? "rms" : "layer", in, norm.eps);
  if (norm.weight) result += " * " + text(norm.weight);
  if (norm.bias) result += " + " + text(norm.bias);
  return result;
}

/// Writes the ops of one program, which it needs for the names of buffers.
class Writer {
 public:
  explicit Writer(const Program& program) : program_(program) {}

  std::string operator()(const EmbedOp& op) const {
    std::string result = fmt::format("embed   {} = {}", name(op.out), text(op.table));
    if (op.scale != 1) result += fmt::format(" * {}", op.scale);
    if (op.positions) result += " + " + text(*op.positions);
    return result;
  }

  std::string operator()(const LinearOp& op) const {
    std::string result = "linear  " + input(op) + ":";
    for (const Product& product : op.products) {
      result += fmt::format("{} {}", &product == op.products.data() ? "" : ";", text_of(product));
    }
    return result;
  }

  std::string operator()(const NormOp& op) const {
    return fmt::format("norm    {} = {}{}", name(op.out), text(op.norm, name(op.in)), plus(op.residual));
  }

  std::string operator()(const AppendOp& op) const {
    std::string result = fmt::format("append  layer {}, {} heads", op.layer, op.n_head);
    if (op.q_norm) result += fmt::format(", {} = {}", name(op.q), text(*op.q_norm, name(op.q)));
    if (op.k_norm) result += fmt::format(", {} = {}", name(op.k), text(*op.k_norm, name(op.k)));
    result += op.rope < 0 ? ", no rope" : fmt::format(", rope {}", op.rope);
    return result + fmt::format(": {} {} {}", name(op.q), name(op.k), name(op.v));
  }

  std::string operator()(const AttendOp& op) const {
    std::string result = fmt::format("attend  {} = attend({}), layer {}, {} heads, scale {}", name(op.out), name(op.q),
                                     op.layer, op.n_head, op.scale);
    if (op.softcap != 0) result += fmt::format(", softcap {}", op.softcap);
    if (op.window != 0) result += fmt::format(", window {}", op.window);
    if (op.temperature.scale != 0) {
      result += fmt::format(", temperature {:.6g} every {} positions", op.temperature.scale, op.temperature.length);
    }
    return result;
  }

  std::string operator()(const RouteOp& op) const {
    std::string result =
        fmt::format("route   {} of {} experts by {}({})", op.n_used, op.n_expert, text(op.gating), name(op.logits));
    if (op.normalize) result += ", normalised";
    if (op.scale != 1) result += fmt::format(" * {}", op.scale);
    return result;
  }

  std::string operator()(const CombineOp& op) const {
    return fmt::format("combine {} = sum of {} weighted {}{}", name(op.out), op.n_used, name(op.in), plus(op.residual));
  }

  std::string operator()(const SelectOp& op) const { return fmt::format("select  {} = {}", name(op.out), name(op.in)); }

  std::string operator()(const ArgmaxOp& op) const { return fmt::format("argmax  {}", name(op.logits)); }

 private:
  const std::string& name(Buf buf) const { return program_.buffers.at(static_cast<size_t>(buf)).name; }
  std::string plus(Buf buf) const { return buf == kNoBuf ? "" : " + " + name(buf); }

  std::string input(const LinearOp& op) const {
    std::string result = op.norm ? text(*op.norm, name(op.in)) : name(op.in);
    if (!op.activation) return result;
    if (op.gate == kNoBuf) return fmt::format("{}({})", text(*op.activation), result);
    return fmt::format("{}({}) * {}", text(*op.activation), name(op.gate), result);
  }

  std::string text_of(const Product& p) const {
    std::string result = fmt::format("{} = {}", name(p.out), text(p.weight));
    if (p.scale) result += " * " + text(p.scale);
    if (p.bias) result += " + " + text(p.bias);
    if (p.multiply != 1) result += fmt::format(", * {}", p.multiply);
    result += plus(p.residual);
    if (p.softcap != 0) result += fmt::format(", softcap {}", p.softcap);
    return result;
  }

  const Program& program_;
};

/// Runs of equal neighbours: "layers 0-29: 3 heads, key 64, value 64".
std::string kv_text(const std::vector<KvShape>& kv) {
  const auto line = [](const KvShape& s) {
    return fmt::format("{} heads, key {}, value {}", s.n_head_kv, s.head_dim_k, s.head_dim_v);
  };
  std::string result;
  for (size_t first = 0, end = 0; first < kv.size(); first = end) {
    while (end < kv.size() && line(kv[end]) == line(kv[first])) ++end;
    result += fmt::format("kv layers {}-{}: {}\n", first, end - 1, line(kv[first]));
  }
  return result;
}

std::string rope_text(const Rope& rope) {
  const char* pairs = rope.pairs == RopePairs::kAdjacent ? "adjacent" : "halves";
  return fmt::format("{} pairs, {} dimensions, magnitude {:.6g}, frequencies {:.6g} .. {:.6g}", pairs, rope.n_rot(),
                     rope.magnitude, rope.inv_freq.front(), rope.inv_freq.back());
}

}  // namespace

std::string to_text(const Program& program) {
  std::string result;
  for (const Buffer& b : program.buffers) result += fmt::format("buffer {} [{}, {}]\n", b.name, text(b.rows), b.width);
  for (size_t i = 0; i < program.ropes.size(); ++i)
    result += fmt::format("rope {}: {}\n", i, rope_text(program.ropes[i]));
  result += kv_text(program.kv);
  for (const Op& op : program.ops) result += to_text(program, op) + "\n";
  return result;
}

std::string to_text(const Program& program, const Op& op) { return std::visit(Writer(program), op); }

}  // namespace lamina
