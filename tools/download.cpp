// libcurl, one hop at a time: where a redirect leads is decided here, not by curl.
//
//   attempt: request -> 3xx: next hop | 200: the file starts over | 206: it goes on | 408, 429, 5xx, broken: next
//   attempt
#include "tools/download.h"

#include <curl/curl.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <exception>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "gguf/error.h"
#include "tools/listed_models.h"

namespace lamina {
namespace {

using Bytes = std::span<const char>;

/// Who a URL talks to.
struct Origin {
  std::string scheme, host, port;
  friend bool operator==(const Origin&, const Origin&) = default;
  bool is_local() const { return host == "127.0.0.1" || host == "localhost"; }
};

/// Nothing when `url` is none.
std::optional<Origin> origin_of(const std::string& url) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), curl_url_cleanup);
  if (curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) return std::nullopt;
  const auto part = [&](CURLUPart which) {
    char* text = nullptr;
    if (curl_url_get(parsed.get(), which, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return std::string();
    std::string copy = text;
    curl_free(text);
    std::transform(copy.begin(), copy.end(), copy.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; });
    return copy;
  };
  return Origin{part(CURLUPART_SCHEME), part(CURLUPART_HOST), part(CURLUPART_PORT)};
}

/// Where a redirect from `url` leads; empty when that is no URL that curl knows.
std::string resolve(const std::string& url, const std::string& location) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), curl_url_cleanup);
  char* text = nullptr;
  if (curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK ||
      curl_url_set(parsed.get(), CURLUPART_URL, location.c_str(), 0) != CURLUE_OK ||
      curl_url_get(parsed.get(), CURLUPART_URL, &text, 0) != CURLUE_OK) {
    return "";
  }
  std::string resolved = text;
  curl_free(text);
  return resolved;
}

/// Failures that may be gone with the next attempt.
bool is_passing(CURLcode code) {
  constexpr std::array kPassing = {CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY,
                                   CURLE_COULDNT_CONNECT,      CURLE_PARTIAL_FILE,
                                   CURLE_OPERATION_TIMEDOUT,   CURLE_SSL_CONNECT_ERROR,
                                   CURLE_GOT_NOTHING,          CURLE_SEND_ERROR,
                                   CURLE_RECV_ERROR,           CURLE_HTTP2,
                                   CURLE_HTTP2_STREAM};
  return std::find(kPassing.begin(), kPassing.end(), code) != kPassing.end();
}

bool is_passing(long status) { return status == 408 || status == 429 || status >= 500; }

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Thrown for a failure that may be gone with the next attempt.
struct Passing {
  std::string what;
};

}  // namespace

struct Downloader::State {
  std::string server, token;
  const SignalFlag& signals;
  DownloadLimits limits;
  Origin home;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl{nullptr, curl_easy_cleanup};
  std::array<char, CURL_ERROR_SIZE> detail{};
  std::function<void(Bytes)> on_body;  // of the request that runs
  std::exception_ptr thrown;           // by on_body: curl's frames are no place for an exception

  static size_t write(char* data, size_t, size_t size, void* self) {
    State& state = *static_cast<State*>(self);
    try {
      if (state.status() != 200 && state.status() != 206) return 0;  // a redirect's or an error's page
      state.on_body({data, size});
      return size;
    } catch (...) {
      state.thrown = std::current_exception();
      return 0;
    }
  }

  static int watch(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return *static_cast<State*>(self)->signals.flag() ? 1 : 0;
  }

  template <class T>
  void set(CURLoption option, T value) {
    LAMINA_CHECK(curl_easy_setopt(curl.get(), option, value) == CURLE_OK);
  }

