// One thread, one connection at a time, one request a connection.
// In: sockets. Out: what the test's function says.
#include "tests/tools/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "gguf/error.h"

namespace lamina {

std::string HttpRequest::header(std::string_view name) const {
  const auto same = [](char a, char b) { return std::tolower(a) == std::tolower(b); };
  const std::string start = "\r\n" + std::string(name) + ": ";
  const auto found = std::search(head.begin(), head.end(), start.begin(), start.end(), same);
  if (found == head.end()) return "";
  const auto begin = found + static_cast<ptrdiff_t>(start.size());
  return {begin, std::find(begin, head.end(), '\r')};
}

size_t HttpRequest::range_begin() const {
  const std::string range = header("Range");
  return range.empty() ? 0 : std::stoul(range.substr(std::string("bytes=").size()));
}

HttpAnswer http_answer(int status, const std::string& headers, std::string_view body, size_t n_sent) {
  return {fmt::format("HTTP/1.1 {} X\r\nContent-Length: {}\r\nConnection: close\r\n{}\r\n{}", status, body.size(),
                      headers, body.substr(0, n_sent))};
}

HttpAnswer http_file(const HttpRequest& request, std::string_view content, const std::string& etag, size_t n_sent) {
  const size_t begin = request.range_begin();
  const std::string headers = "ETag: " + etag + "\r\n";
  if (begin == 0 || request.header("If-Range") != etag) return http_answer(200, headers, content, n_sent);
  if (begin >= content.size()) return http_answer(416, headers, "");
  const std::string range = fmt::format("Content-Range: bytes {}-{}/{}\r\n", begin, content.size() - 1, content.size());
  return http_answer(206, headers + range, content.substr(begin), n_sent);
}

HttpServer::HttpServer(std::function<HttpAnswer(const HttpRequest&)> answer) : answer_(std::move(answer)) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  LAMINA_CHECK(listener_ >= 0 && bind(listener_, generic, size) == 0 && listen(listener_, 16) == 0);
  LAMINA_CHECK(getsockname(listener_, generic, &size) == 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

HttpServer::~HttpServer() {
  shutdown(listener_, SHUT_RDWR);
  thread_.join();
  for (const int connection : stalled_) close(connection);
  close(listener_);
}

std::string HttpServer::url(const std::string& host) const { return fmt::format("http://{}:{}", host, port_); }

std::vector<HttpRequest> HttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HttpServer::serve() {
  for (int connection; (connection = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
    HttpRequest request;
    char block[4096];
    for (ssize_t n; request.head.find("\r\n\r\n") == std::string::npos;) {
      if ((n = recv(connection, block, sizeof block, 0)) <= 0) break;
      request.head.append(block, static_cast<size_t>(n));
    }
    const size_t space = request.head.find(' ');
    request.method = request.head.substr(0, space);
    request.path = request.head.substr(space + 1, request.head.find(' ', space + 1) - space - 1);
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
    }
    HttpAnswer answer = answer_(request);
    if (request.method == "HEAD") answer.bytes.resize(answer.bytes.find("\r\n\r\n") + 4);
    for (std::string_view rest = answer.bytes; !rest.empty();) {
      const ssize_t n = send(connection, rest.data(), rest.size(), MSG_NOSIGNAL);
      if (n <= 0) break;  // the other side has gone
      rest.remove_prefix(static_cast<size_t>(n));
    }
    if (answer.stalls) {
      stalled_.push_back(connection);
    } else {
      close(connection);
    }
  }
}

}  // namespace lamina
