// Looks inside steps find the op at fault. The faults are made by writing a value into a weight of a small model.
#include "engine/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "engine/session.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"
#include "tests/gguf/file_builder.h"
#include "tests/model/edited_file.h"

namespace lamina {
namespace {

/// A copy of llama-dense whose float tensor `name` begins with `value`.
class BrokenModel {
 public:
  BrokenModel(const std::string& name, float value) {
    const std::string path = fixture("llama-dense.gguf");
    std::ifstream in(path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    const gguf::File file = gguf::File::open(path);
    const gguf::Tensor& tensor = *file.tensor(name);
    EXPECT_EQ(tensor.type->id, gguf::TypeId::kF32);
    const std::string_view data(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
    std::memcpy(&bytes[bytes.find(data)], &value, sizeof value);
    path_ = folder_.write("broken.gguf", bytes);
  }

  const std::string& path() const { return path_; }

 private:
  gguf::TempFolder folder_;
  std::string path_;
};

std::optional<TracedValue> found_in(Engine& engine) {
  Session session(engine);
  const std::vector<int32_t> tokens = {1, 5, 9, 2, 7};
  return find_non_finite(engine, [&] { session.evaluate(tokens); });
}

TEST(Trace, NamesTheFirstOpThatWritesANonFiniteNumber) {
  for (const float value : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const BrokenModel model("blk.1.ffn_norm.weight", value);
    for (const bool on_cpu : {false, true}) {
      Engine engine(model.path(), on_cpu ? make_cpu_device({.n_threads = 2, .isa = {}}) : make_reference_device(),
                    {.n_ctx = 64, .n_batch = 4, .tokenizer = false});
      const std::optional<TracedValue> found = found_in(engine);
      ASSERT_TRUE(found);
      EXPECT_FALSE(std::isfinite(found->value));
      EXPECT_EQ(found->row, 0u);
      const std::string text = to_text(engine.program(), *found);
      EXPECT_NE(text.find("blk.1.ffn_gate.weight"), std::string::npos) << text;
      EXPECT_NE(text.find("blk.1.ffn_norm.weight"), std::string::npos) << text;
    }
  }
}

TEST(Trace, FindsNothingInASoundModelAndLeavesItsResults) {
  Engine engine(fixture("llama-dense.gguf"), make_cpu_device({.n_threads = 2, .isa = {}}),
                {.n_ctx = 64, .n_batch = 4, .tokenizer = false});
  EXPECT_FALSE(found_in(engine));

  const std::vector<int32_t> tokens = {1, 5, 9, 2, 7};
  Session session(engine);
  session.evaluate(tokens);
  const std::vector<float> plain(session.logits().begin(), session.logits().end());
  size_t n_ops = 0;
  engine.set_trace([&](size_t) { return ++n_ops > 0; });
  session.rewind(0);
  session.evaluate(tokens);
  EXPECT_EQ(n_ops, 2 * engine.program().ops.size());  // two steps: n_batch is 4
  EXPECT_EQ(std::vector<float>(session.logits().begin(), session.logits().end()), plain);
}

}  // namespace
}  // namespace lamina
