// quire bench: how long a decode step takes, and how much of that the memory alone would need; what it costs
// the host.
#include "cli/bench.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda.h"
#include "cli/arguments.h"
#include "cli/bench_decoder.h"
#include "cli/commands.h"
#include "core/error.h"
#include "io/file.h"
#include "io/json.h"
#include "ops/trace.h"

namespace quire {
namespace {

double median(std::vector<double> x) {
  std::nth_element(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(x.size() / 2), x.end());
  return x[x.size() / 2];
}

struct StepTime {
  int batch = 0;
  std::int64_t context = 0;
  double seconds = 0, floor = 0;  // of a step; of its least bytes at the read bandwidth
};

// The middle of a run of steps, each asked for before the one before it was looked at, as the engine does.
StepTime measure_steps(Bench& bench, int batch, std::int64_t context, int steps, double bandwidth) {
  constexpr int kWarmUp = 5;
  const auto d = bench.decoder(bench.backend, batch, context, kWarmUp + steps);
  std::vector<int> slots(static_cast<std::size_t>(batch));
  std::iota(slots.begin(), slots.end(), 0);
  using Clock = std::chrono::steady_clock;
  std::vector<double> seconds;
  d->step(slots, bench.window);
  Clock::time_point last = Clock::now();
  for (int i = 0; i < kWarmUp + steps; ++i) {
    d->step(slots, bench.window);
    d->take();
    const Clock::time_point now = Clock::now();
    if (i >= kWarmUp) seconds.push_back(std::chrono::duration<double>(now - last).count());
    last = now;
  }
  d->drain();
  return {batch, context, median(seconds), bench.least_bytes(batch, context, *d) / bandwidth};
}

// --- where a step's time goes ----------------------------------------------------------------------------

struct OpTime {
  OpCall call;
  int calls = 0;
  double seconds = 0;  // of all calls in a step
};

// Every operation of a step between two events, all in one graph: no operation overlaps the next, which they
// do in a real step. Sums by operation and shape.
std::vector<OpTime> time_operations(Bench& bench, int batch, std::int64_t context) {
  constexpr int kRuns = 11;
  struct Timed {
    OpCall call;
    Handle before, after;
  };
  std::vector<Timed> calls;
  bool recording = true;
  const Backend& b = bench.backend;
  Stream& stream = bench.stream;
  OpTrace trace;
  trace.ops = b.ops;
  trace.context = context;
  trace.before = [&](const OpCall& call) {
    if (!recording) return;
    calls.push_back({call, Handle(b.new_event(), b.delete_event), Handle(b.new_event(), b.delete_event)});
    b.record(stream, calls.back().before.get());
  };
  trace.after = [&] {
    if (recording) b.record(stream, calls.back().after.get());
  };
  Backend traced = b;
  traced.ops = &traced_ops();
  stream.trace = &trace;
  const auto d = bench.decoder(traced, batch, context, kRuns + 3);
  std::vector<int> slots(static_cast<std::size_t>(batch));
  std::iota(slots.begin(), slots.end(), 0);
  const bool graphs = b.capture && bench.switches.graphs;
  std::vector<OpTime> sums;
  std::vector<std::vector<double>> seconds;
  for (int run = -2; run < kRuns; ++run) {
    // With graphs the first step loads kernels, the second is recorded and the rest repeat it; without, every
    // step is its own record.
    recording = graphs ? run == -1 : true;
    if (recording) calls.clear();
    d->step(slots, bench.window);
    d->take();
    b.synchronize(stream);
    if (run < 0) continue;
    seconds.resize(calls.size());
    for (std::size_t i = 0; i < calls.size(); ++i)
      seconds[i].push_back(b.seconds_between(calls[i].before.get(), calls[i].after.get()));
  }
  stream.trace = nullptr;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const OpCall& c = calls[i].call;
    auto sum = std::find_if(sums.begin(), sums.end(),
                            [&](const OpTime& t) { return t.call.op == c.op && t.call.shape == c.shape; });
    if (sum == sums.end()) sum = sums.insert(sums.end(), OpTime{.call = c});
    ++sum->calls;
    sum->seconds += median(seconds[i]);
  }
  return sums;
}

double floor_of(const OpTime& t, double bandwidth) {
  return t.calls * t.call.bytes / bandwidth;
}

// The largest gap between what an operation takes and what its bytes take comes first.
Json explain(Bench& bench, const StepTime& step, double bandwidth) {
  std::vector<OpTime> times = time_operations(bench, step.batch, step.context);
  std::sort(times.begin(), times.end(), [&](const OpTime& a, const OpTime& b) {
    return a.seconds - floor_of(a, bandwidth) > b.seconds - floor_of(b, bandwidth);
  });
  Json list = Json::array();
  double total = 0;
  fmt::print(
      "\n  batch {}, context {}: operations of a step, each alone, the largest gap to its bytes first\n",
      step.batch, step.context);
  fmt::print("  {:<18} {:>5} {:>9} {:>9} {:>7}  {}\n", "operation", "calls", "us a call", "us", "limit%",
             "shape");
  for (const OpTime& t : times) {
    total += t.seconds;
    const double limit = 100 * floor_of(t, bandwidth) / t.seconds;
    fmt::print("  {:<18} {:>5} {:>9.2f} {:>9.1f} {:>7.1f}  {}\n", t.call.op, t.calls,
               1e6 * t.seconds / t.calls, 1e6 * t.seconds, limit, t.call.shape);
    list.push_back({{"op", t.call.op},
                    {"shape", t.call.shape},
                    {"calls", t.calls},
                    {"us", 1e6 * t.seconds},
                    {"bytes_a_call", t.call.bytes},
                    {"flop_a_call", t.call.flop},
                    {"limit_percent", limit}});
  }
  fmt::print("  together {:.1f} us; a step takes {:.1f} us, in which they overlap\n", 1e6 * total,
             1e6 * step.seconds);
  return list;
}

// --- what the host does for a step -----------------------------------------------------------------------

struct HostShare {
  double seconds = 0;   // until a step was asked for: the median
  StreamCounts counts;  // of all steps
};

// Steps as the engine asks for them, one ahead of what is looked at: room for the tokens to come, the arrays
// of a batch, launches. The wait for the step before is counted, its time is not. `others`: every step is of
// another batch than the one before it, as if a request had left and one had come.
HostShare measure_host(Bench& bench, int batch, std::int64_t context, int steps, bool others) {
  constexpr int kWarmUp = 5;
  std::vector<int> slots(static_cast<std::size_t>(std::min(batch + 1, Decoder::kMostRequests)));
  std::iota(slots.begin(), slots.end(), 0);
  const auto d =
      bench.decoder(bench.backend, static_cast<int>(slots.size()), context + batch, kWarmUp + steps + 2);
  for (const int slot : slots) {  // neighbours do not begin a page in the same step
    d->close(slot);
    d->open(slot, context + slot, {});
    d->skip_prompt(slot, context + slot);
  }
  using Clock = std::chrono::steady_clock;
  const Stream& stream = bench.stream;
  std::vector<double> seconds;
  StreamCounts before;
  for (int i = 0; i < kWarmUp + steps; ++i) {
    if (i == kWarmUp) before = stream.counts;
    if (others) std::rotate(slots.begin(), slots.begin() + 1, slots.end());
    const std::span<const int> now = std::span(slots).first(static_cast<std::size_t>(batch));
    const Clock::time_point start = Clock::now();
    for (const int slot : now) d->grow(slot, context + slot + std::int64_t{i + 2} * bench.window);
    d->step(now, bench.window);
    if (i >= kWarmUp) seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    if (d->untaken() > 1) d->take();
  }
  const StreamCounts counts = stream.counts - before;
  d->drain();
  return {median(seconds), counts};
}

// --- another engine's figures ----------------------------------------------------------------------------

// Rows of a rival (bench/rivals/), by batch and context: JSON lines with "shape", "batch", "context" and what
// is compared.
using Rival = std::map<std::pair<int, std::int64_t>, Json>;

Rival read_rival(const BenchArguments& a, const std::vector<std::string>& compared) {
  Rival rival;
  if (a.rival.empty()) return rival;
  const std::string text = read_file(a.rival);
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.find('{') == std::string::npos) continue;
    const Json row = parse_json(line, a.rival);
    std::vector<std::string> needed = {"shape", "batch", "context"};
    needed.insert(needed.end(), compared.begin(), compared.end());
    if (!std::ranges::all_of(needed, [&](const std::string& name) { return row.contains(name); }))
      fail(ErrorCode::invalid_input, "{}: a line without {}: {}", a.rival, fmt::join(needed, ", "), line);
    if (row["shape"] == a.shape) rival[{row["batch"].get<int>(), row["context"].get<std::int64_t>()}] = row;
  }
  return rival;
}

