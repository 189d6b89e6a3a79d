// A step on the CPU allocates nothing once buffers have their size: counted where all C++ allocations pass.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <vector>

#include "engine/sampler.h"
#include "engine/session.h"
#include "kernels/cpu/cpu_device.h"
#include "tests/tiny_model.h"

namespace {
std::atomic<int> n_allocated{0};

void* allocate(size_t size) noexcept {
  n_allocated++;
  return std::malloc(size);
}
void* allocate(size_t size, std::align_val_t align) noexcept {
  n_allocated++;
  const size_t unit = static_cast<size_t>(align);
  return std::aligned_alloc(unit, (size + unit - 1) / unit * unit);
}
void* or_throw(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// The program's allocation functions, every form: a sanitizer's own forms do not call these.
using Nothrow = const std::nothrow_t&;
void* operator new(size_t size) { return or_throw(allocate(size)); }
void* operator new[](size_t size) { return or_throw(allocate(size)); }
void* operator new(size_t size, std::align_val_t align) { return or_throw(allocate(size, align)); }
void* operator new[](size_t size, std::align_val_t align) { return or_throw(allocate(size, align)); }
void* operator new(size_t size, Nothrow) noexcept { return allocate(size); }
void* operator new[](size_t size, Nothrow) noexcept { return allocate(size); }
void* operator new(size_t size, std::align_val_t align, Nothrow) noexcept { return allocate(size, align); }
void* operator new[](size_t size, std::align_val_t align, Nothrow) noexcept { return allocate(size, align); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, Nothrow) noexcept { std::free(memory); }
void operator delete[](void* memory, Nothrow) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t, Nothrow) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t, Nothrow) noexcept { std::free(memory); }

namespace lamina {
namespace {

/// Allocations while `work` runs.
template <class Work>
int allocations(Work work) {
  const int before = n_allocated;
  work();
  return n_allocated - before;
}

TEST(Allocation, TheCounterCounts) {
  EXPECT_EQ(allocations([] { const std::vector<int> some(3, 1); }), 1);
}

/// Tokens one by one, over the end of a page, then a rewind: greedy, and drawn with penalties.
TEST(Allocation, NoneForATokenOfASession) {
  Engine engine(LAMINA_SOURCE_DIR "/tests/data/engine/chains.gguf", make_cpu_device({.n_threads = 2, .isa = {}}),
                {.n_ctx = 256, .tokenizer = false});
  for (const SamplerOptions& options : {SamplerOptions{.temp = 0}, SamplerOptions{.repeat_penalty = 1.1, .seed = 1},
                                        SamplerOptions{.top_k = 0, .repeat_penalty = 1.1, .seed = 1}}) {
    Sampler sampler(options);
    Session session(engine);
    std::vector<int32_t> tokens = {1, 2, 3};
    tokens.reserve(engine.n_ctx());
    const auto generate = [&](size_t n) {
      while (tokens.size() < n) {
        session.evaluate(tokens, nullptr, sampler.n_best(tokens, engine.n_vocab()));
        tokens.push_back(sampler.next(session));
      }
    };
    generate(80);  // more than the window of penalties
    EXPECT_EQ(allocations([&] { generate(200); }), 0) << options.temp << " " << options.top_k;
    tokens.resize(120);
    EXPECT_EQ(allocations([&] { generate(130); }), 0);
  }
}

/// Steps of one row and of many, with experts chosen anew in each.
TEST(Allocation, NoneForAStepWithExperts) {
  constexpr uint32_t kExperts = 9, kUsed = 3, kWidth = 64;
  constexpr int32_t kVocab = 50;
  TinyModel model(1);
  model.add("embd", "F32", {kWidth, kVocab});
  model.add("router", "F32", {kWidth, kExperts});
  model.add("experts", "Q4_0", {kWidth, kWidth, kExperts});
  model.open();
  Program program;
  program.n_expert_used = kUsed;
  const Buf x = add_embed(program, model.weight("embd"));
  const Buf router = add_product(program, x, model.weight("router"));
  program.ops.push_back(RouteOp{.logits = router, .n_expert = kExperts, .n_used = kUsed});
  const Buf pairs = add_product(program, x, model.experts("experts"), RowSet::kPairs);
  program.ops.push_back(CombineOp{.in = pairs, .n_used = kUsed, .residual = x, .out = x});
  finish(program, x);
  const auto device = make_cpu_device({.n_threads = 2, .isa = {}});
  const auto executable = compile(*device, program, model);
  const std::vector<Step> steps = {one_sequence(some_tokens(1, kVocab)), one_sequence(some_tokens(30, kVocab)),
                                   one_sequence({7}), one_sequence({11})};
  EXPECT_EQ(allocations([&] {
              for (const Step& step : steps) executable->run(step);
            }),
            0);
}

}  // namespace
}  // namespace lamina
