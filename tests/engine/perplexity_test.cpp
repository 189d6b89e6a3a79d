// Perplexity: how a text is cut, what is scored, and that the number is the same however it is run.
#include "engine/perplexity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "engine/session.h"
#include "gguf/error.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/model/edited_file.h"

namespace lamina {
namespace {

const std::string kModel = LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf";
constexpr int32_t kBos = 1;

std::vector<int32_t> some_tokens(size_t n, int32_t n_vocab) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<int32_t>((7 + 37 * i * (i + 1)) % static_cast<size_t>(n_vocab)));
  return tokens;
}

std::vector<int32_t> counted(size_t n) {
  std::vector<int32_t> tokens(n);
  std::iota(tokens.begin(), tokens.end(), 100);
  return tokens;
}

std::string refusal(size_t n_tokens, const ChunkOptions& options) {
  try {
    const Chunks chunks(counted(n_tokens), kBos, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kUsage);
    return error.what();
  }
  return "";
}

/// The negative log-likelihoods of all scored tokens, chunk by chunk; n_seq chunks run together.
std::vector<double> nlls(const std::string& path, const Chunks& chunks, uint32_t n_batch, uint32_t n_seq,
                         int n_threads) {
  Engine engine(
      path, make_cpu_device({.n_threads = n_threads, .isa = {}}),
      {.n_ctx = chunks.n_ctx(), .n_batch = n_batch, .n_sequence = n_seq, .all_logits = true, .tokenizer = false});
  std::vector<double> all(size_t{chunks.n_chunk()} * chunks.n_scored(), -1);
  for (uint32_t first = 0; first < chunks.n_chunk(); first += n_seq) {
    const uint32_t end = std::min(first + n_seq, chunks.n_chunk());
    const auto sink = [&](const Scored& scored) {
      all[scored.chunk * chunks.n_scored() + scored.index] = scored.nll();
    };
    EXPECT_TRUE(score_chunks(engine, chunks, first, end, sink, nullptr));
  }
  return all;
}

TEST(Chunks, LieSideBySideAndScoreTheirSecondHalf) {
  const Chunks chunks(counted(21), kBos, {.n_ctx = 8});
  EXPECT_EQ(chunks.n_chunk(), 2u);
  EXPECT_EQ(chunks.first_scored(), 4u);
  EXPECT_EQ(chunks.n_scored(), 3u);  // behind positions 4, 5, 6
  EXPECT_EQ(chunks.input(1), (std::vector<int32_t>{kBos, 109, 110, 111, 112, 113, 114}));
  EXPECT_EQ(chunks.next(1, 4), 113);
  EXPECT_EQ(chunks.next(1, 6), 115);
  EXPECT_EQ(Chunks(counted(16), -1, {.n_ctx = 8}).input(0)[0], 100);
  EXPECT_EQ(Chunks(counted(80), -1, {.n_ctx = 8, .max_chunks = 3}).n_chunk(), 3u);
  EXPECT_EQ(Chunks(counted(1024), -1, {}).n_scored(), 255u);  // llama-perplexity's count at 512
}

TEST(Chunks, OverlapWithAStride) {
  const Chunks chunks(counted(15), kBos, {.n_ctx = 8, .stride = 3});
  EXPECT_EQ(chunks.n_chunk(), 3u);  // from tokens 0, 3, 6; the last needs tokens to 13
  EXPECT_EQ(chunks.n_scored(), 3u);
  EXPECT_EQ(chunks.first_scored(), 4u);
  EXPECT_EQ(chunks.input(2), (std::vector<int32_t>{kBos, 107, 108, 109, 110, 111, 112}));
  EXPECT_EQ(chunks.next(2, 6), 113);
  EXPECT_EQ(chunks.next(1, 6), 110);  // each token behind the first chunk is scored once: 105..107, 108..110, 111..113
  EXPECT_EQ(chunks.next(2, 4), 111);
}

TEST(Chunks, RefuseATextThatIsTooShortWithBothCounts) {
  const std::string message = refusal(15, {.n_ctx = 8});
  EXPECT_NE(message.find("15 tokens"), std::string::npos) << message;
  EXPECT_NE(message.find("16"), std::string::npos) << message;
  EXPECT_EQ(refusal(16, {.n_ctx = 8}), "");
  EXPECT_NE(refusal(8, {.n_ctx = 8, .stride = 2}).find("at least 9"), std::string::npos);
  EXPECT_EQ(refusal(9, {.n_ctx = 8, .stride = 2}), "");
  EXPECT_NE(refusal(99, {.n_ctx = 8, .stride = 8}), "");
  EXPECT_NE(refusal(99, {.n_ctx = 2}), "");
}

TEST(LogSoftmax, SumsToOneAndSeesWhatIsNotFinite) {
  const std::vector<float> logits = {1000.0f, 999.0f, -1000.0f};  // exp(1000) is not finite, the result is
  const LogSoftmax log_softmax(logits);
  EXPECT_TRUE(log_softmax.finite());
  EXPECT_NEAR(log_softmax(1000.0f), -std::log(1 + std::exp(-1.0)), 1e-7);
  EXPECT_NEAR(log_softmax(999.0f), -1 - std::log(1 + std::exp(-1.0)), 1e-7);
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    EXPECT_FALSE(LogSoftmax(std::vector<float>{0.0f, bad, 1.0f}).finite());
  }
}

