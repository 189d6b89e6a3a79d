// A small HTTP server on this machine that answers as a test tells it: well, late, cut or wrongly.
// In: a function from a request to the bytes of the answer. Out: a port, and the requests that came.
#pragma once
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace lamina {

struct HttpRequest {
  std::string method, path, head;  ///< head: all lines

  /// The value of a header, empty when it is missing.
  std::string header(std::string_view name) const;

  /// Where a `Range: bytes=N-` begins; 0 without one.
  size_t range_begin() const;
};

/// The bytes of an answer; the connection is closed after them.
struct HttpAnswer {
  std::string bytes;
  bool stalls = false;  ///< after the bytes, for as long as the server lives
};

/// `headers`: lines that end in \r\n. Content-Length is that of `body`, whose first `n_sent` bytes are sent.
HttpAnswer http_answer(int status, const std::string& headers, std::string_view body,
                       size_t n_sent = std::string::npos);

/// What a good server answers for a file of this content and ETag: the range that is asked for, if the ETag still fits.
HttpAnswer http_file(const HttpRequest& request, std::string_view content, const std::string& etag,
                     size_t n_sent = std::string::npos);

class HttpServer {
 public:
  /// Calls `answer` for each request, one after the other.
  explicit HttpServer(std::function<HttpAnswer(const HttpRequest&)> answer);
  ~HttpServer();

  /// http://HOST:PORT
  std::string url(const std::string& host = "127.0.0.1") const;
  std::vector<HttpRequest> requests() const;

 private:
  void serve();
  std::function<HttpAnswer(const HttpRequest&)> answer_;
  int listener_ = -1;
  int port_ = 0;
  std::vector<int> stalled_;
  mutable std::mutex mutex_;
  std::vector<HttpRequest> requests_;
  std::thread thread_;
};

}  // namespace lamina
