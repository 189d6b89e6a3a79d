// The table of metadata keys: suffix after "<architecture>.", where the value goes, its range, and which rows read it.
#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "model/refuse.h"

namespace lamina {
namespace {

enum class Presence { kIgnored, kOptional, kRequired };

/// A number in the metadata and what it may be.
struct Number {
  const char* suffix;
  double least, most;
};

/// Where a number goes. Keys of a LayerConfig member hold one value for all layers or an array with one a layer.
struct Key {
  Number number;
  std::variant<uint32_t Config::*, double Config::*, bool Config::*, uint32_t LayerConfig::*> to;
  Presence (*presence)(const Architecture&);
};

Presence optional_if(bool read) { return read ? Presence::kOptional : Presence::kIgnored; }
Presence required_if(bool read) { return read ? Presence::kRequired : Presence::kIgnored; }
Presence required(const Architecture&) { return Presence::kRequired; }
Presence optional(const Architecture&) { return Presence::kOptional; }
Presence rms(const Architecture& a) { return required_if(a.norm == NormKind::kRms); }
Presence layer_norm(const Architecture& a) { return required_if(a.norm == NormKind::kLayer); }
Presence rope(const Architecture& a) { return optional_if(a.rope_layers != RopeLayers::kNone); }
Presence experts(const Architecture& a) { return optional_if(a.experts != ExpertUse::kNever); }
Presence expert_counts(const Architecture& a) {
  return a.experts == ExpertUse::kAlways ? Presence::kRequired : experts(a);
}
Presence finetuned(const Architecture& a) { return optional_if(a.rope_layers == RopeLayers::kFinetuned); }
Presence shared_expert(const Architecture& a) { return optional_if(a.shared_expert); }
Presence parallel(const Architecture& a) { return required_if(a.parallel == Parallel::kByKey); }
Presence window(const Architecture& a) { return optional_if(a.window.has_value()); }
Presence attention_scale(const Architecture& a) { return optional_if(a.attention_scale.has_value()); }
Presence temperature(const Architecture& a) { return optional_if(a.attention_temperature); }
Presence embedding_scale(const Architecture& a) { return optional_if(a.embedding_scale.has_value()); }
Presence residual_scale(const Architecture& a) { return optional_if(a.residual_scale.has_value()); }
Presence logit_scale(const Architecture& a) {
  return a.logit_scale == LogitScale::kMultiplies ? Presence::kRequired
                                                  : optional_if(a.logit_scale == LogitScale::kDivides);
}
Presence attention_softcap(const Architecture& a) { return optional_if(a.attention_softcap.has_value()); }
Presence final_softcap(const Architecture& a) { return optional_if(a.final_softcap.has_value()); }

constexpr double kMaxInt = 2147483647;  // positions and token ids are int32

// Generous for every model that exists, and small enough that n_head * head_dim and 2 * n_ff * n_expert fit 32 bits.
// block_count comes first: the per-layer keys need it.
constexpr Key kKeys[] = {
    {{"block_count", 1, 512}, &Config::n_layer, required},
    {{"embedding_length", 1, 1 << 20}, &Config::n_embd, required},
    {{"context_length", 1, kMaxInt}, &Config::n_ctx_train, required},
    {{"vocab_size", 1, kMaxInt}, &Config::n_vocab, optional},
    {{"feed_forward_length", 1, 1 << 20}, &LayerConfig::n_ff, required},
    {{"attention.head_count", 1, 4096}, &LayerConfig::n_head, required},
    {{"attention.head_count_kv", 1, 4096}, &LayerConfig::n_head_kv, optional},
    {{"attention.key_length", 1, 8192}, &Config::head_dim_k, optional},
    {{"attention.value_length", 1, 8192}, &Config::head_dim_v, optional},
    {{"attention.layer_norm_rms_epsilon", 1e-30, 0.5}, &Config::norm_eps, rms},
    {{"attention.layer_norm_epsilon", 1e-30, 0.5}, &Config::norm_eps, layer_norm},
    {{"attention.scale", 0, 1e6}, &Config::attention_scale, attention_scale},
    {{"attention.temperature_scale", 0, 1e3}, &Config::temperature_scale, temperature},
    {{"attention.sliding_window", 0, kMaxInt}, &Config::window, window},
    {{"attn_logit_softcapping", 0, 1e6}, &Config::attention_softcap, attention_softcap},
    {{"final_logit_softcapping", 0, 1e6}, &Config::final_softcap, final_softcap},
    {{"embedding_scale", 1e-6, 1e6}, &Config::embedding_scale, embedding_scale},
    {{"residual_scale", 1e-6, 1e6}, &Config::residual_scale, residual_scale},
    {{"logit_scale", 1e-6, 1e6}, &Config::logit_scale, logit_scale},
    {{"use_parallel_residual", 0, 1}, &Config::parallel, parallel},
    {{"expert_count", 0, 1024}, &Config::n_expert, expert_counts},
    {{"expert_used_count", 0, 1024}, &Config::n_expert_used, expert_counts},
    {{"expert_feed_forward_length", 1, 1 << 20}, &Config::n_ff_expert, experts},
    {{"expert_shared_feed_forward_length", 0, 1 << 20}, &Config::n_ff_shared, shared_expert},
    {{"rope.dimension_count", 2, 8192}, &Config::n_rot, rope},
    {{"rope.freq_base", 1, 1e15}, &Config::freq_base, rope},
    {{"rope.freq_base_swa", 1, 1e15}, &Config::freq_base_window, window},
    {{"rope.scale_linear", 1e-3, 1e6}, &Config::rope_factor, rope},
    {{"rope.scaling.factor", 1e-3, 1e6}, &Config::rope_factor, rope},
    {{"rope.scaling.original_context_length", 1, kMaxInt}, &Config::rope_ctx_original, rope},
    {{"rope.scaling.finetuned", 0, 1}, &Config::rope_finetuned, finetuned},
    {{"rope.scaling.attn_factor", 1e-3, 1e3}, &Config::rope_attn_factor, rope},
    {{"rope.scaling.yarn_ext_factor", 0, 1}, &Config::yarn_ext_factor, rope},
    {{"rope.scaling.yarn_attn_factor", 1e-3, 1e3}, &Config::yarn_attn_factor, rope},
    {{"rope.scaling.yarn_beta_fast", 1e-3, 1e6}, &Config::yarn_beta_fast, rope},
    {{"rope.scaling.yarn_beta_slow", 1e-3, 1e6}, &Config::yarn_beta_slow, rope},
    {{"rope.scaling.yarn_log_multiplier", 0, 1e3}, &Config::yarn_log_multiplier, rope},
};

/// A metadata value as messages show it; floats as the float32 that they are in nearly all files.
std::string shown(const gguf::Value& value) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string_view>) return fmt::format("\"{}\"", printable(v));
        else if constexpr (std::is_same_v<T, double>) return fmt::format("{}", static_cast<float>(v));
        else if constexpr (std::is_same_v<T, gguf::Array>) return fmt::format("an array of {}", v.size());
        else return fmt::format("{}", v);
      },
      value);
}

