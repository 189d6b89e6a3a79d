// Where ops leave their results, for looks inside a step (Executable::trace): `lamina verify` compares these places
// between devices, and a search for the first number that is not finite reads them.
// In: an op of a Program. Out: the places that it writes, their widths and names.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/program.h"

namespace lamina {

/// Something that an op writes, read as rows of float32.
struct Place {
  enum class Kind : uint8_t {
    kBuffer,         ///< [rows of the buffer, width]
    kKeys,           ///< [tokens, n_head_kv * head_dim_k], as stored in the KV pages at the tokens' positions
    kValues,         ///< [tokens, n_head_kv * head_dim_v]
    kExperts,        ///< [tokens, n_expert_used] indices of the chosen experts
    kExpertWeights,  ///< [tokens, n_expert_used]
    kArgmax          ///< [outputs, 1]
  };
  Kind kind = Kind::kBuffer;
  int32_t index = 0;  ///< the buffer's, or the layer's for keys and values
};

/// What `op` writes.
std::vector<Place> places_of(const Op& op);

/// Values of one row of a place.
uint32_t width_of(const Program& program, const Place& place);

/// "x", "keys of layer 3".
std::string name_of(const Program& program, const Place& place);

}  // namespace lamina
