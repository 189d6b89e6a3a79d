// The ops of an OpenCL executable as launches of kernels: see executable.h. A kernel computes; what stands here chooses
// the kernel, its arguments and its work-groups.
#include <algorithm>

#include "gguf/error.h"
#include "kernels/opencl/executable.h"

namespace lamina::opencl {

namespace {

constexpr uint32_t kColTileWidth = 32;  ///< columns that a work-group of embed.cl does
/// Work-groups of a product for each of a CPU device's threads: enough to even out, few enough to start cheaply.
constexpr uint32_t kGroupsPerUnit = 4;

uint32_t ceil_div(uint32_t a, uint32_t b) { return (a + b - 1) / b; }

constexpr KernelPlace kEmbed = {"embed.cl", "", "embed"}, kNorm = {"norm.cl", "", "norm"};
constexpr KernelPlace kAppend = {"append.cl", "", "append"}, kAttendMerge = {"attend.cl", " -DHEADS=1", "attend_merge"};
constexpr KernelPlace kAttend[LAMINA_HEADS_TOGETHER] = {{"attend.cl", " -DHEADS=1", "attend"},
                                                        {"attend.cl", " -DHEADS=2", "attend"},
                                                        {"attend.cl", " -DHEADS=3", "attend"},
                                                        {"attend.cl", " -DHEADS=4", "attend"}};
constexpr KernelPlace kRoute = {"experts.cl", "", "route"}, kCombine = {"experts.cl", "", "combine"};
constexpr KernelPlace kSelectRows = {"outputs.cl", "", "select_rows"}, kAdvance = {"outputs.cl", "", "advance"};
constexpr KernelPlace kArgmaxParts = {"outputs.cl", "", "argmax_parts"};
constexpr KernelPlace kArgmaxMerge = {"outputs.cl", "", "argmax_merge"};
constexpr KernelPlace kPack[] = {{"pack.cl", " -DFORM=0", "pack"},  // by LAMINA_FORM_*
                                 {"pack.cl", " -DFORM=1", "pack"},
                                 {"pack.cl", " -DFORM=2", "pack"}};
constexpr KernelPlace kLinearAlone = {nullptr, " -DT=1 -DALONE", "linear_alone", true};

struct RowKernel {
  uint32_t rows;
  KernelPlace place;
};
constexpr RowKernel kRowKernels[] = {{1, {nullptr, " -DT=1", "linear"}},
                                     {2, {nullptr, " -DT=2", "linear"}},
                                     {4, {nullptr, " -DT=4", "linear"}},
                                     {8, {nullptr, " -DT=8", "linear"}}};

/// The kernel for so many rows: the least that does all at once, else that of most rows.
const RowKernel& row_kernel(uint32_t rows) {
  for (const RowKernel& kernel : kRowKernels)
    if (kernel.rows >= rows) return kernel;
  return kRowKernels[std::size(kRowKernels) - 1];
}

}  // namespace

template <class... Args>
void OpenClExecutable::launch_groups(cl_kernel kernel, uint64_t groups, uint64_t rows, const Args&... args) {
  if (groups == 0 || rows == 0) return;
  set_args(kernel, 0, args...);
  const size_t items = kRowTile / target_.lanes;  // of a work-group
  const size_t global[2] = {groups * items, rows}, local[2] = {items, 1};
  check(clEnqueueNDRangeKernel(target_.queue.get(), kernel, 2, nullptr, global, local, 0, nullptr, nullptr),
        "clEnqueueNDRangeKernel");
}

/// Puts the token that the last step chose and the position behind its own into `step`.
void OpenClExecutable::advance() {
  launch_groups(kernels_.get(kAdvance), 1, 1, result_.get(), step_buffer_.get(), capacity_.max_rows);
}

void OpenClExecutable::run_op(size_t index) {
  std::visit([&](const auto& op) { run_op(op, index); }, program_.ops[index]);
}

void OpenClExecutable::run_op(const EmbedOp& op, size_t index) {
  launch::EmbedArgs args = {};
  args.n_rows = n_rows(RowSet::kTokens);
  args.width = buffer(op.out).width;
  args.stride = stride(op.out);
  args.scale = op.scale;
  embed(*tables_[index], args, op.out);
  if (!op.positions) return;
  args.index_at = capacity_.max_rows;
  args.add = 1;
  args.scale = 1;
  embed(*position_tables_[index], args, op.out);
}

void OpenClExecutable::embed(const Matrix& table, launch::EmbedArgs args, Buf out) {
  cl_kernel kernel = kernels_.get(kEmbed, table.weight->tensor->type);
  for (const Part& part : table.parts) {
    args.planes = part.planes;
    args.first_row = part.first_row;
    args.n_table_rows = part.n_rows;
    launch_groups(kernel, ceil_div(args.width, kColTileWidth), args.n_rows, part.buffer.get(), step_buffer_.get(), args,
                  memory(out));
  }
}

void OpenClExecutable::run_op(const LinearOp& op, size_t index) {
  BoundLinear& bound = linears_[index];
  bound.pack.n_rows = n_rows(buffer(op.in).set);
  uint32_t packed_form = LAMINA_NONE;
  for (Group& group : bound.groups) {
    group.args.n_rows = n_rows(bound.out);
    const bool alone = target_.lanes == kRowTile && group.args.n_rows == 1 && group.args.experts == 0 &&
                       LAMINA_PACKED_WORDS(group.form, bound.pack.n_cols) <= most_alone_;
    if (!alone && group.form != packed_form) {
      launch_groups(kernels_.get(kPack[group.form]), bound.pack.n_rows, 1, memory(op.in), memory(op.gate),
                    weights_.vectors(), bound.pack, packed_.get());
      packed_form = group.form;
    }
    multiply(op, bound.pack, group, alone);
  }
}

/// The products of a group, by a kernel that packs its one input row itself, or from packed rows.
void OpenClExecutable::multiply(const LinearOp& op, const launch::PackArgs& pack, const Group& group, bool alone) {
  cl_mem planes[LAMINA_MOST_PRODUCTS], residual[LAMINA_MOST_PRODUCTS], out[LAMINA_MOST_PRODUCTS];
  for (size_t i = 0; i < LAMINA_MOST_PRODUCTS; i++) {
    const size_t used = std::min(i, group.parts.size() - 1);
    planes[i] = group.parts[used]->buffer.get();
    residual[i] = memory(group.products[used]->residual);
    out[i] = memory(group.products[used]->out);
  }
  const uint32_t n_tiles = group.n_row_tiles;
  const uint32_t groups = target_.lanes == kRowTile
                              ? std::min(n_tiles, kGroupsPerUnit * std::max(1u, target_.info.compute_units))
                              : n_tiles;
  if (alone) {
    launch_groups(kernels_.get(kLinearAlone, group.type), groups, 1, memory(op.in), memory(op.gate), weights_.vectors(),
                  pack, group.args, planes[0], planes[1], planes[2], residual[0], residual[1], residual[2], out[0],
                  out[1], out[2]);
    return;
  }
  const RowKernel& kernel = row_kernel(group.args.experts != 0 ? 1 : group.args.n_rows);
  launch_groups(kernels_.get(kernel.place, group.type), groups, ceil_div(group.args.n_rows, kernel.rows), packed_.get(),
                weights_.vectors(), chosen_.get(), group.args, planes[0], planes[1], planes[2], residual[0],
                residual[1], residual[2], out[0], out[1], out[2]);
}

void OpenClExecutable::run_op(const NormOp& op, size_t index) {
  const launch::NormOpArgs args = {n_rows(buffer(op.in).set), buffer(op.in).width, stride(op.in),
                                   stride(op.residual),       stride(op.out),      op.residual != kNoBuf,
                                   norms_[index][0]};
  launch_groups(kernels_.get(kNorm), args.n_rows, 1, memory(op.in), memory(op.residual), weights_.vectors(), args,
                memory(op.out));
}

launch::HeadArgs OpenClExecutable::heads(uint32_t layer, uint32_t n_head) const {
  const KvShape& shape = program_.kv[layer];
  return {n_head, shape.n_head_kv, shape.head_dim_k, shape.head_dim_v, capacity_.max_rows, 2 * capacity_.max_rows};
}

void OpenClExecutable::run_op(const AppendOp& op, size_t index) {
  launch::AppendArgs args = {};
  args.n_rows = n_rows(RowSet::kTokens);
  args.heads = heads(op.layer, op.n_head);
  args.q_stride = stride(op.q);
  args.k_stride = stride(op.k);
  args.v_stride = stride(op.v);
  args.q_norm = norms_[index][0];
  args.k_norm = norms_[index][1];
  if (op.rope >= 0) {
    args.n_pairs = program_.ropes[static_cast<size_t>(op.rope)].n_rot() / 2;
    args.halves = program_.ropes[static_cast<size_t>(op.rope)].pairs == RopePairs::kHalves;
  }
  args.has_k = op.k != kNoBuf;
  cl_mem rotations = op.rope >= 0 ? rotations_[static_cast<size_t>(op.rope)].get() : dummy_.get();
  launch_groups(kernels_.get(kAppend), op.n_head + (args.has_k != 0 ? 2 * args.heads.n_head_kv : 0), args.n_rows,
                memory(op.q), memory(op.k), memory(op.v), weights_.vectors(), rotations, step_buffer_.get(), args,
                kv_[op.layer].k.get(), kv_[op.layer].v.get());
}

void OpenClExecutable::run_op(const AttendOp& op, size_t index) {
  const KvShape& shape = program_.kv[op.layer];
  const uint32_t rows = n_rows(RowSet::kTokens);
  launch::AttendArgs args = {};
  args.heads = heads(op.layer, op.n_head);
  args.q_stride = stride(op.q);
  args.out_stride = stride(op.out);
  args.scale = op.scale;
  args.softcap = op.softcap;
  args.window = op.window;
  args.temperature = temperatures_[index];
  args.n_splits = last_position_ / LAMINA_SPLIT + 1;
  const uint64_t part_floats = uint64_t{op.n_head} * args.n_splits * LAMINA_PART_FLOATS(shape.head_dim_v);
  const uint32_t rows_at_once =
      args.n_splits == 1 ? rows : static_cast<uint32_t>(std::max<uint64_t>(1, kMostPartFloats / part_floats));
  const uint32_t of_kv = op.n_head / shape.n_head_kv, blocks = ceil_div(of_kv, LAMINA_HEADS_TOGETHER);
  for (uint32_t row = 0; row < rows; row += rows_at_once) {
    args.first_row = row;
    args.n_rows = std::min(rows_at_once, rows - row);
    launch_groups(kernels_.get(kAttend[ceil_div(of_kv, blocks) - 1]),
                  uint64_t{shape.n_head_kv} * blocks * args.n_splits, args.n_rows, memory(op.q), kv_[op.layer].k.get(),
                  kv_[op.layer].v.get(), weights_.vectors(), step_buffer_.get(), args, parts_.get(), memory(op.out));
    if (args.n_splits == 1) continue;
    launch_groups(kernels_.get(kAttendMerge), op.n_head, args.n_rows, parts_.get(), step_buffer_.get(), args,
                  memory(op.out));
  }
}

void OpenClExecutable::run_op(const RouteOp& op, size_t) {
  const launch::RouteArgs args = {n_rows(RowSet::kTokens),          op.n_expert,  op.n_used, stride(op.logits),
                                  static_cast<uint32_t>(op.gating), op.normalize, op.scale};
  launch_groups(kernels_.get(kRoute), args.n_rows, 1, memory(op.logits), args, chosen_.get(), expert_weights_.get());
}

void OpenClExecutable::run_op(const CombineOp& op, size_t) {
  const launch::CombineArgs args = {n_rows(RowSet::kTokens), op.n_used,      buffer(op.out).width, stride(op.in),
                                    stride(op.residual),     stride(op.out), op.residual != kNoBuf};
  launch_groups(kernels_.get(kCombine), ceil_div(args.width, kRowTile), args.n_rows, memory(op.in),
                expert_weights_.get(), memory(op.residual), args, memory(op.out));
}

void OpenClExecutable::run_op(const SelectOp& op, size_t) {
  const launch::SelectArgs args = {n_outputs_, buffer(op.out).width, stride(op.in), stride(op.out),
                                   3 * capacity_.max_rows};
  launch_groups(kernels_.get(kSelectRows), ceil_div(args.width, kRowTile), args.n_rows, memory(op.in),
                step_buffer_.get(), args, memory(op.out));
}

void OpenClExecutable::run_op(const ArgmaxOp& op, size_t) {
  const uint32_t width = buffer(op.logits).width;
  const launch::ArgmaxArgs args = {n_outputs_, width, stride(op.logits),
                                   std::min(kMostArgmaxParts, ceil_div(width, 16 * kRowTile))};
  launch_groups(kernels_.get(kArgmaxParts), args.n_parts, args.n_rows, memory(op.logits), args, best_.get(),
                best_index_.get());
  launch_groups(kernels_.get(kArgmaxMerge), args.n_rows, 1, best_.get(), best_index_.get(), args, result_.get());
}

}  // namespace lamina::opencl
