// Standard input and standard error are files without a name, so that only standard output needs to be watched.
#include "tests/tools/process.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "gguf/error.h"

namespace lamina {
namespace {

std::string read_all(std::FILE* file) {
  std::string text;
  std::rewind(file);
  char block[4096];
  while (const size_t n = std::fread(block, 1, sizeof block, file)) text.append(block, n);
  return text;
}

[[noreturn]] void become(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  std::vector<char*> words;
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  if (options.closed_stream >= 0) close(options.closed_stream);
  const rlimit minute = {60, 60};
  setrlimit(RLIMIT_CPU, &minute);
  setenv("OCL_ICD_VENDORS", "/nonexistent", 1);
  for (const std::string& variable : options.environment) putenv(const_cast<char*>(variable.c_str()));
  execv(words[0], words.data());
  _exit(127);
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  std::FILE* input = std::tmpfile();
  std::FILE* errors = std::tmpfile();
  int out[2];
  LAMINA_CHECK(input != nullptr && errors != nullptr && pipe2(out, O_CLOEXEC) == 0);
  std::fwrite(options.input.data(), 1, options.input.size(), input);
  std::rewind(input);

  const pid_t child = fork();
  LAMINA_CHECK(child >= 0);
  if (child == 0) {
    const int target = options.stdout_path.empty() ? out[1] : open(options.stdout_path.c_str(), O_WRONLY);
    dup2(fileno(input), STDIN_FILENO);
    dup2(target, STDOUT_FILENO);
    dup2(fileno(errors), STDERR_FILENO);
    become(arguments, options);
  }
  close(out[1]);
  ProcessResult result;
  char block[4096];
  for (ssize_t n = 0; (n = read(out[0], block, sizeof block)) > 0;) {
    if (result.out.empty() && options.signal_after_output != 0) kill(child, options.signal_after_output);
    if (result.out.empty() && options.after_output) options.after_output();
    result.out.append(block, static_cast<size_t>(n));
    if (options.close_stdout) break;
  }
  close(out[0]);
  int status = 0;
  rusage usage = {};
  wait4(child, &status, 0, &usage);
  result.max_rss = usage.ru_maxrss * int64_t{1024};
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.err = read_all(errors);
  std::fclose(input);
  std::fclose(errors);
  return result;
}

ProcessResult run_shell(const std::string& arguments) {
  std::FILE* pipe = popen(("OCL_ICD_VENDORS=/nonexistent " LAMINA_BINARY " " + arguments + " 2>&1").c_str(), "r");
  LAMINA_CHECK(pipe != nullptr);
  ProcessResult result;
  char block[4096];
  while (const size_t n = std::fread(block, 1, sizeof block, pipe)) result.out.append(block, n);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return result;
}

}  // namespace lamina
