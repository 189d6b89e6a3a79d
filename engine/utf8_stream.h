// Bytes of tokens in, text out that is never cut inside a character: an incomplete UTF-8 sequence is held back until
// the rest arrives; bytes that cannot be UTF-8 become U+FFFD, one for each maximal prefix of a character (as Unicode
// recommends).
#pragma once
#include <string>
#include <string_view>

namespace lamina {

class Utf8Stream {
 public:
  /// Takes the bytes of a token, returns the text that is complete now.
  std::string push(std::string_view bytes);

  /// What was held back, as U+FFFD: nothing more will come.
  std::string finish();

 private:
  std::string held_;  ///< the start of a character, 0 to 3 bytes
};

}  // namespace lamina
