// Handlers are set with SA_RESETHAND: a second signal has its usual effect.
#include "tools/signal_flag.h"

#include <csignal>

namespace lamina {
namespace {

std::atomic<bool> g_interrupted{false};
std::atomic<int> g_signal{0};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  g_signal = signal;
  g_interrupted = true;
}

void set_handler(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

}  // namespace

SignalFlag::SignalFlag() {
  g_signal = 0;
  g_interrupted = false;
  set_handler(on_signal);
}
SignalFlag::~SignalFlag() { set_handler(SIG_DFL); }
const std::atomic<bool>* SignalFlag::flag() const { return &g_interrupted; }
int SignalFlag::signal() const { return g_signal; }

void SignalFlag::check() const {
  if (g_interrupted) throw Interrupted{g_signal};
}

}  // namespace lamina
