// The weights of a program on the CPU: matrices as planes, small tensors as padded float32, each loaded once.
#pragma once
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/cpu/kernels.h"
#include "kernels/cpu/plane_cache.h"
#include "kernels/device.h"
#include "kernels/memory.h"
#include "kernels/planes.h"
#include "kernels/pool.h"

namespace lamina::cpu {

/// A matrix for each expert (one for a dense weight), and its product kernels by index into kTokenTiles.
struct Matrix {
  std::vector<Planes> planes;
  const ProductKernels* kernels = nullptr;
  uint64_t bytes() const;
};

class Weights {
 public:
  /// Finds planes for every matrix of the linear ops of `program`: in the plane cache, if its folder is named and they
  /// are there, or in memory that is only reserved for now. Throws Error(kDevice) naming op, tensor and type when a
  /// type has no kernel.
  Weights(const Program& program, const gguf::File& file, const Kernels& kernels, Pool& pool,
          const std::string& cache_folder);

  /// Fills planes that came from no cache with all threads; the file's pages are dropped at once. Then writes the
  /// cache, if there is to be one.
  void load(const gguf::File& file, Pool& pool, const Progress& progress);

  const Matrix& matrix(const Weight& weight) const;

  /// The whole tensor's planes if a linear op uses all its rows (tied embeddings), else nullptr.
  const Planes* whole(const gguf::Tensor* tensor) const;

  /// `n` float32 elements for each of n_expert matrices, each padded to 16 with zeros; nullptr for an absent vector.
  const float* vector(const Vector& v, uint32_t n, uint32_t n_expert = 1);

  uint64_t bytes() const;         ///< of planes and vectors
  uint64_t memory_bytes() const;  ///< the same without what is mapped from a cache

 private:
  using Key = std::tuple<const gguf::Tensor*, uint32_t, uint32_t>;  // tensor, first, n
  /// Which file, layout and matrices the planes are of.
  std::string key_of_planes(const gguf::File& file) const;

  /// Row tiles that one thread fills at a time.
  struct TileRange {
    Planes* planes;
    const std::byte* file_rows;       ///< of all tiles
    std::span<const std::byte> read;  ///< of these
    uint32_t first_tile, last_tile;
    uint64_t bytes;  ///< of planes
  };
  std::vector<TileRange> tile_ranges();

  std::vector<std::pair<const Weight*, Matrix*>> wanted_;  ///< in the order of the program, each matrix once
  std::map<Key, Matrix> matrices_;
  std::map<Key, std::vector<float>> vectors_;
  uint64_t plane_bytes_ = 0;  ///< of all matrices
  Memory memory_;             ///< their planes, one matrix behind the other
  std::string cache_path_, cache_key_;
  std::unique_ptr<CachedPlanes> cached_;  ///< the same in the place of memory_
};

}  // namespace lamina::cpu