  void open() {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    curl.reset(curl_easy_init());
    if (ready != CURLE_OK || curl == nullptr) fail(ErrorKind::kRuntime, "libcurl cannot be set up");
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_USERAGENT, "lamina/" LAMINA_VERSION);
    set(CURLOPT_NOSIGNAL, 1L);
    set(CURLOPT_CONNECTTIMEOUT, limits.connect_seconds);
    set(CURLOPT_LOW_SPEED_TIME, limits.idle_seconds);
    set(CURLOPT_LOW_SPEED_LIMIT, limits.idle_rate);
    set(CURLOPT_BUFFERSIZE, 1L << 18);
    set(CURLOPT_ERRORBUFFER, detail.data());
    set(CURLOPT_WRITEFUNCTION, &State::write);
    set(CURLOPT_WRITEDATA, this);
    set(CURLOPT_XFERINFOFUNCTION, &State::watch);
    set(CURLOPT_XFERINFODATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
  }

  long status() const {
    long value = 0;
    curl_easy_getinfo(curl.get(), CURLINFO_RESPONSE_CODE, &value);
    return value;
  }

  /// A header of the last answer, empty when it has none of the name.
  std::string header(const char* name) const {
    curl_header* found = nullptr;
    if (curl_easy_header(curl.get(), name, 0, CURLH_HEADER, -1, &found) != CURLHE_OK) return "";
    return found->value;
  }

  /// Sends one request. Throws Passing, Error(kNetwork), Interrupted, or what on_body threw.
  void send(const std::string& url, const Origin& origin, std::vector<std::string> headers) {
    if (!token.empty() && origin == home) headers.push_back("Authorization: Bearer " + token);
    curl_slist* list = nullptr;
    for (const std::string& line : headers) list = curl_slist_append(list, line.c_str());
    const std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> owner(list, curl_slist_free_all);
    set(CURLOPT_HTTPHEADER, list);
    set(CURLOPT_URL, url.c_str());
    detail[0] = '\0';
    const CURLcode code = curl_easy_perform(curl.get());
    set(CURLOPT_HTTPHEADER, static_cast<curl_slist*>(nullptr));
    signals.check();
    if (thrown) std::rethrow_exception(std::exchange(thrown, nullptr));
    if (code == CURLE_OK || code == CURLE_WRITE_ERROR) return;  // the latter: we did not want the page
    const std::string what = fmt::format("{}: {}", host_of(origin),
                                         detail[0] != '\0' ? printable(detail.data(), 200) : curl_easy_strerror(code));
    if (is_passing(code)) throw Passing{what};
    fail(ErrorKind::kNetwork, "{}", what);
  }

  static std::string host_of(const Origin& origin) { return printable(origin.host, 100); }

  /// Requests `path`, following redirects, until an answer is 200 or 206, or `enough` of an answer. Throws as send().
  void request(const std::string& path, const std::vector<std::string>& headers, const std::function<bool()>& enough) {
    std::string url = server + path;
    Origin origin = home;
    for (int hop = 0; hop <= limits.redirects; ++hop) {
      send(url, origin, headers);
      if (enough()) return;
      const std::string location = header("Location");
      if (status() / 100 != 3 || location.empty()) return check_status(origin, url);
      url = resolve(url, location);
      const std::optional<Origin> there = origin_of(url);
      const bool allowed = there && (there->scheme == "https" ||
                                     (there->scheme == "http" && there->is_local() && home.scheme == "http"));
      if (!allowed) {
        fail(ErrorKind::kNetwork, "{} redirects to '{}', which is not https", host_of(origin),
             printable(location, 200));
      }
      origin = *there;
    }
    fail(ErrorKind::kNetwork, "{}{} redirects more than {} times", server, path, limits.redirects);
  }

  void check_status(const Origin& origin, const std::string& url) const {
    const long code = status();
    if (code == 200 || code == 206) return;
    if (is_passing(code)) throw Passing{fmt::format("{} answers with status {}", host_of(origin), code)};
    const char* hint = code == 401 || code == 403 ? " (does the model need a token in HF_TOKEN?)" : "";
    fail(ErrorKind::kNetwork, "{} answers with status {} for {}{}", host_of(origin), code, printable(url, 300), hint);
  }

