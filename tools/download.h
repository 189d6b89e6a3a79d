// Fetches files of a server over HTTP, resumably.
// In: a server (Hugging Face or one that answers as it does) and a path on it. Out: a PartFile of the asked size, or an
// Error: kNetwork for the server and what it sends, kRuntime for the disk. Redirects lead to https only; the token goes
// to the server itself and nowhere else.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tools/part_file.h"
#include "tools/signal_flag.h"
#include "tools/terminal.h"

namespace lamina {

struct DownloadLimits {
  int attempts = 6;
  std::chrono::milliseconds first_wait{1000};  ///< before the second attempt; doubles each time
  long connect_seconds = 30;
  long idle_seconds = 60;  ///< an attempt ends when it was slower than idle_rate for so long
  long idle_rate = 1024;   ///< bytes a second
  int redirects = 5;
};

class Downloader {
 public:
  /// `server` is https://HOST[:PORT][/PREFIX]; plain http only on this machine (127.0.0.1, localhost), else
  /// Error(kUsage). `token` (may be empty) is sent to HOST:PORT.
  Downloader(std::string server, std::string token, const SignalFlag& signals, DownloadLimits limits = {});
  ~Downloader();
  Downloader(const Downloader&) = delete;
  Downloader& operator=(const Downloader&) = delete;

  struct Identity {
    uint64_t bytes = 0;
    std::string sha256;
  };

  /// What the server says of a file before it sends it: X-Linked-Size and X-Linked-Etag of the first hop that has both
  /// (later hops are storage).
  Identity identify(const std::string& path);

  /// Brings `file` to `bytes` bytes: goes on where it ends when the server still has the version that it is of, starts
  /// over when not. What arrived stays in the file when it throws, unless it is of the wrong size.
  void download(const std::string& path, PartFile& file, uint64_t bytes, TransferLine& line);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lamina
