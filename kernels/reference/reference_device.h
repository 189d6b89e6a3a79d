// The scalar reference of every op: what each Device is tested against, and what `lamina verify` walks beside a
// device. In: a Program and steps, as any Device. Out: results in exactly the arithmetic of the promise (design,
// section 2), written as plainly as possible: one thread, no planes, weights unpacked from their file form at each use.
#pragma once
#include <memory>

#include "kernels/device.h"

namespace lamina {

std::unique_ptr<Device> make_reference_device();

}  // namespace lamina
