// The first position that a stop text occupies, or may come to occupy, ends what can be returned.
#include "engine/stop_stream.h"

#include <algorithm>
#include <utility>

namespace lamina {

std::string StopStream::push(std::string_view piece) {
  if (stopped_) return {};
  held_ += piece;
  return take(true);
}

std::string StopStream::finish() { return take(false); }

std::string StopStream::take(bool more_may_come) {
  size_t pos = 0;
  for (; pos < held_.size(); ++pos) {
    const auto rest = std::string_view(held_).substr(pos);
    const auto is = [&](const std::string& stop) { return rest.starts_with(stop); };
    const auto may_become = [&](const std::string& stop) { return stop.starts_with(rest); };
    stopped_ = std::any_of(stop_.begin(), stop_.end(), is);
    if (stopped_ || (more_may_come && std::any_of(stop_.begin(), stop_.end(), may_become))) break;
  }
  std::string text = held_.substr(0, pos);
  held_.erase(0, pos);
  if (stopped_) held_.clear();
  return text;
}

}  // namespace lamina