/// Reads the keys "<architecture>.<suffix>" of one file.
class Reader {
 public:
  Reader(const gguf::File& file, const Architecture& architecture) : file_(file), architecture_(architecture) {}

  std::string name(const char* suffix) const { return fmt::format("{}.{}", architecture_.name, suffix); }
  const gguf::File& file() const { return file_; }
  const gguf::Value* find(const char* suffix) const { return file_.find(name(suffix)); }

  /// The value as a number within its range.
  double number(const Number& key, const gguf::Value& value, bool integer) const {
    double x = NAN;
    if (const auto* u = std::get_if<uint64_t>(&value)) x = static_cast<double>(*u);
    else if (const auto* i = std::get_if<int64_t>(&value)) x = static_cast<double>(*i);
    else if (const auto* d = std::get_if<double>(&value); d != nullptr && !integer) x = *d;
    else refuse(file_, "{} is {}; it must be {}", name(key.suffix), shown(value), integer ? "an integer" : "a number");
    if (!(x >= key.least && x <= key.most)) {
      refuse(file_, "{} is {}; lamina accepts {} to {}", name(key.suffix), shown(value), key.least, key.most);
    }
    return x;
  }

  bool flag(const Number& key, const gguf::Value& value) const {
    const bool* b = std::get_if<bool>(&value);
    if (b == nullptr) refuse(file_, "{} is {}; it must be true or false", name(key.suffix), shown(value));
    return *b;
  }

