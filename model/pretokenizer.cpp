// Runs the patterns of a pre-tokenizer with PCRE2: see pretokenizer.h.
// In: any bytes. Out: pieces. UTF-8 is validated once, here; PCRE2 is never asked to do it again (it would for every
// match).
#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/pretokenizer.h"

#include <pcre2.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "gguf/error.h"
#include "gguf/utf8.h"

namespace lamina {
namespace {

template <auto kFree>
struct Free {
  template <class T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Free<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

/// What a thread needs for matching. Nested repeats overflow PCRE2's own stack of 32 KB on words of a thousand letters,
/// so it gets one that grows.
struct Scratch {
  MatchData match{pcre2_match_data_create(1, nullptr)};
  MatchContext context{pcre2_match_context_create(nullptr)};
  JitStack stack{pcre2_jit_stack_create(size_t{32} << 10, size_t{64} << 20, nullptr)};

  Scratch() {
    if (!match || !context || !stack) throw std::bad_alloc();
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
  static Scratch& of_this_thread() {
    thread_local Scratch scratch;
    return scratch;
  }
};

/// The limits of PCRE2 that a long text may hit in its compiled code, but not in its interpreter.
bool is_limit(int error) {
  return error == PCRE2_ERROR_JIT_STACKLIMIT || error == PCRE2_ERROR_MATCHLIMIT || error == PCRE2_ERROR_DEPTHLIMIT ||
         error == PCRE2_ERROR_HEAPLIMIT;
}

}  // namespace

class Pretokenizer::Pattern {
 public:
  explicit Pattern(const char* text) {
    int error = 0;
    size_t offset = 0;
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text), PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP, &error,
                              &offset, nullptr));
    LAMINA_CHECK(code_ != nullptr);                      // the patterns are ours
    pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // without it the interpreter runs
  }

  /// Appends the matches in `text` (valid UTF-8) and what lies between them.
  void split(std::string_view text, std::vector<std::string_view>& pieces) const {
    Scratch& scratch = Scratch::of_this_thread();
    const size_t* found = pcre2_get_ovector_pointer(scratch.match.get());
    const auto append = [&](size_t begin, size_t end) {
      if (end > begin) pieces.push_back(text.substr(begin, end - begin));
    };
    size_t done = 0;
    for (size_t pos = 0; pos < text.size();) {
      if (!next_match(text, pos, scratch)) break;
      append(done, found[0]);
      append(found[0], found[1]);
      done = found[1];
      pos = found[1] > found[0] ? found[1] : found[1] + character_size(text, found[1]);  // an empty match only cuts
    }
    append(done, text.size());
  }

 private:
  static size_t character_size(std::string_view text, size_t pos) {
    return pos < text.size() ? gguf::decode_utf8(text, pos).length : 1;
  }

  bool next_match(std::string_view text, size_t pos, const Scratch& scratch) const {
    const auto match = [&](uint32_t options) {
      return pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), pos,
                         PCRE2_NO_UTF_CHECK | options, scratch.match.get(), scratch.context.get());
    };
    int result = match(0);
    if (is_limit(result)) result = match(PCRE2_NO_JIT);
    if (result >= 0) return true;
    if (result != PCRE2_ERROR_NOMATCH) {
      spdlog::warn("a text of {} bytes is not cut into words from byte {} on: PCRE2 error {}", text.size(), pos,
                   result);
    }
    return false;
  }

  Code code_;
};

Pretokenizer::Pretokenizer(std::span<const char* const> patterns) {
  for (const char* pattern : patterns) patterns_.emplace_back(pattern);
}
Pretokenizer::Pretokenizer(Pretokenizer&&) noexcept = default;
Pretokenizer::~Pretokenizer() = default;

std::vector<std::string_view> Pretokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces, cut;
  pieces.reserve(text.size() / 4 + 1);
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    const bool valid = gguf::decode_utf8(text, pos).length > 0;
    while (pos < text.size()) {
      const size_t length = gguf::decode_utf8(text, pos).length;
      if ((length > 0) != valid) break;
      pos += std::max<size_t>(length, 1);
    }
    const std::string_view stretch = text.substr(begin, pos - begin);
    if (!valid) {
      pieces.push_back(stretch);
      continue;
    }
    std::vector<std::string_view> whole{stretch};
    for (const Pattern& pattern : patterns_) {
      cut.clear();
      for (const std::string_view piece : whole) pattern.split(piece, cut);
      whole.swap(cut);
    }
    pieces.insert(pieces.end(), whole.begin(), whole.end());
  }
  return pieces;
}

const PretokenizerRow& nearest_pretokenizer(std::string_view name) {
  constexpr size_t kLeast = 3;
  const auto rows = pretokenizer_rows();
  const PretokenizerRow* nearest = &rows[name.empty() ? 0 : 1];
  size_t best = kLeast - 1;
  for (const PretokenizerRow& row : rows) {
    if (row.name == name) return row;
    const size_t alike =
        std::mismatch(row.name.begin(), row.name.end(), name.begin(), name.end()).first - row.name.begin();
    if (alike > best) {
      best = alike;
      nearest = &row;
    }
  }
  return *nearest;
}

}  // namespace lamina
