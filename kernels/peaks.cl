// What a device does at best. In: rounds. Out: a number that depends on all work, so that none is left out.
// CHAINS of sums hide what one operation takes.

/// Reads n_words (a multiple of 64 for each group) once, each group a stretch of its own.
KERNEL void read_peak(GLOBAL const uint *words, uint n_words, GLOBAL uint *sums) {
  wuint sum[4];
  for (uint i = 0; i < 4; i++) sum[i] = (wuint)0u;
  const uint stretch = n_words / N_GROUPS();
  words += (size_t)GROUP() * stretch;
  for (uint at = 0; at + 64 <= stretch; at += 64)
    for (uint i = 0; i < 4; i++) sum[i] ^= loadw(words + at + 16 * i);
  storew(sum[0] ^ sum[1] ^ sum[2] ^ sum[3], sums + 16 * GROUP());
}

/// 16 * CHAINS float32 multiply-adds a round and group.
KERNEL void float_peak(uint n_rounds, GLOBAL float *sums) {
  wfloat sum[CHAINS];
  for (uint i = 0; i < CHAINS; i++) sum[i] = to_wfloat(FIRST_LANES);
  for (uint round = 0; round < n_rounds; round++)
    for (uint i = 0; i < CHAINS; i++) sum[i] = fma(sum[i], (wfloat)0.999f, (wfloat)0.5f);
  for (uint i = 1; i < CHAINS; i++) sum[0] += sum[i];
  storew(sum[0], sums + 16 * GROUP());
}

/// The same with integers of 32 bits.
KERNEL void int_peak(uint n_rounds, GLOBAL uint *sums) {
  wuint sum[CHAINS];
  for (uint i = 0; i < CHAINS; i++) sum[i] = to_wuint(FIRST_LANES) + i;
  for (uint round = 0; round < n_rounds; round++)
    for (uint i = 0; i < CHAINS; i++) sum[i] = sum[i] * 5u + round;
  for (uint i = 1; i < CHAINS; i++) sum[0] ^= sum[i];
  storew(sum[0], sums + 16 * GROUP());
}
