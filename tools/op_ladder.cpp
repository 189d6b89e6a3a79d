// The ladder of product kernels: see op_ladder.h.
#include "tools/op_ladder.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/op_cases.h"
#include "engine/op_speed.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/reference/reference_device.h"
#include "tools/signal_flag.h"
#include "tools/terminal.h"

namespace lamina {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();  // null in json

/// One step of the ladder: a device.
struct Rung {
  std::string name;
  std::unique_ptr<Device> device;
  Peaks peaks;
  uint64_t bytes_of_copies = kBytesOfCopies;
  std::vector<uint32_t> rows;
};

std::vector<Rung> rungs_of(const LadderOptions& options) {
  std::vector<uint32_t> rows;
  for (const uint32_t n : {1u, 2u, 4u, 8u, 12u, options.n_prompt})  // the widths of token tiles, and a prompt
    if (n <= options.n_prompt && (rows.empty() || n > rows.back())) rows.push_back(n);
  std::vector<Rung> rungs;
  // Slow rungs have one copy of the matrix: they wait for arithmetic, not for memory, so their bytes a second are the
  // same. A row of the reference costs as much beside others as alone.
  rungs.push_back(
      {.name = "reference", .device = make_reference_device(), .peaks = {}, .bytes_of_copies = 0, .rows = {1}});
  for (const std::string& isa : cpu_isas()) {
    auto device = make_cpu_device({.n_threads = options.n_threads, .isa = isa});
    const Peaks peaks = device->measure_peaks();
    rungs.push_back({isa, std::move(device), peaks, isa == "scalar" ? 0 : kBytesOfCopies, rows});
  }
  return rungs;
}

/// One measurement and what it is compared with: the same rows on the rung before, and one row on the same rung.
struct LadderRow {
  const char* type;
  const Rung& rung;
  uint32_t n_rows;
  OpSpeed speed;
  double seconds_before;
  double seconds_of_one_row;
};

/// Writes rows as they come.
class LadderReport {
 public:
  explicit LadderReport(bool json) : json_(json) {
    write_stdout(json_ ? "["
                       : fmt::format("| {:<8} | {:<9} | {:>4} | {:>10} | {:>7} | {:>9} | {:>9} | {:>9} | {:>13} | "
                                     "{:>9} |\n| {:-<8} | {:-<9} | {:->3}: | {:->9}: | {:->6}: | {:->8}: | {:->8}: | "
                                     "{:->8}: | {:->12}: | {:->8}: |\n",
                                     "type", "rung", "rows", "us", "GB/s", "% of read", "GFLOP/s", "% of peak",
                                     "x rung before", "x one row", "", "", "", "", "", "", "", "", "", ""));
  }

  void add(const LadderRow& row) {
    const OpSpeed& s = row.speed;
    const double bytes = s.bytes / s.seconds, flops = s.operations / s.seconds;
    const double peak = s.int8 ? row.rung.peaks.int8_flops : row.rung.peaks.float32_flops;
    const auto percent = [](double value, double most) { return most > 0 ? 100 * value / most : kUnknown; };
    const double of_read = percent(bytes, row.rung.peaks.read_bytes_per_second), of_peak = percent(flops, peak);
    const double gain = row.seconds_before / s.seconds;
    const double cost = s.seconds / row.seconds_of_one_row;
    if (json_) {
      const nlohmann::ordered_json object = {
          {"type", row.type},        {"rung", row.rung.name},   {"rows", row.n_rows},   {"ns", s.seconds * 1e9},
          {"bytes", s.bytes},        {"flop", s.operations},    {"gb_s", bytes * 1e-9}, {"read_percent", of_read},
          {"gflop_s", flops * 1e-9}, {"peak_percent", of_peak}, {"gain", gain},         {"cost_of_rows", cost}};
      write_stdout((first_ ? "\n  " : ",\n  ") + object.dump());
      first_ = false;
      return;
    }
    const auto number = [](double x, int digits) { return std::isnan(x) ? "" : fmt::format("{:.{}f}", x, digits); };
    write_stdout(
        fmt::format("| {:<8} | {:<9} | {:>4} | {:>10.1f} | {:>7.2f} | {:>9} | {:>9.2f} | {:>9} | {:>13} | {:>9.2f} |\n",
                    row.type, row.rung.name, row.n_rows, s.seconds * 1e6, bytes * 1e-9, number(of_read, 0),
                    flops * 1e-9, number(of_peak, 0), number(gain, 2), cost));
  }

  void end(const std::vector<Rung>& rungs) {
    if (json_) return write_stdout("\n]\n");
    write_stdout("\n");
    for (const Rung& rung : rungs) {
      if (rung.peaks.read_bytes_per_second == 0) continue;
      write_stdout(fmt::format("peaks of {}: {:.1f} GB/s read from memory, {:.0f} GFLOP/s int8, {:.0f} float32\n",
                               rung.name, rung.peaks.read_bytes_per_second * 1e-9, rung.peaks.int8_flops * 1e-9,
                               rung.peaks.float32_flops * 1e-9));
    }
    write_stdout(
        "reference: one thread, weights in file form, unpacked at each use; there to be compared with, not to be "
        "fast\n");
  }

 private:
  bool json_;
  bool first_ = true;
};

}  // namespace

void write_ladder(std::span<const gguf::Type* const> types, const LadderOptions& options) {
  const std::vector<Rung> rungs = rungs_of(options);
  const SignalFlag signals;
  LadderReport report(options.json);
  for (const gguf::Type* type : types) {
    SyntheticWeights weights;
    const Program program = one_product(*type, weights);
    std::map<uint32_t, double> before;  // seconds by rows
    for (const Rung& rung : rungs) {
      if (signals.flag()->load()) break;
      OpTimer timer(*rung.device, program, {0}, {rung.rows.back(), 0}, rung.bytes_of_copies);
      std::map<uint32_t, double> seconds;
      for (const uint32_t n_rows : rung.rows) {
        const OpSpeed speed = timer.measure({n_rows, 0});
        seconds[n_rows] = speed.seconds;
        const auto found = before.find(n_rows);
        report.add({type->name, rung, n_rows, speed, found != before.end() ? found->second : kUnknown, seconds.at(1)});
      }
      before = seconds;
    }
  }
  report.end(rungs);
  signals.check();
}

}  // namespace lamina
