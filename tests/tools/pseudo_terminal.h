// Runs a program on a terminal of its own, as somebody at a keyboard sees it. In: arguments, what is typed. Out: all
// that appears (what is typed is echoed), and the exit code.
#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace lamina {

class PseudoTerminal {
 public:
  explicit PseudoTerminal(const std::vector<std::string>& arguments);
  ~PseudoTerminal();  ///< kills a program that still runs
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  void type(std::string_view keys);
  void send(int signal);

  /// Reads until `text` appears behind what earlier calls found. False when the program ends or a minute passes first.
  bool sees(std::string_view text);

  /// Reads until the program ends; its exit code, 128 + signal when a signal ended it.
  int exit_code();

  const std::string& screen() const { return screen_; }

 private:
  bool read_more();

  int terminal_ = -1;
  pid_t child_ = -1;
  std::string screen_;
  size_t seen_ = 0;
};

}  // namespace lamina
