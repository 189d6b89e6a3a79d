#!/usr/bin/env python3
"""Writes gguf/codebooks.inc: the grids of the IQ types, as data.

In: the PyPI package gguf 0.19 (MIT), whose classes hold the grids. Out: one array of 16-bit entries a grid; an entry
holds the value numbers of 8 columns in 2 bits each (IQ1, IQ2) or of 4 columns in 4 bits each (IQ3), first column
lowest. gguf/unpack_iq.cpp turns value numbers into codes.

    python3 tools/make_codebooks.py > gguf/codebooks.inc
"""
import gguf.quants as quants

print("// Written by tools/make_codebooks.py from the PyPI package gguf 0.19 (MIT, Georgi Gerganov). Generated.")
print("// In: nothing. Out: the grids of the IQ types, one 16-bit entry a grid point: 8 columns of 2 bits (IQ1, IQ2) or")
print("// 4 columns of 4 bits (IQ3), first column lowest. clang-format off")
print("#include <cstdint>")
print("namespace lamina::gguf {")
for name in ("IQ1_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"):
    codebook = getattr(quants, name)
    codebook.init_grid()
    n_points, n_columns = codebook.grid_shape
    number = {float(value): i for i, value in enumerate(codebook.grid_map)}
    points = codebook.grid.reshape(n_points, n_columns)
    entries = [sum(number[float(v)] << (16 // n_columns * i) for i, v in enumerate(point)) for point in points]
    print(f"inline constexpr uint16_t k{name.title().replace('_', '')}Grid[{n_points}] = {{")
    for i in range(0, n_points, 16):
        print("    " + " ".join(f"0x{entry:04x}," for entry in entries[i:i + 16]))
    print("};")
print("}  // namespace lamina::gguf")
