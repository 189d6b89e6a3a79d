// GGUF files made in memory, for tests: valid ones, and valid ones with single fields overwritten.
// In: metadata and tensors. Out: the file's bytes, and the offset of every field ("n_kv", "key general.name length",
// "tensor a offset"), so that a test can corrupt exactly one.
#pragma once
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gguf/error.h"
#include "gguf/file.h"

namespace lamina::gguf {

/// The bytes of a number, little-endian.
template <class T>
std::string raw(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

/// A string as the format stores it.
inline std::string raw_string(std::string_view text) { return raw(uint64_t{text.size()}).append(text); }

/// An array as the format stores it, of `count` elements that are given in their stored form.
inline std::string raw_array(ValueType type, uint64_t count, std::string_view elements) {
  return (raw(static_cast<uint32_t>(type)) + raw(count)).append(elements);
}

/// A file's bytes with the offsets of its fields.
struct BuiltFile {
  std::string bytes;
  uint64_t size = 0;  ///< of the whole file: what lies behind `bytes` is a hole
  std::map<std::string, size_t> at;

  /// A copy with the bytes of `value` over those of a field.
  template <class T>
  std::string with(const std::string& field, T value) const {
    const std::string patch = raw(value);
    std::string copy = bytes;
    copy.replace(at.at(field), patch.size(), patch);
    return copy;
  }
};

class FileBuilder {
 public:
  uint32_t version = 3;
  uint64_t alignment = 32;  ///< as applied; the key is up to the test

  /// `value` in its stored form.
  FileBuilder& key(const std::string& name, ValueType type, const std::string& value) {
    keys_.push_back({name, static_cast<uint32_t>(type), value});
    return *this;
  }
  FileBuilder& text(const std::string& name, std::string_view value) {
    return key(name, ValueType::kString, raw_string(value));
  }
  FileBuilder& u32(const std::string& name, uint32_t value) { return key(name, ValueType::kUint32, raw(value)); }

  /// A tensor whose `data` follows the previous one at the next aligned offset.
  FileBuilder& tensor(const std::string& name, const std::vector<uint64_t>& shape, uint32_t type,
                      const std::string& data) {
    tensors_.push_back({name, shape, type, data, 0});
    return *this;
  }

  /// A tensor of `size` zeros, which become a hole behind `bytes`; no other kind may follow.
  FileBuilder& hole(const std::string& name, const std::vector<uint64_t>& shape, uint32_t type, uint64_t size) {
    tensors_.push_back({name, shape, type, "", size});
    return *this;
  }

  BuiltFile build() const {
    BuiltFile file;
    std::string& out = file.bytes;
    const auto put = [&](const std::string& field, const std::string& bytes) {
      file.at[field] = out.size();
      out += bytes;
    };
    put("magic", "GGUF");
    put("version", raw(version));
    put("n_tensors", raw(uint64_t{tensors_.size()}));
    put("n_kv", raw(uint64_t{keys_.size()}));
    for (const Key& entry : keys_) {
      put("key " + entry.name + " length", raw(uint64_t{entry.name.size()}));
      put("key " + entry.name + " name", entry.name);
      put("key " + entry.name + " type", raw(entry.type));
      put("key " + entry.name + " value", entry.value);
    }
    uint64_t offset = 0;
    for (const Row& row : tensors_) {
      put("tensor " + row.name + " name length", raw(uint64_t{row.name.size()}));
      put("tensor " + row.name + " name", row.name);
      put("tensor " + row.name + " n_dims", raw(static_cast<uint32_t>(row.shape.size())));
      for (size_t i = 0; i < row.shape.size(); ++i) {
        put("tensor " + row.name + " dim " + std::to_string(i), raw(row.shape[i]));
      }
      put("tensor " + row.name + " type", raw(row.type));
      put("tensor " + row.name + " offset", raw(offset));
      offset = padded(offset + row.data.size() + row.hole);
    }
    if (!tensors_.empty()) out.resize(padded(out.size()));
    file.at["data"] = out.size();
    for (const Row& row : tensors_) {
      put("tensor " + row.name + " data", row.data);
      if (&row != &tensors_.back()) out.resize(file.at["data"] + padded(out.size() - file.at["data"]));
    }
    file.size = tensors_.empty() || tensors_.back().hole == 0 ? out.size() : file.at["data"] + offset;
    return file;
  }

 private:
  struct Key {
    std::string name;
    uint32_t type;
    std::string value;
  };
  struct Row {
    std::string name;
    std::vector<uint64_t> shape;
    uint32_t type;
    std::string data;
    uint64_t hole = 0;
  };
  uint64_t padded(uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }

  std::vector<Key> keys_;
  std::vector<Row> tensors_;
};

/// A folder for one test's files, removed with everything in it.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lamina-XXXXXX").string();
    LAMINA_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }

  std::string path(const std::string& name) const { return (path_ / name).string(); }

  /// Writes `bytes`, making folders that `name` asks for, and returns the path.
  std::string write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream out(path(name), std::ios::binary);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    out.close();
    LAMINA_CHECK(out.good());
    return path(name);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lamina::gguf
