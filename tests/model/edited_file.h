// Copies of a small model with single changes, for tests of what model/ accepts. In: a fixture of tests/data/archs and
// edits. Out: a File with other metadata or tensors; new tensors are zeros of type F32.
#pragma once
#include <algorithm>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "gguf/file.h"
#include "tests/gguf/file_builder.h"

namespace lamina {

inline std::string fixture(const std::string& name) {
  return std::string(LAMINA_SOURCE_DIR) + "/tests/data/archs/" + name;
}

class EditedFile {
 public:
  explicit EditedFile(const std::string& name) : original_(gguf::File::open(fixture(name))) {}

  /// Sets or adds a key, by the name it has after `rename`; a value of uint32_t, float, bool or const char*.
  template <class T>
  EditedFile& set(const std::string& key, T value) {
    if constexpr (std::is_same_v<T, const char*>) return store(key, gguf::ValueType::kString, gguf::raw_string(value));
    else if constexpr (std::is_same_v<T, bool>) return store(key, gguf::ValueType::kBool, gguf::raw(value));
    else if constexpr (std::is_same_v<T, float>) return store(key, gguf::ValueType::kFloat32, gguf::raw(value));
    else return store(key, gguf::ValueType::kUint32, gguf::raw(static_cast<uint32_t>(value)));
  }

  EditedFile& set_array(const std::string& key, const std::vector<uint32_t>& values) {
    std::string items;
    for (uint32_t value : values) items += gguf::raw(value);
    return store(key, gguf::ValueType::kArray, gguf::raw_array(gguf::ValueType::kUint32, values.size(), items));
  }

  /// Another architecture with the same keys.
  EditedFile& rename(const std::string& architecture) {
    architecture_ = architecture;
    return *this;
  }

  EditedFile& remove(const std::string& key) {
    removed_.push_back(key);
    return *this;
  }

  /// Adds a tensor, or replaces it.
  EditedFile& tensor(const std::string& name, const std::vector<uint64_t>& shape) {
    shapes_[name] = shape;
    return *this;
  }

  /// Removes the tensors whose name holds `part` from its beginning or from behind a dot: "output.weight", "ffn_up".
  EditedFile& remove_tensors(const std::string& part) {
    removed_tensors_.push_back(part);
    std::erase_if(shapes_, [&](const auto& added) { return holds(added.first, part); });
    return *this;
  }

  gguf::File open() const {
    gguf::FileBuilder builder;
    const auto old = std::get<std::string_view>(*original_.find("general.architecture"));
    const std::string architecture = architecture_.empty() ? std::string(old) : architecture_;
    if (!stored_.contains("general.architecture")) builder.text("general.architecture", architecture);
    for (const auto& [key, value] : original_.metadata()) {
      if (key == "general.architecture" || removed(key)) continue;
      const std::string name = key.starts_with(old) ? architecture + key.substr(old.size()) : key;
      if (!stored_.contains(name)) copy(builder, name, value);
    }
    for (const auto& [key, value] : stored_) builder.key(key, value.type, value.bytes);
    for (const gguf::Tensor& tensor : original_.tensors()) {
      if (removed_tensor(tensor.name) || shapes_.contains(tensor.name)) continue;
      builder.tensor(tensor.name, tensor.shape, static_cast<uint32_t>(tensor.type->id),
                     std::string(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size()));
    }
    for (const auto& [name, shape] : shapes_) {
      uint64_t n = 1;
      for (uint64_t dimension : shape) n *= dimension;
      builder.tensor(name, shape, 0, std::string(n * sizeof(float), '\0'));
    }
    return gguf::File::open(folder_.write("edited.gguf", builder.build().bytes));
  }

 private:
  struct Stored {
    gguf::ValueType type;
    std::string bytes;
  };

  EditedFile& store(const std::string& key, gguf::ValueType type, const std::string& bytes) {
    stored_[key] = {type, bytes};
    return *this;
  }
  bool removed(const std::string& key) const {
    return std::find(removed_.begin(), removed_.end(), key) != removed_.end();
  }
  bool removed_tensor(const std::string& name) const {
    return std::any_of(removed_tensors_.begin(), removed_tensors_.end(),
                       [&](const std::string& part) { return holds(name, part); });
  }
  static bool holds(const std::string& name, const std::string& part) {
    return ("." + name).find("." + part) != std::string::npos;
  }

  /// Arrays are left out: fixtures have none that matters to a test but the window pattern, which tests set themselves.
  static void copy(gguf::FileBuilder& builder, const std::string& key, const gguf::Value& value) {
    using gguf::ValueType;
    std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, uint64_t>) builder.key(key, ValueType::kUint64, gguf::raw(v));
          else if constexpr (std::is_same_v<T, int64_t>) builder.key(key, ValueType::kInt64, gguf::raw(v));
          else if constexpr (std::is_same_v<T, double>) builder.key(key, ValueType::kFloat64, gguf::raw(v));
          else if constexpr (std::is_same_v<T, bool>) builder.key(key, ValueType::kBool, gguf::raw(v));
          else if constexpr (std::is_same_v<T, std::string_view>) builder.text(key, v);
        },
        value);
  }

  gguf::File original_;
  gguf::TempFolder folder_;
  std::map<std::string, Stored> stored_;
  std::map<std::string, std::vector<uint64_t>> shapes_;
  std::vector<std::string> removed_, removed_tensors_;
  std::string architecture_;
};

}  // namespace lamina