  /// A value for layer `index`: the whole value, or an element of an array that may be longer than the layer count.
  uint32_t layer_number(const Number& key, const gguf::Value& value, size_t index) const {
    const auto* array = std::get_if<gguf::Array>(&value);
    return static_cast<uint32_t>(number(key, array ? element(key.suffix, *array, index) : value, true));
  }

  gguf::Value element(const char* suffix, const gguf::Array& array, size_t index) const {
    if (array.size() <= index) {
      refuse(file_, "{} is an array of {}; it lacks a value for layer {}", name(suffix), array.size(), index);
    }
    return std::visit(
        [&](const auto& items) -> gguf::Value {
          if constexpr (std::is_same_v<decltype(items[0]), const uint8_t&>) return uint64_t{items[index]};
          else return items[index];
        },
        array.items);
  }

  void read(const Key& key, Config& config) const {
    const Presence presence = key.presence(architecture_);
    if (presence == Presence::kIgnored) return;
    const gguf::Value* value = find(key.number.suffix);
    if (value == nullptr) {
      if (presence == Presence::kRequired) refuse(file_, "{} is missing", name(key.number.suffix));
      return;
    }
    if (const auto* to_int = std::get_if<uint32_t Config::*>(&key.to)) {
      config.*(*to_int) = static_cast<uint32_t>(number(key.number, *value, true));
    } else if (const auto* to_double = std::get_if<double Config::*>(&key.to)) {
      config.*(*to_double) = number(key.number, *value, false);
    } else if (const auto* to_bool = std::get_if<bool Config::*>(&key.to)) {
      config.*(*to_bool) = flag(key.number, *value);
    } else {
      auto to_layer = std::get<uint32_t LayerConfig::*>(key.to);
      for (size_t i = 0; i < config.layers.size(); ++i)
        config.layers[i].*to_layer = layer_number(key.number, *value, i);
    }
  }

 private:
  const gguf::File& file_;
  const Architecture& architecture_;
};

/// Which layers see only a window: sliding_window_pattern is a period (a number) or a flag a layer (an array).
void read_window_pattern(const Reader& reader, Config& config) {
  const std::optional<Window>& row = config.architecture->window;
  if (row && row->n_layer != 0 && row->n_layer != config.n_layer) config.window = 0;
  if (config.window == 0) return;
  constexpr Number kPattern = {"attention.sliding_window_pattern", 0, 512};
  const gguf::Value* value = reader.find(kPattern.suffix);
  const bool is_array = value != nullptr && std::holds_alternative<gguf::Array>(*value);
  uint32_t period = row->period;
  if (value != nullptr && !is_array) period = static_cast<uint32_t>(reader.number(kPattern, *value, true));
  for (uint32_t i = 0; i < config.n_layer; ++i) {
    if (is_array) config.layers[i].windowed = reader.layer_number(kPattern, *value, i) != 0;
    else config.layers[i].windowed = period == 0 || i % period != period - 1;
  }
}

/// Whether layer i of n rotates.
bool rotates(const Config& config, uint32_t i) {
  switch (config.architecture->rope_layers) {
    case RopeLayers::kAll: return true;
    case RopeLayers::kNone: return false;
    case RopeLayers::kThreeOfFour: return i % 4 != 3;
    case RopeLayers::kWindowed: return config.window == 0 || config.layers[i].windowed;
    case RopeLayers::kFinetuned: return config.rope_finetuned;
  }
  return true;
}