// --- the command -----------------------------------------------------------------------------------------

// A line for each context and batch: how long a step takes.
Json step_table(const BenchArguments& a, Bench& bench, double bandwidth) {
  if (a.accept > 0) fmt::print("{} tokens a step and sequence: assumed, not measured\n", a.accept);
  const Rival rival = read_rival(a, {"ms_per_step"});
  fmt::print("{:>6} {:>8} {:>10} {:>12} {:>10} {:>7}{}\n", "batch", "context", "ms a step",
             a.accept > 0 ? "tokens/s" : "rows/s", "floor ms", "limit%", rival.empty() ? "" : "  rival");
  Json rows = Json::array();
  for (const std::int64_t context : a.contexts) {
    for (const int batch : a.batches) {
      const StepTime t = measure_steps(bench, batch, context, a.steps, bandwidth);
      const double limit = 100 * t.floor / t.seconds;
      Json row = {{"batch", batch},
                  {"context", context},
                  {"window", a.window},
                  {"draft", a.draft},
                  {"assumed_tokens_a_step", a.accept},
                  {"ms_a_step", 1e3 * t.seconds},
                  {"floor_ms", 1e3 * t.floor},
                  {"limit_percent", limit}};
      std::string ratio;
      if (const auto other = rival.find({batch, context}); other != rival.end()) {
        row["rival_ms_a_step"] = other->second["ms_per_step"];
        ratio = fmt::format("  {:.1f} times as fast",
                            other->second["ms_per_step"].get<double>() / (1e3 * t.seconds));
      }
      fmt::print("{:>6} {:>8} {:>10.3f} {:>12.0f} {:>10.3f} {:>7.1f}{}\n", batch, context, 1e3 * t.seconds,
                 batch * (a.accept > 0 ? a.accept : a.window) / t.seconds, 1e3 * t.floor, limit, ratio);
      std::fflush(stdout);
      if (a.explain) row["operations"] = explain(bench, t, bandwidth);
      rows.push_back(row);
    }
  }
  return rows;
}

