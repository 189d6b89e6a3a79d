// Which ops are measured. In: a program, or a type of weights. Out: programs to take ops from, the distinct ops of a
// program and what to call them.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "engine/synthetic_weights.h"
#include "kernels/program.h"

namespace lamina {

/// The ops of one layer of TinyLlama-1.1B, with its embedding and its output, all matrices of `type`; and a norm that
/// stands alone, as behind a sub-layer of Gemma. The tensors, added to `weights`, need no bytes.
Program llama_1b_layer(const gguf::Type& type, SyntheticWeights& weights);

/// One product y = W x with W of `type`, 4096 rows of 2048, and nothing else. The tensor needs no bytes.
Program one_product(const gguf::Type& type, SyntheticWeights& weights);

/// The same program with every norm in front of a linear op as an op of its own.
Program with_separate_norms(const Program& program);

/// The first of each group of ops that differ in nothing but names and layers.
std::vector<size_t> distinct_ops(const Program& program);

/// Copies of an op with tensors of their own: calls `replace` for each tensor and takes what it returns.
Op with_tensors(Op op, const std::function<const gguf::Tensor*(const gguf::Tensor&)>& replace);

/// What an op is, in a few words.
struct OpLabel {
  std::string name;   ///< "linear norm attn_q attn_k attn_v"
  std::string shape;  ///< "2048 x 2560"
  std::string types;  ///< "Q4_K", "Q4_K Q6_K"; empty without weights
};
OpLabel label_of(const Program& program, const Op& op);

}  // namespace lamina
