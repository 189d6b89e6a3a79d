// A session gives the reference's bits whether it runs, extends, rewinds or reuses, alone or with others, in steps of
// any size.
#include "engine/session.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gguf/error.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"

namespace lamina {
namespace {

const std::string kModel = LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf";
constexpr int32_t kVocab = 286;

using Tokens = std::vector<int32_t>;
using Bits = std::vector<uint32_t>;

Tokens some_tokens(size_t n, int32_t seed) {
  Tokens tokens;
  for (size_t i = 0; i < n; ++i) tokens.push_back((seed + 37 * static_cast<int32_t>(i * (i + 1))) % kVocab);
  return tokens;
}

Bits bits_of(std::span<const float> logits) {
  Bits bits;
  for (const float x : logits) bits.push_back(std::bit_cast<uint32_t>(x));
  return bits;
}

class SessionTest : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Engine> make_engine(EngineOptions options) const {
    options.tokenizer = false;
    return std::make_unique<Engine>(
        kModel, GetParam() == "cpu" ? make_cpu_device({.n_threads = 2, .isa = {}}) : make_reference_device(), options);
  }

  Bits evaluated(Session& session, const Tokens& tokens) const {
    EXPECT_TRUE(session.evaluate(tokens));
    EXPECT_EQ(session.tokens(), tokens);
    return bits_of(session.logits());
  }

  /// What the scalar reference gives for `tokens` in one step of a fresh engine.
  Bits expected(const Tokens& tokens) const {
    Engine engine(kModel, make_reference_device(), {.n_ctx = 512, .tokenizer = false});
    Session session(engine);
    return evaluated(session, tokens);
  }
};

TEST_P(SessionTest, ExtendsWhatIsCached) {
  const auto engine = make_engine({.n_ctx = 512});
  Session session(*engine);
  const Tokens tokens = some_tokens(130, 1);
  for (const size_t n : {1u, 2u, 64u, 65u, 130u}) {
    const Tokens prefix(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n));
    const auto cached = static_cast<uint32_t>(session.tokens().size());
    EXPECT_EQ(evaluated(session, prefix), expected(prefix)) << n;
    EXPECT_EQ(session.n_reused(), cached);
  }
}

TEST_P(SessionTest, RewindsWhatDiffers) {
  const auto engine = make_engine({.n_ctx = 512});
  Session session(*engine);
  Tokens tokens = some_tokens(140, 1);
  evaluated(session, tokens);
  tokens[70] = (tokens[70] + 1) % kVocab;
  EXPECT_EQ(evaluated(session, tokens), expected(tokens));
  EXPECT_EQ(session.n_reused(), 70u);
  tokens.resize(66);
  EXPECT_EQ(evaluated(session, tokens), expected(tokens));
  EXPECT_EQ(session.n_reused(), 65u);  // the last token is run again for its logits
  const Tokens other = some_tokens(67, 2);
  EXPECT_EQ(evaluated(session, other), expected(other));
  EXPECT_EQ(session.n_reused(), 0u);
}

TEST_P(SessionTest, RunsTheLastTokenAgainForTheSamePrefix) {
  const auto engine = make_engine({.n_ctx = 512});
  Session session(*engine);
  const Tokens tokens = some_tokens(65, 3);
  const Bits first = evaluated(session, tokens);
  EXPECT_EQ(evaluated(session, tokens), first);
  EXPECT_EQ(session.n_reused(), 64u);
}

TEST_P(SessionTest, GivesTheSameBitsInStepsOfAnySize) {
  const Tokens tokens = some_tokens(131, 4);
  const Bits want = expected(tokens);
  for (const uint32_t n_batch : {1u, 7u, 64u, 100u}) {
    const auto engine = make_engine({.n_ctx = 512, .n_batch = n_batch});
    Session session(*engine);
    EXPECT_EQ(evaluated(session, tokens), want) << n_batch;
    EXPECT_EQ(engine->n_steps(), (131 + n_batch - 1) / n_batch);
  }
}

