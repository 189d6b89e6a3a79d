// What is done with one fuzzed input: each function must return or throw lamina::Error, whatever the bytes are.
// In: any bytes. Out: nothing; a crash, a sanitizer's report or an abort is a finding. tests/fuzz/fuzz_target.cpp gives
// them to libFuzzer, tests/fuzz/replay_test.cpp runs the committed corpora (tests/data/fuzz) through them in every
// build.
#pragma once
#include <cstddef>
#include <span>

namespace lamina::fuzz {

/// The bytes are a GGUF file: opens it and reads all metadata and the ends of all tensors.
void reader(std::span<const std::byte> bytes);

/// The bytes are a GGUF file: opens, builds and compiles the model for the scalar CPU device, and runs one step.
void loader(std::span<const std::byte> bytes);

/// The bytes describe a vocabulary and a text (the order is in inputs.cpp): encodes the text, decodes the ids.
void tokenizer(std::span<const std::byte> bytes);

}  // namespace lamina::fuzz
