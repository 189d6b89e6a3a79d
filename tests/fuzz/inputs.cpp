// Inputs become files in memory (memfd), since the reader maps files.
#include "tests/fuzz/inputs.h"

#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "gguf/error.h"
#include "gguf/file.h"
#include "kernels/cpu/cpu_device.h"
#include "model/builder.h"
#include "model/config.h"
#include "model/tokenizer.h"
#include "tests/gguf/file_builder.h"

namespace lamina::fuzz {
namespace {

/// A file without a name that holds `bytes`.
class MemoryFile {
 public:
  explicit MemoryFile(std::span<const std::byte> bytes) : fd_(memfd_create("fuzz", MFD_CLOEXEC)) {
    LAMINA_CHECK(fd_ >= 0 && write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  int fd_;
};

/// While one lives nothing is logged: other tests of the process look at the log.
class NoLog {
 public:
  NoLog() { spdlog::set_level(spdlog::level::off); }
  ~NoLog() { spdlog::set_level(level_); }
  NoLog(const NoLog&) = delete;
  NoLog& operator=(const NoLog&) = delete;

 private:
  const spdlog::level::level_enum level_ = spdlog::get_level();
};

/// Runs `use`, which may refuse its input in one line.
template <class Use>
void expect_errors_only(const Use& use) {
  const NoLog no_log;
  try {
    use();
  } catch (const Error& error) {
    LAMINA_CHECK(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

/// Takes fields off the front of an input; when it is used up, zeros come.
class Fields {
 public:
  explicit Fields(std::span<const std::byte> bytes) : rest_(bytes) {}

  uint8_t byte() { return rest_.empty() ? 0 : static_cast<uint8_t>(take(1)[0]); }

  /// One byte of length, then as many bytes.
  std::string_view text() { return take(byte()); }

  /// One byte of count, then as many texts.
  std::vector<std::string> texts() {
    std::vector<std::string> texts(byte());
    for (std::string& each : texts) each = text();
    return texts;
  }

  std::string_view rest() { return take(rest_.size()); }

 private:
  std::string_view take(size_t n) {
    n = std::min(n, rest_.size());
    const std::string_view taken(reinterpret_cast<const char*>(rest_.data()), n);
    rest_ = rest_.subspan(n);
    return taken;
  }
  std::span<const std::byte> rest_;
};

std::string array_of(const std::vector<std::string>& texts) {
  std::string items;
  for (const std::string& text : texts) items += gguf::raw_string(text);
  return gguf::raw_array(gguf::ValueType::kString, texts.size(), items);
}

/// In this order: flags, pretokenizer, tokens, their types, merges; what is left is the text.
gguf::FileBuilder read_vocabulary(Fields& fields) {
  gguf::FileBuilder file;
  const uint8_t flags = fields.byte();
  const bool bpe = (flags & 1) != 0;
  file.text("tokenizer.ggml.model", bpe ? "gpt2" : "llama").text("tokenizer.ggml.pre", fields.text());
  std::vector<std::string> tokens = fields.texts();
  if ((flags & 2) != 0 && !bpe) {  // SentencePiece's tokens of single bytes
    for (int byte = 0; byte < 256; ++byte) tokens.push_back(fmt::format("<0x{:02X}>", byte));
  }
  std::string types, scores;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint8_t number = fields.byte();
    types += gguf::raw(static_cast<int32_t>(number % 8));
    scores += gguf::raw(static_cast<float>(number));
  }
  using gguf::ValueType;
  file.key("tokenizer.ggml.tokens", ValueType::kArray, array_of(tokens));
  file.key("tokenizer.ggml.token_type", ValueType::kArray, gguf::raw_array(ValueType::kInt32, tokens.size(), types));
  file.key("tokenizer.ggml.scores", ValueType::kArray, gguf::raw_array(ValueType::kFloat32, tokens.size(), scores));
  file.key("tokenizer.ggml.merges", ValueType::kArray, array_of(fields.texts()));
  for (const char* name : {"bos", "eos", "unknown"}) {
    file.u32(fmt::format("tokenizer.ggml.{}_token_id", name), fields.byte());
  }
  file.key("tokenizer.ggml.add_space_prefix", ValueType::kBool, gguf::raw(static_cast<uint8_t>(flags >> 2 & 1)));
  file.key("tokenizer.ggml.add_eos_token", ValueType::kBool, gguf::raw(static_cast<uint8_t>(flags >> 3 & 1)));
  return file;
}

}  // namespace

void reader(std::span<const std::byte> bytes) {
  expect_errors_only([&] {
    const MemoryFile memory(bytes);
    const gguf::File file = gguf::File::open(memory.path());
    unsigned sum = 0;
    for (const auto& [key, type, value] : file.metadata()) {
      LAMINA_CHECK(file.find(key) == &value);
      if (const auto* text = std::get_if<std::string_view>(&value)) {
        for (const char c : *text) sum += static_cast<unsigned char>(c);
      }
    }
    for (const gguf::Tensor& tensor : file.tensors()) {
      LAMINA_CHECK(file.tensor(tensor.name) == &tensor && !tensor.data.empty());
      sum += static_cast<unsigned>(tensor.data.front()) + static_cast<unsigned>(tensor.data.back());
    }
    [[maybe_unused]] static volatile unsigned seen;
    seen = sum;
  });
}

void loader(std::span<const std::byte> bytes) {
  static const std::unique_ptr<Device> device = make_cpu_device({.n_threads = 1, .isa = "scalar"});
  expect_errors_only([&] {
    const MemoryFile memory(bytes);
    const gguf::File file = gguf::File::open(memory.path());
    const Config config = read_config(file);
    constexpr uint32_t kRows = 3;
    const uint32_t n_ctx = std::min(default_n_ctx(config), kPagePositions);
    const Program program = build_program(file, config, {.n_ctx = n_ctx});
    const auto executable = device->compile(program, file, {.max_rows = kRows, .max_outputs = kRows, .n_pages = 1}, {});
    Step step;
    for (uint32_t i = 0; i < std::min(kRows, n_ctx); ++i) {
      step.token.push_back(static_cast<int32_t>(i % program.n_vocab));
      step.position.push_back(i);
      step.sequence.push_back(0);
      step.outputs.push_back(i);
    }
    step.pages = {{0}};
    executable->run(step);
    for (uint32_t i = 0; i < step.outputs.size(); ++i) {
      const int32_t best = executable->argmax(i);
      LAMINA_CHECK(best >= 0 && static_cast<uint32_t>(best) < program.n_vocab);
      LAMINA_CHECK(executable->logits(i).size() == program.n_vocab);
    }
  });
}

void tokenizer(std::span<const std::byte> bytes) {
  expect_errors_only([&] {
    Fields fields(bytes);
    const std::string file = read_vocabulary(fields).build().bytes;
    const MemoryFile memory(std::as_bytes(std::span(file)));
    const auto tokenizer = Tokenizer::create(gguf::File::open(memory.path()));
    const std::string_view text = fields.rest();
    for (const bool special : {false, true}) {
      const std::vector<int32_t> ids = tokenizer->encode(text, {.add_special = special, .parse_special = special});
      for (const int32_t id : ids) LAMINA_CHECK(id >= 0 && id < tokenizer->n_tokens());
      tokenizer->decode(ids, special);
    }
  });
}

}  // namespace lamina::fuzz
