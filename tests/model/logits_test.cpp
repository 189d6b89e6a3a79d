// Programs against the world: logits of tiny models of every architecture, run on the scalar reference, against those
// that llama.cpp computed in float32. In: tests/data/archs. Out: the normalised mean square error stays below 1e-5.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "kernels/reference/reference_device.h"
#include "model/builder.h"
#include "tests/model/edited_file.h"
#include "tests/tiny_model.h"

namespace lamina {
namespace {

class Logits : public testing::TestWithParam<const char*> {};

TEST_P(Logits, AgreeWithTheGoldenOnes) {
  const std::string base = fixture(GetParam());
  const gguf::File file = gguf::File::open(base + ".gguf");
  const Config config = read_config(file);
  const Program program = build_program(file, config, {.n_ctx = default_n_ctx(config)});

  std::vector<int32_t> tokens;
  std::ifstream token_file(fixture("tokens.txt"));
  for (int32_t token = 0; token_file >> token;) tokens.push_back(token);
  ASSERT_EQ(tokens.size(), 64U);
  const auto n = static_cast<uint32_t>(tokens.size());

  const auto device = make_reference_device();
  const auto executable = device->compile(program, file, {.max_rows = n, .max_outputs = n, .n_pages = 1}, {});
  const std::vector<float> actual = run(*executable, one_sequence(tokens));

  std::vector<float> expected(actual.size());
  std::ifstream golden(base + ".f32", std::ios::binary);
  golden.read(reinterpret_cast<char*>(expected.data()), static_cast<std::streamsize>(expected.size() * sizeof(float)));
  ASSERT_EQ(golden.gcount(), static_cast<std::streamsize>(expected.size() * sizeof(float)));

  double error = 0, power = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = double{actual[i]} - double{expected[i]};
    error += difference * difference;
    power += double{expected[i]} * double{expected[i]};
  }
  EXPECT_LE(error / power, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Models, Logits,
                         testing::Values("llama-dense", "qwen2-dense", "qwen3-dense", "gemma2-dense", "gemma3-dense",
                                         "phi3-dense", "gpt2-dense", "olmo2-dense", "cohere2-logit-scale",
                                         "granite-scales"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace lamina
