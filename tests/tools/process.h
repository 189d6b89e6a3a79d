// Runs a program and catches what it says. In: arguments, text for its standard input, and how it is to be disturbed.
// Out: exit code, standard output and standard error apart. The program finds no OpenCL drivers, which take long to
// load, unless OCL_ICD_VENDORS is in the environment that a test gives it.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lamina {

struct ProcessOptions {
  std::string input = {};                     ///< of standard input
  std::string stdout_path = {};               ///< where standard output goes, e.g. /dev/full; empty: it is caught
  bool close_stdout = false;                  ///< the reader of standard output goes after the first byte
  int signal_after_output = 0;                ///< sent after the first byte of standard output
  std::function<void()> after_output = {};    ///< called then
  int closed_stream = -1;                     ///< a standard stream that is closed from the beginning
  std::vector<std::string> environment = {};  ///< NAME=VALUE, added
};

struct ProcessResult {
  int exit_code = -1;  ///< 128 + signal when a signal ended it
  std::string out, err;
  int64_t max_rss = 0;  ///< bytes; at least what the test itself had when it started the program
};

/// The program gets a minute of CPU time; one that hangs ends by SIGXCPU.
ProcessResult run_process(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

/// The binary with `arguments` as a shell reads them; standard output and standard error both in `out`, as they came.
ProcessResult run_shell(const std::string& arguments);

}  // namespace lamina
