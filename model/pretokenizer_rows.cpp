// The pre-tokenizers of byte-level BPE: one row a value of `tokenizer.ggml.pre`.
// In: nothing. Out: a table from name to patterns and flags.
// Patterns are those of the models' published tokenizer.json files (Hugging Face) and of OpenAI's tiktoken, as Python,
// Rust and PCRE2 all read them; steps such as "Digits" and "Punctuation" are written as the pattern they stand for.
#include "model/pretokenizer.h"

namespace lamina {
namespace {

#define LAMINA_GPT2_WORDS R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"
#define LAMINA_CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define LAMINA_LINES_AND_BLANKS R"(\s*[\r\n]+|\s+(?!\S)|\s+)"
#define LAMINA_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LAMINA_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
// As above, Han letters aside (the published class intersection [...&&[^\p{Han}]], which PCRE2 lacks). PCRE2's \p{Han}
// would take in script extensions, such as the full stop U+3002; sc: is what the others mean.
#define LAMINA_UPPER_NOT_HAN R"((?:(?!\p{sc:Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]))"
#define LAMINA_LOWER_NOT_HAN R"((?:(?!\p{sc:Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}]))"

constexpr const char* kGpt2[] = {LAMINA_GPT2_WORDS};

// What llama.cpp does with files that name none.
constexpr const char* kDefault[] = {R"([\p{P}$+<=>^~|]+)", LAMINA_GPT2_WORDS, R"(\p{N}+)", "[0-9][0-9][0-9]"};

// "Punctuation" is Unicode's and ASCII's: $+<=>^`|~ are symbols in Unicode.
constexpr const char* kFalcon[] = {R"([\p{P}$+<=>^`|~]+)", LAMINA_GPT2_WORDS, "[0-9][0-9][0-9]"};

constexpr const char* kDigitsThenGpt2[] = {R"(\p{N})", LAMINA_GPT2_WORDS};

constexpr const char* kLlama3[] = {
    LAMINA_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" LAMINA_LINES_AND_BLANKS};

constexpr const char* kQwen2[] = {
    LAMINA_CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" LAMINA_LINES_AND_BLANKS};

constexpr const char* kQwen35[] = {
    LAMINA_CONTRACTIONS
    R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" LAMINA_LINES_AND_BLANKS};

constexpr const char* kBailing[] = {
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"};

constexpr const char* kTekken[] = {R"([^\r\n\p{L}\p{N}]?)" LAMINA_UPPER "*" LAMINA_LOWER
                                   R"(+|[^\r\n\p{L}\p{N}]?)" LAMINA_UPPER "+" LAMINA_LOWER
                                   R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" LAMINA_LINES_AND_BLANKS};

constexpr const char* kGpt4o[] = {R"([^\r\n\p{L}\p{N}]?)" LAMINA_UPPER "*" LAMINA_LOWER "+" LAMINA_CONTRACTIONS
                                  R"(?|[^\r\n\p{L}\p{N}]?)" LAMINA_UPPER "+" LAMINA_LOWER "*" LAMINA_CONTRACTIONS
                                  R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" LAMINA_LINES_AND_BLANKS};

constexpr const char* kKimiK2[] = {R"([\p{sc:Han}]+|[^\r\n\p{L}\p{N}]?)" LAMINA_UPPER_NOT_HAN "*" LAMINA_LOWER_NOT_HAN
                                   "+" LAMINA_CONTRACTIONS R"(?|[^\r\n\p{L}\p{N}]?)" LAMINA_UPPER_NOT_HAN
                                   "+" LAMINA_LOWER_NOT_HAN "*" LAMINA_CONTRACTIONS
                                   R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" LAMINA_LINES_AND_BLANKS};

#define LAMINA_DEEPSEEK_CJK R"([\x{4e00}-\x{9fa5}\x{0800}-\x{4e00}\x{ac00}-\x{d7ff}]+)"

constexpr const char* kDeepseekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", LAMINA_DEEPSEEK_CJK, R"(\p{N})"};

// The letters of Latin, Greek, Cyrillic and other alphabets with case. `\s+$` is written so that a run of blanks is
// tried once.
constexpr const char* kDeepseekLlm[] = {
    R"([\r\n])",
    R"(\s?[A-Za-z)"
    R"(\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}\x{295}-\x{2af})"
    R"(\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}\x{38e}-\x{3a1})"
    R"(\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5})"
    R"(\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77})"
    R"(\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d})"
    R"(\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe})"
    R"(\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-\x{1fec})"
    R"(\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}\x{2119}-\x{211d}\x{2124})"
    R"(\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e})"
    R"(\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d})"
    R"(\x{a680}-\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf})"
    R"(\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f})"
    R"(\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df})"
    R"(\x{1e900}-\x{1e943}]+)",
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)",
    R"((?<!\s)\s++\z)",
    LAMINA_DEEPSEEK_CJK,
    R"(\p{N})"};

constexpr const char* kDeepseekV3[] = {
    R"(\p{N}{1,3})", R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)",
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|)" LAMINA_LINES_AND_BLANKS};

#define LAMINA_BLOOM_WORDS R"( ?[^(\s|.,!?…。，、।۔،)]+)"
constexpr const char* kBloom[] = {LAMINA_BLOOM_WORDS};
constexpr const char* kViking[] = {LAMINA_BLOOM_WORDS, R"(\p{N})"};

constexpr const char* kChameleon[] = {"<sentinel:[0-9]+>", "(?:IMGIMG)(?:[A-I]{1,4})Z", R"([\t\n]|    |  )",
                                      R"(\p{N})",          R"([\p{P}!-/:-@\[-`{-~])",   LAMINA_GPT2_WORDS};

constexpr PretokenizerRow kRows[] = {
    {"default", kDefault},
    {"dbrx", kLlama3},
    {"smaug-bpe", kLlama3},
    {"chatglm-bpe", kLlama3},
    {"glm4", kLlama3, true},
    {"glm5", kLlama3, true},
    {"llama3", kLlama3, true, true},
    {"llama-v3", kLlama3, true, true},
    {"llama-bpe", kLlama3, true, true},
    {"falcon3", kLlama3, true, true},
    {"falcon-h1", kLlama3, true, true},
    {"pixtral", kLlama3, true, true},
    {"midm-2.0", kLlama3, true, true},
    {"lfm2", kLlama3, true, true},
    {"jina-v5-nano", kLlama3, true, true},
    {"deepseek-v3", kDeepseekV3},
    {"hunyuan-dense", kDeepseekV3},
    {"joyai-llm", kDeepseekV3},
    {"hy_v4", kDeepseekV3},
    {"deepseek-llm", kDeepseekLlm},
    {"deepseek-coder", kDeepseekCoder},
    {"falcon", kFalcon},
    {"starcoder", kDigitsThenGpt2},
    {"refact", kDigitsThenGpt2},
    {"command-r", kDigitsThenGpt2},
    {"smollm", kDigitsThenGpt2},
    {"codeshell", kDigitsThenGpt2},
    {"exaone", kDigitsThenGpt2},
    {"minerva-7b", kDigitsThenGpt2},
    {"mellum2", kDigitsThenGpt2},
    {"gpt-2", kGpt2},
    {"phi-2", kGpt2},
    {"mpt", kGpt2},
    {"olmo", kGpt2},
    {"jais", kGpt2},
    {"trillion", kGpt2},
    {"granite-docling", kGpt2},
    {"exaone4", kGpt2},
    {"gigachat", kGpt2},
    {"a.x-4.0", kGpt2},
    {"mellum", kGpt2},
    {"modern-bert", kGpt2},
    {"roberta-bpe", kGpt2},
    {"jina-es", kGpt2},
    {"jina-de", kGpt2},
    {"jina-v1-en", kGpt2},
    {"jina-v2-es", kGpt2},
    {"jina-v2-de", kGpt2},
    {"jina-v2-code", kGpt2},
    {"qwen2", kQwen2},
    {"qwen35", kQwen35},
    {"stablelm2", kQwen2},
    {"deepseek-r1-qwen", kQwen2},
    {"kormo", kQwen2},
    {"f2llmv2", kQwen2},
    {"megrez", kQwen2},
    {"hunyuan", kQwen2},
    {"solar-open", kQwen2},
    {"grok-2", kQwen2},
    {"bailingmoe", kBailing},
    {"bailingmoe2", kBailing},
    {"llada-moe", kBailing},
    {"tekken", kTekken, true, true},
    {"gpt-4o", kGpt4o},
    {"llama4", kGpt4o},
    {"kanana2", kGpt4o},
    {"talkie", kGpt4o},
    {"minimax-m2", kGpt4o},
    {"kimi-k2", kKimiK2},
    {"bloom", kBloom},
    {"poro-chat", kBloom},
    {"gpt3-finnish", kBloom},
    {"viking", kViking},
    {"chameleon", kChameleon},
};

}  // namespace

std::span<const PretokenizerRow> pretokenizer_rows() { return kRows; }

}  // namespace lamina
