// Lists and ranges of numbers: see number_list.h.
#include "tools/number_list.h"

#include <charconv>
#include <string_view>

#include "gguf/error.h"

namespace lamina {
namespace {

constexpr size_t kMaxNumbers = 1000;

/// Takes a number from the front of `text`; false when there is none.
bool take_number(std::string_view& text, uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

/// first[-last[+step|*factor]]
struct Range {
  uint64_t first = 0, last = 0, step = 1;
  bool multiplies = false;
};

bool parse_range(std::string_view text, Range& range) {
  if (!take_number(text, range.first)) return false;
  range.last = range.first;
  if (text.empty()) return true;
  if (text[0] != '-') return false;
  text.remove_prefix(1);
  if (!take_number(text, range.last) || range.last < range.first) return false;
  if (text.empty()) return true;
  range.multiplies = text[0] == '*';
  if (!range.multiplies && text[0] != '+') return false;
  text.remove_prefix(1);
  const bool grows = take_number(text, range.step) && range.step > (range.multiplies ? 1 : 0);
  return grows && text.empty() && (!range.multiplies || range.first > 0);
}

}  // namespace

std::vector<uint32_t> parse_numbers(const std::vector<std::string>& texts, const std::string& option, uint32_t least,
                                    uint32_t most) {
  std::vector<uint32_t> numbers;
  for (const std::string& list : texts) {
    for (std::string_view rest = list;;) {
      const std::string_view part = rest.substr(0, rest.find(','));
      Range range;
      if (!parse_range(part, range)) {
        fail(ErrorKind::kUsage, "{} '{}': '{}' is no number and no range like 1-4, 128-512+128 or 1-8*2", option,
             printable(list), printable(part));
      }
      if (range.first < least || range.last > most) {
        fail(ErrorKind::kUsage, "{} '{}' is outside {}..{}", option, printable(part), least, most);
      }
      for (uint64_t n = range.first; n <= range.last; n = range.multiplies ? n * range.step : n + range.step) {
        if (numbers.size() == kMaxNumbers) fail(ErrorKind::kUsage, "{} has more than {} values", option, kMaxNumbers);
        numbers.push_back(static_cast<uint32_t>(n));
        if (range.step > most) break;
      }
      if (part.size() == rest.size()) break;
      rest.remove_prefix(part.size() + 1);
    }
  }
  return numbers;
}

}  // namespace lamina
