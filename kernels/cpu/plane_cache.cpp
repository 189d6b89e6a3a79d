// Files of planes: see plane_cache.h.
#include "kernels/cpu/plane_cache.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <vector>

#include "gguf/error.h"
#include "gguf/whole_file.h"

namespace lamina::cpu {

namespace {

constexpr char kMagic[8] = {'L', 'M', 'P', 'L', 'A', 'N', 'E', 'S'};
constexpr uint64_t kAlignment = 4096;

struct Header {
  char magic[8];
  uint32_t layout, key_length;
  uint64_t bytes, checksum;
};

uint64_t planes_offset(uint64_t key_length) {
  return (sizeof(Header) + key_length + kAlignment - 1) / kAlignment * kAlignment;
}

/// Eight chains of xor and multiplication (as FNV, by words): as fast as memory is read.
uint64_t chunk_checksum(const std::byte* data, uint64_t bytes) {
  constexpr uint64_t kPrime = 0x9e3779b97f4a7c15;
  uint64_t chain[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  uint64_t at = 0;
  for (; at + 64 <= bytes; at += 64) {
    for (uint64_t i = 0; i < 8; i++) {
      uint64_t word;
      std::memcpy(&word, data + at + 8 * i, sizeof word);
      chain[i] = (chain[i] ^ word) * kPrime;
      chain[i] ^= chain[i] >> 32;
    }
  }
  for (; at < bytes; at++) chain[0] = (chain[0] ^ static_cast<uint64_t>(data[at])) * kPrime;
  uint64_t all = 0;
  for (const uint64_t one : chain) all = (all ^ one) * kPrime;
  return all;
}

uint64_t checksum(std::span<const std::byte> data, Pool& pool) {
  constexpr uint64_t kChunk = uint64_t{1} << 20;
  const uint64_t n = (data.size() + kChunk - 1) / kChunk;
  std::vector<uint64_t> chunks(n);
  std::atomic<uint64_t> next{0};
  pool.run([&](int) {
    for (uint64_t i; (i = next++) < n;) {
      chunks[i] = chunk_checksum(data.data() + i * kChunk, std::min(kChunk, data.size() - i * kChunk));
    }
  });
  return chunk_checksum(reinterpret_cast<const std::byte*>(chunks.data()), n * sizeof(uint64_t));
}

}  // namespace

std::unique_ptr<CachedPlanes> map_planes(const std::string& path, const std::string& key, uint64_t bytes, Pool& pool) {
  std::error_code none;
  if (!std::filesystem::exists(path, none)) return nullptr;
  const auto broken = [&](const char* why) {
    spdlog::warn("the plane cache {} {} and is made anew", gguf::shown_path(path), why);
    return std::unique_ptr<CachedPlanes>();
  };
  try {
    gguf::Mapping mapping(path);
    const std::span<const std::byte> file = mapping.bytes();
    Header header;
    if (file.size() < sizeof header) return broken("is cut off");
    std::memcpy(&header, file.data(), sizeof header);
    if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return broken("is another kind of file");
    if (header.layout != kPlaneLayout || header.key_length != key.size() || header.bytes != bytes) return nullptr;
    const uint64_t offset = planes_offset(key.size());
    if (file.size() < offset || file.size() - offset != bytes) return broken("is cut off");
    if (std::memcmp(file.data() + sizeof header, key.data(), key.size()) != 0) return nullptr;
    const std::span<const std::byte> planes = file.subspan(offset);
    if (checksum(planes, pool) != header.checksum) return broken("has a wrong checksum");
    return std::make_unique<CachedPlanes>(std::move(mapping), planes);
  } catch (const Error& error) {
    spdlog::warn("no plane cache: {}", error.what());
    return nullptr;
  }
}

void write_planes(const std::string& path, const std::string& key, std::span<const std::byte> planes, Pool& pool) {
  try {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    Header header = {{}, kPlaneLayout, static_cast<uint32_t>(key.size()), planes.size(), checksum(planes, pool)};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    std::vector<std::byte> start(planes_offset(key.size()));
    std::memcpy(start.data(), &header, sizeof header);
    std::memcpy(start.data() + sizeof header, key.data(), key.size());
    WholeFile file(path);
    file.write(start);
    file.write(planes);
    file.finish();
  } catch (const std::exception& error) {
    spdlog::warn("no plane cache: {}", error.what());
  }
}

}  // namespace lamina::cpu
