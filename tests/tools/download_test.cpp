// Downloads from servers that cut, change, redirect, lie and stall.
// In: a server on this machine. Out: the bytes that arrive, the requests that are made, and the errors.
#include "tools/download.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "gguf/error.h"
#include "tests/gguf/file_builder.h"
#include "tests/tools/http_server.h"

namespace lamina {
namespace {

using gguf::TempFolder;

const std::string kSha256(64, 'a');

/// Bytes that differ from place to place.
std::string content(char seed = 0) {
  std::string bytes(200'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31 + i / 251 + static_cast<size_t>(seed));
  return bytes;
}

class Download : public testing::Test {
 protected:
  void SetUp() override { setenv("no_proxy", "*", 1); }

  /// Downloads "/f", of `bytes` bytes, from `server`.
  void download(const HttpServer& server, uint64_t bytes, const std::string& token = "") {
    PartFile file(path_);
    TransferLine line("f");
    Downloader(server.url(), token, signals_, limits_).download("/f", file, bytes, line);
  }

  /// The message of the failure that is expected of `run`; empty (and a failed test) without one.
  template <class Run>
  std::string failure(ErrorKind kind, Run run) {
    try {
      run();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), kind) << error.what();
      return error.what();
    }
    ADD_FAILURE() << "no error";
    return "";
  }

