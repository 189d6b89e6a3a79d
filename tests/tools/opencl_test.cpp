// `--device opencl` by running the binary: where there is no device or no driver, where the driver fails at any call,
// and the cache of compiled kernels. The driver is PoCL behind tests/opencl_faults.cpp. Each failure ends in one
// message and the right exit code; what was printed before is the beginning of the right text, and nothing follows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tests/gguf/file_builder.h"
#include "tests/kernels/device_cases.h"
#include "tests/tools/process.h"

namespace lamina {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const std::string kModel = LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf";
const std::string kText = "bcdefghij\n";  // what the model says after "a"

/// A run whose kernels are cached in `folder`, with the drivers of an .icd file that says `icd`.
class OpenClCli : public testing::Test {
 protected:
  void SetUp() override { LAMINA_NEEDS_OPENCL(); }

  /// `fail`: of LAMINA_FAIL, or empty. One that hangs ends with exit code 124.
  ProcessResult run(const std::string& fail, Words words = {"-p", "a"}, const std::string& device = "opencl") const {
    words.insert(words.begin(),
                 {"/usr/bin/timeout", "60", LAMINA_BINARY, "run", kModel, "-n", "20", "--device", device});
    ProcessOptions options;
    options.environment = {"OCL_ICD_VENDORS=" + folder_.path("icd"), "XDG_CACHE_HOME=" + cache()};
    if (!fail.empty()) options.environment.push_back("LAMINA_FAIL=" + fail);
    return run_process(words, options);
  }

  std::string cache() const { return cache_.empty() ? kernel_cache_of_tests() : cache_; }
  void write_icd(const std::string& text) const { folder_.write("icd/driver.icd", text); }

  const gguf::TempFolder folder_;
  const std::string icd_ = folder_.write("icd/driver.icd", LAMINA_OPENCL_FAULTS "\n");
  std::string cache_;  ///< empty: that of all tests
};

/// The messages on standard error, without notes that kernels are being compiled and rates.
std::string messages(const ProcessResult& result) {
  std::string errors;
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("lamina: ") && !line.starts_with("lamina: warning: ")) errors += line + "\n";
  return errors;
}

bool is_one_line(const std::string& text) { return text.find('\n') + 1 == text.size() && !text.empty(); }

void expect_refusal(const ProcessResult& result, int exit_code, const std::string& part) {
  EXPECT_EQ(result.exit_code, exit_code) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_TRUE(is_one_line(messages(result))) << result.err;
  EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
}

TEST_F(OpenClCli, SaysWhatTheCpuSays) {
  const ProcessResult result = run("");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, kText);
}

TEST_F(OpenClCli, RefusesWhereThereIsNoDriver) {
  fs::remove(icd_);
  expect_refusal(run(""), 4, "there is no OpenCL device");
}

TEST_F(OpenClCli, RefusesADriverThatIsMissing) {
  write_icd("/nonexistent/libdriver.so\n");
  expect_refusal(run(""), 4, "there is no OpenCL device");
}

TEST_F(OpenClCli, RefusesADriverThatIsNone) {
  write_icd(folder_.write("libdriver.so", "no library") + "\n");
  expect_refusal(run(""), 4, "there is no OpenCL device");
}

TEST_F(OpenClCli, RefusesAPlatformWithoutDevices) {
  expect_refusal(run("clGetDeviceIDs:0:-1"), 4, "there is no OpenCL device");
}

TEST_F(OpenClCli, ListsTheDevicesWhereTheIndexIsUnknown) {
  expect_refusal(run("", {"-p", "a"}, "opencl:9"), 4, "there is no device opencl:9; there are: opencl:0 (");
}

TEST_F(OpenClCli, RunsOnTheCpuByItselfWhereOnlyACpuIsThere) {
  const ProcessResult result = run("clCreateContext:1", {"-p", "a"}, "auto");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.out, kText);
}

TEST_F(OpenClCli, RefusesADeviceOfWhichNoContextIsMade) {
  expect_refusal(run("clCreateContext:1:-2"), 1, "clCreateContext failed with CL_DEVICE_NOT_AVAILABLE");
}

