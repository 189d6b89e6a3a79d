// Ops that are measured alone: which ones, in what programs, and what they are said to move and do. Times are only
// looked at for being there.
#include "engine/op_speed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "engine/op_cases.h"
#include "kernels/cpu/cpu_device.h"
#include "model/builder.h"
#include "tests/model/edited_file.h"
#include "tests/tiny_model.h"

namespace lamina {
namespace {

Program program_of(const gguf::File& file) { return build_program(file, read_config(file), {.n_ctx = 64}); }

size_t count_linear(const Program& program) {
  return static_cast<size_t>(
      std::ranges::count_if(program.ops, [](const Op& op) { return std::holds_alternative<LinearOp>(op); }));
}

/// The CPU device, which remembers the last program that it compiled.
class WatchedDevice : public Device {
 public:
  std::string name() const override { return "watched"; }
  std::unique_ptr<Executable> compile(const Program& program, const gguf::File& file, const Capacity& capacity,
                                      const Progress& progress) override {
    last = program;
    return cpu_->compile(program, file, capacity, progress);
  }
  Program last;

 private:
  std::unique_ptr<Device> cpu_ = make_cpu_device({.n_threads = 2, .isa = {}});
};

TEST(DistinctOps, TakesEachOpOfAllLayersOnce) {
  const gguf::File file = gguf::File::open(fixture("llama-dense.gguf"));
  const Program program = program_of(file);
  ASSERT_EQ(program.kv.size(), 2u);
  const std::vector<size_t> distinct = distinct_ops(program);
  // Two layers of six ops, between an embedding and select, output and argmax.
  ASSERT_EQ(program.ops.size(), 1 + 2 * 6 + 3u);
  EXPECT_EQ(distinct, (std::vector<size_t>{0, 1, 2, 3, 4, 5, 6, 13, 14, 15}));
}

TEST(SeparateNorms, ComputeTheSameBits) {
  for (const char* name : {"llama-dense.gguf", "gemma2-dense.gguf", "gpt2-dense.gguf"}) {
    SCOPED_TRACE(name);
    const gguf::File file = gguf::File::open(fixture(name));
    const Program fused = program_of(file), separate = with_separate_norms(fused);
    for (const Op& op : separate.ops) {
      const auto* linear = std::get_if<LinearOp>(&op);
      EXPECT_FALSE(linear != nullptr && linear->norm);
    }
    EXPECT_GT(separate.ops.size(), fused.ops.size());

    const auto device = make_cpu_device({.n_threads = 2, .isa = {}});
    const Capacity capacity{.max_rows = 16, .max_outputs = 1, .n_pages = 1};
    const Step step = step_of({.n_rows = 5, .depth = 0}, fused.n_vocab);
    std::vector<std::vector<uint32_t>> bits;
    for (const Program& program : {fused, separate}) {
      const auto executable = device->compile(program, file, capacity, {});
      executable->run(step);
      std::vector<uint32_t>& logits = bits.emplace_back();
      for (const float x : executable->logits(0)) logits.push_back(std::bit_cast<uint32_t>(x));
    }
    EXPECT_EQ(bits[0], bits[1]);
  }
}

TEST(OpTimer, GivesEachCopyWeightsOfItsOwn) {
  SyntheticWeights weights;
  const Program layer = llama_1b_layer(*gguf::find_type("Q8_0"), weights);
  WatchedDevice device;
  const size_t output = layer.ops.size() - 2;  // 2048 x 32000
  OpTimer timer(device, layer, {output}, {.n_rows = 1, .depth = 0});
  ASSERT_EQ(count_linear(device.last), 3u);  // 70 MB each: as many as stay below 256 MiB
  std::vector<const gguf::Tensor*> seen;
  for (const Op& op : device.last.ops) {
    const auto* linear = std::get_if<LinearOp>(&op);
    if (linear == nullptr) continue;
    const gguf::Tensor* tensor = linear->products[0].weight.tensor;
    EXPECT_EQ(std::ranges::count(seen, tensor), 0);
    EXPECT_EQ(tensor->data.size(), uint64_t{32000} * 2048 / 32 * 34);
    seen.push_back(tensor);
  }
}

TEST(OpTimer, CountsBytesAndOperations) {
  TinyModel model(1);
  model.add("embd", "F32", {64, 8});
  model.add("norm", "F32", {64});
  model.add("w", "Q8_0", {64, 48});
  model.open();
  Program program;
  const Buf x = add_embed(program, model.weight("embd"));
  const Buf y = add_product(program, x, model.weight("w"));
  std::get<LinearOp>(program.ops[1]).norm = Norm{NormKind::kRms, 1e-5f, model.vector("norm"), {}};
  finish(program, y);
  const auto device = make_cpu_device({.n_threads = 2, .isa = {}});

  const OpSpeed fused = OpTimer(*device, program, {1}, {7, 0}).measure({7, 0});
  EXPECT_GT(fused.seconds, 0);
  EXPECT_TRUE(fused.int8);
  EXPECT_EQ(fused.operations, 2.0 * 7 * 64 * 48);
  // Codes and an f16 for 32 of them; float32 activations.
  EXPECT_EQ(fused.bytes, 48.0 * 64 + 48 * 2 * 2 + 7 * (64 + 48) * 4);

  const Program separate = with_separate_norms(program);
  const OpSpeed norm = OpTimer(*device, separate, {1}, {7, 0}).measure({7, 0});
  EXPECT_FALSE(norm.int8);
  EXPECT_EQ(norm.bytes, 2.0 * 7 * 64 * 4);
  const OpSpeed both = OpTimer(*device, separate, {1, 2}, {7, 0}).measure({7, 0});
  EXPECT_EQ(both.bytes, fused.bytes + norm.bytes);
}

TEST(OpTimer, RunsExpertsBehindTheirChoice) {
  TinyModel model(2);
  model.add("embd", "F32", {64, 8});
  model.add("router", "F32", {64, 4});
  model.add("up", "Q4_0", {64, 96, 4});
  model.open();
  Program program;
  program.n_expert_used = 2;
  const Buf x = add_embed(program, model.weight("embd"));
  const Buf router = add_product(program, x, model.weight("router"));
  program.ops.push_back(RouteOp{.logits = router, .n_expert = 4, .n_used = 2});
  const Buf up = add_product(program, x, model.experts("up"), RowSet::kPairs);
  const Buf sum = add_buffer(program, "sum", 96);
  program.ops.push_back(CombineOp{.in = up, .n_used = 2, .out = sum});
  finish(program, sum);

  WatchedDevice device;
  for (const size_t i : distinct_ops(program)) {
    SCOPED_TRACE(to_text(program, program.ops[i]));
    OpTimer timer(device, program, {i}, {5, 0});
    EXPECT_GT(timer.measure({1, 0}).seconds, 0);
    if (i != 3) continue;
    EXPECT_EQ(timer.measure({1, 0}).operations, 2.0 * 2 * 64 * 96);
    const OpSpeed many = timer.measure({5, 0});  // reads all four experts
    EXPECT_EQ(many.bytes, 4 * 96.0 * (64 / 2 + 2 * 2) + 5 * 64 * 4 + 5 * 2 * 96 * 4);
    EXPECT_EQ(device.last.ops[device.last.ops.size() - 129].index(), Op(RouteOp{}).index());  // before 128 copies
  }
}

}  // namespace
}  // namespace lamina