  std::string arrived() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TempFolder folder_;
  std::string path_ = folder_.path("f.part");
  SignalFlag signals_;
  DownloadLimits limits_{.attempts = 3, .first_wait = std::chrono::milliseconds(1), .idle_seconds = 1};
  const std::string content_ = content();
};

void expect_part(const std::string& message, const std::string& part) {
  EXPECT_NE(message.find(part), std::string::npos) << part << "\n in: " << message;
}

TEST_F(Download, FetchesAFile) {
  const HttpServer server([&](const HttpRequest& request) { return http_file(request, content_, "\"v1\""); });
  download(server, content_.size());
  EXPECT_TRUE(arrived() == content_);
  ASSERT_EQ(server.requests().size(), 1u);
  EXPECT_EQ(server.requests()[0].path, "/f");
  EXPECT_EQ(server.requests()[0].header("Authorization"), "");
  EXPECT_EQ(server.requests()[0].header("Accept-Encoding"), "");
}

TEST_F(Download, GoesOnWhereItBroke) {
  int n = 0;
  const HttpServer server([&](const HttpRequest& request) {
    return http_file(request, content_, "\"v1\"", n++ == 0 ? 70'000 : std::string::npos);
  });
  download(server, content_.size());
  EXPECT_TRUE(arrived() == content_);
  ASSERT_EQ(server.requests().size(), 2u);
  EXPECT_EQ(server.requests()[1].header("Range"), "bytes=70000-");
  EXPECT_EQ(server.requests()[1].header("If-Range"), "\"v1\"");
}

TEST_F(Download, GoesOnInALaterProcess) {
  const HttpServer cut([&](const HttpRequest& request) { return http_file(request, content_, "\"v1\"", 1000); });
  limits_.attempts = 1;
  expect_part(failure(ErrorKind::kNetwork, [&] { download(cut, content_.size()); }), "127.0.0.1");
  EXPECT_EQ(arrived().size(), 1000u);
  const HttpServer server([&](const HttpRequest& request) { return http_file(request, content_, "\"v1\""); });
  download(server, content_.size());
  EXPECT_TRUE(arrived() == content_);
  EXPECT_EQ(server.requests()[0].range_begin(), 1000u);
}

TEST_F(Download, StartsOverWhenTheFileChanged) {
  int n = 0;
  const std::string changed = content(7);
  const HttpServer server([&](const HttpRequest& request) {
    return n++ == 0 ? http_file(request, content_, "\"v1\"", 70'000) : http_file(request, changed, "\"v2\"");
  });
  download(server, content_.size());
  EXPECT_TRUE(arrived() == changed);
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST_F(Download, StartsOverWhenARangeIsOfAnotherVersionOrPlace) {
  const std::string changed = content(7);
  for (const std::string headers :
       {"ETag: \"v2\"\r\nContent-Range: bytes 70000-199999/200000\r\n",
        "ETag: \"v1\"\r\nContent-Range: bytes 69999-199999/200000\r\n", "ETag: \"v1\"\r\n"}) {
    int n = 0;
    const HttpServer server([&](const HttpRequest& request) {
      if (n++ == 0) return http_file(request, content_, "\"v1\"", 70'000);
      return request.range_begin() > 0 ? http_answer(206, headers, changed.substr(70'000))  // whatever If-Range says
                                       : http_file(request, changed, "\"v2\"");
    });
    download(server, content_.size());
    EXPECT_TRUE(arrived() == changed) << headers;
    EXPECT_EQ(server.requests().size(), 3u);
    std::filesystem::remove(path_);
  }
}

TEST_F(Download, StartsOverWithoutAStrongETag) {
  for (const std::string etag : {"", "W/\"v1\"", "\""}) {
    int n = 0;
    const HttpServer server([&](const HttpRequest& request) {
      return http_file(request, content_, etag, n++ == 0 ? 70'000 : std::string::npos);
    });
    download(server, content_.size());
    EXPECT_TRUE(arrived() == content_) << etag;
    EXPECT_EQ(server.requests()[1].header("Range"), "") << etag;
    std::filesystem::remove(path_);
  }
}

TEST_F(Download, StartsOverWhenTheServerHasLess) {
  folder_.write("f.part", std::string(90'000, 'x'));
  folder_.write("f.part.etag", "\"v1\"\n");
  const std::string shorter = content_.substr(0, 80'000);
  int n = 0;
  const HttpServer server(
      [&](const HttpRequest& request) { return http_file(request, n++ == 0 ? shorter : content_, "\"v1\""); });
  download(server, content_.size());
  EXPECT_TRUE(arrived() == content_);
}

TEST_F(Download, AsksForNothingWhenAllIsThere) {
  const HttpServer server([&](const HttpRequest&) { return http_answer(500, "", ""); });
  folder_.write("f.part", content_);
  download(server, content_.size());
  EXPECT_TRUE(server.requests().empty());
}

TEST_F(Download, RefusesAnotherSizeAndRemovesIt) {
  const HttpServer server([&](const HttpRequest& request) { return http_file(request, content_, "\"v1\""); });
  expect_part(failure(ErrorKind::kNetwork, [&] { download(server, content_.size() + 1); }), "has 200000 bytes");
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".etag"));
  expect_part(failure(ErrorKind::kNetwork, [&] { download(server, 1000); }), "more than the expected 1000 bytes");
  EXPECT_FALSE(std::filesystem::exists(path_));
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST_F(Download, TriesAgainWhenTheServerIsBusy) {
  for (const int status : {408, 429, 500, 503}) {
    int n = 0;
    const HttpServer server([&](const HttpRequest& request) {
      return n++ < 2 ? http_answer(status, "", "busy") : http_file(request, content_, "\"v1\"");
    });
    download(server, content_.size());
    EXPECT_TRUE(arrived() == content_);
    std::filesystem::remove(path_);
  }
}

TEST_F(Download, GivesUpAfterSomeTries) {
  const HttpServer server([&](const HttpRequest&) { return http_answer(503, "", "busy"); });
  const std::string message = failure(ErrorKind::kNetwork, [&] { download(server, content_.size()); });
  expect_part(message, "503");
  expect_part(message, "tried 3 times");
  EXPECT_EQ(server.requests().size(), 3u);
}

TEST_F(Download, RefusalsAreFinal) {
  for (const int status : {401, 403, 404, 410}) {
    const HttpServer server([&](const HttpRequest&) { return http_answer(status, "", content_); });
    const std::string message = failure(ErrorKind::kNetwork, [&] { download(server, content_.size()); });
    expect_part(message, std::to_string(status));
    EXPECT_EQ(message.find("HF_TOKEN") != std::string::npos, status < 404) << message;
    EXPECT_EQ(server.requests().size(), 1u);
    EXPECT_EQ(arrived(), "");
  }
}

TEST_F(Download, EndsWhenNothingMoves) {
  limits_.attempts = 1;
  const HttpServer silent([](const HttpRequest&) { return HttpAnswer{"", true}; });
  expect_part(failure(ErrorKind::kNetwork, [&] { download(silent, content_.size()); }), "too slow");
  const HttpServer stops([&](const HttpRequest& request) {
    HttpAnswer answer = http_file(request, content_, "\"v1\"", 5000);
    answer.stalls = true;
    return answer;
  });
  expect_part(failure(ErrorKind::kNetwork, [&] { download(stops, content_.size()); }), "too slow");
  EXPECT_EQ(arrived().size(), 5000u);
}

TEST_F(Download, FollowsRedirects) {
  const HttpServer storage([&](const HttpRequest& request) { return http_file(request, content_, "\"v1\""); });
  const HttpServer server([&](const HttpRequest& request) {
    return request.path == "/f" ? http_answer(302, "Location: /next\r\n", "a page")
                                : http_answer(307, "Location: " + storage.url("localhost") + "/blob\r\n", "");
  });
  download(server, content_.size(), "secret");
  EXPECT_TRUE(arrived() == content_);
  ASSERT_EQ(server.requests().size(), 2u);
  EXPECT_EQ(server.requests()[0].header("Authorization"), "Bearer secret");
  EXPECT_EQ(server.requests()[1].header("Authorization"), "Bearer secret");  // still the same server
  ASSERT_EQ(storage.requests().size(), 1u);
  EXPECT_EQ(storage.requests()[0].path, "/blob");
  EXPECT_EQ(storage.requests()[0].header("Authorization"), "");
  EXPECT_EQ(storage.requests()[0].head.find("secret"), std::string::npos);
}

TEST_F(Download, KeepsTheTokenFromAnotherPortOfTheSameHost) {
  const HttpServer other([&](const HttpRequest& request) { return http_file(request, content_, "\"v1\""); });
  const HttpServer server(
      [&](const HttpRequest&) { return http_answer(302, "Location: " + other.url() + "/\r\n", ""); });
  download(server, content_.size(), "secret");
  EXPECT_EQ(other.requests().at(0).head.find("secret"), std::string::npos);
}

TEST_F(Download, RefusesRedirectsThatAreNotHttps) {
  for (const std::string target : {"http://example.com/f", "http://127.0.0.1.example.com/f", "ftp://localhost/f",
                                   "file:///etc/passwd", "http://localhost@example.com/f"}) {
    const HttpServer server([&](const HttpRequest&) { return http_answer(302, "Location: " + target + "\r\n", ""); });
    const std::string message = failure(ErrorKind::kNetwork, [&] { download(server, content_.size()); });
    expect_part(message, "which is not https");
    expect_part(message, target);
    EXPECT_EQ(server.requests().size(), 1u);
  }
}

TEST_F(Download, EndsARedirectLoop) {
  const HttpServer server([](const HttpRequest&) { return http_answer(302, "Location: /f\r\n", ""); });
  expect_part(failure(ErrorKind::kNetwork, [&] { download(server, 1); }), "redirects more than 5 times");
  EXPECT_EQ(server.requests().size(), 6u);
}

TEST_F(Download, TakesOnlyHttpsServersOrThisMachine) {
  for (const std::string server : {"http://example.com", "ftp://localhost", "huggingface.co", "http://127.0.0.2", ""}) {
    expect_part(failure(ErrorKind::kUsage, [&] { Downloader(server, "", signals_); }), "'" + server + "'");
  }
  Downloader("https://example.com", "", signals_);
  failure(ErrorKind::kUsage, [&] { Downloader("https://example.com", "a\r\nX: y", signals_); });
}

TEST_F(Download, ReportsAFullDisk) {
  path_ = "/dev/full";
  const HttpServer server([&](const HttpRequest& request) { return http_file(request, content_, ""); });
  const std::string message = failure(ErrorKind::kRuntime, [&] { download(server, content_.size()); });
  expect_part(message, "/dev/full");
  expect_part(message, "No space left");
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST_F(Download, LearnsSizeAndHashFromTheFirstHopThatHasThem) {
  const std::string named = "X-Linked-Size: 12\r\nX-Linked-Etag: \"" + kSha256 + "\"\r\n";
  const HttpServer server([&](const HttpRequest& request) {
    if (request.path == "/moved") return http_answer(301, "Location: /named\r\n", "");
    if (request.path == "/named") return http_answer(302, named + "Location: http://example.com/\r\n", "");
    if (request.path == "/gone") return http_answer(404, named, "");
    if (request.path == "/short") return http_answer(200, "X-Linked-Size: 12\r\nX-Linked-Etag: \"abc\"\r\n", "");
    return http_answer(200, "X-Linked-Etag: \"" + kSha256 + "\"\r\n", "");
  });
  Downloader downloader(server.url(), "", signals_, limits_);
  const Downloader::Identity identity = downloader.identify("/moved");
  EXPECT_EQ(identity.bytes, 12u);
  EXPECT_EQ(identity.sha256, kSha256);
  for (const HttpRequest& request : server.requests()) EXPECT_EQ(request.method, "HEAD");
  expect_part(failure(ErrorKind::kNetwork, [&] { downloader.identify("/short"); }), "no size and sha256 for /short");
  expect_part(failure(ErrorKind::kNetwork, [&] { downloader.identify("/none"); }), "/none");
  expect_part(failure(ErrorKind::kNetwork, [&] { downloader.identify("/gone"); }), "404");
}

TEST(TransferText, ShowsRateAndTimeLeft) {
  EXPECT_EQ(transfer_text("m", 50'000'000, 200'000'000, 20'000'000, 10),
            "m  25 %  50.0 of 200.0 MB  2.0 MB/s  1:15 left");
  EXPECT_EQ(transfer_text("m", 0, 1'000'000, 0, 0), "m  0 %  0.0 of 1.0 MB");
}

}  // namespace
}  // namespace lamina
