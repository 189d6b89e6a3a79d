// The kernel text that is part of the binary: kernels/*.cl, *.clh and launch_args.h.
// In: the name of a .cl file. Out: its source with the dialect before it and its includes in their place, each once;
// #line keeps a compiler's messages on the real files and lines.
#pragma once
#include <string>
#include <string_view>

namespace lamina::opencl {

std::string kernel_text(std::string_view file);

}  // namespace lamina::opencl
