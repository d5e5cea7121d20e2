// quire parse: options to a ParseJob, and the exit code.
#include "doc/parse.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/model_directory.h"
#include "core/error.h"
#include "vision/preprocess.h"

namespace quire {
namespace {

struct ParseArguments {
  std::vector<std::string> inputs;
  std::string output, pages, password, model;
  std::string format = "md";
  std::string dtype = "bf16";
  std::string device = "auto";
  std::string draft = "auto";
  std::string switches;
  double gpu_memory = 0;
  Request request;
  double dpi = 0;
  int threads = 0;
  int parallel = 0;
  bool timings = false;
  bool quiet = false;
};

constexpr const char* kFooter =
    "Inputs are recognised by content. Of a folder its documents are taken, one level deep, in natural "
    "order\n"
    "(page2 before page10). Without -o the Markdown goes to standard output; all else goes to standard "
    "error.\n"
    "With -o each input gives NAME.md and NAME.json; where two inputs share a NAME, the extension is kept, "
    "then\n"
    "-2, -3, ... is added. A page that is not ok leaves a comment in the Markdown.\n"
    "\n"
    "Exit code: 0 every page ok or blank; 1 some page truncated or failed; 2 wrong usage, no model, nothing "
    "to\n"
    "do; 130 interrupted.";

void add_sampling_options(CLI::App& app, Sampling& s) {
  const auto number = [&](const char* name, auto& value, double low, double high, const char* text) {
    app.add_option(name, value, text)
        ->check(CLI::Range(low, high))
        ->capture_default_str()
        ->type_name("X")
        ->group("Sampling");
  };
  number("--temperature", s.temperature, 0, 100, "0: always the likeliest token");
  number("--top-k", s.top_k, 0, 1e9, "Only the k likeliest tokens; 0: all");
  number("--top-p", s.top_p, 0, 1, "Only the likeliest tokens that make up this share");
  number("--min-p", s.min_p, 0, 1, "Only tokens with this share of the likeliest one's probability");
  number("--repetition-penalty", s.repetition_penalty, 0.01, 100,
         "On tokens of prompt and output, as in transformers");
  number("--presence-penalty", s.presence_penalty, -100, 100, "On tokens of the output");
  number("--frequency-penalty", s.frequency_penalty, -100, 100, "On tokens of the output, times their count");
  app.add_option("--seed", s.seed, "The same seed gives the same text")
      ->capture_default_str()
      ->type_name("N")
      ->group("Sampling");
}

void add_options(CLI::App& app, ParseArguments& a) {
  app.add_option("INPUT", a.inputs, "Pictures (PNG, JPEG, WebP, TIFF, BMP, GIF), PDFs, folders, - for stdin")
      ->required();
  app.add_option("-o,--output", a.output, "Write NAME.md and NAME.json into this folder")->type_name("DIR");
  app.add_option("--pages", a.pages, "Pages of each document, as in 1-3,7,10-")->type_name("LIST");
  app.add_option("--dpi", a.dpi, "Resolution of PDF pages (default: as much as the model can use)")
      ->check(CLI::Range(10.0, 1200.0))
      ->type_name("N");
  app.add_option("--password", a.password, "Password of encrypted PDFs")->type_name("P");
  app.add_option("--prompt", a.request.prompt, "Instruction to the model")->capture_default_str();
  app.add_option("--max-tokens", a.request.max_tokens, "Most tokens a page")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--max-seconds", a.request.max_seconds, "Most seconds a page; 0: no limit")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str()
      ->type_name("S");
  app.add_option("--model", a.model, "Model directory (default: $QUIRE_MODEL, else models/quire-mini)")
      ->type_name("DIR");
  app.add_option("--device", a.device, "Where to run: auto (a GPU if there is one), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str()
      ->type_name("D");
  app.add_option("--gpu-memory", a.gpu_memory,
                 "Most GiB of the GPU in all (default: nine tenths of what is free)")
      ->check(CLI::Range(0.0, 1e5))
      ->type_name("GIB");
  app.add_option("--threads", a.threads, "CPU threads; 0: one for each core")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--parallel", a.parallel, "Pages read at the same time; 0: 32 on a GPU, 4 on a CPU")
      ->check(CLI::Range(0, 64))
      ->capture_default_str()
      ->type_name("N");
  app.add_option("--format", a.format, "md: Markdown; json: records with the text in them")
      ->check(CLI::IsMember({"md", "json"}))
      ->capture_default_str()
      ->type_name("F");
  app.add_option("--dtype", a.dtype, "Arithmetic: bf16, or f32 (slower, for comparisons)")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str()
      ->type_name("T");
  app.add_option("--draft", a.draft,
                 "Drafts of tokens, faster and the same text: none; ngram: from what the page has said "
                 "before; mtp: of\n"
                 "the model's own multi-token-prediction head; the directory of a DFlash or DFlash2 drafter; "
                 "auto: the\n"
                 "drafter beside the model (MODEL-dflash2 or MODEL-dflash), else on a GPU mtp when the model "
                 "has such a\n"
                 "head, else ngram")
      ->capture_default_str()
      ->type_name("DRAFT");
  app.add_option("--switch", a.switches, "Optimizations by name, to measure them: graphs=off, ...")
      ->type_name("LIST");
  app.add_flag("--timings", a.timings, "Say where the time goes, for each page and in all");
  app.add_flag("--quiet", a.quiet, "Say nothing but what goes wrong");
  add_sampling_options(app, a.request.sampling);
  app.footer(kFooter);
}

// Everything that decides what a page gives, the model left out. One field a line; the prompt comes last, so
// that no prompt looks like a field.
std::string options_hash(const ParseArguments& a, const PageOptions& pages) {
  const Sampling& s = a.request.sampling;
  return content_hash(
      fmt::format("dtype {}\nmax_tokens {}\nmax_seconds {}\ndpi {}\nmax_pixels {}\nsampling {} {} {} {} {} "
                  "{} {} {}\nprompt {}",
                  a.dtype, a.request.max_tokens, a.request.max_seconds, a.dpi, pages.max_pixels,
                  s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty, s.presence_penalty,
                  s.frequency_penalty, s.seed, a.request.prompt));
}

void write_to_stdout(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    fail(ErrorCode::io, "standard output: cannot be written");
}

std::string summary(const ParseTotals& totals, double seconds) {
  std::string text =
      fmt::format("{} page{} in {:.1f} s ({:.2f} pages/s): {} ok", totals.pages(),
                  totals.pages() == 1 ? "" : "s", seconds, totals.pages() / seconds, totals.ok);
  if (totals.blank > 0) text += fmt::format(", {} blank", totals.blank);
  if (totals.truncated > 0) text += fmt::format(", {} truncated", totals.truncated);
  if (totals.failed > 0) text += fmt::format(", {} failed", totals.failed);
  if (totals.drafts.steps > 0)
    text += fmt::format("; {:.2f} tokens a step", totals.drafts.acceptance_length());
  return text;
}

int run(const ParseArguments& a) {
  const Interrupt interrupt;
  ParseJob job;
  job.request = a.request;
  job.folder = a.output;
  job.format = a.format == "json" ? OutputFormat::json : OutputFormat::markdown;
  job.timings = a.timings;
  if (!a.pages.empty()) job.pages.ranges = parse_page_ranges(a.pages);
  job.pages.password = a.password;
  job.pages.dpi = a.dpi;

  Progress progress(stderr, Progress::style_for(stderr, a.quiet));
  job.inputs = list_inputs(a.inputs, [&](const std::string& name) {
    progress.note(name + ": left out, neither a picture nor a PDF");
  });
  if (job.inputs.empty())
    fail(ErrorCode::not_found, "{}: no picture or PDF in there", fmt::join(a.inputs, ", "));

  const std::filesystem::path model = find_model(a.model);
  job.pages.max_pixels = PreprocessConfig::from_directory(model).max_pixels;
  job.run = {model.string(), model_hash(model), options_hash(a, job.pages)};
  Engine engine({.model = model.string(),
                 .device = a.device == "cpu"    ? Device::cpu
                           : a.device == "cuda" ? Device::cuda
                                                : Device::automatic,
                 .precision = a.dtype == "f32" ? Precision::f32 : Precision::bf16,
                 .threads = a.threads,
                 .gpu_memory = a.gpu_memory,
                 .requests = a.parallel,
                 .draft = a.draft,
                 .switches = a.switches,
                 .on_load = [&](std::size_t done, std::size_t total) { progress.loading(done, total); }});
  if (a.timings) progress.note(engine.device_text());
  job.parallel = engine.requests();

  const ParseTotals totals = parse(
      job, [&](const Request& request) { return engine.generate(request); }, write_to_stdout, progress,
      interrupt.token());
  if (totals.interrupted) return kExitInterrupted;
  progress.note(summary(totals, progress.seconds()));
  return totals.truncated + totals.failed > 0 ? kExitIncomplete : kExitOk;
}

}  // namespace

int parse_command(int argc, char** argv) {
  ParseArguments arguments;
  CLI::App app("Reads document pages and writes them as Markdown.", "quire parse");
  add_options(app, arguments);
  if (const auto code = read_arguments(app, argc, argv)) return *code;
  if (std::isnan(arguments.dpi) || std::isnan(arguments.request.max_seconds))  // passes CLI::Range
    fail(ErrorCode::invalid_input, "parse: nan is no value for --dpi or --max-seconds");
  return run(arguments);
}

}  // namespace quire