TEST_F(OpenClCli, ShowsWhatTheCompilerSays) {
  cache_ = folder_.path("cache");
  const ProcessResult result = run("clBuildProgram:1:-11");
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_NE(result.err.find("clBuildProgram failed with CL_BUILD_PROGRAM_FAILURE for kernels/"), std::string::npos)
      << result.err;
}

TEST_F(OpenClCli, SaysHowMuchMemoryWasWanted) {
  for (const char* call : {"1", "2", "5", "12"})
    expect_refusal(run(fmt::format("clCreateBuffer:{}:-4", call)), 5, "CL_MEM_OBJECT_ALLOCATION_FAILURE");
}

/// The N-th call of each function that runs in steps fails, up to an N that is not reached.
class OpenClFault : public OpenClCli, public testing::WithParamInterface<const char*> {};

TEST_P(OpenClFault, EndsTheTextWhereItHappens) {
  const std::string function = GetParam();
  int n_failed = 0;
  for (const int call : {1, 2, 3, 4, 6, 8, 11, 15, 20, 50, 100, 150, 200, 300, 400}) {
    SCOPED_TRACE(fmt::format("call {} of {}", call, function));
    const ProcessResult result = run(fmt::format("{}:{}", function, call));
    if (result.exit_code == 0) {
      EXPECT_EQ(result.out, kText);
      break;
    }
    ++n_failed;
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_TRUE(kText.starts_with(result.out)) << result.out;
    EXPECT_LT(result.out.size(), kText.size());
    EXPECT_TRUE(is_one_line(messages(result))) << result.err;
    EXPECT_NE(messages(result).find(function + " failed with CL_OUT_OF_RESOURCES"), std::string::npos) << result.err;
  }
  EXPECT_GT(n_failed, 0) << "it is not called";
}

INSTANTIATE_TEST_SUITE_P(Functions, OpenClFault,
                         testing::Values("clCreateKernel", "clSetKernelArg", "clEnqueueNDRangeKernel",
                                         "clEnqueueReadBuffer", "clEnqueueWriteBuffer", "clFlush", "clWaitForEvents"),
                         [](const auto& test) { return std::string(test.param); });

/// With no program made from source, one can only come from the cache.
TEST_F(OpenClCli, CompilesNothingInTheSecondRun) {
  cache_ = folder_.path("cache");
  const std::string no_source = "clCreateProgramWithSource:1";
  EXPECT_EQ(run(no_source).exit_code, 1);
  EXPECT_EQ(run("").out, kText);
  EXPECT_EQ(run(no_source).out, kText);
}

TEST_F(OpenClCli, CompilesAnewWhatIsDamagedInTheCache) {
  cache_ = folder_.path("cache");
  ASSERT_EQ(run("").out, kText);
  const auto damage = [&](const auto& change) {
    size_t n = 0;
    for (const auto& entry : fs::directory_iterator(folder_.path("cache/lamina/kernels"))) {
      std::ifstream in(entry.path(), std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(in), {}};
      std::ofstream(entry.path(), std::ios::binary) << change(bytes);
      ++n;
    }
    EXPECT_GT(n, 3u);
  };
  const auto check = [&](const std::string& what) {
    SCOPED_TRACE(what);
    const ProcessResult first = run("");
    EXPECT_EQ(first.out, kText) << first.err;
    const ProcessResult second = run("clCreateProgramWithSource:1");
    EXPECT_EQ(second.out, kText) << second.err;
  };
  damage([](const std::string&) { return std::string(); });
  check("empty");
  damage([](const std::string& bytes) { return bytes.substr(0, bytes.size() / 2); });
  check("cut off");
  damage([](std::string bytes) {
    bytes[bytes.size() - bytes.size() / 4] ^= 1;
    return bytes;
  });
  check("one bit of the binary");
  damage([](std::string bytes) {
    bytes[0] ^= 1;
    return bytes;
  });
  check("one bit of the key");
}

/// What the driver does not take is compiled anew.
TEST_F(OpenClCli, CompilesAnewWhatTheDriverDoesNotTake) {
  ASSERT_EQ(run("").out, kText);
  const ProcessResult result = run("clCreateProgramWithBinary:1:-42");
  EXPECT_EQ(result.out, kText) << result.err;
}

}  // namespace
}  // namespace lamina