TEST_P(SessionTest, RunsSeveralSequencesInOneStep) {
  const auto engine = make_engine({.n_ctx = 200, .n_batch = 96, .n_sequence = 3});
  Session sessions[] = {Session(*engine), Session(*engine), Session(*engine)};
  std::vector<Tokens> tokens = {some_tokens(5, 1), some_tokens(130, 2), some_tokens(70, 3)};
  for (int round = 0; round < 3; ++round) {
    std::vector<Feed> feeds;
    for (size_t i = 0; i < 3; ++i) {
      feeds.push_back({&sessions[i], tokens[i], static_cast<uint32_t>(tokens[i].size() - 1)});
    }
    std::vector<Bits> got(3);
    const uint64_t before = engine->n_steps();
    EXPECT_TRUE(
        evaluate(*engine, feeds, [&](size_t feed, uint32_t position, std::span<const float> logits, int32_t argmax) {
          EXPECT_EQ(position, tokens[feed].size() - 1);
          EXPECT_EQ(logits[static_cast<size_t>(argmax)], *std::max_element(logits.begin(), logits.end()));
          got[feed] = bits_of(logits);
        }));
    EXPECT_EQ(engine->n_steps() - before, round == 0 ? 3u : 1u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(got[i], expected(tokens[i])) << "round " << round << ", sequence " << i;
      tokens[i].push_back(static_cast<int32_t>(10 * i) + round);
    }
  }
}

TEST_P(SessionTest, GivesEachFeedAtLeastWhatItAskedFor) {
  const auto engine = make_engine({.n_ctx = 64, .n_sequence = 2});
  const Tokens tokens[] = {some_tokens(5, 1), some_tokens(9, 2)};
  for (const auto& [first, second, together] :
       {std::tuple{1u, 1u, 1u}, {1u, 5u, 5u}, {5u, 2u, 5u}, {0u, 3u, 0u}, {3u, 0u, 0u}}) {
    Session sessions[] = {Session(*engine), Session(*engine)};
    const Feed feeds[] = {{&sessions[0], tokens[0], 4, first}, {&sessions[1], tokens[1], 8, second}};
    EXPECT_TRUE(evaluate(*engine, feeds, {}));
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(sessions[i].best().size(), together);
      EXPECT_EQ(sessions[i].logits().size(), together == 0 ? kVocab : 0);
    }
    const Session* const last = &sessions[1];
    if (together == 0) EXPECT_EQ(bits_of(last->logits()), expected(tokens[1]));
    else EXPECT_EQ(last->best()[0].token, last->argmax());
  }
}

TEST_P(SessionTest, GivesLogitsOfManyRows) {
  const auto engine = make_engine({.n_ctx = 512, .n_batch = 50, .all_logits = true});
  Session session(*engine);
  const Tokens tokens = some_tokens(70, 5);
  const Feed feed{&session, tokens, 60};
  uint32_t next = 60;
  evaluate(*engine, {&feed, 1}, [&](size_t, uint32_t position, std::span<const float> logits, int32_t) {
    EXPECT_EQ(position, next++);
    EXPECT_EQ(bits_of(logits), expected(Tokens(tokens.begin(), tokens.begin() + position + 1)));
  });
  EXPECT_EQ(next, 70u);
}

