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
// As above, Han letters aside (the published class intersection [...&&[^\p{Han}]], which PCRE2 lacks).
#define LAMINA_UPPER_NOT_HAN R"((?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]))"
#define LAMINA_LOWER_NOT_HAN R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}]))"

constexpr const char* kGpt2[] = {LAMINA_GPT2_WORDS};

// What llama.cpp's converter takes files without a name for.
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

constexpr const char* kKimiK2[] = {R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?)" LAMINA_UPPER_NOT_HAN "*" LAMINA_LOWER_NOT_HAN
                                   "+" LAMINA_CONTRACTIONS R"(?|[^\r\n\p{L}\p{N}]?)" LAMINA_UPPER_NOT_HAN
                                   "+" LAMINA_LOWER_NOT_HAN "*" LAMINA_CONTRACTIONS
                                   R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" LAMINA_LINES_AND_BLANKS};

#define LAMINA_DEEPSEEK_CJK R"([\x{4e00}-\x{9fa5}\x{0800}-\x{4e00}\x{ac00}-\x{d7ff}]+)"

constexpr const char* kDeepseekCoder[] = {R"([\r\n])", R"(\s?\p{L}+)", R"(\s?\p{P}+)", LAMINA_DEEPSEEK_CJK, R"(\p{N})"};

// The letters of Latin, Greek, Cyrillic and other alphabets with case. `\s+$` is written so that a run of blanks is
// tried once.
constexpr const char* kDeepseekLlm[] = {
    R"([\r\n])",
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼ)"
    R"(ιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ)"
    R"(𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)",
    R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)",
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