// Two lines for each context and batch: what a step costs the host.
Json metadata_table(const BenchArguments& a, Bench& bench) {
  const Rival rival = read_rival(a, {"host_us_per_step", "gpu_us_per_step"});
  if (bench.backend.host_memory)
    fmt::print("a CPU runs a step while it is asked for: all of it is in here\n");
  fmt::print("{:>6} {:>8}  {:<10} {:>10} {:>10} {:>8} {:>7}{}\n", "batch", "context", "each step", "host us",
             "launches", "copies", "waits", rival.empty() ? "" : "  rival: host us, GPU us");
  Json rows = Json::array();
  for (const std::int64_t context : a.contexts) {
    for (const int batch : a.batches) {
      Json row = {{"batch", batch}, {"context", context}, {"window", a.window}, {"draft", a.draft}};
      std::string theirs;
      if (const auto other = rival.find({batch, context}); other != rival.end()) {
        const Json &host = other->second["host_us_per_step"], &gpu = other->second["gpu_us_per_step"];
        row["rival_host_us"] = host, row["rival_gpu_us"] = gpu;
        theirs = fmt::format("  {} {}", host.dump(), gpu.dump());
      }
      for (const bool others : {false, true}) {
        const HostShare h = measure_host(bench, batch, context, a.steps, others);
        const auto a_step = [&](std::int64_t count) { return static_cast<double>(count) / a.steps; };
        fmt::print("{:>6} {:>8}  {:<10} {:>10.1f} {:>10.2f} {:>8.2f} {:>7.2f}{}\n", batch, context,
                   others ? "new batch" : "same batch", 1e6 * h.seconds, a_step(h.counts.launches()),
                   a_step(h.counts.copies()), a_step(h.counts.waits), theirs);
        std::fflush(stdout);
        row[others ? "new_batch" : "same_batch"] = {{"host_us", 1e6 * h.seconds},
                                                    {"launches", a_step(h.counts.launches())},
                                                    {"copies", a_step(h.counts.copies())},
                                                    {"waits", a_step(h.counts.waits)}};
      }
      rows.push_back(row);
    }
  }
  return rows;
}

int run(const BenchArguments& a) {
  if (a.model.empty() == a.shape.empty())
    fail(ErrorCode::invalid_input, "bench: give either --shape (random weights) or --model");
  if (a.accept > a.window)
    fail(ErrorCode::invalid_input, "bench: --accept {} of a window of {} rows", a.accept, a.window);
  const Backend& backend = find_backend(a.device);
  Bench bench(a, backend);
  const double bandwidth = backend.read_bandwidth(bench.stream);
  const std::string name = a.model.empty() ? a.shape + ", random weights" : a.model;
  fmt::print("{}; {}; reads at most {:.0f} GB/s; window of {}{}\n", name, device_name(backend),
             bandwidth * 1e-9, a.window,
             a.window == 1     ? ""
             : a.draft.empty() ? " (verification alone: no drafter runs)"
                               : fmt::format(", drafts of {}", a.draft));
  if (a.policy && bench.drafter) bench.window = std::min(bench.window, bench.drafter->config.block_size);
  const Json rows = a.policy     ? policy_table(a, bench)
                    : a.metadata ? metadata_table(a, bench)
                                 : step_table(a, bench, bandwidth);
  if (!a.json.empty()) {
    const Json result = {{"what", name},
                         {"device", device_name(backend)},
                         {"read_bytes_per_second", bandwidth},
                         {"switches", a.switches},
                         {"steps", a.steps},
                         {"context_holds_zeros", true},
                         {"rows", rows}};
    write_file_atomically(a.json, result.dump(1) + "\n");
  }
  return kExitOk;
}