  void pause(std::chrono::milliseconds time) const {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) {
      signals.check();
      std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(time, std::chrono::milliseconds(50)));
    }
  }

  /// Calls `attempt` until it does not throw Passing; `clear` is called before a line is logged.
  void with_retries(const std::function<void()>& attempt, const std::function<void()>& clear) const {
    auto wait = limits.first_wait;
    for (int n = 1;; ++n, wait *= 2) {
      try {
        return attempt();
      } catch (const Passing& passing) {
        if (n >= limits.attempts) fail(ErrorKind::kNetwork, "{} (tried {} times)", passing.what, n);
        clear();
        spdlog::warn("{}; trying again in {} s", passing.what, static_cast<double>(wait.count()) / 1000);
      }
      pause(wait);
    }
  }

  /// Before the first byte of an answer: does it go on where `file` ends, or start over?
  void place(PartFile& file) const {
    const std::string etag = header("ETag");
    if (status() == 200) return file.restart(etag);
    const std::string range = header("Content-Range");
    if (range.starts_with(fmt::format("bytes {}-", file.size())) && (etag.empty() || etag == file.etag())) return;
    file.restart("");
    throw Passing{"the server cannot go on with what arrived before"};
  }

  void attempt_download(const std::string& path, PartFile& file, uint64_t bytes, TransferLine& line) {
    std::vector<std::string> headers;
    if (file.size() > 0 && !file.etag().empty()) {
      headers = {fmt::format("Range: bytes={}-", file.size()), "If-Range: " + file.etag()};
    }
    bool placed = false;
    on_body = [&](Bytes data) {
      if (!std::exchange(placed, true)) place(file);
      if (data.size() > bytes - file.size()) {
        file.remove();
        fail(ErrorKind::kNetwork, "the server sends more than the expected {} bytes of {}", bytes, path);
      }
      file.append(data);
      line.show(file.size(), bytes);
    };
    request(path, headers, [&] {
      if (status() != 416) return false;  // the file is shorter than what we have of it
      file.restart("");
      throw Passing{"the server's file is shorter than what arrived before"};
    });
    if (file.size() == bytes) return;
    const uint64_t got = file.size();
    file.remove();
    fail(ErrorKind::kNetwork, "{} has {} bytes, expected {}", path, got, bytes);
  }
};

Downloader::Downloader(std::string server, std::string token, const SignalFlag& signals, DownloadLimits limits)
    : state_(new State{.server = std::move(server),
                       .token = std::move(token),
                       .signals = signals,
                       .limits = limits,
                       .home = {},
                       .on_body = {},
                       .thrown = {}}) {
  const std::optional<Origin> home = origin_of(state_->server);
  if (!home || !(home->scheme == "https" || (home->scheme == "http" && home->is_local()))) {
    fail(ErrorKind::kUsage, "the server '{}' must be https://HOST (or plain http on this machine)",
         printable(state_->server));
  }
  if (state_->token.find_first_of("\r\n") != std::string::npos) {
    fail(ErrorKind::kUsage, "the token for {} has more than one line", State::host_of(*home));
  }
  state_->home = *home;
  state_->open();
}

Downloader::~Downloader() = default;

Downloader::Identity Downloader::identify(const std::string& path) {
  Identity identity;
  const auto named = [&] {
    std::string sha256 = state_->header("X-Linked-Etag");
    std::erase(sha256, '"');
    const std::optional<uint64_t> bytes = number(state_->header("X-Linked-Size"));
    if (!bytes || !is_sha256(sha256) || state_->status() >= 400) return false;
    identity = {*bytes, sha256};
    return true;
  };
  state_->on_body = [](Bytes) {};
  state_->set(CURLOPT_NOBODY, 1L);
  state_->with_retries([&] { state_->request(path, {}, named); }, [] {});
  state_->set(CURLOPT_HTTPGET, 1L);
  if (identity.sha256.empty()) {
    fail(ErrorKind::kNetwork, "{} names no size and sha256 for {}", State::host_of(state_->home), path);
  }
  return identity;
}

void Downloader::download(const std::string& path, PartFile& file, uint64_t bytes, TransferLine& line) {
  if (file.size() > bytes) file.restart("");
  if (file.size() == bytes) return;
  state_->with_retries([&] { state_->attempt_download(path, file, bytes, line); }, [&] { line.clear(); });
}

}  // namespace lamina
