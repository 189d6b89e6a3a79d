// Softmax attention of several query heads over one KV head's pages, page by page with a running maximum (Milakov and
// Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135). In: queries and pages of float16 or q8_0. Out: a part
// for each query and split. Pages are merged inside splits of 512 absolute positions, splits in ascending order, so
// that the bits do not depend on how the work was cut. Queries that see the same positions share each load of K and V.

namespace lamina::cpu {
namespace {

constexpr uint32_t kPageLanes = kPage / 16;
constexpr int kMostShared = 4;  // queries that share loads: their sums fill the registers

/// How a page of one head is stored: K as [head_dim][64], lane = position; V as [64][head_dim].
struct F16Pages {
  static constexpr uint32_t kValueBytes = 2, kKeyBytes = kPage * kValueBytes;  // of a value of V, of K's 64 for one d
  LAMINA_WORD F load_k(const std::byte* page, uint32_t, uint32_t d, uint32_t lane) {
    return load_f16(reinterpret_cast<const uint16_t*>(page) + d * kPage + 16 * lane);
  }
  LAMINA_WORD F load_v(const std::byte* page, uint32_t head_dim, uint32_t pos, uint32_t d) {
    return load_f16(reinterpret_cast<const uint16_t*>(page) + pos * head_dim + d);
  }
};

/// int8 codes in the same order, then their scales, a float16 for each 32 dimensions of a position: K's as [head_dim /
/// 32][64], V's as [64][head_dim / 32], rounded up. A value is code * scale, exact.
struct Q8Pages {
  static constexpr uint32_t kValueBytes = 1, kKeyBytes = kPage * kValueBytes;
  LAMINA_WORD F load_k(const std::byte* page, uint32_t head_dim, uint32_t d, uint32_t lane) {
    const uint16_t* scales = reinterpret_cast<const uint16_t*>(page + size_t{head_dim} * kPage);
    const F code = to_float(load_i8(reinterpret_cast<const uint8_t*>(page) + d * kPage + 16 * lane));
    return code * load_f16(scales + d / kKvGroup * kPage + 16 * lane);
  }
  LAMINA_WORD F load_v(const std::byte* page, uint32_t head_dim, uint32_t pos, uint32_t d) {
    const uint16_t* scales = reinterpret_cast<const uint16_t*>(page + size_t{head_dim} * kPage);
    const F code = to_float(load_i8(reinterpret_cast<const uint8_t*>(page) + pos * head_dim + d));
    return code * set1(f16_value(scales[pos * ((head_dim + kKvGroup - 1) / kKvGroup) + d / kKvGroup]));
  }
};

/// One page as its queries see it.
struct VisiblePage {
  const std::byte *k, *v;
  const std::byte *next_k, *next_v;  ///< what comes after it, to be fetched meanwhile
  uint32_t lo, hi;                   ///< visible positions [lo, hi) of its 64
};

/// Lane groups at once, such that the sums of Q queries stay in registers.
template <int Q>
constexpr uint32_t kLanes = kFloatSums / Q >= 4   ? 4
                            : kFloatSums / Q >= 2 ? 2
                                                  : 1;

/// s[query][position] = q k for the page's 64 positions.
template <class Pages, int Q>
LAMINA_WORD void page_dots(const AttendArgs& args, const AttendQuery* query, const VisiblePage& page,
                           float (&s)[Q][kPage]) {
  constexpr uint32_t kAtOnce = kLanes<Q>;
  for (uint32_t lane = 0; lane < kPageLanes; lane += kAtOnce) {
    F sum[Q][kAtOnce];
    LAMINA_UNROLL
    for (int t = 0; t < Q; t++) {
      LAMINA_UNROLL
      for (uint32_t i = 0; i < kAtOnce; i++) sum[t][i] = set1(0.0f);
    }
    for (uint32_t d = 0; d < args.head_dim_k; d++) {
      if (lane == 0) prefetch<Pages::kKeyBytes>(page.next_k + d * Pages::kKeyBytes);
      F k[kAtOnce];
      LAMINA_UNROLL
      for (uint32_t i = 0; i < kAtOnce; i++) k[i] = Pages::load_k(page.k, args.head_dim_k, d, lane + i);
      LAMINA_UNROLL
      for (int t = 0; t < Q; t++) {
        LAMINA_UNROLL
        for (uint32_t i = 0; i < kAtOnce; i++) sum[t][i] = fma(k[i], set1(query[t].q[d]), sum[t][i]);
      }
    }
    LAMINA_UNROLL
    for (int t = 0; t < Q; t++) {
      LAMINA_UNROLL
      for (uint32_t i = 0; i < kAtOnce; i++) store(s[t] + 16 * (lane + i), sum[t][i]);
    }
  }
}

/// Scores of one query from its dots, -inf where not in [lo, hi); the highest of them.
LAMINA_WORD float page_scores(const AttendArgs& args, float scale, const VisiblePage& page, float* s) {
  float first[16];
  for (int i = 0; i < 16; i++) first[i] = static_cast<float>(i);
  const F hidden = set1(-__builtin_inff());
  F top = hidden;
  LAMINA_UNROLL
  for (uint32_t i = 0; i < kPageLanes; i++) {
    F v = load(s + 16 * i) * set1(scale);
    if (args.softcap != 0.0f) v = softcap(v, args.softcap);
    const F at = load(first) + set1(static_cast<float>(16 * i));
    v = select_less(at, set1(static_cast<float>(page.lo)), hidden, v);
    v = select_less(at, set1(static_cast<float>(page.hi)), v, hidden);
    top = max(top, v);
    store(s + 16 * i, v);
  }
  return highest(top);
}

/// o = o * shrink, then o += p[pos] * v[pos] over positions [lo, hi), for kAtOnce * 16 dimensions from d on.
template <class Pages, int Q, uint32_t kAtOnce>
LAMINA_WORD void add_values(const AttendArgs& args, const VisiblePage& page, const float (&p)[Q][kPage],
                            const float* shrink, uint32_t d, float* parts, size_t stride) {
  F acc[Q][kAtOnce];
  LAMINA_UNROLL
  for (int t = 0; t < Q; t++) {
    LAMINA_UNROLL
    for (uint32_t i = 0; i < kAtOnce; i++) {
      acc[t][i] = load(parts + static_cast<size_t>(t) * stride + d + 16 * i) * set1(shrink[t]);
    }
  }
  for (uint32_t pos = page.lo; pos < page.hi; pos++) {
    prefetch<Pages::kValueBytes * 16 * kAtOnce>(page.next_v + (size_t{pos} * args.head_dim_v + d) * Pages::kValueBytes);
    F v[kAtOnce];
    LAMINA_UNROLL
    for (uint32_t i = 0; i < kAtOnce; i++) v[i] = Pages::load_v(page.v, args.head_dim_v, pos, d + 16 * i);
    LAMINA_UNROLL
    for (int t = 0; t < Q; t++) {
      LAMINA_UNROLL
      for (uint32_t i = 0; i < kAtOnce; i++) acc[t][i] = fma(set1(p[t][pos]), v[i], acc[t][i]);
    }
  }
  LAMINA_UNROLL
  for (int t = 0; t < Q; t++) {
    LAMINA_UNROLL
    for (uint32_t i = 0; i < kAtOnce; i++) store(parts + static_cast<size_t>(t) * stride + d + 16 * i, acc[t][i]);
  }
}

/// Adds a page to the parts of Q neighbouring queries that see the same positions of it.
template <class Pages, int Q>
__attribute__((noinline)) void attend_page(const AttendArgs& args, const AttendQuery* query, const VisiblePage& page,
                                           float* parts) {
  const size_t stride = part_stride(args.head_dim_v);
  const uint32_t padded = (args.head_dim_v + 15) / 16 * 16;
  alignas(64) float p[Q][kPage];
  page_dots<Pages, Q>(args, query, page, p);
  float change[16] = {}, shrink[16];
  for (int t = 0; t < Q; t++) {
    float* so_far = parts + static_cast<size_t>(t) * stride + padded;  // maximum, sum
    const float page_max = page_scores(args, query[t].scale, page, p[t]);
    const float new_max = so_far[0] > page_max ? so_far[0] : page_max;
    change[t] = so_far[0] - new_max;
    so_far[0] = new_max;
  }
  store(shrink, exp(load(change)));
  for (int t = 0; t < Q; t++) {
    float* so_far = parts + static_cast<size_t>(t) * stride + padded;
    F lanes = set1(0.0f);
    LAMINA_UNROLL
    for (uint32_t i = 0; i < kPageLanes; i++) {
      const F weight = exp(load(p[t] + 16 * i) - set1(so_far[0]));
      store(p[t] + 16 * i, weight);
      lanes = lanes + weight;
    }
    so_far[1] = __builtin_fmaf(so_far[1], shrink[t], tree(lanes));
  }
  uint32_t d = 0;
  for (; d + 16 * kLanes<Q> <= padded; d += 16 * kLanes<Q>) {
    add_values<Pages, Q, kLanes<Q>>(args, page, p, shrink, d, parts, stride);
  }
  for (; d < padded; d += 16) add_values<Pages, Q, 1>(args, page, p, shrink, d, parts, stride);
}

template <class Pages>
void attend_split(const AttendArgs& args, uint32_t split, float* parts) {
  const size_t stride = part_stride(args.head_dim_v);
  const uint32_t padded = (args.head_dim_v + 15) / 16 * 16, split_end = (split + 1) * kSplitPositions;
  uint32_t begin = split_end, end = split * kSplitPositions;  // positions that any query sees
  for (uint32_t i = 0; i < args.n_queries; i++) {
    float* part = parts + i * stride;
    for (uint32_t d = 0; d < padded; d += 16) store(part + d, set1(0.0f));
    part[padded] = -__builtin_inff();
    part[padded + 1] = 0.0f;
    const AttendQuery& query = args.queries[i];
    begin = query.first < begin ? query.first : begin;
    end = query.last > end ? query.last : end;
  }
  begin = begin > split * kSplitPositions ? begin : split * kSplitPositions;
  end = end < split_end ? end : split_end;
  for (uint32_t page = begin / kPage; page * kPage < end; page++) {
    const uint32_t page_begin = page * kPage, page_end = page_begin + kPage;
    const uint32_t next = page_end < end ? page + 1 : page;
    VisiblePage at = {args.k_pages + args.page_table[page] * args.k_page_stride,
                      args.v_pages + args.page_table[page] * args.v_page_stride,
                      args.k_pages + args.page_table[next] * args.k_page_stride,
                      args.v_pages + args.page_table[next] * args.v_page_stride,
                      0,
                      0};
    const auto see = [&](const AttendQuery& query) {
      at.lo = query.first > page_begin ? query.first - page_begin : 0;
      at.hi = query.last < page_end ? query.last < page_begin ? 0 : query.last - page_begin : kPage;
    };
    for (uint32_t i = 0, n; i < args.n_queries; i += n) {
      see(args.queries[i]);
      const uint32_t lo = at.lo, hi = at.hi;
      for (n = 1; n < kMostShared && i + n < args.n_queries; n++) {
        see(args.queries[i + n]);
        if (at.lo != lo || at.hi != hi) break;
      }
      at.lo = lo;
      at.hi = hi;
      if (lo >= hi) continue;
      const AttendQuery* query = args.queries + i;
      float* of_query = parts + i * stride;
      switch (n) {
        case 1: attend_page<Pages, 1>(args, query, at, of_query); break;
        case 2: attend_page<Pages, 2>(args, query, at, of_query); break;
        case 3: attend_page<Pages, 3>(args, query, at, of_query); break;
        default: attend_page<Pages, 4>(args, query, at, of_query); break;
      }
    }
  }
}

/// Adds the part of a split to those before it.
void merge_part(const float* part, uint32_t head_dim_v, float* total) {
  const uint32_t padded = (head_dim_v + 15) / 16 * 16;
  const float new_max = total[padded] > part[padded] ? total[padded] : part[padded];
  float change[16] = {total[padded] - new_max, part[padded] - new_max}, e[16];
  store(e, exp(load(change)));
  total[padded] = new_max;
  total[padded + 1] = __builtin_fmaf(part[padded + 1], e[1], total[padded + 1] * e[0]);
  for (uint32_t d = 0; d < padded; d += 16) {
    store(total + d, fma(load(part + d), set1(e[1]), load(total + d) * set1(e[0])));
  }
}

void finish_attend(const float* total, uint32_t head_dim_v, float* out) {
  const F sum = set1(total[(head_dim_v + 15) / 16 * 16 + 1]);
  map(head_dim_v, out, [&](auto part_of) { return part_of(total) / sum; });
}

/// d = f16(amax / 127), at most the highest float16, of 32 dimensions; code = rne(clamp(x / d)), zero where d is.
void store_q8(const float* x, uint32_t n, uint8_t* codes, size_t stride, uint16_t* scales, size_t scale_stride) {
  const F magic = set1(12582912.0f), limit = set1(127.0f), minus_limit = set1(-127.0f);
  const I no_sign = set1_int(0x7fffffff);
  for (uint32_t from = 0; from < n; from += kKvGroup) {
    const uint32_t count = n - from < kKvGroup ? n - from : kKvGroup;
    F half[2];
    half[0] = load_part(x + from, count < 16 ? count : 16);
    half[1] = load_part(x + from + 16, count > 16 ? count - 16 : 0);
    const F top = max(as_float(as_int(half[0]) & no_sign), as_float(as_int(half[1]) & no_sign));
    uint16_t scale[16];
    store_f16(scale, min(set1(highest(top)) / limit, set1(65504.0f)));
    scales[from / kKvGroup * scale_stride] = scale[0];
    const float d = f16_value(scale[0]);
    const F inverse = set1(d > 0.0f ? 1.0f / d : 0.0f);
    int8_t code[32];
    for (int i = 0; i < 2; i++) {
      store_i8(code + 16 * i, as_int(max(min(half[i] * inverse, limit), minus_limit) + magic) - as_int(magic));
    }
    for (uint32_t j = 0; j < count; j++) codes[(from + j) * stride] = static_cast<uint8_t>(code[j]);
  }
}

}  // namespace
}  // namespace lamina::cpu
