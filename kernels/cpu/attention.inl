// Softmax attention of one query head over its visible positions, page by page with a running maximum (Milakov and
// Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135). Pages are merged inside splits of 512 absolute positions, splits
// in ascending order, so that the bits do not depend on how the work was cut.

namespace lamina::cpu {
namespace {

constexpr uint32_t kPage = 64;
constexpr uint32_t kPageLanes = kPage / 16;

/// Scores of a page's 64 positions, -inf where not in [lo, hi). K is [head_dim][64]: lane = position.
LAMINA_WORD void page_scores(const AttendArgs& args, const uint16_t* k, uint32_t lo, uint32_t hi, F (&s)[kPageLanes]) {
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kPageLanes; i++) s[i] = set1(0.0f);
  for (uint32_t d = 0; d < args.head_dim_k; d++) {
    const F q = set1(args.q[d]);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < kPageLanes; i++) s[i] = fma(load_f16(k + d * kPage + 16 * i), q, s[i]);
  }
  float first[16];
  for (int i = 0; i < 16; i++) first[i] = static_cast<float>(i);
  const F hidden = set1(-__builtin_inff());
#pragma GCC unroll 4
  for (uint32_t i = 0; i < kPageLanes; i++) {
    F v = s[i] * set1(args.scale);
    if (args.softcap != 0.0f) v = softcap(v, args.softcap);
    const F at = load(first) + set1(static_cast<float>(16 * i));
    v = select_less(at, set1(static_cast<float>(lo)), hidden, v);
    s[i] = select_less(at, set1(static_cast<float>(hi)), v, hidden);
  }
}

/// o = o * shrink, then o += p[i] * v[i] over positions [lo, hi), for kLanes * 16 dimensions. V is [64][head_dim].
template <int kLanes>
LAMINA_WORD void add_values(const float* p, const uint16_t* v, size_t stride, uint32_t lo, uint32_t hi, float shrink, float* o) {
  F acc[kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i++) acc[i] = load(o + 16 * i) * set1(shrink);
  for (uint32_t pos = lo; pos < hi; pos++) {
    const F w = set1(p[pos]);
#pragma GCC unroll 4
    for (int i = 0; i < kLanes; i++) acc[i] = fma(w, load_f16(v + pos * stride + 16 * i), acc[i]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kLanes; i++) store(o + 16 * i, acc[i]);
}

LAMINA_WORD float exp_one(float x) {
  float lane[16];
  store(lane, exp(set1(x)));
  return lane[0];
}

void attend(const AttendArgs& args) {
  const uint32_t dim = args.head_dim_v, padded = (dim + 15) / 16 * 16;
  float* total = args.scratch;            // merged output so far
  float* part = args.scratch + padded;    // of the current split
  float total_max = -__builtin_inff(), total_sum = 0.0f;
  for (uint32_t i = 0; i < padded; i++) total[i] = 0.0f;

  for (uint32_t split = args.first / kSplitPositions; split * kSplitPositions < args.last; split++) {
    const uint32_t begin = split * kSplitPositions > args.first ? split * kSplitPositions : args.first;
    const uint32_t end = (split + 1) * kSplitPositions < args.last ? (split + 1) * kSplitPositions : args.last;
    float part_max = -__builtin_inff(), part_sum = 0.0f;
    for (uint32_t i = 0; i < padded; i++) part[i] = 0.0f;

    for (uint32_t page = begin / kPage; page * kPage < end; page++) {
      const uint32_t lo = page * kPage < begin ? begin - page * kPage : 0;
      const uint32_t hi = end - page * kPage < kPage ? end - page * kPage : kPage;
      const uint16_t* k = args.k_pages + args.page_table[page] * args.k_page_stride;
      const uint16_t* v = args.v_pages + args.page_table[page] * args.v_page_stride;
      F s[kPageLanes];
      page_scores(args, k, lo, hi, s);
      const float page_max = highest(max(max(s[0], s[1]), max(s[2], s[3])));
      const float new_max = part_max > page_max ? part_max : page_max;
      const float shrink = exp_one(part_max - new_max);
      float p[kPage];
      F lanes = set1(0.0f);
#pragma GCC unroll 4
      for (uint32_t i = 0; i < kPageLanes; i++) {
        s[i] = exp(s[i] - set1(new_max));
        store(p + 16 * i, s[i]);
        lanes = lanes + s[i];
      }
      part_sum = __builtin_fmaf(part_sum, shrink, tree(lanes));
      part_max = new_max;
      uint32_t d = 0;
      for (; d + 64 <= padded; d += 64) add_values<4>(p, v + d, dim, lo, hi, shrink, part + d);
      for (; d < padded; d += 16) add_values<1>(p, v + d, dim, lo, hi, shrink, part + d);
    }

    const float new_max = total_max > part_max ? total_max : part_max;
    const float e0 = exp_one(total_max - new_max), e1 = exp_one(part_max - new_max);
    total_sum = __builtin_fmaf(part_sum, e1, total_sum * e0);
    for (uint32_t d = 0; d < padded; d += 16) {
      store(total + d, fma(load(part + d), set1(e1), load(total + d) * set1(e0)));
    }
    total_max = new_max;
  }
  map(dim, args.out, [&](auto part_of) { return part_of(total) / set1(total_sum); });
}

}  // namespace
}  // namespace lamina::cpu
