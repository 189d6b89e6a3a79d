#!/usr/bin/env python3
"""Writes tests/data/engine/chains.gguf: a tiny llama with a SentencePiece-like vocabulary whose greedy text is known.

The output row of each token's successor is that token's embedding, so the next token is nearly always the successor; small random
attention and feed-forward weights make the logits depend on the whole prefix all the same. Chains:
    <s> a b c d e f g h i j </s>      an end
    k <0xE2> <0x82> <0xAC> k ...      a character in three tokens, for ever
    x y z x ...                       for ever
    m <0xFF> n </s>                   a byte that is no UTF-8

usage: make_text_model.py OUT.gguf      needs: pip install numpy gguf==0.19"""
import string
import sys

import numpy as np
from gguf import GGUFWriter, TokenType

N_EMBD, N_FF, N_HEAD, N_HEAD_KV, N_LAYER, N_CTX = 64, 96, 4, 2, 2, 512

tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + ["\u2581"] + list(string.ascii_lowercase)
types = [TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL] + [TokenType.BYTE] * 256 + [TokenType.NORMAL] * 27
ids = {token: i for i, token in enumerate(tokens)}

successor = {}
for chain in ("<s> a b c d e f g h i j </s>", "k <0xE2> <0x82> <0xAC> k", "x y z x", "m <0xFF> n </s>"):
    chain = [ids[token] for token in chain.split()]
    successor.update(zip(chain, chain[1:]))

random = np.random.default_rng(7)
embedding = random.choice([-1.0, 1.0], (len(tokens), N_EMBD))
output = random.normal(0, 0.05, (len(tokens), N_EMBD))
for token, following in successor.items():
    output[following] += embedding[token]

writer = GGUFWriter(sys.argv[1], "llama")
writer.add_name("chains")
writer.add_file_type(1)
writer.add_context_length(N_CTX)
writer.add_embedding_length(N_EMBD)
writer.add_block_count(N_LAYER)
writer.add_feed_forward_length(N_FF)
writer.add_head_count(N_HEAD)
writer.add_head_count_kv(N_HEAD_KV)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_dimension_count(N_EMBD // N_HEAD)
writer.add_tokenizer_model("llama")
writer.add_token_list(tokens)
writer.add_token_scores([0.0] * len(tokens))
writer.add_token_types(types)
writer.add_unk_token_id(0)
writer.add_bos_token_id(1)
writer.add_eos_token_id(2)
writer.add_add_bos_token(True)
writer.add_add_space_prefix(False)


def add(name, values):
    writer.add_tensor(name, np.asarray(values, np.float32 if values.ndim == 1 else np.float16))


def add_random(name, n_rows, n_cols):
    add(name, random.normal(0, 0.1 / np.sqrt(n_cols), (n_rows, n_cols)))


add("token_embd.weight", embedding)
add("output_norm.weight", np.ones(N_EMBD))
add("output.weight", output)
for layer in range(N_LAYER):
    block = f"blk.{layer}."
    add(block + "attn_norm.weight", np.ones(N_EMBD))
    add(block + "ffn_norm.weight", np.ones(N_EMBD))
    add_random(block + "attn_q.weight", N_EMBD, N_EMBD)
    add_random(block + "attn_k.weight", N_EMBD * N_HEAD_KV // N_HEAD, N_EMBD)
    add_random(block + "attn_v.weight", N_EMBD * N_HEAD_KV // N_HEAD, N_EMBD)
    add_random(block + "attn_output.weight", N_EMBD, N_EMBD)
    add_random(block + "ffn_gate.weight", N_FF, N_EMBD)
    add_random(block + "ffn_up.weight", N_FF, N_EMBD)
    add_random(block + "ffn_down.weight", N_EMBD, N_FF)
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
