// Looks inside steps find the op at fault. The faults are made by writing a value into a weight of a small model.
#include "engine/trace.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/session.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"
#include "model/builder.h"
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

/// The CPU device with a fault: what it compiles is not the program that it was given.
class BrokenDevice : public Device {
 public:
  explicit BrokenDevice(std::function<void(Program&)> fault) : fault_(std::move(fault)) {}
  std::string name() const override { return "broken"; }
  std::unique_ptr<Executable> compile(const Program& program, const gguf::File& file, const Capacity& capacity,
                                      const Progress& progress) override {
    Program faulty = program;
    fault_(faulty);
    return cpu_->compile(faulty, file, capacity, progress);
  }

 private:
  std::unique_ptr<Device> cpu_ = make_cpu_device({.n_threads = 2, .isa = {}});
  std::function<void(Program&)> fault_;
};

/// What verification says of llama-dense on a device: 9 tokens in steps of 4, 4 and 1 rows.
std::optional<Difference> verified(std::shared_ptr<Device> device) {
  const std::vector<int32_t> tokens = {1, 5, 9, 2, 7, 4, 4, 8, 3};
  Engine engine(fixture("llama-dense.gguf"), std::move(device), {.n_ctx = 64, .n_batch = 4, .tokenizer = false});
  const Capacity capacity{.max_rows = 4, .max_outputs = 1, .n_pages = 1};
  const auto reference = make_reference_device()->compile(engine.program(), engine.file(), capacity, {});
  return find_difference(engine, *reference, tokens);
}

/// Breaks one op, so that it still runs; false for ops without anything to break.
bool break_op(Op& op) {
  if (auto* embed = std::get_if<EmbedOp>(&op)) embed->scale = 1.001f;
  else if (auto* linear = std::get_if<LinearOp>(&op)) linear->products.back().multiply = 1.001f;
  else if (auto* append = std::get_if<AppendOp>(&op)) std::swap(append->k, append->v);
  else if (auto* attend = std::get_if<AttendOp>(&op)) attend->scale *= 1.001f;
  else return false;
  return true;
}

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

TEST(Verify, FindsNothingOnASoundDevice) {
  EXPECT_FALSE(verified(make_cpu_device({.n_threads = 2, .isa = {}})));
  EXPECT_FALSE(verified(make_reference_device()));
}

TEST(Verify, NamesTheOpThatIsBroken) {
  const gguf::File file = gguf::File::open(fixture("llama-dense.gguf"));
  const Program program = build_program(file, read_config(file), {.n_ctx = 64});
  size_t n_broken = 0;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    Op op = program.ops[i];
    if (!break_op(op)) continue;
    ++n_broken;
    SCOPED_TRACE(to_text(program, op));
    const auto found = verified(std::make_shared<BrokenDevice>([i](Program& faulty) { break_op(faulty.ops[i]); }));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->got.op, i);
    EXPECT_EQ(found->n_rows, 4u);
    EXPECT_EQ(found->position, 0u);
    EXPECT_NE(found->got.value, found->expected);
    EXPECT_GE(found->n_differ, 1u);
    EXPECT_LE(found->n_differ, found->n_values);
  }
  EXPECT_GE(n_broken, 1 + 5 * program.kv.size());
}

TEST(Verify, LooksAtTheKeysAndValuesThatAreStored) {
  const auto found = verified(std::make_shared<BrokenDevice>([](Program& faulty) {
    for (Op& op : faulty.ops)
      if (auto* append = std::get_if<AppendOp>(&op); append != nullptr && append->layer == 1) append->v = append->k;
  }));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->got.place.kind, Place::Kind::kValues);
  EXPECT_EQ(found->got.place.index, 1);
}

}  // namespace
}  // namespace lamina
