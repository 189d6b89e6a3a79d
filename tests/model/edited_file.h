// Copies of a small model with single changes, for tests of what model/ accepts. In: a fixture of tests/data/archs and
// edits. Out: a File with other metadata or tensors; new tensors are zeros of type F32.
#pragma once
#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "gguf/file.h"
#include "gguf/writer.h"
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
    if constexpr (std::is_same_v<T, const char*>) {
      return store(key, gguf::ValueType::kString, std::string_view(texts_.emplace_back(value)));
    } else if constexpr (std::is_same_v<T, bool>) {
      return store(key, gguf::ValueType::kBool, value);
    } else if constexpr (std::is_same_v<T, float>) {
      return store(key, gguf::ValueType::kFloat32, double{value});
    } else {
      return store(key, gguf::ValueType::kUint32, static_cast<uint64_t>(value));
    }
  }

  EditedFile& set_array(const std::string& key, const std::vector<uint32_t>& values) {
    return store(key, gguf::ValueType::kArray,
                 gguf::Array{gguf::ValueType::kUint32, std::vector<uint64_t>(values.begin(), values.end())});
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

  /// Arrays of the fixture are left out: it has none that matters to a test but the window pattern, which tests set
  /// themselves.
  gguf::File open() const {
    gguf::Writer writer(folder_.path("edited.gguf"));
    const auto old = std::get<std::string_view>(*original_.find("general.architecture"));
    const std::string architecture = architecture_.empty() ? std::string(old) : architecture_;
    if (!stored_.contains("general.architecture")) {
      writer.add("general.architecture", gguf::ValueType::kString, architecture);
    }
    for (const auto& [key, type, value] : original_.metadata()) {
      if (key == "general.architecture" || type == gguf::ValueType::kArray || removed(key)) continue;
      const std::string name = key.starts_with(old) ? architecture + key.substr(old.size()) : key;
      if (!stored_.contains(name)) writer.add(name, type, value);
    }
    for (const auto& [key, entry] : stored_) writer.add(entry);
    std::vector<const gguf::Tensor*> kept;
    for (const gguf::Tensor& tensor : original_.tensors()) {
      if (removed_tensor(tensor.name) || shapes_.contains(tensor.name)) continue;
      kept.push_back(&tensor);
      writer.add_tensor(tensor.name, tensor.shape, *tensor.type);
    }
    uint64_t n_zeros = 0;
    for (const auto& [name, shape] : shapes_) {
      writer.add_tensor(name, shape, *gguf::find_type("F32"));
      n_zeros += std::accumulate(shape.begin(), shape.end(), uint64_t{sizeof(float)}, std::multiplies<>());
    }
    for (const gguf::Tensor* tensor : kept) writer.write(tensor->data);
    writer.write(std::vector<std::byte>(n_zeros));
    writer.finish();
    return gguf::File::open(folder_.path("edited.gguf"));
  }

 private:
  EditedFile& store(const std::string& key, gguf::ValueType type, const gguf::Value& value) {
    stored_[key] = {key, type, value};
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

  gguf::File original_;
  gguf::TempFolder folder_;
  std::map<std::string, gguf::KeyValue> stored_;
  std::deque<std::string> texts_;  // that values of stored_ point at
  std::map<std::string, std::vector<uint64_t>> shapes_;
  std::vector<std::string> removed_, removed_tensors_;
  std::string architecture_;
};

}  // namespace lamina