/// Sections split the dimensions among several position components, which are equal where all is text.
void read_rope_sections(const Reader& reader, Config& config) {
  if (!config.architecture->sections_pair_halves || reader.find("rope.dimension_sections") == nullptr) return;
  config.rope_pairs = RopePairs::kHalves;
}

void read_rope_scaling(const Reader& reader, Config& config) {
  const gguf::Value* value = reader.find("rope.scaling.type");
  if (rope(*config.architecture) == Presence::kIgnored || value == nullptr) return;
  const auto* text = std::get_if<std::string_view>(value);
  const std::string_view type = text ? *text : "";
  if (type == "none") config.rope_factor = 1;
  else if (type == "yarn") config.yarn = true;
  else if (type != "linear" && type != "longrope") {
    refuse(reader.file(), "{} is {}; lamina knows none, linear, yarn and longrope", reader.name("rope.scaling.type"),
           shown(*value));
  }
}

/// Values that the row gives when a key is missing and that do not depend on other keys.
Config defaults(const Architecture& row) {
  Config config;
  config.architecture = &row;
  config.attention_scale = row.attention_scale.value_or(0);
  config.attention_softcap = row.attention_softcap.value_or(0);
  config.final_softcap = row.final_softcap.value_or(0);
  config.embedding_scale = row.embedding_scale.value_or(1);
  config.residual_scale = row.residual_scale.value_or(1);
  config.rope_pairs = row.rope_pairs;
  if (row.window) config.window = row.window->size, config.freq_base_window = row.window->freq_base;
  return config;
}

/// What the logits are multiplied by; logit_scale is 0 when missing.
double logit_multiplier(const Config& config) {
  constexpr double kTunedWidth = 256;  // of the model whose logits need no scale
  switch (config.architecture->logit_scale) {
    case LogitScale::kNone: return 1;
    case LogitScale::kMultiplies: return config.logit_scale;
    case LogitScale::kDivides: return config.logit_scale == 0 ? kTunedWidth / config.n_embd : 1 / config.logit_scale;
  }
  return 1;
}

/// Values that follow from others when their key is missing.
void complete(Config& config) {
  const Architecture& row = *config.architecture;
  for (uint32_t i = 0; i < config.n_layer; ++i) {
    LayerConfig& layer = config.layers[i];
    if (layer.n_head_kv == 0) layer.n_head_kv = layer.n_head;
    layer.rotated = rotates(config, i);
  }
  const uint32_t n_head = config.layers[0].n_head;
  if (config.head_dim_k == 0) config.head_dim_k = config.n_embd / n_head;
  if (config.head_dim_v == 0) config.head_dim_v = config.n_embd / n_head;
  if (config.n_rot == 0) config.n_rot = config.head_dim_k;
  if (config.freq_base_window == 0) config.freq_base_window = config.freq_base;
  if (config.rope_ctx_original == 0) config.rope_ctx_original = config.n_ctx_train;
  if (config.n_ff_expert == 0) config.n_ff_expert = config.layers[0].n_ff;
  if (row.scaled_embeddings) config.embedding_scale = std::sqrt(1.0 * config.n_embd);
  if (config.residual_scale == 0) config.residual_scale = 1.4 / std::sqrt(1.0 * config.n_layer);
  config.logit_scale = logit_multiplier(config);
  if (config.attention_scale == 0) {
    const bool wide = row.wide_scale_layers == config.n_layer;
    config.attention_scale = 1 / std::sqrt(wide ? 1.0 * config.n_embd / n_head : 1.0 * config.head_dim_k);
  }
}