TEST_P(SessionTest, RefusesWhatItCannotRun) {
  const auto engine = make_engine({.n_ctx = 8});
  Session session(*engine);
  const auto kind_of = [&](const Tokens& tokens) {
    try {
      session.evaluate(tokens);
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kNetwork;
  };
  EXPECT_EQ(kind_of(some_tokens(9, 1)), ErrorKind::kUsage);
  EXPECT_EQ(kind_of({1, kVocab}), ErrorKind::kModel);
  EXPECT_EQ(kind_of({1, -1}), ErrorKind::kModel);
  EXPECT_TRUE(session.evaluate(some_tokens(8, 1)));
}

TEST_P(SessionTest, StopsWhenCancelledAndGoesOnLater) {
  const auto engine = make_engine({.n_ctx = 512, .n_batch = 16});
  Session session(*engine);
  const Tokens tokens = some_tokens(40, 6);
  std::atomic<bool> cancel = false;
  const Feed feed{&session, tokens, 0};
  EXPECT_FALSE(evaluate(
      *engine, {&feed, 1}, [&](size_t, uint32_t, std::span<const float>, int32_t) { cancel = true; }, &cancel));
  EXPECT_GT(session.tokens().size(), 0u);
  EXPECT_LT(session.tokens().size(), tokens.size());
  EXPECT_EQ(evaluated(session, tokens), expected(tokens));
}

TEST_P(SessionTest, ForksByHoldingWholePagesTogether) {
  const auto engine = make_engine({.n_ctx = 256, .n_sequence = 2});
  const PagePool& pool = engine->pages();
  {
    Session parent(*engine), child(*engine);
    const Tokens tokens = some_tokens(140, 7);
    evaluated(parent, tokens);
    child.fork(parent);
    EXPECT_EQ(child.tokens(), Tokens(tokens.begin(), tokens.begin() + 128));
    EXPECT_EQ(pool.n_free(), 8 - 3u);
    Tokens other = tokens;
    other[135] = (other[135] + 1) % kVocab;
    EXPECT_EQ(evaluated(child, other), expected(other));
    EXPECT_EQ(child.n_reused(), 128u);
    EXPECT_EQ(pool.n_free(), 8 - 4u);

    // A cut within a page that both hold leaves the whole page to the other.
    other.resize(101);
    other[100] = (other[100] + 1) % kVocab;
    EXPECT_EQ(evaluated(child, other), expected(other));
    EXPECT_EQ(child.n_reused(), 64u);
    EXPECT_EQ(evaluated(parent, tokens), expected(tokens));
    EXPECT_EQ(parent.n_reused(), 139u);
    EXPECT_EQ(pool.n_free(), 8 - 4u);
  }
  EXPECT_EQ(pool.n_free(), 8u);
}

INSTANTIATE_TEST_SUITE_P(Devices, SessionTest, testing::Values("reference", "cpu"),
                         [](const auto& test) { return test.param; });

/// Logits of token sequences, each run alone from its start.
class SingleRuns {
 public:
  const Bits& of(const Tokens& tokens) {
    Bits& bits = known_[tokens];
    if (bits.empty()) {
      session_.rewind(0);
      session_.evaluate(tokens);
      bits = bits_of(session_.logits());
    }
    return bits;
  }

 private:
  Engine engine_{kModel, make_cpu_device({.n_threads = 1, .isa = {}}), {.n_ctx = 256, .tokenizer = false}};
  Session session_{engine_};
  std::map<Tokens, Bits> known_;
};

RC_GTEST_PROP(Sessions, GiveTheBitsOfSingleRunsWhateverTheyShare, ()) {
  static SingleRuns single_runs;
  constexpr size_t kSessions = 3;
  constexpr uint32_t kContext = 256;
  static Engine engine(kModel, make_cpu_device({.n_threads = 1, .isa = {}}),
                       {.n_ctx = kContext, .n_batch = 100, .n_sequence = kSessions, .tokenizer = false});
  const PagePool& pool = engine.pages();
  {
    Session sessions[kSessions] = {Session(engine), Session(engine), Session(engine)};
    Tokens tokens[kSessions];
    const auto number_below = [](size_t limit) { return *rc::gen::resize(100, rc::gen::inRange<size_t>(0, limit)); };
    const size_t n_steps = 1 + number_below(12);
    for (size_t step = 0; step < n_steps; ++step) {
      const size_t i = number_below(kSessions), other = (i + 1 + number_below(kSessions - 1)) % kSessions;
      switch (number_below(3)) {
        case 0:
          sessions[i].fork(sessions[other]);
          tokens[i] = tokens[other];
          break;
        case 1:
          tokens[i].resize(number_below(tokens[i].size() + 1));
          if (number_below(2) == 0) sessions[i].rewind(static_cast<uint32_t>(tokens[i].size()));
          break;
        default: break;
      }
      const Tokens more = some_tokens(1 + number_below(kContext / 2), static_cast<int32_t>(number_below(kVocab)));
      tokens[i].insert(tokens[i].end(), more.begin(), more.end());
      tokens[i].resize(std::min<size_t>(tokens[i].size(), kContext));

      std::vector<Feed> feeds;
      for (size_t k = 0; k < kSessions; ++k) {
        if (tokens[k].empty() || (k != i && number_below(2) == 0)) continue;
        feeds.push_back({&sessions[k], tokens[k], static_cast<uint32_t>(tokens[k].size() - 1)});
      }
      evaluate(engine, feeds, [&](size_t feed, uint32_t, std::span<const float> logits, int32_t) {
        RC_ASSERT(bits_of(logits) == single_runs.of(Tokens(feeds[feed].tokens.begin(), feeds[feed].tokens.end())));
      });
    }
  }
  RC_ASSERT(pool.n_free() == pool.n_pages());
}

TEST(Engine, ChoosesItsContext) {
  const auto n_ctx = [](EngineOptions options) {
    options.tokenizer = false;
    return Engine(kModel, make_reference_device(), options).n_ctx();
  };
  EXPECT_EQ(n_ctx({}), 512u);  // the model's
  EXPECT_EQ(n_ctx({.n_ctx = 100}), 100u);
  EXPECT_EQ(n_ctx({.n_ctx_least = 600}), 600u);
  EXPECT_EQ(n_ctx({.n_ctx = 100, .n_ctx_least = 90}), 100u);
}

}  // namespace
}  // namespace lamina
