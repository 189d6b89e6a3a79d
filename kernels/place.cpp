// The places that ops write: see place.h.
#include "kernels/place.h"

#include <fmt/format.h>

namespace lamina {
namespace {

using Kind = Place::Kind;

struct Written {
  std::vector<Place> operator()(const LinearOp& op) const {
    std::vector<Place> places;
    for (const Product& product : op.products) places.push_back({Kind::kBuffer, product.out});
    return places;
  }
  /// q is turned in place; what becomes of the buffers k and v is the device's affair.
  std::vector<Place> operator()(const AppendOp& op) const {
    const auto layer = static_cast<int32_t>(op.layer);
    std::vector<Place> places = {{Kind::kBuffer, op.q}};
    if (op.k != kNoBuf) places.insert(places.end(), {{Kind::kKeys, layer}, {Kind::kValues, layer}});
    return places;
  }
  std::vector<Place> operator()(const RouteOp&) const { return {{Kind::kExperts}, {Kind::kExpertWeights}}; }
  std::vector<Place> operator()(const ArgmaxOp&) const { return {{Kind::kArgmax}}; }
  template <class OneBufferOp>
  std::vector<Place> operator()(const OneBufferOp& op) const {
    return {{Kind::kBuffer, op.out}};
  }
};

}  // namespace

std::vector<Place> places_of(const Op& op) { return std::visit(Written(), op); }

uint32_t width_of(const Program& program, const Place& place) {
  const auto index = static_cast<size_t>(place.index);
  switch (place.kind) {
    case Kind::kBuffer: return program.buffers[index].width;
    case Kind::kKeys: return program.kv[index].n_head_kv * program.kv[index].head_dim_k;
    case Kind::kValues: return program.kv[index].n_head_kv * program.kv[index].head_dim_v;
    case Kind::kExperts:
    case Kind::kExpertWeights: return program.n_expert_used;
    case Kind::kArgmax: return 1;
  }
  return 0;
}

std::string name_of(const Program& program, const Place& place) {
  switch (place.kind) {
    case Kind::kBuffer: return program.buffers[static_cast<size_t>(place.index)].name;
    case Kind::kKeys: return fmt::format("keys of layer {}", place.index);
    case Kind::kValues: return fmt::format("values of layer {}", place.index);
    case Kind::kExperts: return "chosen experts";
    case Kind::kExpertWeights: return "weights of the chosen experts";
    case Kind::kArgmax: return "argmax";
  }
  return "";
}

}  // namespace lamina
