#!/usr/bin/env python3
"""Writes tests/data/types/TYPE.bin: blocks of each type, and the weights the PyPI package gguf 0.19 makes of them.

In: nothing but that package (and numpy). Out: one file a type: n blocks, then their n * block weights as little-endian
float32; n follows from the size of the file. The blocks hold random codes (every code and grid point occurs), and
scales that are zero, denormal, the largest, infinite, NaN and negative. Types that the package cannot dequantise
(Q1_0, Q2_0) get no file.

    python3 tests/make_type_fixtures.py tests/data/types
"""
import sys
from pathlib import Path

import numpy as np
from gguf import quants
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type

random = np.random.default_rng(20)

# Byte offsets of the float16 numbers in a block: d, then dmin or m.
F16_AT = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
    "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ1_S": [0], "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0],
    "IQ3_XXS": [0], "IQ3_S": [0], "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64],
}
# zero, denormal, largest, infinite, NaN, of both signs; 0x3c00 is one
SPECIAL = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0xFFFF, 0x3C00]


def f16_scales(n, turn):
    """n raw float16: the special ones in turn, then random finite ones."""
    scales = random.integers(0, 0x7C00, n, dtype=np.uint16) | random.integers(0, 2, n, dtype=np.uint16) << 15
    scales[:len(SPECIAL)] = np.roll(SPECIAL, turn)
    return scales


def put_every_code(name, blocks):
    """Makes the blocks with random scales walk through all codes or grid points, in place."""
    rest = blocks[len(SPECIAL):]
    if name == "Q8_0":  # all bytes
        rest[:, 2:] = np.arange(len(rest) * 32).reshape(-1, 32) % 256
    elif name == "IQ1_S":  # 2048 points: low bytes at 2, three upper bits in the 16-bit numbers at 34
        index = np.arange(len(rest) * 32).reshape(-1, 8, 4) % 2048
        rest[:, 2:34] = (index & 255).reshape(-1, 32)
        high = np.ascontiguousarray(rest[:, 34:50]).view(np.uint16) & 0xF000
        high |= ((index >> 8) << np.array([0, 3, 6, 9])).sum(axis=-1).astype(np.uint16)
        rest[:, 34:50] = high.view(np.uint8)
    elif name == "IQ2_S":  # 1024 points: low bytes at 2, two upper bits at 66
        index = np.arange(len(rest) * 32).reshape(-1, 8, 4) % 1024
        rest[:, 2:34] = (index & 255).reshape(-1, 32)
        rest[:, 66:74] = ((index >> 8) << np.array([0, 2, 4, 6])).sum(axis=-1)
    elif name == "IQ2_XS":  # 512 points: nine low bits of the 16-bit numbers at 2
        index = (np.arange(len(rest) * 32).reshape(-1, 32) % 512).astype(np.uint16)
        numbers = (np.ascontiguousarray(rest[:, 2:66]).view(np.uint16) & 0xFE00) | index
        rest[:, 2:66] = numbers.view(np.uint8)
    elif name == "IQ2_XXS":  # 256 points: four bytes, then four bytes of signs
        rest[:, 2:].reshape(-1, 8, 8)[:, :, :4] = np.arange(len(rest) * 32).reshape(-1, 8, 4) % 256
    elif name == "IQ3_XXS":  # 256 points
        rest[:, 2:66] = np.arange(len(rest) * 64).reshape(-1, 64) % 256
    elif name == "IQ3_S":  # 512 points: low bytes at 2, ninth bits at 66
        index = np.arange(len(rest) * 64).reshape(-1, 8, 8) % 512
        rest[:, 2:66] = (index & 255).reshape(-1, 64)
        rest[:, 66:74] = ((index >> 8) << np.arange(8)).sum(axis=-1)


def make_blocks(name, block, size):
    if name in ("F32", "F16", "BF16"):
        return random.integers(0, 256, (512, size), dtype=np.uint8)
    for_grid = {"IQ1_S": 64, "IQ2_S": 32, "IQ2_XS": 16, "IQ2_XXS": 8, "IQ3_S": 8}  # enough for every grid point
    n = len(SPECIAL) + for_grid.get(name, 6 if block == 256 else 40)
    if name == "MXFP4":
        n = 256
    if name == "NVFP4":
        n = 64
    blocks = random.integers(0, 256, (n, size), dtype=np.uint8)
    for turn, at in enumerate(F16_AT.get(name, [])):
        blocks[:, at:at + 2] = f16_scales(n, 5 * turn).view(np.uint8).reshape(n, 2)
    if name == "IQ1_M":  # d in the upper nibbles of the 16-bit numbers at 48
        d = f16_scales(n, 0)
        for i in range(4):
            blocks[:, 49 + 2 * i] = (blocks[:, 49 + 2 * i] & 15) | ((d >> 4 * i & 15) << 4)
    if name == "MXFP4":
        blocks[:, 0] = np.arange(256)
    if name == "NVFP4":
        blocks[:, :4] = np.arange(256).reshape(64, 4)
    put_every_code(name, blocks)
    return blocks


def main():
    folder = Path(sys.argv[1])
    np.seterr(all="ignore")
    for kind in Type:
        block, size = GGML_QUANT_SIZES[kind]
        blocks = make_blocks(kind.name, block, size)
        try:
            weights = np.concatenate([quants.dequantize(np.ascontiguousarray(row), kind) for row in blocks])
        except NotImplementedError:
            continue
        assert weights.dtype == np.float32 and weights.size == len(blocks) * block, kind.name
        (folder / f"{kind.name}.bin").write_bytes(blocks.tobytes() + weights.tobytes())


main()
