// forkpty makes the terminal; reading it fails when the program has ended.
#include "tests/tools/pseudo_terminal.h"

#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "gguf/error.h"

namespace lamina {

PseudoTerminal::PseudoTerminal(const std::vector<std::string>& arguments) {
  std::vector<char*> words;
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  child_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
  LAMINA_CHECK(child_ >= 0);
  if (child_ == 0) {
    setenv("OCL_ICD_VENDORS", "/nonexistent", 1);  // as in process.h
    execv(words[0], words.data());
    _exit(127);
  }
}

PseudoTerminal::~PseudoTerminal() {
  if (child_ > 0) {
    kill(child_, SIGKILL);
    waitpid(child_, nullptr, 0);
  }
  close(terminal_);
}

void PseudoTerminal::type(std::string_view keys) {
  LAMINA_CHECK(write(terminal_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
}

void PseudoTerminal::send(int signal) { LAMINA_CHECK(kill(child_, signal) == 0); }

bool PseudoTerminal::read_more() {
  pollfd readable{terminal_, POLLIN, 0};
  char block[4096];
  if (poll(&readable, 1, 60'000) != 1) return false;
  const ssize_t n = read(terminal_, block, sizeof block);
  if (n > 0) screen_.append(block, static_cast<size_t>(n));
  return n > 0;
}

bool PseudoTerminal::sees(std::string_view text) {
  size_t pos;
  while ((pos = screen_.find(text, seen_)) == std::string::npos) {
    if (!read_more()) return false;
  }
  seen_ = pos + text.size();
  return true;
}

int PseudoTerminal::exit_code() {
  while (read_more()) {
  }
  int status = 0;
  waitpid(child_, &status, 0);
  child_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace lamina
