#!/usr/bin/env python3
"""Writes the seeds of the fuzz targets, tests/data/fuzz/{reader,loader,tokenizer}/*: small files that reach far into each target.

What fuzzing finds is added there by hand, under a name that says what it was.
usage: make_fuzz_seeds.py FOLDER      needs: pip install numpy gguf==0.19"""
import os
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import GGUFWriter, RopeScalingType, quants

root = sys.argv[1]
random = np.random.default_rng(1)


def close(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def model(name, arch, type, n_embd=32, n_ff=32, n_layer=1, n_vocab=5, experts=False, tied=False, norms=(), keys=lambda writer: None):
    """A model with two heads and one KV head."""
    writer = GGUFWriter(f"{root}/loader/{name}", arch)
    writer.add_context_length(64)
    writer.add_embedding_length(n_embd)
    writer.add_block_count(n_layer)
    writer.add_feed_forward_length(n_ff)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    if experts:
        writer.add_expert_count(3)
        writer.add_expert_used_count(2)
    keys(writer)

    def weight(name, *shape, type=type):
        values = random.random(shape, np.float32) - 0.5
        writer.add_tensor(name + ".weight", quants.quantize(values, type), raw_dtype=type)

    def norm(name, n=n_embd):
        writer.add_tensor(name + ".weight", np.ones(n, np.float32))

    weight("token_embd", n_vocab, n_embd)
    norm("output_norm")
    if not tied:
        weight("output", n_vocab, n_embd)
    for layer in range(n_layer):
        blk = f"blk.{layer}."
        for each in ("attn_norm", "ffn_norm") + norms:
            norm(blk + each, n_embd // 2 if each in ("attn_q_norm", "attn_k_norm") else n_embd)
        weight(blk + "attn_q", n_embd, n_embd)
        weight(blk + "attn_k", n_embd // 2, n_embd)
        weight(blk + "attn_v", n_embd // 2, n_embd)
        weight(blk + "attn_output", n_embd, n_embd)
        if experts:
            weight(blk + "ffn_gate_inp", 3, n_embd, type=Type.F32)
            weight(blk + "ffn_gate_exps", 3, n_ff, n_embd)
            weight(blk + "ffn_up_exps", 3, n_ff, n_embd)
            weight(blk + "ffn_down_exps", 3, n_embd, n_ff)
        else:
            weight(blk + "ffn_gate", n_ff, n_embd)
            weight(blk + "ffn_up", n_ff, n_embd)
            weight(blk + "ffn_down", n_embd, n_ff)
    close(writer)


def yarn(writer):
    writer.add_rope_scaling_type(RopeScalingType.YARN)
    writer.add_rope_scaling_factor(4.0)
    writer.add_rope_freq_base(500.0)
    writer.add_rope_dimension_count(8)


def all_types():
    writer = GGUFWriter(f"{root}/reader/all-types", "llama")
    writer.add_uint8("a", 1), writer.add_int8("b", -1), writer.add_uint16("c", 2), writer.add_int16("d", -2)
    writer.add_uint32("e", 3), writer.add_int32("f", -3), writer.add_float32("g", 0.5), writer.add_bool("h", True)
    writer.add_uint64("i", 4), writer.add_int64("j", -4), writer.add_float64("k", 0.25), writer.add_string("l", "text")
    writer.add_array("m", ["x", "yy", ""]), writer.add_array("n", [1, 2, 3])
    writer.add_array("o", [0.5, 1.5]), writer.add_array("p", [True, False])
    writer.add_tensor("t", np.ones((2, 3), np.float32))
    writer.add_tensor("u", quants.quantize(np.ones((2, 32), np.float32), Type.Q8_0), raw_dtype=Type.Q8_0)
    close(writer)


def write(name, data):
    with open(f"{root}/{name}", "wb") as file:
        file.write(data)


def key(name, type, value):
    return struct.pack("<Q", len(name)) + name + struct.pack("<I", type) + value


def vocabulary(name, flags, pre, tokens, types, merges, ids, text):
    """The fields in the order of tests/fuzz/inputs.cpp."""
    encoded = lambda s: s.encode() if isinstance(s, str) else s
    field = lambda s: bytes([len(encoded(s))]) + encoded(s)
    fields = lambda items: bytes([len(items)]) + b"".join(map(field, items))
    write(f"tokenizer/{name}", bytes([flags]) + field(pre) + fields(tokens) + bytes(types) + fields(merges) + bytes(ids) + encoded(text))


for folder in ("reader", "loader", "tokenizer"):
    os.makedirs(f"{root}/{folder}", exist_ok=True)
all_types()
nested = struct.pack("<IQIQBIQQ", 9, 2, 0, 1, 1, 8, 1, 1) + b"x"
header = lambda version, n_keys: b"GGUF" + struct.pack("<IQQ", version, 0, n_keys)
write("reader/nested-arrays", header(2, 2) + key(b"general.alignment", 4, struct.pack("<I", 64)) + key(b"a", 9, nested))
write("reader/split", header(3, 2) + key(b"split.no", 2, struct.pack("<H", 0)) + key(b"split.count", 2, struct.pack("<H", 2)))
write("reader/magic", b"GGUF")

model("llama-q8_0", "llama", Type.Q8_0, tied=True)
model("llama-q4_0-moe", "llama", Type.Q4_0, experts=True)
model("llama-q5_1", "llama", Type.Q5_1, n_layer=2)
model("llama-yarn", "llama", Type.F32, n_embd=16, n_ff=4, n_vocab=3, keys=yarn)
model("qwen3-q4_1", "qwen3", Type.Q4_1, norms=("attn_q_norm", "attn_k_norm"))
model("gemma3-f16", "gemma3", Type.F16, n_embd=16, n_ff=8, tied=True, keys=lambda writer: writer.add_sliding_window(2),
      norms=("attn_q_norm", "attn_k_norm", "post_attention_norm", "post_ffw_norm"))

bpe = ["h", "e", "l", "o", "he", "ll", "hello", "Ġ", "Ġw", "<|end|>", "<tool>", "1", "11", "Ã", "©"]
merges = ["h e", "l l", "he ll", "hell o", "1 1", "Ã ©", "x y"]
for i, pre in enumerate("gpt-2 llama-bpe qwen2 deepseek-llm gpt-4o smollm tekken nosuch falcon command-r starcoder".split()):
    vocabulary(f"bpe-{pre}", 1 | 8 * (i % 2), pre, bpe, [1] * 9 + [3, 4] + [1] * 4, merges, [9, 9, 0],
               "hello <|end|>world's 111\n\n  é 中<tool> hello")
vocabulary("spm", 2 | 4, "", ["<unk>", "<s>", "</s>", "▁h", "el", "lo", "▁hello", "▁", "aa", "aaaa"], [2, 3, 3] + [1] * 7, [], [1, 2, 0],
           b"hello  aaaaaaa \xc3\xa9\xff</s> hello")
vocabulary("spm-no-bytes", 0, "", ["a", "b", "ab", "▁"], [1, 1, 1, 4], [], [255, 255, 255], "abba ab")