// Of --spec.
void add_page_options(CLI::App& app, BenchArguments& a) {
  constexpr const char* kGroup = "Pages";
  app.add_flag("--spec", a.speculation,
               "Read pages instead, with drafts in windows of a fixed size and without: acceptance and speed")
      ->group(kGroup);
  app.add_option("--pages", a.pages, "Pictures, PDFs, folders of them")->type_name("INPUT")->group(kGroup);
  app.add_option("--max-tokens", a.max_tokens, "Most tokens a page")
      ->capture_default_str()
      ->check(CLI::Range(1, 1'000'000))
      ->group(kGroup);
  app.add_option("--temperature", a.temperature, "0: always the likeliest token")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 100.0))
      ->group(kGroup);
  app.add_option("--seed", a.seed, "The same seed gives the same text")->capture_default_str()->group(kGroup);
}

}  // namespace

std::string device_name(const Backend& backend) {
  return backend.host_memory ? fmt::format("CPU ({})", backend.ops->name) : cuda::device_facts(0).name;
}

const Backend& find_backend(const std::string& device) {
  const Backend* cuda = device == "cpu" ? nullptr : cuda_backend();
  if (!cuda && device == "cuda") fail(ErrorCode::not_found, "there is no GPU that Quire can use");
  return cuda ? *cuda : cpu_backend();
}

int bench_command(int argc, char** argv) {
  BenchArguments a;
  CLI::App app("Measures decode steps.", "quire bench");
  app.add_option("--shape", a.shape,
                 "Dimensions of a published model with random weights: qwen3.5-0.8b, -2b, -4b, -9b, -27b")
      ->type_name("NAME");
  app.add_option("--model", a.model, "A model directory")->type_name("DIR");
  app.add_option("--batch", a.batches, "Sequences at a time")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  app.add_option("--context", a.contexts, "Tokens that each holds")
      ->delimiter(',')
      ->capture_default_str()
      ->check(CLI::Range(1, 262144));
  app.add_option("--window", a.window,
                 "Rows of a sequence in one step (1; with --spec as many as blocks of the drafter have)")
      ->check(CLI::Range(1, 16));
  app.add_option(
         "--draft", a.draft,
         "A drafter's directory; \"published\" or \"published-dflash2\": random weights, the "
         "dimensions of a published one; \"mtp\": the model's own head, of a shape with random weights")
      ->type_name("DIR");
  app.add_option("--accept", a.accept, "Assume that so many tokens of each window count")
      ->check(CLI::Range(1, 16));
  app.add_option("--steps", a.steps, "Steps that are measured; the median counts")
      ->capture_default_str()
      ->check(CLI::Range(1, 10000));
  app.add_option("--device", a.device, "auto, cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--threads", a.threads, "CPU threads; 0: one for each core")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  app.add_option("--switch", a.switches,
                 "Optimizations by name: graphs=off, dependent_launch=off, gdn_ring=f32, ...")
      ->type_name("LIST");
  app.add_option("--json", a.json, "Write the figures into this file, too")->type_name("FILE");
  app.add_option("--rival", a.rival, "Figures of another engine (bench/rivals/), for a ratio")
      ->type_name("FILE");
  app.add_flag("--explain", a.explain, "Say for each step where its time goes");
  app.add_flag("--metadata", a.metadata,
               "Say instead what a step costs the host: time until it is asked for, launches, copies, waits");
  app.add_flag(
      "--policy", a.policy,
      "Measure instead the window policy against plain decoding, for every acceptance up to --window\n"
      "or for --accept: tokens a second of --steps steps each, with --draft");
  add_page_options(app, a);
  app.footer(
      "limit%: the time that the least bytes of a step (weights, keys and values, states) take at the read "
      "bandwidth\n"
      "measured in the same run, over the time it takes. Sequences hold zeros: how fast a step is does not "
      "depend on\n"
      "what they hold.");
  if (const auto code = read_arguments(app, argc, argv)) return *code;
  if (a.speculation) return bench_speculation(a);
  if (a.policy && (a.draft.empty() || a.window == 1))
    fail(ErrorCode::invalid_input, "bench --policy: give --draft, and no --window of 1");
  if (a.policy && a.window == 0) a.window = a.draft == kMtp ? 4 : kMostWindow;
  a.window = std::max(a.window, 1);
  return run(a);
}

}  // namespace quire
