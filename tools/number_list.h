// Settings given as lists. In: "512", "128,512", "128-512+128", "1-8*2". Out: the numbers.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lamina {

/// Numbers of `texts`, each a list with commas of numbers and ranges: first-last (steps of 1), first-last+step,
/// first-last*factor. Throws Error(kUsage) naming `option` for what is no such list, lies outside least .. most or
/// makes more than 1000 numbers.
std::vector<uint32_t> parse_numbers(const std::vector<std::string>& texts, const std::string& option, uint32_t least,
                                    uint32_t most);

}  // namespace lamina
