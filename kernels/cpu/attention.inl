// Softmax attention of several query heads over one KV head's pages, page by page with a running maximum (Milakov and
// Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135). In: queries and pages of float16 or q8_0. Out: a part
// for each query and split. Pages are merged inside splits of 512 absolute positions, splits in ascending order, so
// that the bits do not depend on how the work was cut. A page becomes floats once, in chunks that stay in the nearest
// cache, for all queries; up to four queries share each load of them.

namespace lamina::cpu {
namespace {

constexpr uint32_t kPageLanes = kPage / 16;
constexpr uint32_t kChunk = 64;      // dimensions that become floats at once: 16 KiB of a page
constexpr uint32_t kMostShared = 4;  // queries that share loads: their sums fill the registers

/// How a page of one head is stored: K as [head_dim][64], lane = position; V as [64][head_dim]. As floats, n
/// dimensions from d on: K [n][64], V [64][kChunk].
struct F16Pages {
  static constexpr uint32_t kValueBytes = 2;
  LAMINA_WORD void unpack_k(const std::byte* page, uint32_t, uint32_t d, uint32_t n, float* out) {
    const uint16_t* values = reinterpret_cast<const uint16_t*>(page) + d * kPage;
    for (uint32_t j = 0; j < n; j++) {
      LAMINA_UNROLL
      for (uint32_t i = 0; i < kPage; i += 16) store(out + j * kPage + i, load_f16(values + j * kPage + i));
    }
  }
  LAMINA_WORD F load_v(const std::byte* page, uint32_t head_dim, uint32_t pos, uint32_t d) {
    return load_f16(reinterpret_cast<const uint16_t*>(page) + pos * head_dim + d);
  }
};

/// int8 codes in the same order, then their scales, a float16 for each 32 dimensions of a position: K's as [head_dim /
/// 32][64], V's as [64][head_dim / 32], rounded up. A value is code * scale, exact.
struct Q8Pages {
  static constexpr uint32_t kValueBytes = 1;
  LAMINA_WORD const uint16_t* scales(const std::byte* page, uint32_t head_dim) {
    return reinterpret_cast<const uint16_t*>(page + size_t{head_dim} * kPage);
  }
  LAMINA_WORD void unpack_k(const std::byte* page, uint32_t head_dim, uint32_t d, uint32_t n, float* out) {
    const uint8_t* codes = reinterpret_cast<const uint8_t*>(page) + d * kPage;
    const uint16_t* of_group = scales(page, head_dim) + d / kKvGroup * kPage;
    for (uint32_t i = 0; i < n; i += kKvGroup, of_group += kPage) {
      const uint32_t end = i + kKvGroup < n ? i + kKvGroup : n;
      for (uint32_t lane = 0; lane < kPage; lane += 16) {
        const F scale = load_f16(of_group + lane);
        for (uint32_t j = i; j < end; j++) {
          store(out + j * kPage + lane, to_float(load_i8(codes + j * kPage + lane)) * scale);
        }
      }
    }
  }
  LAMINA_WORD F load_v(const std::byte* page, uint32_t head_dim, uint32_t pos, uint32_t d) {
    const F code = to_float(load_i8(reinterpret_cast<const uint8_t*>(page) + pos * head_dim + d));
    const uint32_t n_groups = (head_dim + kKvGroup - 1) / kKvGroup;
    return code * set1(f16_value(scales(page, head_dim)[pos * n_groups + d / kKvGroup]));
  }
};

/// n dimensions of one position from d on, as floats.
template <class Pages>
LAMINA_WORD void unpack_v(const std::byte* page, uint32_t head_dim, uint32_t pos, uint32_t d, uint32_t n, float* out) {
  uint32_t i = 0;
  for (; i + 64 <= n; i += 64) {
    LAMINA_UNROLL
    for (uint32_t j = 0; j < 64; j += 16) store(out + i + j, Pages::load_v(page, head_dim, pos, d + i + j));
  }
  for (; i < n; i += 16) store(out + i, Pages::load_v(page, head_dim, pos, d + i));
}

/// Positions of a page, [lo, hi) of its 64.
struct Visible {
  uint32_t lo, hi;
};

LAMINA_WORD Visible visible(uint32_t first, uint32_t last, uint32_t page) {
  const uint32_t begin = page * kPage, end = begin + kPage;
  return {first > begin ? first - begin : 0, last < end ? last < begin ? 0 : last - begin : kPage};
}

/// Lane groups at once, such that the sums of Q queries stay in registers.
template <int Q>
constexpr uint32_t kLanes = kFloatSums / Q >= 4   ? 4
                            : kFloatSums / Q >= 2 ? 2
                                                  : 1;

/// s[query][position] += q k over n dimensions from d on. k [n][64]. Fetches what comes next, kNextBytes a dimension.
template <uint32_t kNextBytes, int Q>
__attribute__((noinline)) void add_dots(const AttendQuery* query, const float* k, uint32_t d, uint32_t n,
                                        const std::byte* next, float (*s)[kPage]) {
  constexpr uint32_t kAtOnce = kLanes<Q>;
  const float* q[Q];
  for (int t = 0; t < Q; t++) q[t] = query[t].q + d;
  for (uint32_t lane = 0; lane < kPage; lane += 16 * kAtOnce) {
    F sum[Q][kAtOnce];
    LAMINA_UNROLL
    for (int t = 0; t < Q; t++) {
      LAMINA_UNROLL
      for (uint32_t i = 0; i < kAtOnce; i++) sum[t][i] = load(s[t] + lane + 16 * i);
    }
    for (uint32_t j = 0; j < n; j++) {
      if (lane == 0) prefetch<kNextBytes>(next + j * kNextBytes);
      LAMINA_UNROLL
      for (uint32_t i = 0; i < kAtOnce; i++) {
        const F key = load(k + j * kPage + lane + 16 * i);
        LAMINA_UNROLL
        for (int t = 0; t < Q; t++) sum[t][i] = fma(key, set1(q[t][j]), sum[t][i]);
      }
    }
    LAMINA_UNROLL
    for (int t = 0; t < Q; t++) {
      LAMINA_UNROLL
      for (uint32_t i = 0; i < kAtOnce; i++) store(s[t] + lane + 16 * i, sum[t][i]);
    }
  }
}

/// Scores of one query from its dots, -inf where not visible; the highest of them.
LAMINA_WORD float page_scores(float scale, float cap, Visible at, float* s) {
  float first[16];
  for (int i = 0; i < 16; i++) first[i] = static_cast<float>(i);
  const F hidden = set1(-__builtin_inff());
  F top = hidden;
  LAMINA_UNROLL
  for (uint32_t i = 0; i < kPageLanes; i++) {
    F v = load(s + 16 * i) * set1(scale);
    if (cap != 0.0f) v = softcap(v, cap);
    const F pos = load(first) + set1(static_cast<float>(16 * i));
    v = select_less(pos, set1(static_cast<float>(at.lo)), hidden, v);
    v = select_less(pos, set1(static_cast<float>(at.hi)), v, hidden);
    top = max(top, v);
    store(s + 16 * i, v);
  }
  return highest(top);
}

/// o = o * shrink, then o += p[pos] * v[pos] over the visible positions, for kAtOnce * 16 dimensions. v [64][kChunk].
template <uint32_t kNextBytes, int Q, uint32_t kAtOnce>
LAMINA_WORD void add_lanes(Visible at, const float (*p)[kPage], const float* shrink, const float* v,
                           const std::byte* next, size_t next_stride, float* o, size_t stride) {
  F acc[Q][kAtOnce];
  LAMINA_UNROLL
  for (int t = 0; t < Q; t++) {
    LAMINA_UNROLL
    for (uint32_t i = 0; i < kAtOnce; i++) {
      acc[t][i] = load(o + static_cast<size_t>(t) * stride + 16 * i) * set1(shrink[t]);
    }
  }
  for (uint32_t pos = at.lo; pos < at.hi; pos++) {
    prefetch<kNextBytes * 16 * kAtOnce>(next + pos * next_stride);
    LAMINA_UNROLL
    for (uint32_t i = 0; i < kAtOnce; i++) {
      const F value = load(v + pos * kChunk + 16 * i);
      LAMINA_UNROLL
      for (int t = 0; t < Q; t++) acc[t][i] = fma(set1(p[t][pos]), value, acc[t][i]);
    }
  }
  LAMINA_UNROLL
  for (int t = 0; t < Q; t++) {
    LAMINA_UNROLL
    for (uint32_t i = 0; i < kAtOnce; i++) store(o + static_cast<size_t>(t) * stride + 16 * i, acc[t][i]);
  }
}

/// The same for n dimensions. next: as v, kValueBytes a value, next_stride bytes a position.
template <uint32_t kValueBytes, int Q>
__attribute__((noinline)) void add_values(Visible at, const float (*p)[kPage], const float* shrink, const float* v,
                                          uint32_t n, const std::byte* next, size_t next_stride, float* o,
                                          size_t stride) {
  constexpr uint32_t kAtOnce = kLanes<Q>;
  uint32_t d = 0;
  for (; d + 16 * kAtOnce <= n; d += 16 * kAtOnce) {
    add_lanes<kValueBytes, Q, kAtOnce>(at, p, shrink, v + d, next + d * kValueBytes, next_stride, o + d, stride);
  }
  for (; d < n; d += 16) {
    add_lanes<kValueBytes, Q, 1>(at, p, shrink, v + d, next + d * kValueBytes, next_stride, o + d, stride);
  }
}

template <int Q>
struct Count {
  static constexpr int n = Q;
};

/// fn(Count<n>) for n in 1 .. kMostShared.
template <class Fn>
LAMINA_WORD void with_count(uint32_t n, Fn fn) {
  switch (n) {
    case 1: return fn(Count<1>{});
    case 2: return fn(Count<2>{});
    case 3: return fn(Count<3>{});
    default: return fn(Count<4>{});
  }
}

/// One page, and what comes after it, to be fetched meanwhile.
struct PageAt {
  const std::byte *k, *v, *next_k, *next_v;
};

/// Adds page number `page` to the parts of all queries.
template <class Pages>
void attend_page(const AttendArgs& args, uint32_t page, const PageAt& at, float* parts) {
  const uint32_t n = args.n_queries, dim_k = args.head_dim_k, dim_v = args.head_dim_v;
  const uint32_t padded = (dim_v + 15) / 16 * 16;
  const size_t stride = part_stride(dim_v);
  alignas(64) float chunk[kPage * kChunk], p[kMostQueries][kPage], shrink[kMostQueries];
  Visible seen[kMostQueries], any = {kPage, 0};

  std::memset(p, 0, n * sizeof(p[0]));
  for (uint32_t d = 0; d < dim_k; d += kChunk) {
    const uint32_t count = d + kChunk < dim_k ? kChunk : dim_k - d;
    Pages::unpack_k(at.k, dim_k, d, count, chunk);
    for (uint32_t i = 0; i < n; i += kMostShared) {
      with_count(n - i, [&](auto shared) {
        constexpr uint32_t kKeyBytes = kPage * Pages::kValueBytes;
        add_dots<kKeyBytes, shared.n>(args.queries + i, chunk, d, count, at.next_k + d * kKeyBytes, p + i);
      });
    }
  }

  for (uint32_t i = 0; i < n; i++) {
    float* so_far = parts + i * stride + padded;  // maximum, sum
    seen[i] = visible(args.queries[i].first, args.queries[i].last, page);
    shrink[i] = 0.0f;
    if (seen[i].lo >= seen[i].hi) continue;
    any = {seen[i].lo < any.lo ? seen[i].lo : any.lo, seen[i].hi > any.hi ? seen[i].hi : any.hi};
    const float page_max = page_scores(args.queries[i].scale, args.softcap, seen[i], p[i]);
    const float new_max = so_far[0] > page_max ? so_far[0] : page_max;
    shrink[i] = so_far[0] - new_max;
    so_far[0] = new_max;
  }
  for (uint32_t i = 0; i < n; i += 16) store(shrink + i, exp(load(shrink + i)));
  for (uint32_t i = 0; i < n; i++) {
    if (seen[i].lo >= seen[i].hi) continue;
    float* so_far = parts + i * stride + padded;
    F lanes = set1(0.0f);
    LAMINA_UNROLL
    for (uint32_t lane = 0; lane < kPage; lane += 16) {
      const F weight = exp(load(p[i] + lane) - set1(so_far[0]));
      store(p[i] + lane, weight);
      lanes = lanes + weight;
    }
    so_far[1] = __builtin_fmaf(so_far[1], shrink[i], tree(lanes));
  }

  for (uint32_t d = 0; d < padded; d += kChunk) {
    const uint32_t count = d + kChunk < padded ? kChunk : padded - d;
    for (uint32_t pos = any.lo; pos < any.hi; pos++) unpack_v<Pages>(at.v, dim_v, pos, d, count, chunk + pos * kChunk);
    for (uint32_t i = 0, run; i < n; i += run) {  // neighbours that see the same positions
      for (run = 1; run < kMostShared && i + run < n; run++) {
        if (seen[i + run].lo != seen[i].lo || seen[i + run].hi != seen[i].hi) break;
      }
      if (seen[i].lo >= seen[i].hi) continue;
      with_count(run, [&](auto shared) {
        add_values<Pages::kValueBytes, shared.n>(seen[i], p + i, shrink + i, chunk, count,
                                                 at.next_v + d * Pages::kValueBytes, size_t{dim_v} * Pages::kValueBytes,
                                                 parts + i * stride + d, stride);
      });
    }
  }
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
    const uint32_t next = (page + 1) * kPage < end ? page + 1 : page;
    const size_t this_page = args.page_table[page], next_page = args.page_table[next];
    attend_page<Pages>(args, page,
                       {args.k_pages + this_page * args.k_page_stride, args.v_pages + this_page * args.v_page_stride,
                        args.k_pages + next_page * args.k_page_stride, args.v_pages + next_page * args.v_page_stride},
                       parts);
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