TEST(Sums, GiveMeanAndStandardError) {
  Sums sums;
  for (const double x : {1.0, 2.0, 3.0, 6.0}) sums.add(x);
  EXPECT_DOUBLE_EQ(sums.mean(), 3);
  EXPECT_DOUBLE_EQ(sums.variance(), 3.5);
  EXPECT_DOUBLE_EQ(sums.error(), std::sqrt(3.5 / 3));
  const Estimate ppl = perplexity_of(sums);
  EXPECT_DOUBLE_EQ(ppl.value, std::exp(3.0));
  EXPECT_DOUBLE_EQ(ppl.error, std::exp(3.0) * std::sqrt(3.5 / 3));
}

TEST(Perplexity, OfUniformLogitsIsTheSizeOfTheVocabulary) {
  EditedFile file("llama-dense.gguf");
  file.tensor("output.weight", {64, 128});  // zeros
  const gguf::File model = file.open();
  Sums sums;
  for (const double nll : nlls(model.path(), Chunks(some_tokens(64, 128), 1, {.n_ctx = 16}), 16, 1, 1)) sums.add(nll);
  EXPECT_EQ(sums.n(), 4u * 7);
  EXPECT_DOUBLE_EQ(perplexity_of(sums).value, 128);  // log and exp round once each
  EXPECT_EQ(perplexity_of(sums).error, 0);
}

TEST(Perplexity, ScoresEachTokenWithWhatStandsBeforeItInItsChunk) {
  const Chunks chunks(some_tokens(50, 286), kBos, {.n_ctx = 24});
  const std::vector<double> got = nlls(kModel, chunks, 512, 1, 2);
  ASSERT_EQ(got.size(), 2u * 11);
  Engine engine(kModel, make_cpu_device({}), {.n_ctx = 64, .tokenizer = false});
  for (uint32_t chunk = 0; chunk < 2; ++chunk) {
    for (uint32_t i = 0; i < 11; ++i) {
      const auto begin = chunks.tokens().begin() + chunk * 24;
      std::vector<int32_t> prefix(begin, begin + 13 + i);
      const int32_t next = *(begin + 13 + i);
      prefix[0] = kBos;
      Session session(engine);
      session.evaluate(prefix);
      double sum = 0;
      for (const float x : session.logits()) sum += std::exp(static_cast<double>(x));
      EXPECT_NEAR(got[chunk * 11 + i], std::log(sum) - session.logits()[static_cast<size_t>(next)], 1e-5);
    }
  }
}

TEST(Perplexity, DoesNotDependOnThreadsAndBatching) {
  for (const uint32_t stride : {0u, 10u}) {
    const Chunks chunks(some_tokens(333, 286), kBos, {.n_ctx = 40, .stride = stride});
    const std::vector<double> want = nlls(kModel, chunks, 512, 1, 1);
    EXPECT_EQ(std::ranges::count(want, -1), 0);
    EXPECT_EQ(nlls(kModel, chunks, 1, 1, 2), want);
    EXPECT_EQ(nlls(kModel, chunks, 7, 1, 1), want);
    EXPECT_EQ(nlls(kModel, chunks, 100, 3, 2), want);
    EXPECT_EQ(nlls(kModel, chunks, 512, 8, 2), want);
  }
}

/// A copy of the model in which the embedding of `token` begins with an infinity.
std::string with_infinite_embedding(const gguf::TempFolder& folder, int32_t token) {
  const gguf::File file = gguf::File::open(kModel);
  for (const gguf::Tensor& tensor : file.tensors()) {
    if (tensor.name != "token_embd.weight") continue;
    std::ifstream in(kModel, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const size_t row = tensor.data.size() / 286;
    const std::string embedding(reinterpret_cast<const char*>(tensor.data.data()) + row * static_cast<size_t>(token),
                                row);
    const size_t at = bytes.find(embedding);
    EXPECT_NE(at, std::string::npos);
    EXPECT_EQ(bytes.find(embedding, at + 1), std::string::npos);
    const uint16_t infinity = 0x7c00;
    std::memcpy(bytes.data() + at, &infinity, sizeof infinity);
    return folder.write("infinite.gguf", bytes);
  }
  return "";
}

TEST(Perplexity, NamesTheChunkAndTheFirstOpOfALogitThatIsNotFinite) {
  gguf::TempFolder folder;
  constexpr int32_t kBad = 270;
  std::vector<int32_t> tokens(48, 260);
  tokens[16 + 10] = kBad;  // the second chunk's scored part
  const Chunks chunks(tokens, kBos, {.n_ctx = 16});
  for (const uint32_t n_seq : {1u, 3u}) {
    try {
      nlls(with_infinite_embedding(folder, kBad), chunks, 64, n_seq, 2);
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.kind(), ErrorKind::kRuntime);
      EXPECT_TRUE(message.starts_with("chunk 2: the logits behind its token 10 are not finite; first op 0, embed"))
          << message;
      EXPECT_NE(message.find("inf"), std::string::npos) << message;
    }
  }
}

}  // namespace
}  // namespace lamina
