// Through OpenSSL, which uses the CPU's SHA instructions.
// In: a file, in blocks. Out: its hash.
#include "tools/sha256.h"

#include <openssl/evp.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <vector>

#include "gguf/error.h"

namespace lamina {

std::string sha256_of(const std::filesystem::path& path, const SignalFlag& signals) {
  const std::unique_ptr<std::FILE, decltype(&std::fclose)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  const auto check_file = [&](bool good) {
    if (!good) fail(ErrorKind::kRuntime, "cannot read '{}': {}", printable(path.string(), 200), std::strerror(errno));
  };
  check_file(file != nullptr);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  LAMINA_CHECK(context != nullptr && EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) == 1);
  std::vector<char> block(1 << 20);
  while (const size_t n = std::fread(block.data(), 1, block.size(), file.get())) {
    signals.check();
    LAMINA_CHECK(EVP_DigestUpdate(context.get(), block.data(), n) == 1);
  }
  check_file(std::ferror(file.get()) == 0);
  std::array<unsigned char, 32> hash;
  LAMINA_CHECK(EVP_DigestFinal_ex(context.get(), hash.data(), nullptr) == 1);
  std::string digits;
  for (const unsigned char byte : hash) fmt::format_to(std::back_inserter(digits), "{:02x}", byte);
  return digits;
}

}  // namespace lamina