/// What no range of a single key can say.
void check_together(const Reader& reader, const Config& config) {
  for (const LayerConfig& layer : config.layers) {
    if (layer.n_head % layer.n_head_kv != 0) {
      refuse(reader.file(), "{} is {}; it must divide the {} heads", reader.name("attention.head_count_kv"),
             layer.n_head_kv, layer.n_head);
    }
  }
  if (config.head_dim_k == 0 || config.head_dim_v == 0) {
    refuse(reader.file(), "{} is {}; it must not exceed {} {}", reader.name("attention.head_count"),
           config.layers[0].n_head, reader.name("embedding_length"), config.n_embd);
  }
  if (std::ranges::any_of(config.layers, &LayerConfig::rotated) &&
      (config.n_rot % 2 != 0 || config.n_rot > config.head_dim_k)) {
    refuse(reader.file(), "{} is {}; it must be even and at most the head size {}", reader.name("rope.dimension_count"),
           config.n_rot, config.head_dim_k);
  }
  if (config.n_expert > 0 && (config.n_expert_used == 0 || config.n_expert_used > config.n_expert)) {
    refuse(reader.file(), "{} is {}; it must be 1 to {}, the number of experts", reader.name("expert_used_count"),
           config.n_expert_used, config.n_expert);
  }
}

/// The number of tokens is the number of embedding rows, which may be padded: the file's own counts must not exceed it.
void read_vocabulary(const Reader& reader, Config& config) {
  const gguf::File& file = reader.file();
  const gguf::Tensor* table = file.tensor("token_embd.weight");
  if (table == nullptr) refuse(file, "tensor token_embd.weight is missing");
  const uint64_t n_rows = table->n_rows();
  if (n_rows > kMaxInt) refuse(file, "tensor token_embd.weight has {} rows; lamina accepts {}", n_rows, kMaxInt);
  if (config.n_vocab > n_rows) {
    refuse(file, "{} is {}; token_embd.weight has {} rows", reader.name("vocab_size"), config.n_vocab, n_rows);
  }
  const gguf::Value* tokens = file.find("tokenizer.ggml.tokens");
  const auto* array = tokens ? std::get_if<gguf::Array>(tokens) : nullptr;
  if (array != nullptr && array->size() > n_rows) {
    refuse(file, "tokenizer.ggml.tokens is an array of {}; token_embd.weight has {} rows", array->size(), n_rows);
  }
  config.n_vocab = static_cast<uint32_t>(n_rows);
}

const Architecture& read_architecture(const gguf::File& file) {
  const gguf::Value* value = file.find("general.architecture");
  const auto* name = value ? std::get_if<std::string_view>(value) : nullptr;
  if (name == nullptr) {
    refuse(file, "general.architecture is {}; it must be a string", value ? shown(*value) : "missing");
  }
  const Architecture* row = find_architecture(*name);
  if (row == nullptr) {
    std::vector<std::string_view> known;
    for (const Architecture& each : architectures()) known.push_back(each.name);
    refuse(file, "general.architecture is {}, which lamina does not run; it runs {}", shown(*value),
           fmt::join(known, ", "));
  }
  return *row;
}

/// Adapters, importance matrices and image encoders are GGUF files too.
void refuse_other_kinds(const gguf::File& file) {
  const gguf::Value* value = file.find("general.type");
  const auto* kind = value ? std::get_if<std::string_view>(value) : nullptr;
  if (kind == nullptr || *kind == "model") return;
  refuse(file, "general.type is {}; lamina runs files whose type is \"model\"{}", shown(*value),
         *kind == "adapter"   ? ", and this is a LoRA adapter"
         : *kind == "imatrix" ? ", and this is an importance matrix"
         : *kind == "mmproj"  ? ", and this is the image or audio part of one"
                              : "");
}

}  // namespace

Config read_config(const gguf::File& file) {
  refuse_other_kinds(file);
  const Architecture& row = read_architecture(file);
  const Reader reader(file, row);
  Config config = defaults(row);
  for (const Key& key : kKeys) {
    reader.read(key, config);
    config.layers.resize(config.n_layer);
  }
  read_window_pattern(reader, config);
  read_rope_sections(reader, config);
  read_rope_scaling(reader, config);
  read_vocabulary(reader, config);
  complete(config);
  check_together(reader, config);
  return config;
}

uint32_t default_n_ctx(const Config& config) { return std::min(config.n_ctx_train, 4096U); }

}  // namespace lamina
