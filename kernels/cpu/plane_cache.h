// Planes of a model kept in a file, to be mapped instead of made anew.
// In: a path, a key (text that says of which model and layout the planes are) and the planes. Out: a mapping of them,
// or nothing. A cache is never needed: what is wrong with one is a warning.
//
//     "LMPLANES"  u32 layout version  u32 length of the key  u64 bytes of planes  u64 checksum of planes  key
//     zeros to the next multiple of 4096
//     planes
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "gguf/mapping.h"
#include "kernels/pool.h"

namespace lamina::cpu {

/// Raised whenever planes are laid out in another way.
constexpr uint32_t kPlaneLayout = 1;

/// A mapped cache and the planes in it.
struct CachedPlanes {
  CachedPlanes(gguf::Mapping whole, std::span<const std::byte> part) : mapping(std::move(whole)), planes(part) {}
  gguf::Mapping mapping;
  std::span<const std::byte> planes;
};

/// The cache at `path` when it holds `bytes` of planes for this key and its checksum is right: all of it is read for
/// that, by all threads. Warns of one that is broken; one for another key, as of a model that has changed, is none.
std::unique_ptr<CachedPlanes> map_planes(const std::string& path, const std::string& key, uint64_t bytes, Pool& pool);

/// Writes a cache under its final name once it is complete, making its folder. Warns when that is not possible.
void write_planes(const std::string& path, const std::string& key, std::span<const std::byte> planes, Pool& pool);

}  // namespace lamina::cpu
