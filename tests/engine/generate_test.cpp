// The generation loop on a model whose text is known (tests/make_text_model.py).
#include "engine/generate.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/model_label.h"
#include "kernels/reference/reference_device.h"

namespace lamina {
namespace {

const std::string kModel = LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf";

struct Said {
  Generation how;
  std::string text;
};

Said continue_text(Engine& engine, std::string_view prompt, const GenerateOptions& options) {
  Session session(engine);
  std::vector<int32_t> tokens = engine.tokenizer().encode(prompt, {.add_special = true, .parse_special = false});
  Said said;
  said.how = generate(session, tokens, options, [&](std::string_view text) { said.text += text; });
  return said;
}

TEST(Generate, EndsForEachReason) {
  Engine engine(kModel, make_reference_device(), {.n_ctx = 20});
  const Said end = continue_text(engine, "a", {});
  EXPECT_EQ(end.text, "bcdefghij");
  EXPECT_EQ(end.how.reason, EndReason::kEndToken);
  EXPECT_EQ(end.how.n_prompt, 2u);
  EXPECT_EQ(end.how.n_generated, 9u);

  const Said limit = continue_text(engine, "a", {.n_predict = 3});
  EXPECT_EQ(limit.text, "bcd");
  EXPECT_EQ(limit.how.reason, EndReason::kLimit);
  EXPECT_EQ(limit.how.n_steps, 2u);

  const Said context = continue_text(engine, "x", {});
  EXPECT_EQ(context.how.reason, EndReason::kContext);
  EXPECT_EQ(context.how.n_prompt + context.how.n_generated, 21u);  // the last one needs no position

  const std::atomic<bool> cancelled = true;
  EXPECT_EQ(continue_text(engine, "a", {.cancel = &cancelled}).how.reason, EndReason::kCancelled);
  EXPECT_EQ(continue_text(engine, "a", {.n_predict = 0}).text, "");
}

TEST(Generate, NeverCutsACharacter) {
  Engine engine(kModel, make_reference_device(), {.n_ctx = 64});
  const std::string bad = "\xEF\xBF\xBD";
  const std::string want[] = {"", bad, bad, "€", "€k", "€k" + bad};
  for (int n = 0; n < 6; ++n) EXPECT_EQ(continue_text(engine, "k", {.n_predict = n}).text, want[n]) << n;
  EXPECT_EQ(continue_text(engine, "m", {}).text, bad + "n");
}

TEST(Generate, EndsBeforeAStopText) {
  Engine engine(kModel, make_reference_device(), {.n_ctx = 64});
  const Said said = continue_text(engine, "a", {.stop = {"hi", "efg", "fgh"}});
  EXPECT_EQ(said.text, "bcd");
  EXPECT_EQ(said.how.reason, EndReason::kStop);
  EXPECT_EQ(said.how.n_generated, 6u);  // to the g
  EXPECT_EQ(continue_text(engine, "a", {.n_predict = 4, .stop = {"efg"}}).text, "bcde");
  EXPECT_EQ(continue_text(engine, "a", {.stop = {"b"}}).text, "");
  // A character of three tokens within the stop text, and one held back at the end.
  EXPECT_EQ(continue_text(engine, "k", {.stop = {"k€k"}}).text, "€");
  EXPECT_EQ(continue_text(engine, "k", {.n_predict = 5, .stop = {"\xEF\xBF\xBD"}}).text, "€k");
}

TEST(Generate, TakesTokensFromTheSampler) {
  Engine engine(kModel, make_reference_device(), {.n_ctx = 64});
  const auto drawn = [&](uint64_t seed) {
    Sampler sampler({.temp = 30, .top_k = 0, .top_p = 1, .min_p = 0, .seed = seed});
    std::vector<int32_t> tokens;
    continue_text(engine, "a",
                  {.n_predict = 20, .sampler = &sampler, .on_token = [&](int32_t token, std::span<const float> logits) {
                     EXPECT_EQ(logits.size(), engine.n_vocab());
                     tokens.push_back(token);
                   }});
    return tokens;
  };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(ModelLabel, NamesArchitectureSizeAndType) {
  const gguf::File file = gguf::File::open(kModel);
  EXPECT_EQ(model_label(file), "llama 98K F16");
}

}  // namespace
}  // namespace lamina
