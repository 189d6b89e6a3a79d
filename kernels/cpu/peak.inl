// What the instruction set can compute at best: the words of the product kernels alone, on operands that lie in the
// nearest cache. In: operands and a number of rounds. Out: a number that depends on all of it, so that nothing is left
// out. Included by isa_kernels.inl.

namespace lamina::cpu {
namespace {

/// Four code words meet kChains times 16 activations, as in a matmul: kChains * 256 products a round.
template <int kChains>
float peak_dot(const uint32_t* operands, uint64_t rounds) {
  const auto* x = reinterpret_cast<const int8_t*>(operands);
  I acc[kChains];
  for (I& a : acc) a = set1_int(0);
  for (uint64_t i = 0; i < rounds; i++) {
    W code[4];
    for (uint64_t j = 0; j < 4; j++) code[j] = load_codes(operands + (i + j) % kPeakWords * 16);
    LAMINA_UNROLL
    for (int t = 0; t < kChains; t++) acc[t] = dot16<32>(acc[t], code, x + 16 * t);
  }
  int32_t total = 0;
  for (const I& a : acc) total += sum(a) & 0xffff;
  return static_cast<float>(total);
}

/// The same with fused multiply-adds of float32: kChains * 16 products a round.
template <int kChains>
float peak_fma(const uint32_t* operands, uint64_t rounds) {
  const auto* x = reinterpret_cast<const float*>(operands);
  F acc[kChains];
  for (F& a : acc) a = set1(0);
  for (uint64_t i = 0; i < rounds; i++) {
    const F w = load(x + i % kPeakWords * 16);
    LAMINA_UNROLL
    for (int t = 0; t < kChains; t++) acc[t] = fma(w, set1(x[t]), acc[t]);
  }
  F total = acc[0];
  for (int t = 1; t < kChains; t++) total = total + acc[t];
  float lanes[16];
  store(lanes, total);
  return lanes[0] + lanes[15];
}

}  // namespace
}  // namespace lamina::cpu
