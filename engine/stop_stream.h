// Text in pieces in, the text before the first stop text out, whatever the pieces. What may be the beginning of a stop
// text is held back until more text decides; nothing of a stop text gets out.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace lamina {

class StopStream {
 public:
  /// `stop`: not empty each. Of several that occur the one that begins first counts.
  explicit StopStream(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  /// Takes a piece of text, returns what certainly stands before any stop text.
  std::string push(std::string_view piece);

  /// What was held back and is no part of a stop text: nothing more will come.
  std::string finish();

  /// Whether a stop text was found: all text until it was returned, and what comes after it is dropped.
  bool stopped() const { return stopped_; }

 private:
  std::string take(bool more_may_come);

  std::vector<std::string> stop_;
  std::string held_;  ///< begins where a stop text may begin
  bool stopped_ = false;
};

}  // namespace lamina
