// Resolves the includes of kernel text: see kernel_text.h.
#include "kernels/opencl/kernel_text.h"

#include <set>

#include "gguf/error.h"
#include "kernels/opencl/kernel_texts.h"

namespace lamina::opencl {

namespace {

std::string_view text_of(std::string_view file) {
  for (const auto& [name, text] : kKernelTexts)
    if (name == file) return text;
  LAMINA_CHECK(!"kernel text");
  return {};
}

void append_file(std::string_view file, std::set<std::string, std::less<>>& seen, std::string& out) {
  constexpr std::string_view kInclude = "#include \"kernels/";
  if (!seen.emplace(file).second) return;
  out += fmt::format("#line 1 \"kernels/{}\"\n", file);
  std::string_view rest = text_of(file);
  for (int line = 1; !rest.empty(); line++) {
    const size_t end = rest.find('\n');
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (!text.starts_with(kInclude)) {
      out.append(text).append("\n");
      continue;
    }
    append_file(text.substr(kInclude.size(), text.rfind('"') - kInclude.size()), seen, out);
    out += fmt::format("#line {} \"kernels/{}\"\n", line + 1, file);
  }
}

}  // namespace

std::string kernel_text(std::string_view file) {
  std::string out;
  std::set<std::string, std::less<>> seen;
  append_file("dialect.clh", seen, out);
  append_file(file, seen, out);
  return out;
}

}  // namespace lamina::opencl
